"""Runs a program of FLARE with the list of topics in place: ``python -m felb_sites.guarded MODULE …``."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

from felb_sites.topic_guard import install

SERVICES = frozenset({"nvflare.private.fed.app.client.client_train", "nvflare.private.fed.app.server.server_train"})
JOBS = frozenset({"nvflare.private.fed.app.client.worker_process", "nvflare.private.fed.app.server.runner_process"})
"""Started by a service for each run; without it they can neither be heard nor be stopped."""
PROGRAMS = SERVICES | JOBS


def die_with_parent() -> None:
    """End this process when the one that started it has ended, however that ended; Linux alone can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def follow_parent(interval: float = 2.0) -> None:
    """End this process some seconds after the one that started it; by FLARE's own doing it would go on for ever.

    A service starts its jobs in threads, and the signal that `die_with_parent` asks for comes when the thread ends.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main() -> None:
    """Guard this process, then become the program."""
    if len(sys.argv) < 2 or sys.argv[1] not in PROGRAMS:
        raise SystemExit(f"give one of {', '.join(sorted(PROGRAMS))}")
    install()
    if os.environ.pop("FELB_DIES_WITH_PARENT", None):
        die_with_parent()
    if sys.argv[1] in JOBS:
        follow_parent()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
