"""A site in a secure sum: a pure state machine from (state, message) to (state, reply).

The site trusts its own roster and terms and nothing that the server says. It keeps three rules by its state alone:

- keys mask one input, ever: another request gets other keys;
- it signs one list of survivors for a run and round, ever, so that no two sums of a round can be subtracted;
- it tells one set of shares for a setup: of the seed of a survivor, or of the mask key of another site.

Whoever holds the state stores it before the reply leaves. A message that comes again gets the same reply; whatever does
not fit is an error, after which the state is as it was. There is no I/O, no clock and no network here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from felb.errors import FederationError, InputError
from felb.secure_sum.keys import SECRET, agreed_key, public_of
from felb.secure_sum.protocol import (
    MOST_SMALL_BYTES,
    SHARE,
    Confirmation,
    Confirmations,
    Context,
    Digest,
    FromSite,
    KeyList,
    KeyOffer,
    MaskedInput,
    MaskOrder,
    Name,
    Names,
    Number,
    Opening,
    SealedShares,
    SurvivorList,
    Terms,
    ToSite,
    Unmasking,
    add_mask_into,
    bound,
    check_terms,
    commitment,
    decode,
    encode,
    input_text,
    offer_holds,
    offer_text,
    offers_digest,
    opened,
    pair_key,
    pair_sign,
    sealed,
    seed_key,
    split_secret,
    survivors_text,
    unmasking_text,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.secure_sum.protocol import Roster, Sign

Answer = Callable[[MaskOrder], tuple["NDArray[np.int64]", bytes]]
"""Gives the input of a site for an order as a vector of whole numbers, and its layout; the same ones if asked again."""

KEPT_SETUPS, KEPT_ROUNDS = 2, 3
"""The setup in use and the next one; rounds whose survivors are known, of which a server asks the last one again."""


class Setup(msgspec.Struct, frozen=True):
    """The secrets of one sum, and what was said with them."""

    offer: KeyOffer
    channel: bytes
    masks: bytes
    seed: bytes
    offers: tuple[KeyOffer, ...] = ()
    shares: SealedShares | None = None
    own: bytes = b""
    context: Context | None = None
    vector: str = ""
    received: dict[Name, bytes] = {}
    survivors: Names = ()
    unmasking: Unmasking | None = None


class Confirmed(msgspec.Struct, frozen=True):
    """The one list of survivors that was signed for a round."""

    request: Digest
    survivors: Names


class SiteState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a site remembers of the secure sums of a run. It holds secrets and never leaves the site."""

    last: int = -1
    setups: dict[Number, Setup] = {}
    confirmed: dict[Number, Confirmed] = {}

    def to_bytes(self) -> bytes:
        """Return the state to be stored at the site."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> SiteState:
        """Read a stored state."""
        return decode(data, cls)

    def setup(self, number: int) -> Setup:
        """Return the setup of a number, or refuse."""
        if number not in self.setups:
            raise FederationError(f"there are no keys of number {number}; the server must open new ones")
        return self.setups[number]

    def of_context(self, digest: str) -> Setup:
        """Return the setup that was used for a sum, or refuse."""
        for setup in self.setups.values():
            if setup.context is not None and setup.context.digest() == digest:
                return setup
        raise FederationError("no input was masked for this sum")

    def with_setup(self, setup: Setup) -> SiteState:
        """Return the state with a setup put in place, and those before the last one forgotten."""
        setups = {**self.setups, setup.offer.setup: setup}
        newest = sorted(setups)[-KEPT_SETUPS:]
        return msgspec.structs.replace(
            self, last=max(self.last, setup.offer.setup), setups={number: setups[number] for number in newest}
        )


@dataclass(frozen=True)
class SecureSite:
    """What a site knows for all secure sums of a run.

    Parameters
    ----------
    name : of the site in the roster
    roster : the sites and keys that this site has confirmed
    terms : run, plan and roster; dropouts that the site puts up with
    sign : signs with the key that the others have in their rosters
    random : gives that many random bytes; tests pass their own
    """

    name: str
    roster: Roster
    terms: Terms
    sign: Sign
    random: Callable[[int], bytes] = os.urandom

    def __post_init__(self) -> None:
        if self.name not in self.roster.names:
            raise InputError(f"{self.name} is not in the roster")
        check_terms(self.terms, self.roster)

    @property
    def least(self) -> int:
        """Return n − d, the fewest sites of a sum."""
        return len(self.roster.names) - self.terms.dropouts

    def respond(self, state: SiteState, message: bytes, answer: Answer) -> tuple[SiteState, bytes]:
        """Return the next state and the reply to one message; `answer` is called if the message orders an input."""
        trip = decode(message, ToSite, limit=MOST_SMALL_BYTES)
        said: MaskedInput | Confirmation | Unmasking | None = None
        offered: KeyOffer | SealedShares | None = None
        match trip.sum:
            case MaskOrder():
                state, said = self._mask(state, trip.sum, answer)
            case SurvivorList():
                state, said = self._confirm(state, trip.sum)
            case Confirmations():
                state, said = self._unmask(state, trip.sum)
        match trip.setup:
            case Opening():
                state, offered = self._offer(state, trip.setup)
            case KeyList():
                state, offered = self._share(state, trip.setup)
        return state, encode(FromSite(offered, said))

    # -- keys and shares ---------------------------------------------------------------------------------------------

    def _offer(self, state: SiteState, opening: Opening) -> tuple[SiteState, KeyOffer]:
        if opening.setup in state.setups:
            return state, state.setups[opening.setup].offer
        if opening.setup <= state.last:
            raise FederationError(f"keys of number {opening.setup} were made before; numbers only grow")
        channel, masks, seed = (self.random(SECRET) for _ in range(3))
        public = public_of(channel), public_of(masks), commitment(seed, self.terms, opening.setup)
        signature = self.sign(offer_text(self.terms, opening.setup, self.name, *public))
        offer = KeyOffer(opening.setup, self.name, *public, signature)
        return state.with_setup(Setup(offer, channel, masks, seed)), offer

    def _share(self, state: SiteState, listed: KeyList) -> tuple[SiteState, SealedShares]:
        setup = state.setup(listed.setup)
        if setup.shares is not None:
            if listed.offers != setup.offers:
                raise FederationError("the shares of these keys were made for another list of sites")
            return state, setup.shares
        self._check_offers(setup, listed.offers)
        n, t = len(self.roster.names), self.roster.threshold
        seeds, keys = split_secret(setup.seed, t, n), split_secret(setup.masks, t, n)
        context = self._share_context(listed.offers)
        packets = {}
        for offer in listed.offers:
            if offer.site == self.name:
                continue
            at = self.roster.position(offer.site)
            key = agreed_key(setup.channel, offer.channel, _channel(context, self.name, offer.site))
            packets[offer.site] = sealed(key, seeds[at] + keys[at], context=context, nonce=self.random(12))
        shares, at = SealedShares(listed.setup, self.name, packets), self.roster.position(self.name)
        setup = msgspec.structs.replace(setup, offers=listed.offers, shares=shares, own=seeds[at] + keys[at])
        return state.with_setup(setup), shares

    def _check_offers(self, setup: Setup, offers: tuple[KeyOffer, ...]) -> None:
        names = [offer.site for offer in offers]
        if names != sorted(set(names)):
            raise FederationError("the list of keys is not in order, or names a site twice")
        if setup.offer not in offers:
            raise FederationError("the list of keys does not hold the keys of this site")
        if len(offers) < self.least:
            raise FederationError(f"{len(offers)} sites would take part; this site agrees to {self.least} or more")
        for offer in offers:
            if offer.setup != setup.offer.setup or not offer_holds(offer, self.terms, self.roster):
                raise FederationError(f"the keys of {offer.site} were not signed by a site of the roster for this sum")

    def _share_context(self, offers: tuple[KeyOffer, ...]) -> bytes:
        return bound("shares", self.terms.key_context(offers[0].setup), offers_digest(offers))

    # -- the sum -----------------------------------------------------------------------------------------------------

    def _mask(self, state: SiteState, order: MaskOrder, answer: Answer) -> tuple[SiteState, MaskedInput]:
        setup = state.setup(order.setup)
        if setup.shares is None:
            raise FederationError("an input was ordered before shares were made")
        self._check_round(state, order)
        participants = tuple(sorted({*order.sealed, self.name}))
        digest = offers_digest(setup.offers)
        context = Context(self.terms, order.setup, order.round, order.request, digest, participants)
        if setup.context is not None and setup.context != context:
            raise FederationError("these keys have masked an input for another request; the server must open new ones")
        received = self._opened(setup, order)
        numbers, layout = answer(order)
        total = np.array(numbers, dtype=np.int64).reshape(-1).view(np.uint64)
        fingerprint = hashlib.sha256(total.astype("<u8").tobytes() + layout).hexdigest()
        if setup.vector not in ("", fingerprint):
            raise FederationError(
                "another input was masked with these keys; both together would reveal their difference"
            )
        name = context.digest()
        add_mask_into(total, seed_key(setup.seed, name), sign=1)
        for offer in setup.offers:
            if offer.site in received:
                key = pair_key(setup.masks, offer.masks, name)
                add_mask_into(total, key, sign=pair_sign(self.name, offer.site))
        vector = total.astype("<u8").tobytes()
        signature = self.sign(input_text(name, self.name, layout, vector))
        setup = msgspec.structs.replace(setup, context=context, vector=fingerprint, received=received)
        return state.with_setup(setup), MaskedInput(name, self.name, layout, vector, signature)

    def _check_round(self, state: SiteState, order: MaskOrder) -> None:
        """Refuse a round that is over, and another request in a round whose survivors were signed."""
        known = state.confirmed.get(order.round)
        if known is None and order.round < max(state.confirmed, default=-1):
            raise FederationError(f"round {order.round} is over")
        if known is not None and known.request != order.request:
            raise FederationError(f"the sum of another request was confirmed in round {order.round}")

    def _opened(self, setup: Setup, order: MaskOrder) -> dict[Name, bytes]:
        """Return the shares that the other participants have sent to this site."""
        channels = {offer.site: offer.channel for offer in setup.offers if offer.site != self.name}
        if not order.sealed.keys() <= channels.keys():
            raise FederationError("shares came from a site that offered no keys")
        if len(order.sealed) + 1 < self.least:
            raise FederationError(f"{len(order.sealed) + 1} sites take part; this site agrees to {self.least} or more")
        context, received = self._share_context(setup.offers), {}
        for sender, packet in order.sealed.items():
            key = agreed_key(setup.channel, channels[sender], _channel(context, sender, self.name))
            shares = opened(key, packet, context=context)
            if shares is None or len(shares) != 2 * SHARE:
                raise FederationError(f"the shares of {sender} cannot be opened; they were not made for this sum")
            received[sender] = shares
        return received

    def _confirm(self, state: SiteState, listed: SurvivorList) -> tuple[SiteState, Confirmation]:
        setup = state.of_context(listed.context)
        context, survivors = setup.context, listed.survivors
        assert context is not None
        if list(survivors) != sorted(set(survivors)) or not set(survivors) <= set(context.participants):
            raise FederationError("the survivors are not a list of different participants in order")
        if self.name not in survivors:
            raise FederationError("a site that is not in the sum does not confirm it")
        if len(survivors) < self.least:
            raise FederationError(f"{len(survivors)} sites are in the sum; this site agrees to {self.least} or more")
        known = state.confirmed.get(context.round)
        if known is not None and known != Confirmed(context.request, survivors):
            raise FederationError(f"this site has confirmed another sum in round {context.round}")
        if known is None and context.round < max(state.confirmed, default=-1):
            raise FederationError(f"round {context.round} is over")
        confirmed = {**state.confirmed, context.round: Confirmed(context.request, survivors)}
        kept = {number: confirmed[number] for number in sorted(confirmed)[-KEPT_ROUNDS:]}
        state = msgspec.structs.replace(state, confirmed=kept)
        state = state.with_setup(msgspec.structs.replace(setup, survivors=survivors))
        signature = self.sign(survivors_text(listed.context, survivors))
        return state, Confirmation(listed.context, self.name, signature)

    def _unmask(self, state: SiteState, heard: Confirmations) -> tuple[SiteState, Unmasking]:
        setup = state.of_context(heard.context)
        if setup.unmasking is not None:
            return state, setup.unmasking
        if not setup.survivors or setup.context is None:
            raise FederationError("shares were asked for before this site has confirmed the survivors")
        text = survivors_text(heard.context, setup.survivors)
        agreed = [name for name in setup.survivors if self.roster.verifies(name, heard.signatures.get(name, b""), text)]
        if len(agreed) < self.roster.threshold:
            raise FederationError(
                f"{len(agreed)} sites have confirmed the survivors, but {self.roster.threshold} must have"
            )
        shares = {**setup.received, self.name: setup.own}
        seeds = {name: shares[name][:SHARE] for name in setup.survivors}
        keys = {name: shares[name][SHARE:] for name in setup.context.participants if name not in setup.survivors}
        signature = self.sign(unmasking_text(heard.context, self.name, seeds, keys))
        unmasking = Unmasking(heard.context, self.name, seeds, keys, signature)
        return state.with_setup(msgspec.structs.replace(setup, unmasking=unmasking)), unmasking


def _channel(context: bytes, sender: str, receiver: str) -> bytes:
    return bound("channel", context, sender, receiver)
