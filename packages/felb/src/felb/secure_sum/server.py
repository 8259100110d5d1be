"""The server of a secure sum: a generator that yields messages for sites and is sent their replies.

    total = yield from SecureServer(roster, terms).aggregate(round, request)

Whoever plays it brings each message to its site and sends back the replies that came, by the names of the sites; a site
without a reply, or with one that does not hold, is missing from that step on. The generator has no I/O and no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from felb.errors import FederationError
from felb.secure_sum.keys import SECRET, public_of
from felb.secure_sum.protocol import (
    MOST_BYTES,
    Confirmation,
    Confirmations,
    Context,
    FromSite,
    KeyList,
    KeyOffer,
    MaskedInput,
    MaskOrder,
    Opening,
    SealedShares,
    SurvivorList,
    Terms,
    ToSite,
    Unmasking,
    add_mask_into,
    check_terms,
    commitment,
    decode,
    encode,
    input_text,
    joined_secret,
    offer_holds,
    offers_digest,
    pair_key,
    pair_sign,
    seed_key,
    survivors_text,
    unmasking_text,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.secure_sum.protocol import Roster

StepName = Literal["keys", "shares", "masked input", "consistency", "unmask"]
ATTEMPTS = 2
"""Of a round: a site that is lost costs one repetition at most, with new keys."""


@dataclass(frozen=True, slots=True)
class Trip:
    """Messages to sites.

    Parameters
    ----------
    step : what the sites are asked for; "masked input" needs the algorithm's request to travel along
    messages : for each site
    survivors : sites that are named to be in the sum, in the trip that asks for their consistency; a server that may be
        restarted keeps them before it sends them
    """

    step: StepName
    messages: Mapping[str, bytes]
    survivors: tuple[str, ...] = ()


Replies = Mapping[str, bytes]
"""What came back, by the names of the sites."""


@dataclass(frozen=True, slots=True)
class SecureTotal:
    """The sum of a round: all that the server learns.

    Parameters
    ----------
    vector : Σ_i x_i over the survivors mod 2^64, as signed whole numbers
    layout : what the numbers are, in the words of the sites
    survivors : sites in the sum
    missing : the other sites of the roster
    attempts : how often the round was asked
    """

    vector: NDArray[np.int64]
    layout: bytes
    survivors: tuple[str, ...]
    missing: tuple[str, ...]
    attempts: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Keys that were offered and shares that were sealed for a sum."""

    number: int
    offers: tuple[KeyOffer, ...]
    sealed: Mapping[str, Mapping[str, bytes]]

    @property
    def participants(self) -> tuple[str, ...]:
        """Sites that have sent shares, in order."""
        return tuple(sorted(self.sealed))

    def order(self, site: str, context: Context) -> MaskOrder:
        """Return the order of an input from a site, with the shares that the others have sent it."""
        packets = {sender: packets[site] for sender, packets in self.sealed.items() if sender != site}
        return MaskOrder(self.number, context.round, context.request, packets)


class TooFewError(FederationError):
    """Too few sites are left for a sum; nothing was learned."""


class SecureServer:
    """The server's side of the secure sums of a run.

    Parameters
    ----------
    roster : of the sites
    terms : that the sites have agreed to
    first : number of the first keys; a server that was restarted needs one above all that it has used before
    """

    def __init__(self, roster: Roster, terms: Terms, *, first: int = 0) -> None:
        check_terms(terms, roster)
        self._roster, self._terms, self._next = roster, terms, first
        self._least = len(roster.names) - terms.dropouts
        self._prepared: Prepared | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites of the roster, in order."""
        return self._roster.names

    def needed(self, trip: Trip) -> int:
        """Return how many replies to a trip suffice to go on."""
        return self._roster.threshold if trip.step in ("consistency", "unmask") else self._least

    def aggregate(
        self, number: int, request: str, *, named: tuple[str, ...] = ()
    ) -> Generator[Trip, Replies, SecureTotal]:
        """Yield the trips of one round, and return its sum; the round is asked again once if too few sites are left.

        Parameters
        ----------
        number : of the round in the run
        request : digest of the request, which each site must find to be that of what it is asked
        named : survivors that were named for this round before a restart; sites confirm no others
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._prepared is None:
                    self._prepared = yield from self._prepare()
                prepared, self._prepared = self._prepared, None
                context, opening = self._context(prepared, number, request), self._opening()
                inputs, offers = yield from self._masked(prepared, context, opening)
                survivors = tuple(sorted(inputs))
                if not set(named) <= set(survivors):
                    raise TooFewError("a site is lost that others have confirmed to be in the sum of this round")
                # Sites that have signed a list sign no other one, so it is asked for again.
                named = survivors = named or survivors
                heard, offers = yield from self._confirmed(context, survivors, opening, offers=offers)
                listed = self._key_list(opening, offers)
                trip = self._unmask_trip(context, survivors, heard, listed=listed)
                replies = _read((yield trip), trip)
                total = self._opened(prepared, context, {site: inputs[site] for site in survivors}, replies=replies)
            except TooFewError as error:
                reason = error
                continue
            self._prepared = self._sealed(listed, replies)
            missing = tuple(name for name in self._roster.names if name not in survivors)
            return SecureTotal(total, inputs[survivors[0]].layout, survivors, missing, attempt)
        raise TooFewError(f"round {number}: {reason}; nothing was learned")

    # -- keys and shares ---------------------------------------------------------------------------------------------

    def _opening(self) -> Opening:
        self._next += 1
        return Opening(self._next - 1)

    def _prepare(self) -> Generator[Trip, Replies, Prepared]:
        """Exchange keys and shares in two trips of their own."""
        opening = self._opening()
        trip = Trip("keys", {name: encode(ToSite(setup=opening)) for name in self._roster.names})
        replies = _read((yield trip), trip)
        offers = self._key_list(opening, self._offers(opening, replies))
        if offers is None:
            raise TooFewError(f"fewer than {self._least} sites have offered keys")
        trip = Trip("shares", {offer.site: encode(ToSite(setup=offers)) for offer in offers.offers})
        prepared = self._sealed(offers, _read((yield trip), trip))
        if prepared is None:
            raise TooFewError(f"fewer than {self._least} sites have sent shares")
        return prepared

    def _offers(self, opening: Opening, replies: Mapping[str, FromSite]) -> dict[str, KeyOffer]:
        """Return the offers that hold."""
        return {
            site: offer
            for site, reply in replies.items()
            if isinstance(offer := reply.setup, KeyOffer)
            and (offer.site, offer.setup) == (site, opening.setup)
            and offer_holds(offer, self._terms, self._roster)
        }

    def _key_list(self, opening: Opening, offers: Mapping[str, KeyOffer]) -> KeyList | None:
        """Return the list of offers, if they are enough."""
        in_order = tuple(offer for _, offer in sorted(offers.items()))
        return KeyList(opening.setup, in_order) if len(in_order) >= self._least else None

    def _sealed(self, listed: KeyList | None, replies: Mapping[str, FromSite]) -> Prepared | None:
        """Return the shares of the sites that have sent one for each other, if they are enough."""
        if listed is None:
            return None
        names = {offer.site for offer in listed.offers}
        sealed = {
            site: shares.sealed
            for site, reply in sorted(replies.items())
            if isinstance(shares := reply.setup, SealedShares)
            and (shares.site, shares.setup) == (site, listed.setup)
            and shares.sealed.keys() == names - {site}
        }
        return Prepared(listed.setup, listed.offers, sealed) if len(sealed) >= self._least else None

    # -- the sum -----------------------------------------------------------------------------------------------------

    def _context(self, prepared: Prepared, number: int, request: str) -> Context:
        offers = offers_digest(prepared.offers)
        return Context(self._terms, prepared.number, number, request, offers, prepared.participants)

    def _masked(
        self, prepared: Prepared, context: Context, opening: Opening
    ) -> Generator[Trip, Replies, tuple[dict[str, MaskedInput], dict[str, KeyOffer]]]:
        """Ask for masked inputs and, in the same trip, all sites of the roster for the keys of the next sum."""
        name = context.digest()
        messages = {
            site: ToSite(opening, prepared.order(site, context) if site in prepared.sealed else None)
            for site in self._roster.names
        }
        trip = Trip("masked input", {site: encode(message) for site, message in messages.items()})
        replies = _read((yield trip), trip)
        inputs = {}
        for site, reply in sorted(replies.items()):
            told = reply.sum
            if not isinstance(told, MaskedInput) or (told.site, told.context) != (site, name):
                continue
            text = input_text(name, site, told.layout, told.vector)
            if len(told.vector) % 8 == 0 and self._roster.verifies(site, told.signature, text):
                inputs[site] = told
        # A site whose arrays are not those of most others is left out, like one that is lost: it must not stop them.
        looks = {site: (told.layout, len(told.vector)) for site, told in inputs.items()}
        usual = Counter(looks.values()).most_common(1)
        alike = {site: told for site, told in inputs.items() if looks[site] == usual[0][0]}
        if len(alike) < self._least <= len(inputs):
            raise FederationError(f"round {context.round}: sites have sent arrays of different names or shapes")
        if len(alike) < self._least:
            raise TooFewError(f"only {len(inputs)} sites have sent their input, of {self._least} that must be in a sum")
        return alike, self._offers(opening, replies)

    def _confirmed(
        self, context: Context, survivors: tuple[str, ...], opening: Opening, *, offers: dict[str, KeyOffer]
    ) -> Generator[Trip, Replies, tuple[dict[str, bytes], dict[str, KeyOffer]]]:
        """Ask the survivors to confirm each other and, in the same trip, those without new keys once more for them."""
        name = context.digest()
        messages = {
            site: ToSite(
                opening if site not in offers else None, SurvivorList(name, survivors) if site in survivors else None
            )
            for site in self._roster.names
            if site in survivors or site not in offers
        }
        trip = Trip("consistency", {site: encode(message) for site, message in messages.items()}, survivors)
        replies = _read((yield trip), trip)
        text = survivors_text(name, survivors)
        heard = {
            site: told.signature
            for site, reply in replies.items()
            if isinstance(told := reply.sum, Confirmation)
            and (told.site, told.context) == (site, name)
            and self._roster.verifies(site, told.signature, text)
        }
        if len(heard) < self._roster.threshold:
            raise TooFewError(f"only {len(heard)} sites have confirmed the sum, of {self._roster.threshold}")
        return heard, offers | self._offers(opening, replies)

    def _unmask_trip(
        self, context: Context, survivors: tuple[str, ...], heard: dict[str, bytes], *, listed: KeyList | None
    ) -> Trip:
        """Ask survivors for their shares and, in the same trip, all sites with new keys for the shares of these."""
        confirmed = Confirmations(context.digest(), heard)
        offering = {offer.site for offer in listed.offers} if listed is not None else set()
        messages = {
            site: ToSite(listed if site in offering else None, confirmed if site in survivors else None)
            for site in sorted(offering | set(survivors))
        }
        return Trip("unmask", {site: encode(message) for site, message in messages.items()})

    def _opened(
        self,
        prepared: Prepared,
        context: Context,
        inputs: Mapping[str, MaskedInput],
        *,
        replies: Mapping[str, FromSite],
    ) -> NDArray[np.int64]:
        """Take the masks off the sum of the inputs."""
        name, t = context.digest(), self._roster.threshold
        lost = [site for site in prepared.participants if site not in inputs]
        told = {
            site: shares
            for site, reply in sorted(replies.items())
            if isinstance(shares := reply.sum, Unmasking)
            and (shares.site, shares.context) == (site, name)
            and (sorted(shares.seeds), sorted(shares.keys)) == (sorted(inputs), lost)
            and self._roster.verifies(site, shares.signature, unmasking_text(name, site, shares.seeds, shares.keys))
        }
        if len(told) < t:
            raise TooFewError(f"only {len(told)} sites have sent shares to open the sum, of {t}")
        quorum = {self._roster.position(site): shares for site, shares in list(told.items())[:t]}
        offers = {offer.site: offer for offer in prepared.offers}
        total = np.zeros(len(next(iter(inputs.values())).vector) // 8, np.uint64)
        for site, given in inputs.items():
            total += np.frombuffer(given.vector, "<u8")
            seed = joined_secret({at: shares.seeds[site] for at, shares in quorum.items()})
            if commitment(seed, self._terms, prepared.number) != offers[site].seed:
                raise FederationError(f"the shares of the seed of {site} do not fit together; one of them is wrong")
            add_mask_into(total, seed_key(seed, name), sign=-1)
        for site in lost:
            private = joined_secret({at: shares.keys[site] for at, shares in quorum.items()})
            if len(private) != SECRET or public_of(private) != offers[site].masks:
                raise FederationError(f"the shares of the key of {site} do not fit together; one of them is wrong")
            for other in inputs:
                # What the other has added is taken off, and what it has subtracted is given back.
                add_mask_into(total, pair_key(private, offers[other].masks, name), sign=-pair_sign(other, site))
        return total.view(np.int64)


def _read(replies: Replies, trip: Trip) -> dict[str, FromSite]:
    """Return the replies that can be read, of sites that were asked."""
    read = {}
    for site in trip.messages:
        if site not in replies:
            continue
        try:
            read[site] = decode(replies[site], FromSite, limit=MOST_BYTES)
        except FederationError:
            continue
    return read
