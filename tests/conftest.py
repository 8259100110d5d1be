"""Settings for all tests."""

import sys
from pathlib import Path

from hypothesis import settings

# What several folders of tests use.
sys.path.insert(0, str(Path(__file__).parent / "helpers"))

# No test asserts how long something takes, and the same examples are tried everywhere.
settings.register_profile("felb", deadline=None, derandomize=True)
settings.load_profile("felb")
