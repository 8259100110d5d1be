"""The loop of a deployed federation without its network: answers given once, crashes anywhere, the same result."""

import errno
import json
from contextlib import contextmanager

import numpy as np
import pytest
from brief_effort import BRIEF_NAME
from loopback import Loopback

from felb.data import partition
from felb.data.files import load
from felb.data.partition import split
from felb.engines.local import run
from felb.errors import FederationError, InputError
from felb.federated import journal as entries
from felb.federated.gate import KEPT
from felb.federated.protocol import Part, Request
from felb_sites.messages import vault_message, write_request
from felb_sites.run_plan import Plan, fingerprint
from felb_sites.run_record import RunRecord, Status
from felb_sites.site_logs import read_outbound
from felb_sites.site_policy import Refusal
from felb_sites.site_session import SiteSession
from felb_sites.vault import request_of

ZOO = load("zoo")
SHARDS = split(ZOO, [f"site-{i}" for i in partition.even(101, 3)])[0]
PLAN = Plan("r1", "felb-mu", 4, 17, {"max_iter": 8}, columns=fingerprint(ZOO.columns))


@pytest.fixture(scope="module")
def local():
    return run(PLAN.algorithm(), SHARDS, seed=PLAN.seed)


@pytest.fixture
def loop(tmp_path):
    return Loopback(tmp_path, PLAN, SHARDS)


def assert_same(outcome, local):
    np.testing.assert_array_equal(outcome.relaxed, local.outcome.relaxed)
    np.testing.assert_array_equal(outcome.components, local.outcome.components)
    assert outcome.counts == local.outcome.counts


def test_same_result_as_the_local_engine_and_assignments_stay_at_the_sites(loop, local):
    assert_same(loop.finish(), local)
    assert loop.history == local.history
    for name, U in local.assignments.items():
        np.testing.assert_array_equal(loop.assignment(name), U)
    assert not list((loop.folder / "runs").rglob("*assignment*"))


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("bmf", {"n_components": "mdl", "effort": "fast", "max_components": 6}),
        ("bmf", {"effort": BRIEF_NAME}),
        ("bmf", {"effort": "fast", "objective": "f1"}),
        ("bmf", {"effort": BRIEF_NAME, "objective": "recover"}),
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
    local, loop = run(plan.algorithm(), SHARDS, seed=3), Loopback(tmp_path, plan, SHARDS)
    played = 0
    while loop.round():  # the coordinator starts anew every round
        played += 1
        if played < 5 or played % 7 == 0:
            loop.restart()
    outcome = loop.outcome
    np.testing.assert_array_equal(outcome.components, local.outcome.components)
    assert outcome.counts == local.outcome.counts
    assert str(list(loop.history)) == str(list(local.history))
    for name, U in local.assignments.items():
        np.testing.assert_array_equal(loop.assignment(name), U)


@pytest.mark.parametrize("lost", [True, False], ids=["before the journal is written", "after it"])
def test_everything_may_die_after_every_round(loop, local, lost):
    while loop.round(save=not lost):
        if lost:
            loop.restart()
            assert loop.round()
        loop.restart()
    assert_same(loop.outcome, local)
    for name in SHARDS:
        lines = loop.lines(name)
        assert len(lines) == len({(line["round"], line["what"]) for line in lines}), "a replay is not logged twice"


def test_a_repeated_request_gets_the_same_bytes_and_takes_no_step(loop, monkeypatch):
    loop.round()
    request = loop.request
    first = loop.ask_site("site-0", request)
    loop.restart()
    monkeypatch.setattr(SiteSession, "shard", lambda self: pytest.fail("a step was taken"))
    assert loop.ask_site("site-0", request) == first
    assert loop.ask_site("site-0", request) == first


def test_another_request_under_the_same_number_starts_from_the_state_before(loop):
    for _ in range(6):
        loop.round()
    asked = loop.request
    V = np.clip(asked.values["V"] + 0.1, 0, 1).astype(np.float32)
    other = Request.of([Part(asked.task, {**asked.values, "V": V})], number=asked.round)
    fresh = loop.ask_site("site-0", other)
    loop.ask_site("site-0", asked)
    assert loop.ask_site("site-0", other) == fresh


def test_rounds_long_ago_are_refused(loop):
    first = loop.request
    for _ in range(6):
        loop.round()
    with pytest.raises(Refusal, match="too long ago"):
        loop.ask_site("site-0", Request.of([Part(first.task, first.values)], number=2))
    assert len(list((loop.state("site-0") / "r1" / "responses").iterdir())) == KEPT


def test_a_damaged_last_round_is_asked_again_and_the_sites_answer_from_their_responses(loop, local, monkeypatch):
    for _ in range(6):
        loop.round()
    path = max((loop.record.folder / "journal").glob("round-*"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(RuntimeWarning, match="round before"):
        loop.restart()
    assert len(loop.history) == 5
    with monkeypatch.context() as patch:
        patch.setattr(SiteSession, "shard", lambda self: pytest.fail("a step was taken"))
        loop.round()
    assert_same(loop.finish(), local)


def test_without_a_readable_journal_the_run_does_not_silently_begin_again(loop):
    for _ in range(3):
        loop.round()
    for path in (loop.record.folder / "journal").iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(FederationError, match="backup"):
        loop.restart()


def test_damaged_responses_of_a_site_cost_their_round_not_the_run(loop):
    for _ in range(4):
        loop.round()
    newest = max((loop.state("site-1") / "r1" / "responses").iterdir())
    newest.write_bytes(b"damaged")
    loop.restart()
    with pytest.warns(RuntimeWarning, match="damaged"):
        loop.round()
    assert loop.finish().counts.cells == 101 * 17


@contextmanager
def full_disk(path, **_):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))
    yield


def test_a_full_disk_at_a_site_sends_nothing_and_the_round_can_be_asked_again(loop, local, monkeypatch):
    for _ in range(2):
        loop.round()
    with monkeypatch.context() as patch:
        patch.setattr(entries, "replacing", full_disk)
        with pytest.raises(Refusal, match="No space"):
            loop.round()
    loop.restart()
    assert_same(loop.finish(), local)


def test_a_full_disk_at_the_coordinator_keeps_the_rounds_before(loop, local, monkeypatch):
    for _ in range(2):
        loop.round()
    with monkeypatch.context() as patch:
        patch.setattr("felb.federated.journal.write_entry", full_disk_write)
        with pytest.raises(OSError, match="No space"):
            loop.round()
    loop.restart()
    assert len(loop.history) == 2
    assert_same(loop.finish(), local)


def full_disk_write(path, header, arrays):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_unknown_task_and_another_run_are_refused(loop):
    with pytest.raises(Refusal, match="unknown task"):
        loop.ask_site("site-0", Request("send_rows"))
    for change in ({"round": -1}, {"round": "0"}, {"task": 3}, {"values": None}, {"all_clients": 1}):
        with pytest.raises(Refusal):
            request_of(*vault_message({**write_request(Request("local_factor")), **change}, {}))


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
    while (request := loop.request).task != "assign":
        loop.round()
    loop.record.report(Status("running", round=len(loop.history)))
    with pytest.raises(InputError, match="missed the end"):
        loop.record.reopen()
    loop.absent = {"site-1": "did not answer in time"}
    loop.round()
    answers = {name: loop.ask_site(name, request) for name in ("site-0", "site-2")}
    loop.record.report(Status("finished", round=len(loop.history)))
    assert loop.outcome.counts.cells < 101 * 17
    assert not (loop.state("site-1") / "r1" / "assignment.npz").exists()
    loop.record.reopen()
    assert loop.record.status().state == "paused"
    loop.absent = {}
    loop.restart()
    assert {name: loop.ask_site(name, request) for name in answers} == answers
    assert_same(loop.finish(), local)
    assert (loop.state("site-1") / "r1" / "assignment.npz").exists()
    loop.record.report(Status("finished", round=len(loop.history)))
    with pytest.raises(InputError, match="missed the end"):
        loop.record.reopen()


def test_what_is_kept_is_plain_data(loop):
    loop.round()
    assert json.loads((loop.record.folder / "plan.json").read_text())["method"] == "felb-mu"
    kept = list(loop.folder.rglob("*.safetensors"))
    assert len(kept) == 4
    for path in kept:
        _, arrays = entries.read_entry(path, advice="")
        assert all(array.dtype.kind in "biuf" for array in arrays.values())
