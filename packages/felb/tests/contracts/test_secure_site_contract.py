"""What a site never says, whatever a server asks for and whoever colludes with it: more than one sum of a round."""

import msgspec
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from secure_play import REQUEST, Sites, some_inputs

from felb.errors import FederationError
from felb.secure_sum.keys import public_of
from felb.secure_sum.protocol import (
    Confirmations,
    Context,
    FromSite,
    KeyList,
    MaskOrder,
    Opening,
    SurvivorList,
    ToSite,
    decode,
    encode,
    new_signing_key,
    offer_text,
    pair_key,
    seed_key,
    signer,
    survivors_text,
)


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
        good | {names[1]: server.sealed[names[0]][names[1]]},  # what it has sent itself
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
