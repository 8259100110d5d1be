import time

import pytest

from felb.deadline import Deadline
from felb.errors import InputError


def test_without_seconds_it_never_comes():
    assert not Deadline().passed


def test_it_comes():
    deadline = Deadline(0.02)
    assert not deadline.passed
    time.sleep(0.03)
    assert deadline.passed


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_no_time_at_all_is_refused(seconds):
    with pytest.raises(InputError, match="seconds"):
        Deadline(seconds)
