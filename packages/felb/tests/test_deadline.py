import time

import pytest

from felb.errors import InputError
from felb.progress import Deadline


def test_without_seconds_it_never_comes():
    assert not Deadline().passed


def test_it_comes(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadline = Deadline(2.0, now)
    now = 101.9
    assert not deadline.passed
    now = 102.0
    assert deadline.passed


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_no_time_at_all_is_refused(seconds):
    with pytest.raises(InputError, match="seconds"):
        Deadline(seconds)
