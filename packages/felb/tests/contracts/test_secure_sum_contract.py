"""What a secure sum must do, whatever is lost, repeated, forged or asked for: the exact sum, or nothing."""

import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from secure_play import KEYS, REQUEST, STEPS, Sites, is_exact, losing, names_of, some_inputs

from felb.errors import FederationError, InputError
from felb.secure_sum.protocol import (
    FromSite,
    Opening,
    Roster,
    Terms,
    ToSite,
    decode,
    encode,
    member_of,
    new_signing_key,
    signer,
    unmasking_text,
)
from felb.secure_sum.site import SecureSite, SiteState

SIZES = [3, 4, 5, 7, 10, 20, 50]


@pytest.mark.parametrize("n", SIZES)
def test_the_sum_is_exact_and_later_rounds_take_three_trips(n):
    sites, steps = Sites(n), []
    server = sites.server()
    for number in range(2 if n < 50 else 1):
        inputs = some_inputs(sites.names, seed=number)
        courier = lambda trip, name, deliver: (steps.append((number, trip.step)), deliver())[1]  # noqa: E731, B023
        total = sites.play(server.aggregate(number, REQUEST), inputs, courier=courier)
        assert is_exact(total, inputs)
        assert (total.missing, total.attempts) == ((), 1)
    trips = list(dict.fromkeys(steps))
    assert [step for number, step in trips if number == 0] == list(STEPS)
    assert n == 50 or [step for number, step in trips if number == 1] == list(STEPS[2:])


@pytest.mark.parametrize("size", [0, 1, 2, (1 << 17) - 1, 1 << 17, (1 << 17) + 1])
def test_vectors_of_any_length(size):
    sites = Sites(3)
    inputs = some_inputs(sites.names, size)
    assert is_exact(sites.play(sites.server().aggregate(0, REQUEST), inputs), inputs)


def test_numbers_wrap_around_and_so_does_their_sum():
    sites = Sites(3)
    inputs = {name: np.array([2**63 - 1, -(2**63)]) for name in sites.names}
    total = sites.play(sites.server().aggregate(0, REQUEST), inputs)
    np.testing.assert_array_equal(total.vector, [2**63 - 3, -(2**63)])


@pytest.mark.parametrize("n", [4, 7, 10])
@pytest.mark.parametrize("step", STEPS)
def test_a_site_that_is_lost_at_a_step_costs_at_most_one_repetition(n, step):
    sites, inputs = Sites(n), some_inputs(names_of(n))
    server = sites.server()
    lost = sites.names[1]
    total = sites.play(server.aggregate(0, REQUEST), inputs, courier=losing({lost: step}))
    assert is_exact(total, inputs)
    assert total.attempts == 1, "n − d sites are left, so that nothing needs to be repeated"
    in_the_sum = step in ("consistency", "unmask")
    assert (lost in total.survivors, total.missing) == (in_the_sum, () if in_the_sum else (lost,))
    after = sites.play(server.aggregate(1, REQUEST), inputs, courier=losing({lost: "keys"}))
    assert is_exact(after, inputs)
    assert after.missing == (lost,)
    sites.play(server.aggregate(2, REQUEST), inputs)
    back = sites.play(server.aggregate(3, REQUEST), inputs)
    assert (back.missing, is_exact(back, inputs)) == ((), True)


def test_a_site_that_missed_one_trip_is_back_in_the_next_round():
    sites, inputs = Sites(5), some_inputs(names_of(5))
    server, late = sites.server(), sites.names[2]

    def courier(trip, name, deliver):
        return None if (trip.step, name) == ("masked input", late) else deliver()

    assert sites.play(server.aggregate(0, REQUEST), inputs, courier=courier).missing == (late,)
    back = sites.play(server.aggregate(1, REQUEST), inputs)
    assert (back.missing, is_exact(back, inputs)) == ((), True)


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_round_that_lost_too_many_sites_for_a_while_is_asked_again_with_new_keys(step):
    """With three sites none may be missing, so the loss of any reply repeats the round."""
    sites, inputs, lost = Sites(3), some_inputs(names_of(3)), []

    def courier(trip, name, deliver):
        reply = deliver()
        if trip.step == step and not lost:
            lost.append(name)
            return None
        return reply

    server = sites.server()
    total = sites.play(server.aggregate(0, REQUEST), inputs, courier=courier)
    assert is_exact(total, inputs)
    assert (total.missing, total.attempts) == ((), 2)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("whose", ["of another site", "of an earlier sum"])
def test_a_reply_that_is_not_a_site_s_own_for_this_sum_counts_as_none(step, whose):
    sites, inputs, told = Sites(5), some_inputs(names_of(5)), {}
    swapped = sites.names[2]

    def courier(trip, name, deliver):
        reply, earlier = deliver(), told.get((trip.step, swapped))
        told[trip.step, name] = reply
        if earlier is None or (trip.step, name) != (step, swapped):
            return reply
        return told[step, sites.names[1]] if whose == "of another site" else earlier

    assert is_exact(sites.play(sites.server().aggregate(0, REQUEST), inputs, courier=courier), inputs)
    total = sites.play(sites.server(first=10).aggregate(1, REQUEST), inputs, courier=courier)
    assert is_exact(total, inputs)
    assert total.attempts == 1
    assert total.missing == (() if step in STEPS[3:] else (swapped,))


def test_a_site_that_seals_shares_for_some_sites_only_is_missing():
    sites, inputs = Sites(5), some_inputs(names_of(5))
    odd = sites.names[2]

    def courier(trip, name, deliver):
        reply = deliver()
        if (trip.step, name) != ("shares", odd):
            return reply
        shares = decode(reply, FromSite).setup
        fewer = {other: packet for other, packet in shares.sealed.items() if other != sites.names[0]}
        return encode(FromSite(setup=msgspec.structs.replace(shares, sealed=fewer)))

    total = sites.play(sites.server().aggregate(0, REQUEST), inputs, courier=courier)
    assert (total.missing, is_exact(total, inputs)) == ((odd,), True)


@pytest.mark.parametrize("kind", ["seeds", "keys"])
def test_a_false_share_is_noticed_and_opens_nothing(kind):
    """It is signed by a site that has turned; the secret that comes out is not the one that was committed to."""
    sites, inputs = Sites(4), some_inputs(names_of(4))
    odd, lost = sites.names[0], sites.names[3]

    def courier(trip, name, deliver):
        if name == lost and trip.step == "masked input":
            return None
        reply = deliver()
        if (trip.step, name) != ("unmask", odd):
            return reply
        told = decode(reply, FromSite).sum
        wrong = {owner: share[:-1] + bytes([share[-1] ^ 1]) for owner, share in getattr(told, kind).items()}
        told = msgspec.structs.replace(told, **{kind: wrong})
        text = unmasking_text(told.context, odd, told.seeds, told.keys)
        return encode(FromSite(sum=msgspec.structs.replace(told, signature=signer(sites.keys[odd])(text))))

    with pytest.raises(FederationError, match="do not fit together"):
        sites.play(sites.server().aggregate(0, REQUEST), inputs, courier=courier)


@pytest.mark.parametrize("wrong", ["signature", "owners"])
def test_shares_that_are_not_signed_or_not_of_all_owners_count_as_none(wrong):
    sites, inputs = Sites(5), some_inputs(names_of(5))
    odd = sites.names[0]

    def courier(trip, name, deliver):
        reply = deliver()
        if (trip.step, name) != ("unmask", odd):
            return reply
        told = decode(reply, FromSite).sum
        seeds = {owner: bytes(len(share)) for owner, share in told.seeds.items()}
        if wrong == "owners":
            seeds = {odd: seeds[odd]}
            signature = signer(sites.keys[odd])(unmasking_text(told.context, odd, seeds, told.keys))
            told = msgspec.structs.replace(told, signature=signature)
        return encode(FromSite(sum=msgspec.structs.replace(told, seeds=seeds)))

    total = sites.play(sites.server().aggregate(0, REQUEST), inputs, courier=courier)
    assert (total.missing, total.attempts, is_exact(total, inputs)) == ((), 1, True)


def test_an_input_that_was_changed_on_its_way_is_not_in_the_sum():
    sites, inputs = Sites(5), some_inputs(names_of(5))
    odd = sites.names[0]

    def courier(trip, name, deliver):
        reply = decode(deliver(), FromSite)
        if (trip.step, name) == ("masked input", odd):
            vector = reply.sum.vector[:-1] + bytes([reply.sum.vector[-1] ^ 1])
            reply = FromSite(reply.setup, msgspec.structs.replace(reply.sum, vector=vector))
        return encode(reply)

    total = sites.play(sites.server().aggregate(0, REQUEST), inputs, courier=courier)
    assert (total.missing, is_exact(total, inputs)) == ((odd,), True)


def test_inputs_of_different_shapes_are_not_added_up():
    sites, inputs = Sites(3), some_inputs(names_of(3))
    inputs[sites.names[1]] = inputs[sites.names[1]][:-1]
    with pytest.raises(FederationError, match="different names or shapes"):
        sites.play(sites.server().aggregate(0, REQUEST), inputs)


@pytest.mark.parametrize("n", [4, 5, 10])
def test_a_site_that_sends_arrays_of_another_shape_is_left_out_and_stops_nobody(n):
    sites, inputs = Sites(n), some_inputs(names_of(n))
    odd = sites.names[-1]
    inputs[odd] = np.concatenate([inputs[odd]] * 2)
    server = sites.server()
    for number in range(2):
        total = sites.play(server.aggregate(number, REQUEST), inputs)
        assert (total.missing, total.attempts, is_exact(total, inputs)) == ((odd,), 1, True)


def test_survivors_that_were_named_before_a_restart_are_those_of_the_sum_or_there_is_none():
    sites, inputs = Sites(4), some_inputs(names_of(4))
    named = tuple(sites.names[:3])
    total = sites.play(sites.server().aggregate(0, REQUEST, named=named), inputs)
    assert (total.survivors, is_exact(total, inputs)) == (named, True)
    lost = losing({named[1]: "masked input"})
    with pytest.raises(FederationError, match="others have confirmed"):
        sites.play(sites.server(first=10).aggregate(0, REQUEST, named=named), inputs, courier=lost)


@pytest.mark.parametrize("step", STEPS)
def test_without_enough_sites_nothing_is_learned(step):
    sites, inputs = Sites(5), some_inputs(names_of(5))
    lost = dict.fromkeys(sites.names[:2], step)
    with pytest.raises(FederationError, match="nothing was learned"):
        sites.play(sites.server().aggregate(0, REQUEST), inputs, courier=losing(lost))


@settings(max_examples=60)
@given(st.data())
def test_any_schedule_of_losses_and_damage_gives_the_exact_sum_or_nothing(data):
    n = data.draw(st.sampled_from([3, 4, 5, 7]), "n")
    sites = Sites(n, dropouts=data.draw(st.integers(0, Sites(n).roster.most_dropouts), "dropouts"))
    server, seen, waiting = sites.server(), [], {}

    def courier(trip, name, deliver):
        for late in waiting.pop(name, ()):
            with contextlib.suppress(FederationError):
                late()
        fate = data.draw(st.sampled_from(["arrives"] * 12 + FATES), f"{trip.step} {name}")
        if fate == "lost on the way":
            return None
        if fate == "late":
            waiting.setdefault(name, []).append(deliver)
            return None
        try:
            reply = deliver()
        except FederationError:  # it was told something in another order
            return None
        if fate == "repeated":
            assert deliver() == reply, "a message that comes again gets the same reply"
        seen.append(reply)
        return damaged(reply, fate, seen, data)

    for number in range(2):
        inputs = some_inputs(sites.names, seed=number)
        try:
            total = sites.play(server.aggregate(number, REQUEST), inputs, courier=courier)
        except FederationError:
            event("nothing")
            continue
        event(f"sum of {n - len(total.survivors)} fewer in {total.attempts} attempts")
        assert is_exact(total, inputs)
        assert len(total.survivors) >= n - sites.terms.dropouts
        assert sorted(total.survivors + total.missing) == sites.names


FATES = ["lost on the way", "lost on the way back", "late", "truncated", "bit flipped", "replayed", "repeated"]


def damaged(reply, fate, seen, data):
    match fate:
        case "lost on the way back":
            return None
        case "truncated":
            return reply[: data.draw(st.integers(0, len(reply) - 1))]
        case "bit flipped":
            at = data.draw(st.integers(0, len(reply) - 1))
            return reply[:at] + bytes([reply[at] ^ 1 << data.draw(st.integers(0, 7))]) + reply[at + 1 :]
        case "replayed":
            return data.draw(st.sampled_from(seen))
        case _:
            return reply


# -- who takes part --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["run", "plan", "roster"])
def test_sites_with_other_rosters_plans_or_runs_do_not_add_up(what):
    sites, inputs = Sites(3), some_inputs(names_of(3))
    first, roster = sites.names[0], sites.roster
    if what == "roster":
        roster = Roster((*roster.members, member_of("site-99", new_signing_key())))
    terms = msgspec.structs.replace(sites.terms, **{what: roster.digest if what == "roster" else "other"})
    sites.sites[first] = SecureSite(first, roster, terms, signer(sites.keys[first]))
    with pytest.raises(FederationError, match="nothing was learned"):
        sites.play(sites.server().aggregate(0, REQUEST), inputs)


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_certificate_keys_sign_as_well(kind):
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    made = [rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())]
    sites = Sites(4, keys=[*made, *KEYS])
    inputs = some_inputs(sites.names)
    total = sites.play(sites.server().aggregate(0, REQUEST), inputs)
    assert is_exact(total, inputs)
    assert len(total.survivors) == 4


def test_a_roster_has_three_to_fifty_different_sites_with_keys_that_sign():
    members = [member_of(name, key) for name, key in zip(names_of(50), KEYS, strict=True)]
    assert Roster(tuple(members[::-1])) == Roster(tuple(members))
    wrong = [members[:2], [*members, member_of("more", new_signing_key())], [*members[:3], members[0]]]
    wrong += [[*members[:3], msgspec.structs.replace(members[0], name="twin")]]
    wrong += [[*members[:3], msgspec.structs.replace(members[4], key=key)] for key in (b"", b"x" * 44)]
    for listed in wrong:
        with pytest.raises(InputError, match=r"roster|secure aggregation needs 3 to 50"):
            Roster(tuple(listed))
    assert Roster(tuple(members[:3])).digest != Roster(tuple(members[:4])).digest


@pytest.mark.parametrize("n", range(3, 51))
def test_two_quorums_share_more_sites_than_may_collude(n):
    roster = Roster(tuple(member_of(name, key) for name, key in zip(names_of(n), KEYS, strict=False)))
    t = roster.threshold
    assert 3 * t > 2 * n
    assert t <= n
    assert 3 * (2 * t - n) > n


def test_terms_for_another_roster_or_with_too_many_dropouts_are_refused():
    sites = Sites(4)
    for terms in (
        Terms("run", "p", "0" * 64),
        Terms("run", "p", sites.roster.digest, sites.roster.most_dropouts + 1),
    ):
        with pytest.raises(InputError, match=r"roster|without"):
            SecureSite(sites.names[0], sites.roster, terms, sites.sites[sites.names[0]].sign)
    with pytest.raises(InputError, match="roster"):
        SecureSite("stranger", sites.roster, sites.terms, sites.sites[sites.names[0]].sign)


def test_a_message_that_is_too_long_is_not_even_read():
    message = encode(ToSite(setup=Opening(0)))
    assert decode(message, ToSite, limit=len(message)) == ToSite(setup=Opening(0))
    with pytest.raises(FederationError, match="at most"):
        decode(message, ToSite, limit=len(message) - 1)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused(data):
    sites = Sites(3)
    with pytest.raises(FederationError):
        sites.tell(sites.names[0], b"\xc1" + data, {})
    with contextlib.suppress(FederationError):
        sites.tell(sites.names[0], data, {})
    assert sites.states[sites.names[0]] == SiteState()
