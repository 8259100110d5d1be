"""Settings for all tests."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent

# What several folders of tests use.
sys.path[:0] = [
    str(ROOT / "packages" / name)
    for name in ("felb/tests", "felb/tests/helpers", "felb/tests/contracts", "felb-sites/tests/helpers")
]

pytest_plugins = ["command_line"]

# No test asserts how long something takes; the same examples are tried everywhere.
settings.register_profile("felb", deadline=None, derandomize=True)
settings.load_profile("felb")


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """What a process has written outlives it; only a machine that dies needs more, and none does here.

    Processes that a test starts wait, and `test_safe_files.py` asserts that `os.fsync` is called where it must be.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
