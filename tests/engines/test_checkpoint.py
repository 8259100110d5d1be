"""Snapshots come back from disk as they were, or not at all."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from felb import FELBMU, ProxSkip, Scaffold
from felb.datasets import partition, planted
from felb.datasets.shards import split
from felb.engines import Snapshot, run
from felb.engines.checkpoint import load_snapshot, save_snapshot
from felb.errors import InputError
from felb.results import History

MODELS = {
    "recommended": FELBMU(2, max_iter=4, inertia=0.1),
    "literal": FELBMU(2, max_iter=4, inertia=0.1, setting="literal"),
    "control variates": Scaffold(2, max_iter=4),
    "steps by lot": ProxSkip(2, max_iter=4),
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS.keys())
def played(request):
    """A recipe and all its snapshots."""
    recipe = request.param.recipe(9)
    shards, _ = split(planted(30, 9, 2, seed=0).A, [f"h/{i}" for i in partition.even(30, 3)])
    snapshots: list[Snapshot] = []
    run(recipe, shards, seed=2, on_round=snapshots.append)
    return recipe, shards, snapshots


def same(a, b) -> bool:
    """Compare states field by field: the same types, and the same bits in arrays."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return a == b or (a != a and b != b)


def test_every_snapshot_comes_back_as_it_was(tmp_path, played):
    recipe, _, snapshots = played
    tasks = [row["task"] for row in snapshots[-1].history]
    assert len(snapshots) == len(tasks)
    assert tasks.count("assign") == 1
    assert len(tasks) - tasks.count("sketch") - tasks.count("signs") == 5
    for snapshot in snapshots:
        save_snapshot(tmp_path / "c.npz", snapshot)
        back = load_snapshot(tmp_path / "c.npz", recipe)
        assert same(back.server, snapshot.server)
        assert list(back.clients) == list(snapshot.clients)
        assert all(same(back.clients[name], state) for name, state in snapshot.clients.items())
        assert back.history == snapshot.history
    assert list(tmp_path.iterdir()) == [tmp_path / "c.npz"]


def test_a_run_goes_on_from_disk_as_from_memory(tmp_path, played):
    recipe, shards, snapshots = played
    whole = run(recipe, shards, seed=2)
    for snapshot in snapshots:
        save_snapshot(tmp_path / "c.npz", snapshot)
        resumed = run(recipe, shards, seed=2, resume=load_snapshot(tmp_path / "c.npz", recipe))
        assert resumed.history == whole.history
        assert same(resumed.outcome, whole.outcome)
        assert all(np.array_equal(resumed.assignments[name], U) for name, U in whole.assignments.items())


def test_a_start_without_clients_can_be_stored(tmp_path, played):
    recipe, _, _ = played
    snapshot = Snapshot(recipe.server.start(0))
    save_snapshot(tmp_path / "c.npz", snapshot)
    back = load_snapshot(tmp_path / "c.npz", recipe)
    assert same(back.server, snapshot.server)
    assert back.clients == {}
    assert back.history == History()


def test_figures_without_a_number_survive(tmp_path, played):
    recipe, _, snapshots = played
    odd = Snapshot(snapshots[0].server, snapshots[0].clients, History([{"round": 0, "change": np.inf, "loss": 0.1}]))
    save_snapshot(tmp_path / "c.npz", odd)
    assert load_snapshot(tmp_path / "c.npz", recipe).history == odd.history


def test_nothing_in_the_file_is_pickled(tmp_path, played):
    save_snapshot(tmp_path / "c.npz", played[2][0])
    with np.load(tmp_path / "c.npz", allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)


def test_a_truncated_file_is_refused(tmp_path, played):
    recipe, _, snapshots = played
    path = tmp_path / "c.npz"
    save_snapshot(path, snapshots[-1])
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 101), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"c\.npz is damaged .*delete it, then --resume"):
            load_snapshot(path, recipe)


def test_a_flipped_byte_is_refused_or_harmless(tmp_path, played):
    recipe, _, snapshots = played
    path = tmp_path / "c.npz"
    save_snapshot(path, snapshots[-1])
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 29):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            back = load_snapshot(path, recipe)
        except InputError:
            refused += 1
        else:  # in the fields of the archive that carry no content, such as times
            assert same(back.server, snapshots[-1].server)
            assert back.history == snapshots[-1].history
            assert all(same(back.clients[name], state) for name, state in snapshots[-1].clients.items())
    assert refused > 20


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"meta": np.frombuffer(b"{}", np.uint8)},
        {"meta": np.frombuffer(b"[]", np.uint8)},
        {"meta": np.frombuffer(b"{", np.uint8)},
        {"meta": np.frombuffer(b'{"clients": [], "history": [1]}', np.uint8)},
        {"meta": np.frombuffer(b'{"clients": [], "history": []}', np.uint8), "server/unknown": np.zeros(1)},
        {"meta": np.array([{}], dtype=object)},
    ],
)
def test_other_archives_are_refused(tmp_path, played, arrays):
    np.savez(tmp_path / "c.npz", **arrays)
    with pytest.raises(InputError, match="damaged"):
        load_snapshot(tmp_path / "c.npz", played[0])


def test_an_interrupted_save_leaves_the_last_checkpoint(tmp_path, played, monkeypatch):
    recipe, _, snapshots = played
    save_snapshot(tmp_path / "c.npz", snapshots[0])

    def savez(file, **_):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(KeyboardInterrupt):
        save_snapshot(tmp_path / "c.npz", snapshots[1])
    assert load_snapshot(tmp_path / "c.npz", recipe).history == snapshots[0].history
    assert list(tmp_path.iterdir()) == [tmp_path / "c.npz"]
