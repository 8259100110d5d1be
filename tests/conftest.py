"""Settings for all tests."""

from hypothesis import settings

# No test asserts how long something takes, and the same examples are tried everywhere.
settings.register_profile("felb", deadline=None, derandomize=True)
settings.load_profile("felb")
