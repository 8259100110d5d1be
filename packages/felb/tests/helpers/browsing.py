"""Chromium for the tests of pages, if there is one.

``make browser`` installs it where it may; Playwright drives it. Where FELB_REQUIRE_BROWSER is set, as in CI, a missing
browser is a failure. Screenshots are kept in ``build/screenshots``.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

SCREENSHOTS = Path(__file__).parents[4] / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE, DESK = 390, 1400


def absent(reason):
    if os.environ.get("FELB_REQUIRE_BROWSER"):
        pytest.fail(f"the pages must be tested in a browser here, but {reason}")
    pytest.skip(reason)


@contextmanager
def started_browser():
    program = os.environ.get("FELB_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        absent("there is no Chromium: make browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("there is no Playwright: make install")
    with sync_playwright() as driver:
        # Chromium does not sandbox itself for root, and containers have a small /dev/shm.
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()
