"""How many threads a pass starts."""

import threading

import numpy as np
import pytest

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.kernels import schedule
from felb.kernels.schedule import SERIAL_WORK, Schedule, available_cpus, count_threads, threads_at_most

LARGE = BinaryMatrix.of(np.ones((400, 50), dtype=bool))
K = SERIAL_WORK // LARGE.nnz
"""So many components that a pass over it is worth several threads."""


@pytest.fixture(autouse=True)
def four_processors(monkeypatch):
    monkeypatch.setattr(schedule.os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)


def test_small_passes_have_one_thread_and_large_ones_all_processors():
    assert count_threads(SERIAL_WORK - 1, None, serial=SERIAL_WORK) == 1
    assert count_threads(SERIAL_WORK, None, serial=SERIAL_WORK) == 4
    assert count_threads(1, 3, serial=SERIAL_WORK) == 3
    with pytest.raises(InputError, match="threads=0"):
        count_threads(1, 0, serial=SERIAL_WORK)


def test_passes_keep_to_the_limit_of_their_surroundings():
    with threads_at_most(2):
        assert available_cpus() == len(Schedule(LARGE, K, None).each(lambda span: span)) == 2
        with threads_at_most(1):
            assert len(Schedule(LARGE, K, None).each(lambda span: span)) == 1
        assert available_cpus() == 2
    assert available_cpus() == 4


def test_the_limit_is_of_the_thread_that_set_it():
    found = []
    with threads_at_most(1):
        other = threading.Thread(target=lambda: found.append(available_cpus()))
        other.start()
        other.join()
    assert found == [4]
