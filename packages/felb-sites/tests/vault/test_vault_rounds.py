"""Rounds in the clear: a site derives each request itself, answers it once, and believes no sums that cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from loopback import real_fields
from vault_parts import (
    K,
    M,
    exact_plan,
    make_loopback,
    make_shards,
    notes,
    outbox,
    plain_lines,
    receipts,
    said_refusals,
)

from felb.federated.journal import pack, unpack
from felb.federated.loop import play
from felb_sites import messages
from felb_sites.envelopes import digest
from felb_sites.run_plan import Plan
from felb_sites.vault import session as session_module
from felb_sites.vault.session import MOST_FAILURES, Session


class Stopped(Exception):
    """The coordinator stops here."""


class Halting:
    """Plays a run up to a round, and keeps the envelope of that one back."""

    def __init__(self, loop, plan, at):
        self.loop, self.plan, self.at = loop, plan, at
        loop.propose(plan)
        self.transport = loop.transport(plan)
        self.sent = []
        self.transport.before = self._halt
        with pytest.raises(Stopped):
            play(plan.algorithm(), self.transport, seed=plan.seed)

    def _halt(self, request):
        self.request = request
        if request.round == self.at:
            raise Stopped
        self.sent.append(self.transport.broadcast(request))

    @property
    def sums(self):
        return dict(self.transport.sums)

    def told(self, sums=None, clients=None, real=None):
        packed = pack(self.sums if sums is None else sums)
        clients = self.transport.sums.clients if clients is None else clients
        return messages.RoundSums(clients, packed, real_fields(self.request) if real is None else real)

    def send(self, told, name="site-1", number=None):
        number = self.at if number is None else number
        self.loop.read(name)
        data = self.loop.seal("sums", self.plan.run_id, number, told, round=number)
        self.loop.vaults[name].deliver([data])
        return [(header.kind, message) for header, message in self.loop.read(name)]


@pytest.fixture
def halted(tmp_path):
    return Halting(make_loopback(tmp_path), exact_plan(), at=2)


def refused(found, code="request"):
    assert [(kind, message.code) for kind, message in found] == [("refusal", code)]


def changed(sums, how):
    return {name: how(np.asarray(value)) for name, value in sums.items()}


# -- sums ------------------------------------------------------------------------------------------------------------


def test_true_sums_are_answered(halted):
    assert [kind for kind, _ in halted.send(halted.told())] == ["response"]


FALSE = {
    "negative": lambda sums: changed(sums, lambda value: -np.abs(value) - 1),
    "not a number": lambda sums: changed(sums, lambda value: np.full(value.shape, np.nan)),
    "infinite": lambda sums: changed(sums, lambda value: np.full(value.shape, np.inf)),
    "of another shape": lambda sums: changed(sums, lambda value: np.concatenate([value.ravel(), value.ravel()])),
    "of no shape": lambda sums: changed(sums, lambda value: value.ravel()[:0]),
    "without a field": lambda sums: dict(list(sums.items())[1:]),
    "with another field": lambda sums: {**sums, "more": np.zeros(3)},
    "less than the site's own part": lambda sums: changed(sums, np.zeros_like),
    "text": lambda sums: {"bytes": np.frombuffer(b"abc", np.uint8)},
}


@pytest.mark.parametrize("what", FALSE)
def test_sums_that_no_round_can_have_are_refused_and_true_ones_are_still_taken(halted, what):
    lines = halted.loop.lines("site-1")
    refused(halted.send(halted.told(FALSE[what](halted.sums))))
    assert halted.loop.lines("site-1") == lines
    assert [kind for kind, _ in halted.send(halted.told())] == ["response"]


def test_huge_sums_do_not_make_a_site_raise(halted):
    huge = changed(halted.sums, lambda v: np.full(v.shape, 1e300 if v.dtype.kind == "f" else 2**62, v.dtype))
    found = halted.send(halted.told(huge))
    assert len(found) == 1


@pytest.mark.parametrize("clients", [0, 4, 1000])
def test_sums_of_no_site_or_of_more_sites_than_there_are_are_refused(halted, clients):
    refused(halted.send(halted.told(clients=clients)))
    assert "than there are" in notes(halted.loop)[-1]


def test_sums_that_cannot_be_read_are_refused(halted):
    refused(halted.send(messages.RoundSums(3, b"garbage", b"")))
    refused(halted.send(messages.RoundSums(3, halted.told().sums, b"garbage")))
    assert [kind for kind, _ in halted.send(halted.told())] == ["response"]


@pytest.mark.parametrize("number", [3, 7, 10**9])
def test_a_round_that_was_skipped_is_refused(halted, number):
    refused(halted.send(halted.told(), number=number), "behind")
    assert [kind for kind, _ in halted.send(halted.told())] == ["response"]


def test_a_run_that_nobody_has_proposed_gets_no_answer_at_all(halted):
    loop = halted.loop
    loop.read("site-1")
    loop.vaults["site-1"].deliver([loop.seal("sums", "r9", 0, messages.RoundSums())])
    assert loop.read("site-1") == []
    assert "nobody has proposed" in notes(loop)[-1]


# -- requests --------------------------------------------------------------------------------------------------------


@pytest.fixture
def relaxed(tmp_path):
    """A run whose requests have real-valued fields."""
    loop = make_loopback(tmp_path)
    made = Halting(loop, Plan("r1", "felb", K, M, {"max_iter": 4}, sites=3), at=2)
    assert real_fields(made.request)
    return made


def test_real_fields_that_are_close_to_the_derived_ones_are_taken(relaxed):
    fields = {name: value * (1 + 1e-7) for name, value in unpack(real_fields(relaxed.request)).items()}
    assert [kind for kind, _ in relaxed.send(relaxed.told(real=pack(fields)))] == ["response"]


OTHER = {
    "shifted": lambda fields: {name: value + 0.01 for name, value in fields.items()},
    "not a number": lambda fields: {name: np.full_like(value, np.nan) for name, value in fields.items()},
    "transposed": lambda fields: {name: value.T.copy() for name, value in fields.items()},
    "narrow": lambda fields: {name: value.astype(np.float16) for name, value in fields.items()},
    "more": lambda fields: {**fields, "p0.other": np.zeros(2)},
    "of a part that is not there": lambda fields: {name.replace("p0", "p9"): value for name, value in fields.items()},
}


@pytest.mark.parametrize("what", OTHER)
def test_real_fields_that_are_not_the_derived_ones_are_refused(relaxed, what):
    fields = unpack(real_fields(relaxed.request))
    refused(relaxed.send(relaxed.told(real=pack(OTHER[what](fields)))))
    assert [kind for kind, _ in relaxed.send(relaxed.told())] == ["response"]


def test_without_real_fields_the_derived_ones_are_used(relaxed):
    assert [kind for kind, _ in relaxed.send(relaxed.told(real=b""))] == ["response"]


# -- once ------------------------------------------------------------------------------------------------------------


def test_a_round_is_answered_once_and_its_answer_is_repeated(halted):
    loop = halted.loop
    ((_, first),) = halted.send(halted.told())
    lines = loop.lines("site-1")
    ((_, again),) = halted.send(halted.told())
    assert again == first
    loop.restart("site-1")
    ((_, again),) = halted.send(halted.told())
    assert again == first
    assert loop.lines("site-1") == lines


def test_another_request_of_a_round_that_was_answered_is_refused(relaxed):
    assert [kind for kind, _ in relaxed.send(relaxed.told())] == ["response"]
    fields = {name: value * (1 + 1e-6) for name, value in unpack(real_fields(relaxed.request)).items()}
    lines = relaxed.loop.lines("site-1")
    assert relaxed.send(relaxed.told(real=pack(fields))) == []
    relaxed.loop.vaults["site-1"].store.write("delete from heard")
    refused(relaxed.send(relaxed.told(real=pack(fields))))
    assert relaxed.loop.lines("site-1") == lines


def test_a_site_that_was_away_answers_the_last_round_only(tmp_path):
    loop = make_loopback(tmp_path)
    plan = exact_plan()
    loop.propose(plan)
    transport = loop.transport(plan)
    transport.away = dict.fromkeys(range(3), ("site-3",))
    missed = []

    def halt(request):
        missed.append(transport.broadcast(request))
        if request.round == 3:
            raise Stopped

    transport.before = halt
    with pytest.raises(Stopped):
        play(plan.algorithm(), transport, seed=plan.seed)
    vault = loop.vaults["site-3"]
    vault.deliver(missed)
    found = [(header.kind, header.round) for header, _ in loop.read("site-3")]
    assert found == [("response", 3)]
    assert {line["round"] for line in loop.lines("site-3")} == {3}
    assert {digest(data) for data in missed} <= receipts(loop, "site-3")


def test_rounds_of_more_runs_than_are_kept_in_memory_are_all_answered(tmp_path):
    loop = make_loopback(tmp_path)
    runs = [Halting(loop, exact_plan(f"r{i}"), at=2) for i in range(4)]
    together = [loop.seal("sums", run.plan.run_id, 2, run.told(), round=2) for run in runs]
    loop.read("site-1")
    loop.vaults["site-1"].deliver(together)
    found = [(header.run, header.kind, header.round) for header, _ in loop.read("site-1")]
    assert found == [(f"r{i}", "response", 2) for i in range(4)]


def test_sums_are_acknowledged_after_they_were_answered_and_not_before(tmp_path, monkeypatch):
    """A receipt that leaves while the answer is computed would let the relay forget sums that a crash makes due."""
    loop = make_loopback(tmp_path)
    loop.propose(exact_plan())
    vault, compute, seen = loop.vaults["site-1"], Session.compute, []
    data = loop.seal("sums", "r1", 0, messages.RoundSums())

    def look(session):
        seen.extend(receipts(loop))
        return compute(session)

    monkeypatch.setattr(Session, "compute", look)
    vault.deliver([data])
    assert digest(data) not in seen
    assert digest(data) in receipts(loop)


# -- what changes ----------------------------------------------------------------------------------------------------


def test_data_that_has_changed_ends_the_run_here(halted):
    loop = halted.loop
    loop.refresh("site-1", make_shards(seed=2)["site-1"])
    loop.restart("site-1")
    refused(halted.send(halted.told()), "changed")
    assert all(line["round"] < 2 for line in loop.lines("site-1"))


def test_a_policy_that_has_changed_holds_from_then_on(halted):
    loop = halted.loop
    before = loop.configs["site-1"]
    loop.configs["site-1"] = replace(before, policy=replace(before.policy, allowed_methods=("bmf",)))
    refused(halted.send(halted.told()), "method")
    loop.configs["site-1"] = before
    assert [kind for kind, _ in halted.send(halted.told())] == ["response"]


def test_a_policy_that_changes_while_sums_are_processed_leads_to_the_round_s_own_answer_or_none(halted):
    loop, vault = halted.loop, halted.loop.vaults["site-1"]
    before, calls = loop.configs["site-1"], []

    def config():
        calls.append(1)
        return before if len(calls) < 2 else replace(before, policy=replace(before.policy, max_seconds=7.0))

    vault.config = config
    ((kind, message),) = halted.send(halted.told())
    halted.loop.restart("site-2")
    ((_, other),) = halted.send(halted.told(), name="site-2")
    assert kind == "response"
    assert unpack(message.values).keys() == unpack(other.values).keys()


def test_an_end_is_told_and_a_run_of_another_name_goes_on(halted):
    loop = halted.loop
    loop.deliver(loop.seal("end", "r1", 0, messages.End("stopped")))
    loop.deliver(loop.seal("end", "r7", 0, messages.End("stopped")))
    assert loop.vaults["site-1"].store.run("r1")["state"] == "ended"
    assert loop.play(exact_plan("r2")).outcome.components.shape == (K, M)


# -- failures --------------------------------------------------------------------------------------------------------


def failing(monkeypatch, error):
    def fail(self, spec, work):
        raise error

    monkeypatch.setattr(Session, "_do", fail)


def test_a_task_that_raises_gives_one_constant_refusal(tmp_path, monkeypatch):
    loop = make_loopback(tmp_path)
    loop.propose(exact_plan())
    failing(monkeypatch, ValueError("Jane Doe has 7 ones"))
    loop.restart("site-1")
    loop.read("site-1")
    loop.vaults["site-1"].deliver([loop.seal("sums", "r1", 0, messages.RoundSums())])
    assert said_refusals(loop) == [messages.Refusal("failed")]
    assert all(b"Jane" not in row["body"] for row in outbox(loop))
    assert any("ValueError" in note for note in notes(loop))
    assert loop.lines("site-1") == []


def test_a_request_that_has_failed_fails_at_once_when_it_comes_again(tmp_path, monkeypatch):
    loop = make_loopback(tmp_path)
    loop.propose(exact_plan())
    with monkeypatch.context() as patch:
        failing(patch, ValueError("x"))
        loop.vaults["site-1"].deliver([loop.seal("sums", "r1", 0, messages.RoundSums())])
    loop.restart("site-1")
    loop.read("site-1")
    loop.vaults["site-1"].deliver([loop.seal("sums", "r1", 0, messages.RoundSums())])
    assert said_refusals(loop) == [messages.Refusal("failed")]
    assert loop.lines("site-1") == []


def test_a_process_that_dies_in_a_request_tries_it_so_often_and_not_more(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    loop = make_loopback(tmp_path)
    loop.propose(exact_plan())
    data = loop.seal("sums", "r1", 0, messages.RoundSums())
    with monkeypatch.context() as patch:
        failing(patch, Killed())
        for _ in range(MOST_FAILURES):
            with pytest.raises(Killed):
                loop.vaults["site-1"].deliver([data])
            loop.restart("site-1")
    loop.vaults["site-1"].deliver([data])
    assert [message.code for message in said_refusals(loop)][-1:] == ["failed"]
    assert plain_lines(loop) == []


def test_a_request_that_takes_too_long_is_given_up_and_ends_the_process(tmp_path, monkeypatch):
    loop = make_loopback(tmp_path, max_seconds=0.05)
    loop.propose(exact_plan())
    ended, compute = [], session_module.Client.answer
    vault = loop.vaults["site-1"]
    vault._end_process = lambda: ended.append(1)

    def slow(self, *arguments):
        import time

        while not ended:
            time.sleep(0.01)
        return compute(self, *arguments)

    monkeypatch.setattr(session_module.Client, "answer", slow)
    vault.deliver([loop.seal("sums", "r1", 0, messages.RoundSums())])
    assert ended == [1]
