"""A vault takes what the coordinator has signed for it and what is new; of all else it says nothing to anybody."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import FEDERATION
from vault_parts import exact_plan, make_loopback, notes, outbox, receipts, said_refusals

from felb.federated.journal import pack
from felb_sites import messages
from felb_sites.envelopes import COORDINATOR, Header, digest, read_envelope, seal, seal_nothing
from felb_sites.keys.identity import Identity
from felb_sites.keys.members import SignedMembers
from felb_sites.reasons import REASONS

MANY = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
FIRST = messages.RoundSums()


@pytest.fixture
def loop(tmp_path):
    made = make_loopback(tmp_path)
    made.propose(exact_plan())
    return made


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = make_loopback(tmp_path_factory.mktemp("shared"))
    made.propose(exact_plan())
    return made


def deliver(loop, data, name="site-1"):
    """Deliver an envelope, which is acknowledged whatever it is, and return what comes of it."""
    loop.read(name)
    loop.vaults[name].deliver([data])
    assert digest(data) in receipts(loop, name)
    return loop.read(name)


def sealed(loop, *, kind="sums", message=FIRST, number=0, key=None, to=("site-1",), **header):
    values = {"federation": FEDERATION, "run": "r1", "round": 0, "sender": COORDINATOR, "receivers": to, **header}
    made = Header(kind=kind, number=number, **values)
    keys = {name: loop.keys[name].seal_public for name in to}
    return seal(made, messages.write_message(message), key or loop.run_key, receivers=keys).to_bytes()


def test_what_the_coordinator_has_sealed_is_answered(loop):
    assert [header.kind for header, _ in deliver(loop, sealed(loop))] == ["response"]


def wrong_key(loop):
    return sealed(loop, key=Identity.create())


def of_the_authority(loop):
    return sealed(loop, key=loop.authority)


def of_another_site(loop):
    return sealed(loop, key=loop.keys["site-2"])


def other_federation(loop):
    return sealed(loop, federation="e" * 32)


def for_another_site(loop):
    return sealed(loop, to=("site-2",))


def sealed_for_another_but_addressed(loop):
    header = Header(FEDERATION, "r1", 0, COORDINATOR, ("site-1",), "sums", 0)
    keys = {"site-1": loop.keys["site-2"].seal_public}
    return seal(header, messages.write_message(FIRST), loop.run_key, receivers=keys).to_bytes()


def without_a_wrap(loop):
    header = Header(FEDERATION, "r1", 0, COORDINATOR, ("site-1", "site-2"), "sums", 0)
    keys = {"site-2": loop.keys["site-2"].seal_public}
    return seal(header, messages.write_message(FIRST), loop.run_key, receivers=keys).to_bytes()


def in_the_clear(loop):
    header = Header(FEDERATION, "r1", 0, COORDINATOR, ("site-1",), "sums", 0)
    return seal_nothing(header, messages.write_message(FIRST), loop.run_key).to_bytes()


def changed_ciphertext(loop):
    envelope = read_envelope(sealed(loop))
    payload = bytes([envelope.payload[0] ^ 1]) + envelope.payload[1:]
    return msgspec.structs.replace(envelope, payload=payload).to_bytes()


def changed_and_signed_anew(loop):
    envelope = read_envelope(sealed(loop))
    changed = msgspec.structs.replace(envelope, payload=bytes([envelope.payload[0] ^ 1]) + envelope.payload[1:])
    return msgspec.structs.replace(changed, signature=loop.run_key.sign(changed.signed_text())).to_bytes()


def changed_round(loop):
    envelope = read_envelope(sealed(loop))
    header = msgspec.structs.replace(envelope.header, round=1, number=1)
    changed = msgspec.structs.replace(envelope, header=header)
    return msgspec.structs.replace(changed, signature=loop.run_key.sign(changed.signed_text())).to_bytes()


def from_a_site(loop):
    return sealed(loop, sender="site-2", key=loop.keys["site-2"])


def from_a_site_by_name_only(loop):
    return sealed(loop, sender="site-2")


def of_no_run(loop):
    return sealed(loop, run="")


def of_another_form(loop):
    return sealed(loop, message=messages.Response(b""))


def number_is_not_the_round(loop):
    return sealed(loop, number=3)


WRONG = (
    wrong_key, of_the_authority, of_another_site, other_federation, for_another_site, sealed_for_another_but_addressed,
    without_a_wrap, in_the_clear, changed_ciphertext, changed_and_signed_anew, changed_round, from_a_site,
    from_a_site_by_name_only, of_no_run, of_another_form, number_is_not_the_round,
)  # fmt: skip


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
def test_what_is_not_from_the_coordinator_to_this_site_is_noted_here_and_told_to_nobody(loop, make):
    assert deliver(loop, make(loop)) == []
    assert notes(loop)
    assert loop.vaults["site-1"].store.heard("r1", COORDINATOR, "sums") is None
    assert [header.kind for header, _ in deliver(loop, sealed(loop))] == ["response"], "and the true one is answered"


@pytest.mark.parametrize("kind", ["consent", "refusal", "response", "receipt"])
def test_kinds_that_sites_do_not_receive_are_refused(loop, kind):
    assert deliver(loop, sealed(loop, kind=kind)) == []
    assert "kind that sites do not receive" in notes(loop)[-1]


def test_a_sealed_envelope_that_calls_itself_a_member_list_is_none(loop):
    assert deliver(loop, sealed(loop, kind="members", key=loop.authority, run="")) == []
    assert loop.vaults["site-1"].members.listed.number == 1


def test_an_old_number_is_passed_over(loop):
    loop.play(exact_plan("r2"))
    first = loop.seal("sums", "r2", 0, FIRST)
    before = notes(loop)
    assert deliver(loop, first) == []
    assert notes(loop) == before


def test_a_number_that_leaves_no_room_for_those_of_answers_is_refused(loop):
    proposal = messages.Proposal(exact_plan("r9").to_json(), tuple(sorted(loop.shards)), loop.members.digest)
    assert deliver(loop, loop.seal("proposal", "r9", 1 << 40, proposal)) == []
    assert "number is too large" in notes(loop)[-1]


def test_a_number_that_was_used_for_other_bytes_is_a_contradiction(loop):
    assert deliver(loop, sealed(loop))
    other = messages.RoundSums(real=pack({"p0.x": np.zeros(1)}))
    assert deliver(loop, sealed(loop, message=other)) == []
    assert "number was used for another envelope" in notes(loop)[-1]


def test_a_repetition_is_answered_with_the_same_bytes(loop):
    data = sealed(loop)
    ((header, _),) = deliver(loop, data)
    (first,) = [row["body"] for row in outbox(loop) if row["kind"] == "response"]
    for _ in range(3):
        ((again, _),) = deliver(loop, data)
        assert again == header
        assert [row["body"] for row in outbox(loop) if row["kind"] == "response"] == [first]
    loop.restart("site-1")
    loop.vaults["site-1"].deliver([data])
    assert [row["body"] for row in outbox(loop) if row["kind"] == "response"] == [first]
    assert len(loop.lines("site-1")) == len({str(line) for line in loop.lines("site-1")})


def test_the_same_proposal_again_is_passed_over_and_a_newer_one_is_answered_anew(loop):
    plan = exact_plan()
    proposal = messages.Proposal(plan.to_json(), ("site-1", "site-2", "site-3"), loop.members.digest)
    assert deliver(loop, loop.seal("proposal", "r1", 0, proposal)) == []
    ((header, said),) = deliver(loop, loop.seal("proposal", "r1", 1, proposal))
    assert (header.number, said.status) == (1000, "approved")


def test_acknowledgements_leave_even_if_nothing_else_does(loop):
    loop.read("site-1")
    data = wrong_key(loop)
    vault = loop.vaults["site-1"]
    vault.deliver([data])
    (found,) = [read_envelope(body) for _, body in vault.fetch(loop.read_up_to["site-1"], 1.0).envelopes]
    assert (found.header.kind, found.header.receivers, found.payload) == ("receipt", (), b"")
    assert digest(data) in found.header.receipts


# -- whatever comes --------------------------------------------------------------------------------------------------


def nothing_but_refusals(loop, data, name="site-1"):
    lines, secrets = len(loop.lines(name)), [row["body"] for row in outbox(loop, name) if row["kind"] == "response"]
    loop.vaults[name].deliver([data])
    assert digest(data) in receipts(loop, name)
    said_refusals(loop, name)
    assert len(loop.lines(name)) == lines
    assert [row["body"] for row in outbox(loop, name) if row["kind"] == "response"] == secrets


@MANY
@given(st.binary(max_size=400))
def test_garbage_is_acknowledged_and_not_answered(shared, data):
    nothing_but_refusals(shared, data)


@MANY
@given(st.data())
def test_an_envelope_in_which_a_byte_has_changed_is_not_answered(shared, data):
    true = sealed(shared)
    at = data.draw(st.integers(0, len(true) - 1))
    changed = true[:at] + bytes([true[at] ^ data.draw(st.integers(1, 255))]) + true[at + 1 :]
    cut = changed[: data.draw(st.integers(0, len(changed)))] if data.draw(st.booleans()) else changed
    nothing_but_refusals(shared, cut)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@MANY
@given(st.sampled_from(["proposal", "sums", "secure"]), st.binary(max_size=60) | VALUES.map(msgspec.msgpack.encode))
def test_a_coordinator_that_seals_garbage_gets_refusals_at_most(shared, kind, payload):
    number = int.from_bytes(digest(payload)[:3], "big") + 1
    data = shared.seal(kind, "r1", number, payload, round=number)
    nothing_but_refusals(shared, data)


FIELDS = sorted(exact_plan().to_json())


@settings(MANY, max_examples=400)
@given(st.sampled_from(FIELDS), VALUES, st.sampled_from(["r1", "r9"]))
def test_a_plan_with_anything_in_one_of_its_fields_is_refused_at_most(shared, field, value, run):
    plan = {**exact_plan(run).to_json(), field: value}
    proposal = messages.Proposal(plan, ("site-1", "site-2", "site-3"), shared.members.digest)
    number = int.from_bytes(digest(messages.write_message(proposal))[:3], "big")
    shared.vaults["site-1"].deliver([shared.seal("proposal", run, number, proposal)])
    for header, message in shared.read("site-1"):
        assert header.kind in ("consent", "refusal")
        assert message.code in REASONS or message.code == ""


@settings(MANY, max_examples=200)
@given(st.dictionaries(st.sampled_from(["effort", "max_iter", "tol", "rounds", "restarts", "x"]), VALUES, max_size=2))
def test_a_plan_with_any_parameters_is_refused_at_most(shared, parameters):
    plan = {**exact_plan("r8").to_json(), "parameters": parameters, "method": "bmf"}
    proposal = messages.Proposal(plan, ("site-1", "site-2", "site-3"), shared.members.digest)
    number = int.from_bytes(digest(messages.write_message(proposal))[:3], "big")
    shared.vaults["site-1"].deliver([shared.seal("proposal", "r8", number, proposal)])
    assert all(header.kind in ("consent", "refusal") for header, _ in shared.read("site-1"))


# -- member lists ----------------------------------------------------------------------------------------------------


def test_only_newer_member_lists_are_taken(loop):
    newer = loop.sign_members(3)
    deliver(loop, newer.data)
    deliver(loop, loop.sign_members(2, without=("site-1",)).data)
    assert loop.vaults["site-1"].members.digest == newer.digest
    loop.restart("site-1")
    assert loop.vaults["site-1"].members.digest == newer.digest


def test_a_member_list_that_the_offline_key_has_not_signed_is_refused(loop):
    forged = SignedMembers.sign(loop.sign_members(2).listed, loop.run_key)
    deliver(loop, forged.data)
    assert loop.vaults["site-1"].members.listed.number == 1
    assert "has not signed" in notes(loop)[-1]


def test_two_member_lists_of_one_number_are_a_contradiction(loop):
    deliver(loop, loop.sign_members(1, without=("site-3",)).data)
    assert loop.vaults["site-1"].members.digest == loop.members.digest
    assert "same number" in notes(loop)[-1]


def test_a_site_that_was_revoked_answers_nothing_any_more(loop):
    deliver(loop, loop.sign_members(2, without=("site-1",)).data)
    assert deliver(loop, sealed(loop)) == []
    assert "not on the member list" in notes(loop)[-1]
    assert any(event.kind == "members" and "NOT ON IT" in event.text for event in loop.events)


def test_a_site_whose_key_was_replaced_answers_nothing_with_the_old_one(loop):
    deliver(loop, loop.sign_members(2, replaced={"site-1": Identity.create()}).data)
    assert deliver(loop, sealed(loop)) == []


def test_keys_of_runs_that_were_replaced_count_for_nothing(loop):
    old = sealed(loop)
    loop.run_key = Identity.create()
    deliver(loop, loop.sign_members(2).data)
    assert deliver(loop, old) == []
    assert "has not signed" in notes(loop)[-1]


def test_a_new_list_ends_what_was_agreed_under_the_old_one_until_it_is_proposed_again(loop):
    loop.members = loop.sign_members(2)
    loop.deliver(loop.members.data)
    ((_, refusal),) = deliver(loop, sealed(loop))
    assert refusal.code == "members"
    said = loop.propose(exact_plan(), number=1)
    assert said["site-1"].status == "approved"


def test_a_peer_s_replaced_key_must_be_confirmed_before_masked_sums(loop):
    plan = loop.masked(exact_plan("m1"))
    assert loop.propose(plan)["site-1"].status == "approved"
    loop.keys["site-3"] = Identity.create()
    loop.members = loop.sign_members(2)
    loop.deliver(loop.members.data, to=["site-1", "site-2"])
    again = loop.masked(exact_plan("m2"))
    proposal = messages.Proposal(again.to_json(), ("site-1", "site-2", "site-3"), loop.members.digest)
    data = loop.seal("proposal", "m2", 0, proposal)
    ((_, said),) = deliver(loop, data)
    assert (said.status, said.code) == ("waiting", "roster")
    loop.vaults["site-1"].confirm(["site-3"], by="a person")
    assert loop.last("site-1", "consent").status == "approved"
    old = replace(plan, run_id="m3")
    proposal = messages.Proposal(old.to_json(), ("site-1", "site-2", "site-3"), loop.members.digest)
    ((_, said),) = deliver(loop, loop.seal("proposal", "m3", 0, proposal))
    assert said.code == "members", "the plan names the old keys"
