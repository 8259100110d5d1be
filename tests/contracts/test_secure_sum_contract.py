"""What a secure sum must do, whatever is lost, repeated, forged or asked for: the exact sum, or nothing."""

import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from secure_play import KEYS, REQUEST, STEPS, Sites, is_exact, losing, names_of, some_inputs

from felb.errors import FederationError, InputError
from felb.privacy.secure_masks import public_of
from felb.privacy.secure_messages import (
    Confirmations,
    FromSite,
    KeyList,
    MaskOrder,
    Opening,
    SurvivorList,
    ToSite,
    decode,
    encode,
)
from felb.privacy.secure_roster import Roster, member_of, new_signing_key, signer
from felb.privacy.secure_site import SecureSite, SiteState
from felb.privacy.secure_sum import Context, Terms, offer_text, pair_key, seed_key, survivors_text, unmasking_text

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


# -- servers that do not keep to the protocol ------------------------------------------------------------------------


class Adversary:
    """A server, with the keys and states of some colluding sites, that asks honest sites for whatever it likes."""

    def __init__(self, n, colluders=0):
        self.sites = Sites(n)
        self.inputs = some_inputs(self.sites.names)
        self.colluders = self.sites.names[n - colluders :]
        self.honest = self.sites.names[: n - colluders]
        self.learned = {}  # context -> sites -> what they told

    def ask(self, name, **parts):
        """Return what a site says to a trip, or None if it refuses."""
        try:
            return decode(self.sites.tell(name, encode(ToSite(**parts)), self.inputs), FromSite)
        except FederationError:
            return None

    def keys(self, number, names=None):
        names = names or self.sites.names
        offers = KeyList(number, tuple(self.ask(name, setup=Opening(number)).setup for name in names))
        self.sealed = {name: self.ask(name, setup=offers).setup.sealed for name in names}
        return offers

    def order(self, site, number, *, at=0, request=REQUEST, senders=None):
        senders = [name for name in senders or self.sealed if name != site]
        return MaskOrder(number, at, request, {sender: self.sealed[sender][site] for sender in senders})

    def mask(self, site, number, **options):
        reply = self.ask(site, sum=self.order(site, number, **options))
        return None if reply is None else reply.sum

    def confirm(self, site, context, survivors):
        reply = self.ask(site, sum=SurvivorList(context, tuple(survivors)))
        return None if reply is None else reply.sum.signature

    def forge(self, site, context, survivors):
        """Sign with the key of a colluding site, which has no rules."""
        return signer(self.sites.keys[site])(survivors_text(context, tuple(survivors)))

    def unmask(self, site, context, signatures):
        reply = self.ask(site, sum=Confirmations(context, signatures))
        return None if reply is None else reply.sum

    def masked(self, number, **options):
        """Open keys and have every site mask its input; return the context that all of them mean."""
        self.keys(number)
        told = {name: self.mask(name, number, **options) for name in self.sites.names}
        assert len({reply.context for reply in told.values()}) == 1
        return told[self.sites.names[0]].context


def test_two_survivor_sets_for_one_round_are_refused_in_the_same_and_in_a_new_context():
    server = Adversary(4)
    names = server.sites.names
    first = server.masked(0)
    assert server.confirm(names[0], first, names) is not None
    assert server.confirm(names[0], first, names) is not None, "the same list again is the same"
    assert server.confirm(names[0], first, names[:3]) is None
    again = server.masked(1)
    assert again != first
    assert server.confirm(names[0], again, names[:3]) is None, "for a run and round, ever"
    assert server.confirm(names[0], again, names) is not None
    assert server.confirm(names[1], again, names[:3]) is not None, "it has confirmed nothing before"


def test_an_older_round_or_another_request_in_a_confirmed_one_is_refused():
    server = Adversary(3)
    names = server.sites.names
    server.confirm(names[0], server.masked(0, at=5), names)
    server.keys(1)
    assert server.mask(names[0], 1, at=4) is None
    assert server.mask(names[0], 1, at=5, request="b" * 64) is None
    assert server.mask(names[0], 1, at=5) is not None


@pytest.mark.parametrize("other", [{"at": 5, "request": "b" * 64}, {"at": 4}], ids=["request", "older round"])
def test_of_two_inputs_that_were_masked_before_either_was_confirmed_one_sum_comes_out(other):
    server = Adversary(3)
    names = server.sites.names
    first, second = server.masked(0, at=5), server.masked(1, **other)
    assert server.confirm(names[0], first, names) is not None
    assert server.confirm(names[0], second, names) is None


def test_keys_mask_one_request_only_and_a_repeated_order_gets_the_same_bits():
    server = Adversary(4)
    name = server.sites.names[0]
    server.keys(0)
    first = server.mask(name, 0)
    assert server.mask(name, 0) == first
    assert server.mask(name, 0, at=1) is None
    assert server.mask(name, 0, request="b" * 64) is None
    assert server.mask(name, 0, senders=server.sites.names[:3]) is None, "with fewer masks"
    server.inputs[name] = server.inputs[name] + 1
    assert server.mask(name, 0) is None, "two inputs under one mask tell their difference"


def test_a_site_in_both_lists_never_has_both_of_its_secrets_told():
    server = Adversary(4)
    names = server.sites.names
    context = server.masked(0)
    signatures = {name: server.confirm(name, context, names[:3]) for name in names[:3]}
    told = server.unmask(names[0], context, signatures)
    assert (sorted(told.seeds), sorted(told.keys)) == (names[:3], names[3:])
    # The same site asked again with signatures on the other list, whoever has made them, says what it has said.
    other = {name: server.forge(name, context, names) for name in names}
    assert server.unmask(names[0], context, other) == told


def test_survivors_must_be_enough_different_participants_with_the_site_among_them():
    server = Adversary(7)
    names = server.sites.names
    context = server.masked(0)
    for survivors in (names[:4], [], names[1:], [*names, "stranger"], [*names, names[-1]], names[::-1]):
        assert server.confirm(names[0], context, survivors) is None
    assert server.confirm(names[0], "0" * 64, names) is None
    assert server.confirm(names[0], context, names[:5]) is not None


def test_shares_need_t_valid_signatures_of_survivors_on_this_list_and_context():
    server = Adversary(7)
    names = server.sites.names
    context = server.masked(0)
    assert server.unmask(names[0], context, {}) is None, "before it has confirmed anything"
    signatures = {name: server.confirm(name, context, names[:6]) for name in names[:6]}
    few = dict(list(signatures.items())[:4])
    wrong = {
        "too few": few,
        "of a site that is not in the sum": few | {names[6]: server.forge(names[6], context, names[:6])},
        "one twice": few | {names[5]: signatures[names[0]]},
        "on another list": few | {names[4]: server.forge(names[4], context, names)},
        "on another context": few | {names[4]: server.forge(names[4], "0" * 64, names[:6])},
        "of nobody": few | {"stranger": b"x" * 64, names[4]: b""},
    }
    for why, given_ in wrong.items():
        assert server.unmask(names[0], context, given_) is None, why
    assert server.unmask(names[0], context, dict(list(signatures.items())[:5])) is not None


def test_keys_that_are_forged_old_unrostered_or_too_few_are_refused():
    server = Adversary(4)
    names = server.sites.names
    old = {name: server.ask(name, setup=Opening(0)).setup for name in names}
    new = {name: server.ask(name, setup=Opening(1)).setup for name in names}
    strangers = Sites(4, keys=[new_signing_key() for _ in names])
    own = decode(strangers.tell(names[1], encode(ToSite(setup=Opening(1))), {}), FromSite).setup
    elsewhere = decode(Sites(4, plan="other").tell(names[1], encode(ToSite(setup=Opening(1))), {}), FromSite).setup
    low = msgspec.structs.replace(new[names[1]], masks=bytes(32))  # signed by a site that has turned
    text = offer_text(server.sites.terms, 1, names[1], low.channel, low.masks, low.seed)
    low = msgspec.structs.replace(low, signature=signer(server.sites.keys[names[1]])(text))
    wrong = {
        "old keys": {**new, names[1]: old[names[1]]},
        "old keys under the new number": {**new, names[1]: msgspec.structs.replace(old[names[1]], setup=1)},
        "the server's own keys": {**new, names[1]: msgspec.structs.replace(new[names[1]], masks=new[names[2]].channel)},
        "keys of an unrostered certificate": {**new, names[1]: own},
        "keys of the site for another plan": {**new, names[1]: elsewhere},
        "a site under another name": {**new, names[1]: msgspec.structs.replace(new[names[2]], site=names[1])},
        "a weak key": {**new, names[1]: low},
        "an invented site": {**new, "zoo": msgspec.structs.replace(new[names[1]], site="zoo")},
        "not its own": {name: new[name] for name in names[1:]},
        "too few": {name: new[name] for name in names[:2]},
    }
    for why, offers in wrong.items():
        assert server.ask(names[0], setup=KeyList(1, tuple(offers.values()))) is None, why
    assert server.ask(names[0], setup=KeyList(1, (*new.values(), new[names[3]]))) is None, "one twice"
    assert server.ask(names[0], setup=KeyList(1, tuple(new.values()))) is not None
    fewer = tuple(new.values())[:3]
    assert server.ask(names[0], setup=KeyList(1, fewer)) is None, "shares are made for one list"


def test_a_number_of_keys_is_used_once():
    server = Adversary(3)
    name = server.sites.names[0]
    first = server.ask(name, setup=Opening(3)).setup
    assert server.ask(name, setup=Opening(3)).setup == first
    assert server.ask(name, setup=Opening(2)) is None
    assert [server.ask(name, setup=Opening(number)).setup == first for number in (4, 5)] == [False, False]
    assert server.ask(name, setup=Opening(3)) is None, "forgotten, and not made again"


def test_shares_of_another_sender_receiver_or_list_cannot_be_opened():
    server = Adversary(4)
    names = server.sites.names
    server.keys(0)
    older = server.sealed
    server.keys(1)
    good = server.order(names[0], 1).sealed
    for wrong in (
        good | {names[1]: older[names[1]][names[0]]},
        good | {names[1]: server.sealed[names[2]][names[0]]},
        good | {names[1]: server.sealed[names[1]][names[2]]},
        good | {names[1]: good[names[1]][:-1]},
        good | {names[1]: b""},
        good | {"stranger": good[names[1]]},
        {names[1]: good[names[1]]},
    ):
        assert server.ask(names[0], sum=MaskOrder(1, 0, REQUEST, wrong)) is None
    assert server.ask(names[0], sum=MaskOrder(1, 0, REQUEST, good)) is not None


def test_messages_out_of_order_are_refused_before_the_data_is_touched():
    server = Adversary(3)
    name = server.sites.names[0]
    assert server.ask(name, sum=MaskOrder(0, 0, REQUEST, {})) is None
    assert server.ask(name, setup=KeyList(0, ())) is None
    server.ask(name, setup=Opening(0))
    assert server.ask(name, sum=MaskOrder(0, 0, REQUEST, {})) is None
    assert server.ask(name, sum=SurvivorList("0" * 64, tuple(server.sites.names))) is None
    assert server.ask(name, sum=Confirmations("0" * 64, {})) is None
    assert server.sites.answers == 0


@settings(max_examples=40)
@given(st.data())
def test_an_adversarial_server_with_colluders_opens_at_most_one_large_sum_a_round(data):
    """It names different survivors to sites, under old and new keys, and signs anything for its colluders.

    What it can open is counted: t shares of a secret, its colluders' own included.
    """
    n = data.draw(st.sampled_from([4, 5, 7]), "n")
    server = Adversary(n, colluders=(n - 1) // 3)
    names, honest, t = server.sites.names, server.honest, server.sites.roster.threshold
    opened, shares = set(), {}
    sets = [tuple(names), tuple(data.draw(st.permutations(names), "order")[: server.sites.sites[names[0]].least])]
    sets = [tuple(sorted(chosen)) for chosen in sets]
    for number in range(3):
        server.keys(number)
        told, lists = {}, {}
        trick = data.draw(st.sampled_from(["none", "none", "split", "request", "participants"]), "trick")
        odd = data.draw(st.sampled_from(honest), "site that is treated otherwise")
        for name in honest:
            request = "b" * 64 if trick == "request" and name == odd else REQUEST
            senders = sets[1] if trick == "participants" and name == odd else names
            reply = server.mask(name, number, request=request, senders=senders)
            told |= {} if reply is None else {name: reply.context}
        main = data.draw(st.sampled_from([0, 1]), "survivors")
        for name, context in told.items():
            survivors = sets[1 - main if trick == "split" and name == odd else main]
            signature = server.confirm(name, context, survivors)
            if signature is not None:
                lists.setdefault((context, survivors), {})[name] = signature
        for (context, survivors), signatures in lists.items():
            forged = {name: server.forge(name, context, survivors) for name in server.colluders}
            for name in signatures:
                reply = server.unmask(name, context, signatures | forged)
                if reply is None:
                    continue
                for kind in ("seeds", "keys"):
                    for owner in getattr(reply, kind):
                        shares.setdefault((number, owner), {}).setdefault(kind, set()).add(name)
                opened.add(survivors)
    event(f"{len(opened)} sums")
    enough = t - len(server.colluders)
    for (_, owner), by_kind in shares.items():
        if owner in honest:
            both = all(len(by_kind.get(kind, ())) >= enough for kind in ("seeds", "keys"))
            assert not both, "both secrets of one site would lay its input open"
    assert len(opened) <= 1, "two sums of one round can be subtracted"
    assert all(len(survivors) >= n - server.sites.terms.dropouts for survivors in opened)


def test_what_the_server_sees_of_a_site_does_not_show_its_input():
    """The same input under new keys has nothing in common, and each bit is set in half of the numbers."""
    server = Adversary(3)
    name = server.sites.names[0]
    server.inputs[name] = np.zeros(4096, np.int64)
    server.keys(0)
    first = np.frombuffer(server.mask(name, 0).vector, np.uint64)
    server.keys(1)
    second = np.frombuffer(server.mask(name, 1).vector, np.uint64)
    assert not np.any(first == second)
    for bit in range(64):
        assert abs(np.mean(first >> np.uint64(bit) & np.uint64(1)) - 0.5) < 0.05


def test_every_key_that_masks_depends_on_the_context():
    """Sites that are shown different things have masks that do not cancel, whoever else fails to notice."""
    ours, theirs = bytes(range(32)), bytes(range(1, 33))
    assert pair_key(ours, public_of(theirs), "a") == pair_key(theirs, public_of(ours), "a")
    assert pair_key(ours, public_of(theirs), "a") != pair_key(ours, public_of(theirs), "b")
    assert seed_key(ours, "a") != seed_key(ours, "b")
    sites = Sites(3)
    used = Context(sites.terms, 0, 0, REQUEST, "0" * 64, tuple(sites.names))
    others = [
        {"terms": msgspec.structs.replace(sites.terms, **changed)}
        for changed in ({"run": "x"}, {"plan": "x"}, {"roster": "1" * 64}, {"dropouts": 1})
    ]
    others += [{"setup": 1}, {"round": 1}, {"request": "b" * 64}, {"offers": "1" * 64}, {"participants": ("x",)}]
    digests = {msgspec.structs.replace(used, **changed).digest() for changed in others}
    assert len(digests | {used.digest()}) == len(others) + 1


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
        with pytest.raises(InputError, match=r"roster"):
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


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused(data):
    sites = Sites(3)
    with pytest.raises(FederationError):
        sites.tell(sites.names[0], b"\xc1" + data, {})
    with contextlib.suppress(FederationError):
        sites.tell(sites.names[0], data, {})
    assert sites.states[sites.names[0]] == SiteState()
