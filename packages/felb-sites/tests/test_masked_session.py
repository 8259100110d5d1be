"""Masked sums over vaults without a network: what is refused, what is lost, and what a site never says twice."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from loopback import Loopback
from masked_loopback import MaskedLoopback
from msgspec import structs

from felb.data import partition
from felb.data.files import load
from felb.data.partition import split
from felb.errors import InputError
from felb.secure_sum.protocol import (
    Confirmation,
    Confirmations,
    FromSite,
    MaskedInput,
    MaskOrder,
    Opening,
    Roster,
    SurvivorList,
    ToSite,
    decode,
    encode,
    member_of,
    new_signing_key,
)
from felb.secure_sum.releases import as_vector, read_bits
from felb_sites.approvals import Approvals
from felb_sites.masked_session import STATE, sum_terms
from felb_sites.messages import vault_message, write_question, write_request, write_trip
from felb_sites.reasons import REASONS
from felb_sites.refusals import read_refusals
from felb_sites.rounds import QuorumError
from felb_sites.run_plan import Plan
from felb_sites.run_record import Status
from felb_sites.site_policy import Policy, Refusal
from felb_sites.site_roster import write_roster
from felb_sites.vault import OK, Vault
from felb_sites.vault_fuzzing import mutated_messages

ZOO = load("zoo")
NAMES = ("a", "b", "c", "d")
SHARDS = split(ZOO, [NAMES[i] for i in partition.even(101, 4)])[0]
PLAN = Plan("r", "felb-mu", 4, 17, {"max_iter": 3}, seed=3)
STEPS = ("keys", "shares", "masked input", "consistency", "unmask")


@pytest.fixture
def loop(tmp_path):
    made = MaskedLoopback(tmp_path, PLAN, SHARDS)
    yield made
    for vault in made.vaults.values():
        vault.close()


def code_of(loop, name, content, plan=None):
    return loop.vaults[name].handle(*vault_message(content, (plan or loop.plan).to_json(), site=name)).code


# -- who takes part --------------------------------------------------------------------------------------------------


def test_a_roster_that_nobody_has_confirmed_is_set_down_and_refused(tmp_path):
    loop = MaskedLoopback(tmp_path, PLAN, SHARDS, confirm=False)
    events = []
    loop.vaults["a"] = Vault("a", lambda: loop.configs["a"], rosters=loop.rosters["a"], on_event=events.append)
    assert loop.ready("a") == "roster"
    assert [event.kind for event in events if event.kind != "began"] == ["roster", "refused"]
    assert "felb site roster confirm" in read_refusals(loop.state("a"))[-1]["reason"]
    with pytest.raises(QuorumError):
        loop.round()
    assert not any(name == "a" and reply.code == OK for name, _, reply in loop.seen)
    assert loop.rosters["a"].proposed() == [loop.roster]
    loop.rosters["a"].confirm(loop.roster.digest)
    assert loop.ready("a") == OK


def test_a_coordinator_that_adds_a_site_is_refused_until_people_have_compared_keys(loop):
    invented = Roster((*loop.roster.members[:3], member_of("x", new_signing_key())))
    plan = Plan(**{**loop.plan.to_json(), "run_id": "r2", "roster": invented.digest})
    assert code_of(loop, "a", write_question(write_roster(invented)), plan) == "roster"
    assert code_of(loop, "a", write_question(write_roster(loop.roster)), plan) == "plan", "not the plan's roster"
    assert code_of(loop, "a", write_question(b"[]"), plan) == "roster"


def test_a_roster_that_was_replaced_ends_the_runs_under_the_old_one(loop):
    assert loop.round()
    changed = Roster((*loop.roster.members[:3], member_of("d", new_signing_key())))
    loop.rosters["a"].propose(write_roster(changed))
    loop.rosters["a"].confirm(changed.digest)
    assert loop.ready("a") == "roster"


def test_under_masks_no_plain_answer_leaves_and_without_masks_no_protocol_runs(loop, tmp_path):
    request = loop.request
    assert code_of(loop, "a", write_request(request)) == "request"
    plain = Plan("plain", "felb-mu", 4, 17, {"max_iter": 3}, seed=3)
    trip = write_trip({"a": encode(ToSite(setup=Opening(0)))}, 0)
    assert code_of(loop, "a", trip, plain) == "request"
    assert code_of(loop, "a", write_trip({"a": b""}, 0, write_request(request)), plain) == "request"


def test_a_policy_may_ask_for_masks_and_distributed_noise_always_does(tmp_path):
    pytest.importorskip("opendp")
    with pytest.raises(Refusal) as refusal:
        Loopback(tmp_path, PLAN, SHARDS, require_secure=True)
    assert refusal.value.code == "secure"
    privacy = {"epsilon": 1.0, "delta": 1e-5, "noise": "distributed"}
    plan = Plan("p", "bmf", 3, 17, {"effort": "fast"}, privacy, 101, 4)
    with pytest.raises(Refusal) as refusal:
        Policy(noise="distributed").check(plan, plan.algorithm().privacy)
    assert refusal.value.code == "secure"
    masked = Plan("p", "bmf", 3, 17, {"effort": "fast"}, privacy, 101, 4, roster="0" * 64)
    Policy(noise="distributed").check(masked, masked.algorithm().privacy)


def test_fewer_may_be_missing_where_fewer_were_counted_on_for_noise(loop):
    assert sum_terms(loop.plan, loop.roster).dropouts == 1
    privacy = {"epsilon": 1.0, "delta": 1e-5, "noise": "distributed"}
    noisy = Plan("p", "bmf", 3, 17, {}, privacy, 101, 4, roster=loop.roster.digest)
    assert sum_terms(noisy, loop.roster).dropouts == 0


@pytest.mark.parametrize(("sites", "roster"), [(2, "0" * 64), (None, "0" * 64), (51, "0" * 64), (4, "x"), (4, 7)])
def test_a_plan_masks_among_three_to_fifty_sites(sites, roster):
    with pytest.raises(InputError, match=r"sites|roster"):
        Plan("r", "felb-mu", 4, 17, sites=sites, roster=roster)


# -- what the coordinator sees ---------------------------------------------------------------------------------------


def test_nothing_that_the_coordinator_gets_holds_a_site_s_own_numbers(loop):
    loop.finish()
    inputs = [decode(reply.values, FromSite).sum for _, step, reply in loop.seen if step == "masked input"]
    inputs = [told for told in inputs if isinstance(told, MaskedInput)]
    assert len(inputs) == len(SHARDS) * len(loop.history)
    everything = b"".join(reply.values for _, _, reply in loop.seen)
    plain = Loopback(loop.folder / "plain", PLAN, SHARDS)
    while (request := plain.request) is not None:
        for name in SHARDS:
            values = plain.desks[name].answer(request)
            vector, _ = as_vector(values, read_bits(plain.algorithm, request), sites=4)
            if len(vector) > 4:
                assert vector.astype("<u8").tobytes() not in everything
        plain.round()
    bits = np.unpackbits(np.frombuffer(b"".join(told.vector for told in inputs), np.uint8))
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / np.sqrt(bits.size), "masked vectors look like coin tosses"


def test_a_round_takes_three_trips_and_the_first_one_five(loop):
    loop.finish()
    steps = [step for name, step, _ in loop.seen if name == "a"]
    assert steps[:5] == list(STEPS)
    assert steps[5:] == list(STEPS[2:]) * (len(loop.history) - 1)


# -- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_site_that_vanishes_in_any_trip_costs_one_repeated_round_at_most(tmp_path, step):
    loop = MaskedLoopback(tmp_path, PLAN, SHARDS)
    loop.round()

    def vanish(trip, name, reply):
        if name == "d" and trip.step == step:
            loop.lost.add("d")
        return None if name in loop.lost else reply

    loop.interfere = vanish
    if step in STEPS[:2]:
        loop.restart()  # keys are made anew, so that these trips are there
    loop.finish()
    missing = [list(row.get("missing", ())) for row in loop.history]
    assert missing[0] == []
    assert set(map(tuple, missing[2:])) == {("d",)}
    trips = [s for name, s, _ in loop.seen if name == "a"]
    assert trips.count("masked input") <= len(missing) + 1
    expected = Loopback(tmp_path / "plain", PLAN, SHARDS)
    for row in missing:
        expected.absent = dict.fromkeys(row, "")
        expected.round()
    np.testing.assert_array_equal(loop.outcome.components, expected.outcome.components)
    assert loop.outcome.counts == expected.outcome.counts


def test_with_too_few_sites_left_nothing_is_learned_and_the_run_goes_on_when_one_is_back(loop):
    loop.round()
    loop.lost = {"c", "d"}
    with pytest.raises(QuorumError, match="did not answer") as error:
        loop.round()
    assert set(error.value.reasons) == {"c", "d"}
    loop.lost = {"d"}
    loop.finish()
    assert loop.outcome is not None


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_of_everybody_in_any_trip_changes_nothing(tmp_path, step):
    loop = MaskedLoopback(tmp_path, PLAN, SHARDS)
    loop.round()

    class Crash(Exception):
        pass

    def crash(trip, name, reply):
        if trip.step == step and name == "c":
            raise Crash
        return reply

    loop.restart()
    loop.interfere = crash
    with pytest.raises(Crash):
        loop.round()
    loop.interfere = lambda trip, name, reply: reply
    loop.restart()
    loop.finish()
    expected = Loopback(tmp_path / "plain", PLAN, SHARDS)
    expected.finish()
    np.testing.assert_array_equal(loop.outcome.components, expected.outcome.components)
    assert list(loop.history) == list(expected.history)


def test_survivors_that_were_named_before_a_crash_are_those_after_it(loop):
    """A site that was missing then is back, but the others have signed a sum without it."""
    loop.round()

    class Crash(Exception):
        pass

    def crash(trip, name, reply):
        if trip.step == "unmask":
            raise Crash
        return reply

    loop.lost, loop.interfere = {"d"}, crash
    with pytest.raises(Crash):
        loop.round()
    loop.restart()
    loop.lost, loop.interfere = set(), lambda trip, name, reply: reply
    loop.finish()
    assert [list(row.get("missing", ())) for row in loop.history][:3] == [[], ["d"], []]


def test_a_site_signs_one_list_of_survivors_for_a_round_also_after_a_crash(loop):
    signed = []

    def keep(trip, name, reply):
        told = decode(reply, FromSite).sum
        if name == "a" and isinstance(told, Confirmation):
            signed.append(told)
        return reply

    loop.interfere = keep
    loop.round()
    (told,) = signed
    loop.restart()
    for survivors in (("a", "b", "c"), ("a", "b", "d"), ("a", "c", "d")):
        other = encode(ToSite(sum=SurvivorList(told.context, survivors)))
        assert code_of(loop, "a", write_trip({"a": other}, 0)) == "request"
    same = encode(ToSite(sum=SurvivorList(told.context, NAMES)))
    assert code_of(loop, "a", write_trip({"a": same}, 0)) == OK
    stale = encode(ToSite(sum=Confirmations("0" * 64, {})))
    assert code_of(loop, "a", write_trip({"a": stale}, 0)) == "request"


def test_a_round_that_was_summed_is_not_summed_again_over_fewer_sites(loop):
    """The difference of the two sums would be the numbers of one site; new keys and a restart do not help."""
    request = loop.request
    loop.round()
    loop.restart()
    kept = loop.record.folder / "secure.json"
    kept.write_text(
        json.dumps({**json.loads(kept.read_text()), "round": -1, "survivors": []})
    )  # a coordinator that lies
    loop.lost, loop.seen = {"d"}, []
    with pytest.raises(QuorumError, match="confirmed"):
        loop.ask(request)
    masked = [name for name, step, reply in loop.seen if step == "masked input" and reply.code == OK]
    assert set(masked) == {"a", "b", "c"}, "the answer is given again, masked anew"
    codes = {reply.code for _, step, reply in loop.seen if step == "consistency"}
    assert codes == {"request"}
    assert not [step for _, step, _ in loop.seen if step == "unmask"]


def test_a_site_that_missed_the_end_gets_its_assignment_later_and_is_not_counted(loop):
    """The others confirm the sum that they have confirmed before, whatever the late site sends."""
    loop.round()
    loop.lost = {"d"}
    loop.finish()
    first, history = loop.outcome, list(loop.history)
    with pytest.raises(FileNotFoundError):
        loop.assignment("d")
    loop.record.report(Status("finished"))
    loop.record.reopen()
    loop.restart()
    loop.lost, loop.seen = set(), []
    loop.finish()
    assert loop.assignment("d").shape == (len(SHARDS["d"]), 4)
    assert loop.outcome.counts == first.counts
    assert list(loop.history) == history
    told = [decode(reply.values, FromSite).sum for _, step, reply in loop.seen if step == "unmask"]
    assert {frozenset(said.seeds) for said in told if said is not None} == {frozenset("abc")}, (
        "the seed of the late site stays secret"
    )


def test_noise_is_charged_when_an_input_is_masked_and_once(tmp_path):
    """A round that fails afterwards is asked again: the same noisy numbers under new masks, at no further cost."""
    pytest.importorskip("opendp")
    privacy = {"epsilon": 1.0, "delta": 1e-5, "noise": "distributed"}
    plan = Plan("r", "bmf", 3, 17, {"effort": "fast"}, privacy, 101, 4)
    loop = MaskedLoopback(tmp_path, plan, SHARDS, noise="distributed")
    loop.interfere = lambda trip, name, reply: None if trip.step == "consistency" else reply
    with pytest.raises(QuorumError):
        loop.round()
    (line,) = loop.lines("a")
    assert line["total"]["epsilon"] > 0
    assert loop.spent("a").total() == (1.0, 1e-5)
    loop.interfere = lambda trip, name, reply: reply
    loop.round()
    assert loop.lines("a") == [line]
    loop.lost = {"d"}
    with pytest.raises(QuorumError):
        loop.round()  # no missing site was planned for, so that the noise of three would be too little
    loop.lost = set()
    loop.finish()
    assert 0.99 < loop.lines("a")[-1]["total"]["epsilon"] <= 1.0


def test_a_site_that_has_lost_what_it_signed_answers_no_more(loop):
    loop.round()
    (loop.state("a") / "r" / STATE).unlink()
    loop.restart()
    assert loop.ready("a") == "known"
    (loop.state("b") / "r" / STATE).write_bytes(b"damaged")
    assert loop.ready("b") == "known"


def test_what_was_signed_is_kept_for_its_owner_alone(loop):
    loop.round()
    assert (loop.state("a") / "r" / STATE).stat().st_mode & 0o777 == 0o600


def test_a_disk_that_is_full_lets_nothing_out(loop, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "no space left")

    trip = write_trip({"a": encode(ToSite(setup=Opening(10_000)))}, 0)
    with monkeypatch.context() as patch:
        patch.setattr("felb_sites.masked_session.replacing", full)
        reply = loop.handle("a", trip)
        assert (reply.code, reply.values) == ("failed", b"")
    assert loop.handle("a", trip).code == OK


# -- hostile messages ------------------------------------------------------------------------------------------------


def test_an_order_for_another_request_or_round_is_refused(loop, monkeypatch):
    """The keys are those of the round, so that nothing but the request stands in the way."""
    request, codes = loop.request, []
    original = loop.handle

    def change(name, content):
        told = decode(content["trips"][name], ToSite)
        if name == "a" and isinstance(told.sum, MaskOrder):
            for other in ({"round": 1}, {"request": "0" * 64}):
                message = encode(ToSite(sum=structs.replace(told.sum, **other)))
                codes.append(original("a", write_trip({"a": message}, 0, write_request(request))).code)
            alone = write_trip({"a": encode(ToSite(sum=told.sum))}, 0)
            codes.append(original("a", alone).code)
            assert loop.lines("a") == [], "nothing was even computed"
        return original(name, content)

    monkeypatch.setattr(loop, "handle", change)
    loop.round()
    assert codes == ["request"] * 3
    assert {line["round"] for line in loop.lines("a")} == {0}, "the true order was answered"


def test_random_and_mutated_messages_get_a_word_of_the_list_and_no_plain_data(loop):
    """Messages of a real round, changed at random; benchmarks/vault_fuzz.py sends a million of other kinds."""
    honest = [vault_message(write_question(write_roster(loop.roster)), loop.plan.to_json())]
    original = loop.handle

    def note(name, content):
        if name == "a":
            honest.append(vault_message(content, loop.plan.to_json(), site=name))
        return original(name, content)

    loop.handle = note
    loop.round()
    assert {message["verb"] for message, _ in honest} == {"ready", "mask", "trip"}
    plain = Loopback(loop.folder / "plain", PLAN, SHARDS)
    bits = read_bits(plain.algorithm, plain.request)
    secret = as_vector(plain.desks["a"].answer(plain.request), bits, sites=4)[0].astype("<u8").tobytes()
    seen = set()
    for message, values in mutated_messages(random.Random(11), honest, 1500):
        reply = loop.vaults["a"].handle(message, values)
        assert reply.code in (OK, *REASONS)
        assert secret not in reply.values
        if reply.code != OK:
            assert reply.values == b""
        seen.add(reply.code)
    assert {OK, "plan", "request"} <= seen
    assert {line["round"] for line in loop.lines("a")} == {0}
    assert Approvals(loop.state("a")).find("r").status == "approved"
    loop.finish()
    assert loop.outcome is not None, "the vault is none the worse for it"
