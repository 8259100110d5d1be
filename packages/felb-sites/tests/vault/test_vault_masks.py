"""Masked runs: nobody sees a site's own numbers, and a site signs one sum for a round, whatever happens."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from loopback import MaskedTransport
from vault_parts import exact_plan, make_loopback, notes, outbox, said_refusals

from felb.errors import FelbError
from felb.federated.journal import digest as request_digest
from felb.federated.loop import play
from felb.secure_sum.protocol import (
    Confirmation,
    Confirmations,
    FromSite,
    MaskedInput,
    Opening,
    SurvivorList,
    ToSite,
    decode,
    encode,
)  # fmt: skip
from felb.secure_sum.releases import as_vector, read_bits
from felb_sites import messages


class Watching(MaskedTransport):
    """Keeps what the coordinator gets."""

    def __init__(self, loop, plan):
        super().__init__(loop, plan)
        self.seen = []

    def carry(self, request, trip):
        replies = super().carry(request, trip)
        self.seen.extend((name, trip.step, decode(reply, FromSite)) for name, reply in replies.items())
        return replies


@pytest.fixture
def loop(tmp_path):
    return make_loopback(tmp_path)


def played(loop, plan, **options):
    said = loop.propose(plan)
    assert all(message.status == "approved" for message in said.values())
    transport = Watching(loop, plan)
    for name, value in options.items():
        setattr(transport, name, value)
    return transport, play(plan.algorithm(), transport, seed=plan.seed)


def tell(loop, message, *, run="r1", number=10**6, round=0, name="site-1"):  # noqa: A002
    """Send a trip to a site and return what it says."""
    loop.read(name)
    data = message if isinstance(message, bytes) else encode(message)
    sealed = loop.seal("secure", run, number, messages.SecureTrip(data), round=round, sites=[name])
    loop.vaults[name].deliver([sealed])
    return [(header.kind, said) for header, said in loop.read(name)]


def codes(found):
    return [(kind, getattr(message, "code", None)) for kind, message in found]


# -- what leaves -----------------------------------------------------------------------------------------------------


def test_under_masks_sums_are_not_answered_in_the_clear(loop):
    plan = loop.masked(exact_plan())
    loop.propose(plan)
    loop.deliver(loop.seal("sums", "r1", 0, messages.RoundSums()))
    assert loop.read("site-1") == []
    assert loop.lines("site-1") == []


def test_without_masks_no_trip_of_secure_sums_is_answered(loop):
    loop.propose(exact_plan())
    assert codes(tell(loop, ToSite(setup=Opening(0)))) == [("refusal", "request")]


def test_nothing_that_the_coordinator_gets_holds_a_site_s_own_numbers(loop, tmp_path):
    transport, done = played(loop, loop.masked(exact_plan()))
    inputs = [reply.sum for _, step, reply in transport.seen if step == "masked input"]
    inputs = [told for told in inputs if isinstance(told, MaskedInput)]
    assert len(inputs) == 3 * len(done.history)
    everything = b"".join(told.vector for told in inputs)
    plain = make_loopback(tmp_path / "plain")
    plan = exact_plan()
    plain.propose(plan)
    clear = plain.transport(plan)

    def compare(request):
        for vault in plain.vaults.values():
            kept = vault._sessions.get("r1")
            if kept is None or kept[1].request is None:
                continue
            values = dict(sorted(kept[1].find().items()))
            vector, _ = as_vector(values, read_bits(clear.algorithm, kept[1].request), sites=3)
            if len(vector) > 4:
                assert vector.astype("<u8").tobytes() not in everything

    clear.before = compare
    play(plan.algorithm(), clear, seed=plan.seed)
    bits = np.unpackbits(np.frombuffer(everything, np.uint8))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size), "masked vectors look like coin tosses"


def test_a_policy_may_ask_for_masks(tmp_path):
    loop = make_loopback(tmp_path, require_secure=True)
    assert loop.propose(exact_plan())["site-1"].code == "secure"
    assert loop.propose(loop.masked(exact_plan("r2")))["site-1"].status == "approved"


def test_each_line_of_the_log_says_that_it_left_masked(loop):
    plan = loop.masked(exact_plan())
    played(loop, plan)
    assert all(line["masked"] and line["roster"] == plan.roster for line in loop.lines("site-1"))


# -- losses ----------------------------------------------------------------------------------------------------------


def test_a_crash_of_all_vaults_in_every_trip_changes_nothing(loop, tmp_path):
    plan = loop.masked(exact_plan())

    def restart(trip, name):
        loop.restart()
        return False

    _, done = played(loop, plan, lost=restart)
    other = make_loopback(tmp_path / "calm")
    _, calm = played(other, other.masked(exact_plan()))
    np.testing.assert_array_equal(done.outcome.components, calm.outcome.components)
    assert [row["task"] for row in done.history] == [row["task"] for row in calm.history]


def test_the_same_trip_again_gets_the_same_bytes(loop):
    loop.propose(loop.masked(exact_plan()))
    first = tell(loop, ToSite(setup=Opening(0)), number=1)
    again = tell(loop, ToSite(setup=Opening(0)), number=1)
    loop.restart("site-1")
    later = [found for found in tell(loop, ToSite(setup=Opening(0)), number=1) if found[0] == "secure"]
    assert first[0][0] == "secure"
    assert first == again == later
    assert len([row for row in outbox(loop) if row["kind"] == "secure"]) == 1


# -- a coordinator that has turned -----------------------------------------------------------------------------------


def test_a_site_signs_one_list_of_survivors_for_a_round_also_after_a_crash(loop):
    transport, _ = played(loop, loop.masked(exact_plan()))
    signed = [reply.sum for name, _, reply in transport.seen if name == "site-1"]
    last = [told for told in signed if isinstance(told, Confirmation)][-1]
    loop.restart("site-1")
    for number, survivors in enumerate([("site-1", "site-2"), ("site-1", "site-3")]):
        found = tell(loop, ToSite(sum=SurvivorList(last.context, survivors)), number=10**6 + number)
        assert not any(kind == "secure" for kind, _ in found)
    stale = ToSite(sum=Confirmations("0" * 64, {}))
    assert ("refusal", "request") in codes(tell(loop, stale, number=10**6 + 5))


def test_an_input_for_another_request_or_round_is_not_given(loop):
    plan = loop.masked(exact_plan())
    loop.propose(plan)
    transport = Watching(loop, plan)
    asked = []

    class Stopped(Exception):
        pass

    def stop(request):
        asked.append(request)
        if request.round == 1:
            raise Stopped

    transport.before = stop
    with pytest.raises(Stopped):
        play(plan.algorithm(), transport, seed=plan.seed)
    lines = loop.lines("site-1")
    loop.deliver(transport.broadcast(asked[-1]))
    trips = transport.server.aggregate(1, request_digest(asked[0]))
    trip = next(trips)
    with suppress(FelbError, StopIteration):
        while True:
            trip = trips.send(transport.carry(asked[-1], trip))
    assert loop.lines("site-1") == lines
    assert any("another request" in note for note in notes(loop))


@pytest.mark.parametrize("garbage", [b"", b"\x00" * 50, b"\x80", encode(ToSite())])
def test_trips_of_another_form_are_refused_and_nothing_leaves(loop, garbage):
    loop.propose(loop.masked(exact_plan()))
    found = tell(loop, garbage)
    assert all(kind in ("refusal", "secure") for kind, _ in found)
    assert loop.lines("site-1") == []


def test_a_withdrawal_ends_masked_trips_as_well(loop):
    plan = loop.masked(exact_plan())
    loop.propose(plan)
    loop.vaults["site-1"].deny("r1", by="ada")
    assert [message.code for message in said_refusals(loop)] == ["denied"]
    assert codes(tell(loop, ToSite(setup=Opening(0)))) == [("refusal", "denied")]
