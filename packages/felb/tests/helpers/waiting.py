"""Waiting for what other processes do, however busy the machine is."""

from __future__ import annotations

import time

PATIENCE = 600
"""Seconds until something that must happen has surely failed; nothing waits so long unless it has."""


def wait_for(happened, process=None):
    """Wait until ``happened()`` is true; fails at once if `process`, by which it happens, has ended."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
