"""The loop of a deployed federation without its network: answers given once, crashes anywhere, the same result."""

import errno
import json
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse as sp

from felb.datasets import partition
from felb.datasets.registry import load
from felb.datasets.shards import split
from felb.engines import Snapshot, run
from felb.engines.nvflare import memory
from felb.engines.nvflare.desk import Desk, read_outbound
from felb.engines.nvflare.messages import question, read_question
from felb.engines.nvflare.plan import Plan, fingerprint
from felb.engines.nvflare.policy import Policy, Refusal, SiteConfig
from felb.engines.nvflare.record import RunRecord, Status
from felb.engines.nvflare.referee import Referee
from felb.engines.nvflare.rounds import combined
from felb.engines.nvflare.wire import pack
from felb.errors import FederationError, InputError
from felb.federated.messages import Broadcast
from felb.federated.state import to_arrays

ZOO = load("zoo")
SHARDS = split(ZOO, [f"site-{i}" for i in partition.even(101, 3)])[0]
PLAN = Plan("r1", "felb-mu", 4, 17, {"max_iter": 8}, columns=fingerprint(ZOO.columns))


class Loopback:
    """Three sites and a coordinator in one process; everything that would be sent is packed and unpacked."""

    def __init__(self, folder, plan=PLAN):
        self.plan, self.recipe, self.folder = plan, plan.recipe(), folder
        self.record = RunRecord(folder / "runs", plan.run_id)
        self.record.begin(plan)
        self.configs = {}
        for name, shard in SHARDS.items():
            (folder / name).mkdir()
            sp.save_npz(folder / name / "data.npz", shard.to_scipy(bool))
            (folder / name / "data.columns.txt").write_text("\n".join(ZOO.columns))
            data, state = folder / name / "data.npz", folder / name / "state"
            self.configs[name] = SiteConfig(str(data), str(state), policy=Policy(min_rows=5))
        self.restart()

    def restart(self):
        """All processes die and come back: only what is on disk is left."""
        self.desks = {name: Desk(name, self.plan.to_json(), config) for name, config in self.configs.items()}
        self.referee = Referee(self.recipe, self.plan.n_features)
        self.snapshot = self.record.load(self.recipe) or Snapshot(self.recipe.server.start(self.plan.seed))

    def ask(self, name, broadcast):
        received = read_question(question(self.plan.run_id, broadcast), run_id=self.plan.run_id)
        return pack(self.desks[name].answer(received))

    def round(self, *, save=True):
        broadcast = self.recipe.server.broadcast(self.snapshot.server)
        if broadcast is None:
            return False
        releases = {name: self.referee.admit(self.ask(name, broadcast), broadcast, site=name) for name in self.desks}
        self.snapshot = combined(self.recipe, self.snapshot, broadcast, releases=releases, reasons={})
        if save:
            self.record.save(self.snapshot)
        return True

    def finish(self):
        while self.round():
            pass
        return self.recipe.server.outcome(self.snapshot.server)


@pytest.fixture(scope="module")
def local():
    return run(PLAN.recipe(), SHARDS, seed=PLAN.seed)


@pytest.fixture
def loop(tmp_path):
    return Loopback(tmp_path)


def assert_same(outcome, local):
    np.testing.assert_array_equal(outcome.relaxed, local.outcome.relaxed)
    np.testing.assert_array_equal(outcome.components, local.outcome.components)
    assert outcome.counts == local.outcome.counts


def test_same_result_as_the_local_engine_and_assignments_stay_at_the_sites(loop, local):
    assert_same(loop.finish(), local)
    assert loop.snapshot.history == local.history
    for name, U in local.assignments.items():
        kept = sp.load_npz(loop.folder / name / "state" / "r1" / "assignment.npz").toarray()
        np.testing.assert_array_equal(kept, U)
    assert not list((loop.folder / "runs").rglob("*assignment*"))


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("bmf", {"n_components": "mdl", "effort": "fast", "max_components": 6}),
        ("bmf", {}),
        ("bmf", {"effort": "fast", "objective": "f1"}),
        ("bmf", {"objective": "recover"}),
        ("felb", {"max_iter": 4}),
        ("asso+vote", {"tau": 0.8}),
        ("asso+aligned-vote", {"tau": 0.8, "alignment_passes": 4}),
        ("elbmf+or", {"max_iter": 20}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_every_method_is_the_local_engine_s_also_if_everything_dies_after_some_rounds(tmp_path, method, parameters):
    settings = {name: value for name, value in parameters.items() if name != "n_components"}
    plan = Plan("r2", method, parameters.get("n_components", 4), 17, settings, seed=3)
    local, loop = run(plan.recipe(), SHARDS, seed=3), Loopback(tmp_path, plan)
    while loop.round():
        played = len(loop.snapshot.history)
        if played < 5 or played % 7 == 0:
            alive = to_arrays(loop.snapshot.server)
            loop.restart()
            again = to_arrays(loop.snapshot.server)  # states of phases within states of phases
            assert alive.keys() == again.keys()
            for name, array in alive.items():
                np.testing.assert_array_equal(array, again[name])
    outcome = loop.recipe.server.outcome(loop.snapshot.server)
    np.testing.assert_array_equal(outcome.components, local.outcome.components)
    assert outcome.counts == local.outcome.counts
    assert [row["task"] for row in loop.snapshot.history] == [row["task"] for row in local.history]
    for name, U in local.assignments.items():
        kept = sp.load_npz(loop.folder / name / "state" / "r2" / "assignment.npz").toarray()
        np.testing.assert_array_equal(kept, U)


@pytest.mark.parametrize("lost", [True, False], ids=["before the checkpoint", "after it"])
def test_everything_may_die_after_every_round(loop, local, lost):
    while loop.round(save=not lost):
        if lost:
            loop.restart()
            assert loop.round()
        loop.restart()
    assert_same(loop.recipe.server.outcome(loop.snapshot.server), local)
    for name in SHARDS:
        lines = read_outbound(loop.folder / name / "state")
        assert len(lines) == len({(line["round"], line["what"]) for line in lines}), "a replay is not logged twice"


def test_a_repeated_question_gets_the_same_bytes_and_takes_no_step(loop, monkeypatch):
    loop.round()
    broadcast = loop.recipe.server.broadcast(loop.snapshot.server)
    first = loop.ask("site-0", broadcast)
    loop.restart()
    monkeypatch.setattr(Desk, "shard", lambda self: pytest.fail("a step was taken"))
    assert loop.ask("site-0", broadcast) == first
    assert loop.ask("site-0", broadcast) == first


def test_another_question_under_the_same_number_starts_from_the_state_before(loop, tmp_path):
    for _ in range(6):
        loop.round()
    asked = loop.recipe.server.broadcast(loop.snapshot.server)
    other = Broadcast(asked.task, asked.round, {"V": np.clip(asked.values["V"] + 0.1, 0, 1).astype(np.float32)})
    fresh = loop.ask("site-0", other)
    loop.ask("site-0", asked)
    assert loop.ask("site-0", other) == fresh


def test_rounds_long_ago_are_refused(loop):
    first = loop.recipe.server.broadcast(loop.snapshot.server)
    for _ in range(6):
        loop.round()
    with pytest.raises(FederationError, match="too long ago"):
        loop.ask("site-0", Broadcast(first.task, 2, first.values))
    assert len(list((loop.folder / "site-0" / "state" / "r1" / "rounds").glob("*.npz"))) == memory.KEPT


def test_a_damaged_checkpoint_falls_back_one_round_and_the_sites_answer_from_memory(loop, local):
    for _ in range(4):
        loop.round()
    path = loop.record.folder / "checkpoint.npz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(RuntimeWarning, match="round before"):
        loop.restart()
    assert len(loop.snapshot.history) == 3
    assert_same(loop.finish(), local)


def test_without_a_readable_checkpoint_the_run_does_not_silently_begin_again(loop):
    for _ in range(3):
        loop.round()
    for path in loop.record.folder.glob("checkpoint*.npz"):
        path.write_bytes(b"damaged")
    with pytest.raises(FederationError, match="backup"):
        loop.restart()


def test_a_damaged_memory_of_a_site_costs_its_round_not_the_run(loop):
    for _ in range(4):
        loop.round()
    newest = max((loop.folder / "site-1" / "state" / "r1" / "rounds").glob("*.npz"))
    newest.write_bytes(b"damaged")
    loop.restart()
    with pytest.warns(RuntimeWarning, match="damaged"):
        loop.round()
    assert loop.finish().counts.cells == 101 * 17


@contextmanager
def full_disk(path):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))
    yield


def test_a_full_disk_at_a_site_sends_nothing_and_the_round_can_be_asked_again(loop, local, monkeypatch):
    for _ in range(2):
        loop.round()
    with monkeypatch.context() as patch:
        patch.setattr(memory, "replacing", full_disk)
        with pytest.raises(OSError, match="No space"):
            loop.round()
    loop.restart()
    assert_same(loop.finish(), local)


def test_a_full_disk_at_the_coordinator_keeps_the_last_checkpoint(loop, local, monkeypatch):
    for _ in range(2):
        loop.round()
    with monkeypatch.context() as patch:
        patch.setattr("felb.engines.nvflare.record.save_snapshot", full_disk_save)
        with pytest.raises(OSError, match="No space"):
            loop.round()
    loop.restart()
    assert len(loop.snapshot.history) == 2
    assert_same(loop.finish(), local)


def full_disk_save(path, snapshot):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_unknown_task_and_another_run_are_refused(loop):
    with pytest.raises(Refusal, match="knows no task"):
        loop.ask("site-0", Broadcast("send_rows", 0, {}))
    asked = question("other", Broadcast("factorize", 0, {}))
    with pytest.raises(FederationError, match="another run"):
        read_question(asked, run_id="r1")
    for change in ({"round": -1}, {"round": "0"}, {"task": 3}, {"values": None}):
        with pytest.raises(FederationError):
            read_question({**question("r1", Broadcast("factorize", 0, {})), **change}, run_id="r1")


def test_the_outbound_log_tells_what_left_and_nothing_has_the_size_of_rows(loop):
    loop.finish()
    lines = read_outbound(loop.folder / "site-0" / "state")
    assert {(line["run"], line["client"]) for line in lines} == {("r1", "site-0")}
    # Columns of the sketch: one for each component and ten more.
    assert {tuple(line["shape"]) for line in lines} == {(17, 4 + 10), (4, 17), (), (4,)}
    assert read_outbound(loop.folder / "site-0" / "state", run_id="other") == []


def test_a_record_is_one_run_and_one_process_at_a_time(tmp_path):
    record = RunRecord(tmp_path, "r1")
    assert not record.exists
    record.begin(PLAN)
    record.begin(PLAN)
    assert record.plan() == PLAN
    with pytest.raises(InputError, match="other settings"):
        record.begin(Plan("r1", "felb-mu", 5, 17))
    record.report(Status("running", round=3, job="j", sites=("a",), reasons={"b": "away"}))
    assert (record.status().round, record.status().sites) == (3, ("a",))
    with record.lock(patience=0), pytest.raises(FederationError, match="another process"):
        record.lock(patience=0)
    record.lock(patience=0).close()
    (record.folder / "status.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        record.status()
    with pytest.raises(InputError, match="run id"):
        RunRecord(tmp_path, "../x")


def test_a_site_that_missed_the_end_gets_its_assignment_when_the_last_round_is_played_again(loop, local):
    while (broadcast := loop.recipe.server.broadcast(loop.snapshot.server)).task != "assign":
        loop.round()
    loop.record.report(Status("running", round=len(loop.snapshot.history)))
    with pytest.raises(InputError, match="missed the end"):
        loop.record.reopen(loop.recipe)
    answers = {name: loop.ask(name, broadcast) for name in ("site-0", "site-2")}
    releases = {name: loop.referee.admit(data, broadcast, site=name) for name, data in answers.items()}
    absent = {"site-1": "did not answer in time"}
    loop.snapshot = combined(loop.recipe, loop.snapshot, broadcast, releases=releases, reasons=absent)
    loop.record.save(loop.snapshot)
    loop.record.report(Status("finished", round=len(loop.snapshot.history)))
    assert loop.recipe.server.outcome(loop.snapshot.server).counts.cells < 101 * 17
    assert not (loop.folder / "site-1" / "state" / "r1" / "assignment.npz").exists()
    loop.record.reopen(loop.recipe)
    assert loop.record.status().state == "paused"
    loop.restart()
    assert {name: loop.ask(name, broadcast) for name in answers} == answers
    assert_same(loop.finish(), local)
    assert (loop.folder / "site-1" / "state" / "r1" / "assignment.npz").exists()
    loop.record.report(Status("finished", round=len(loop.snapshot.history)))
    with pytest.raises(InputError, match="missed the end"):
        loop.record.reopen(loop.recipe)


def test_what_is_kept_is_plain_data(loop):
    loop.round()
    assert json.loads((loop.record.folder / "plan.json").read_text())["method"] == "felb-mu"
    for path in loop.folder.rglob("*.npz"):
        with np.load(path, allow_pickle=False) as stored:
            assert all(stored[name].dtype.kind != "O" for name in stored.files)
