"""The journal comes back from disk as it was, or not at all."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from felb import FELBMU, GreConD, PostHoc, ProxSkip, Scaffold
from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run
from felb.errors import InputError
from felb.federated import journal as journal_module
from felb.federated.algorithms.bmf import Effort, federated_bmf
from felb.federated.journal import Journal, read_entry, write_entry
from felb.federated.loop import Execution
from felb.federated.protocol import ClientStates, Request, Step, Sums

SHARDS, _ = split(planted(30, 9, 2, seed=0).A, [f"h/{i}" for i in partition.even(30, 3)])
ALGORITHMS = {
    "recommended": FELBMU(2, max_iter=4, inertia=0.1).algorithm(9),
    "literal": FELBMU(2, max_iter=4, inertia=0.1, setting="literal").algorithm(9),
    "control variates": Scaffold(2, max_iter=4).algorithm(9),
    "steps by lot": ProxSkip(2, max_iter=4).algorithm(9),
    "aligned": PostHoc(GreConD(2), "aligned-vote").algorithm(9),
    "bmf": federated_bmf(9, 2, effort=Effort(relaxed_rounds=3, refine_rounds=2, tries=2, generations=1)),
}


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    return ALGORITHMS[request.param]


@pytest.fixture
def played(algorithm, tmp_path):
    """The folder of a journal of a whole run."""
    run(algorithm, SHARDS, seed=2, journal=Journal(tmp_path / "j"))
    return tmp_path / "j"


def test_a_finished_run_is_replayed_without_asking(algorithm, played):
    asked = []
    whole = run(algorithm, SHARDS, seed=2)
    again = run(algorithm, SHARDS, seed=2, journal=Journal(played), on_round=asked.append)
    assert asked == []
    assert again.history == whole.history
    np.testing.assert_array_equal(again.outcome.components, whole.outcome.components)
    assert again.outcome.counts == whole.outcome.counts
    assert all(np.array_equal(again.assignments[name], U) for name, U in whole.assignments.items())


def test_it_holds_plain_data(played):
    for path in played.iterdir():
        header, arrays = read_entry(path, advice="")
        assert json.loads(json.dumps(header)) == header
        assert all(array.dtype.kind in "biuf" for array in arrays.values())
        assert not any(mark in path.read_bytes() for mark in (b"pickle", b"numpy.core"))


def test_a_finished_step_stands_for_its_sums():
    def inner(V):
        for t in range(3):
            sums = yield Request("count", t=t)
            sums.report(t=t)
        return Sum(V + sums["n"])

    def server(seed):
        first = yield Step("a", inner(np.zeros(2)), Sum)
        second = yield Step("b", inner(first.n), Sum)
        sums = yield Request("last")
        return second.n + sums["n"]

    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Sum:
        n: np.ndarray

    class Fake:
        privacy = None

    fake = Fake()
    fake.server = server
    journal = Journal()
    execution = Execution(fake, seed=0, journal=journal)
    for _ in range(7):
        execution.receive(Sums({"n": np.ones(2)}, 1))
    np.testing.assert_array_equal(execution.outcome, [3, 3])
    assert journal.step((0,)) is not None
    assert journal.step((1,)) is not None
    assert [number for number in range(7) if number in journal._rounds] == [6]
    again = Execution(fake, seed=0, journal=journal)
    np.testing.assert_array_equal(again.outcome, [3, 3])
    assert [row.get("t") for row in again.rows] == [0, 1, 2, 0, 1, 2, None]
    assert again.rows == execution.rows


def test_a_truncated_entry_is_refused(played, algorithm):
    for path in sorted(played.iterdir()):
        whole = path.read_bytes()
        for size in [*range(0, len(whole), 1 + len(whole) // 5), len(whole) - 1]:
            path.write_bytes(whole[:size])
            with pytest.raises(InputError, match=rf"{path.name} is damaged"):
                Journal(played)
        path.write_bytes(whole)


def test_a_flipped_byte_is_refused_or_harmless(played):
    path = played / "states.safetensors"
    whole = path.read_bytes()
    before = read_entry(path, advice="")
    refused = 0
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            header, arrays = read_entry(path, advice="")
        except InputError:
            refused += 1
        else:
            assert header == before[0]
            assert all(np.array_equal(array, before[1][name]) for name, array in arrays.items())
    assert refused > 20


def test_a_missing_round_is_not_skipped(tmp_path):
    algorithm = ALGORITHMS["recommended"]
    run(algorithm, SHARDS, seed=2, journal=Journal(tmp_path / "j"))
    (tmp_path / "j" / "round-0000006.safetensors").unlink()
    with pytest.raises(InputError, match="round 6"):
        run(algorithm, SHARDS, seed=2, journal=Journal(tmp_path / "j"))


def test_the_journal_of_another_algorithm_is_refused(tmp_path):
    run(ALGORITHMS["recommended"], SHARDS, seed=2, journal=Journal(tmp_path / "j"))
    with pytest.raises(InputError, match=r"is of task 'local_factor'|damaged"):
        run(ALGORITHMS["bmf"], SHARDS, seed=2, journal=Journal(tmp_path / "j"))


def test_rounds_after_the_states_are_played_again(algorithm, played, tmp_path):
    """Killed before the states were written, clients could not go on from later sums."""
    whole = run(algorithm, SHARDS, seed=2)
    last = len(whole.history) - 1
    path = played / "states.safetensors"

    def stop(progress):
        if len(progress.history) == last:
            shutil.copy(tmp_path / "k" / "states.safetensors", path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(algorithm, SHARDS, seed=2, journal=Journal(tmp_path / "k"), on_round=stop)
    seen = []
    again = run(algorithm, SHARDS, seed=2, journal=Journal(played), on_round=lambda p: seen.append(len(p.history)))
    assert seen == [last + 1]
    assert again.history == whole.history


def test_an_interrupted_save_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "entry.safetensors"
    write_entry(path, {"n": 1}, {"V": np.ones(3)})

    def half(values, header=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("felb.federated.journal.pack", half)
        with pytest.raises(KeyboardInterrupt):
            write_entry(path, {"n": 2}, {"V": np.zeros(3)})
    assert read_entry(path, advice="")[0] == {"n": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_integers_take_few_bytes_and_come_back_as_they_were(tmp_path):
    arrays = {
        "small": np.arange(1000),
        "large": np.array([2**40, -1]),
        "int32": np.arange(3, dtype=np.int32),
        "none": np.zeros((0, 3), np.int64),
        "scalar": np.asarray(7),
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "odd": np.array([np.nan, np.inf]),
    }
    path = tmp_path / "entry.safetensors"
    write_entry(path, {"change": float("inf")}, arrays)
    header, back = read_entry(path, advice="")
    assert header == {"change": float("inf")}
    assert path.stat().st_size < 3500
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_large_states_are_saved_less_often(tmp_path, monkeypatch):
    clock, saved = [0.0], []

    def slow(path, states):
        clock[0] += 2.0
        saved.append(clock[0])

    monkeypatch.setattr(journal_module, "_write_states", slow)
    monkeypatch.setattr(journal_module.time, "monotonic", lambda: clock[0])
    journal = Journal(tmp_path / "j", pace=True)
    for number in range(13):
        journal.keep(ClientStates(number))
        clock[0] += 10.0
    assert saved == [2.0, 44.0, 86.0, 128.0]  # 40 seconds and more between two that take two seconds each
