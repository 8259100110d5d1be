"""The sites of a run as its transport: envelopes through the relay, in the clear or with masked sums.

Rounds are closed in a fixed order, so that the process may die anywhere: the envelope of a round is kept before it is
posted, the sums are kept before anybody is told them, and only then does the relay forget the responses. What is kept
is used again after a restart. So nobody is ever told two things under one number.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from felb.errors import FederationError
from felb.federated.journal import MAX_BYTES, digest, pack, unpack
from felb.federated.protocol import Release, Sums
from felb.federated.tasks import ResponseValidator
from felb.secure_sum.protocol import MOST_BYTES as MOST_TRIP
from felb.secure_sum.protocol import Terms as SumTerms
from felb.secure_sum.releases import from_vector
from felb.secure_sum.server import SecureServer, TooFewError
from felb_sites.coordinator.record import BLOCK
from felb_sites.envelopes import COORDINATOR, MOST_HEADER, Header, read_envelope, seal, unseal
from felb_sites.messages import (
    Consent,
    Refusal,
    Response,
    RoundSums,
    SecureTrip,
    read_message,
    write_message,
)
from felb_sites.reasons import WAITING, sentence
from felb_sites.run_plan import plan_digest
from felb_sites.terms import MOMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import msgspec
    from numpy.typing import NDArray

    from felb.federated.protocol import Algorithm, ClientStates, Request
    from felb.secure_sum.protocol import Roster
    from felb.secure_sum.server import SecureTotal, Trip
    from felb_sites.coordinator.record import RunRecord
    from felb_sites.envelopes import Envelope, Kind
    from felb_sites.keys.identity import Identity
    from felb_sites.keys.members import SignedMembers
    from felb_sites.run_plan import Plan
    from felb_sites.terms import Terms

    Array = NDArray[Any]

T = TypeVar("T")
NOT_ANSWERED, ABSENT = "did not answer in time", "was not connected"
PASSING = frozenset({NOT_ANSWERED, ABSENT, *(sentence(word) for word in WAITING)})
"""Reasons that may pass by themselves; the others would come again."""
REFUSED_ROUND = 10**9
"""Refusals of rounds have numbers from here on, those of proposals lower ones."""
PER_PROPOSAL = 1000
"""Answers to proposal p have numbers from p times this on."""
LOOK_EVERY, NAMED_AFTER = 1.0, 2.0
"""Seconds between two looks at who is connected, and after which absent sites are named."""
MOST_ANSWER = 4096
"""Bytes of a consent or a refusal."""
KEYS_PER_ROUND = 4
"""Numbers of keys that a masked round may need: its own and those of the next one, twice."""
FORGET_MANY, FORGET_BYTES = 256, 1 << 24
"""Envelopes that were read, and their bytes, that may wait at the relay until it is told to delete them."""
MASKED = "masked input"
KINDS: tuple[Kind, ...] = ("response", "secure")


class Relay(Protocol):
    """What is asked of the relay, see `felb_sites.relay.client.RelayClient`."""

    def open_run(self, run: str, sites: Sequence[str], most_bytes: int) -> None:
        """Let sites send envelopes of a run."""
        ...

    def post(self, *envelopes: bytes) -> None:
        """Send envelopes; the same ones again do no harm."""
        ...

    def next(self, run: str, after: int, wait: float, count: int = 1) -> list[tuple[int, bytes]]:
        """Return envelopes for the coordinator, at the latest after so many seconds; `count` are expected."""
        ...

    def forget(self, run: str, before: int, kinds: Sequence[str]) -> None:
        """Delete envelopes for the coordinator."""
        ...

    def close_run(self, run: str) -> None:
        """Take no envelopes of a run any more."""
        ...

    def sites(self) -> Mapping[str, Any]:
        """Return who is connected."""
        ...

    def is_alive(self) -> bool:
        """Return whether the relay answers."""
        ...


class QuorumError(FederationError):
    """Too few sites answered; `reasons` says why for each of the others, and `summary` the rest of the message."""

    def __init__(self, reasons: Mapping[str, str], summary: str) -> None:
        super().__init__(f"{summary}. {in_words(reasons)}")
        self.reasons, self.summary = dict(reasons), summary


def in_words(reasons: Mapping[str, str]) -> str:
    """Return sites and their reasons as a line."""
    return "; ".join(f"{site}: {reason}" for site, reason in sorted(reasons.items()))


# -- arrays in few bytes ---------------------------------------------------------------------------------------------


def narrowed(values: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays of whole numbers in the smallest type that holds them; floats stay."""
    return {name: _narrow(np.asarray(value)) for name, value in values.items()}


def _narrow(array: Array) -> Array:
    if array.dtype.kind not in "iu" or array.size == 0:
        return array
    low, high = int(array.min()), int(array.max())
    for dtype in (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return array.astype(dtype)
    return array


def widened(values: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays as they are computed with: whole numbers in int64; floats stay.

    A number that int64 does not hold is a `FederationError`.
    """
    wide = {}
    for name, value in values.items():
        if value.dtype == np.uint64 and value.size and int(value.max()) > np.iinfo(np.int64).max:
            raise FederationError(f"{name} holds a number that no data can have")
        wide[name] = value.astype(np.int64) if value.dtype.kind in "iu" else value
    return wide


def real_fields(request: Request) -> bytes:
    """Return the real-valued fields of a request, packed; nothing if it has none."""
    found = {
        f"p{index}.{name}": np.asarray(value)
        for index, part in enumerate(request.parts)
        for name, value in part.values.items()
        if np.asarray(value).dtype.kind == "f"
    }
    return pack(found) if found else b""


# -- letters ---------------------------------------------------------------------------------------------------------


class Correspondence:
    """Sends and receives the envelopes of one run.

    Parameters
    ----------
    client : of the relay
    run : its identifier
    sites : that take part
    identity : key of the coordinator's runs
    members : returns the member list as it is now
    patience : seconds to wait for a relay that is being restarted
    on_event : told when it is waited for, and what was dropped

    Attributes
    ----------
    standing : the newest answer of each site to a proposal, with its number
    dropped : envelopes that were not what a site may send
    """

    def __init__(
        self,
        client: Relay,
        run: str,
        sites: Sequence[str],
        *,
        identity: Identity,
        members: Callable[[], SignedMembers],
        patience: float = 60.0,
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client, self.run, self.sites = client, run, tuple(sites)
        self._identity, self._members, self._patience, self._on_event = identity, members, patience, on_event
        self.listed = members().listed
        self.standing: dict[str, tuple[int, Consent | Refusal]] = {}
        self.dropped = 0
        self._refused: dict[str, tuple[int, str]] = {}
        self._after = 0
        self._kind: Kind = "response"
        self._numbers: Mapping[str, int] = {}
        self._round, self._limit = 0, 0
        self._inbox: dict[str, bytes] = {}
        self._heard: set[str] = set()
        self._looked, self._connected = -math.inf, frozenset[str]()
        self._held: list[bytes] = []
        self._unforgotten: list[int] = []

    # -- out -----------------------------------------------------------------------------------------------------

    def sealed(
        self, kind: Kind, number: int, message: msgspec.Struct, *, to: Iterable[str], of_round: int = 0
    ) -> bytes:
        """Return a message in an envelope for sites, as it travels."""
        found = {site: member for site in to if (member := self.listed.find(site)) is not None}
        header = Header(self.listed.federation, self.run, of_round, COORDINATOR, tuple(sorted(found)), kind, number)
        receivers = {site: member.seal for site, member in found.items()}
        return seal(header, write_message(message), self._identity, receivers=receivers).to_bytes()

    def hold(self, data: bytes) -> None:
        """Let an envelope be sent together with what is posted next."""
        self._held.append(data)

    def post(self, *envelopes: bytes) -> None:
        """Give envelopes to the relay, after those that are held."""
        sent = (*self._held, *envelopes)
        if sent:
            self._asked(lambda: self._client.post(*sent))
        self._held.clear()

    def open(self, most_bytes: int) -> None:
        """Let the sites send envelopes of the run."""
        self._asked(lambda: self._client.open_run(self.run, list(self.sites), most_bytes))

    def close(self) -> None:
        """Let nobody send envelopes of the run any more."""
        self._asked(lambda: self._client.close_run(self.run))

    # -- in ------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the member list again: a site that was revoked is heard no more."""
        self.listed = self._members().listed

    def listen(self, kind: Kind, numbers: Mapping[str, int], *, of_round: int, limit: int) -> None:
        """Expect one envelope a site from now on; what is expected already and has come is kept.

        Parameters
        ----------
        kind, numbers : of the envelopes
        of_round : the round that they belong to
        limit : bytes of the message
        """
        if (kind, of_round) != (self._kind, self._round):
            self._inbox.clear()
        self._inbox = {site: data for site, data in self._inbox.items() if self._numbers.get(site) == numbers.get(site)}
        self._kind, self._numbers, self._round, self._limit = kind, dict(numbers), of_round, limit
        self._heard.clear()

    def take(self) -> dict[str, bytes]:
        """Return what has come of what is expected, once."""
        came, self._inbox = self._inbox, {}
        return came

    def refusal(self, site: str, of_round: int) -> str | None:
        """Return the word by which a site has refused a round, or takes no part any more; None if it has not."""
        if self.listed.find(site) is None:
            return "revoked"
        number, word = self._refused.get(site, (-1, ""))
        if number == of_round:
            return word
        _, answer = self.standing.get(site, (-1, None))
        return answer.code if isinstance(answer, Refusal) and answer.code not in WAITING else None

    def poll(self, seconds: float, count: int = 1) -> None:
        """Wait for so many envelopes, a number of seconds at most, and read all that have come."""
        wait = max(0.0, seconds)
        for seq, data in self._asked(lambda: self._client.next(self.run, self._after, wait, count)):
            self._after = max(self._after, seq)
            self._unforgotten.append(len(data))
            try:
                self._read(data)
            except FederationError:
                self.dropped += 1

    @property
    def position(self) -> int:
        """The relay's number of the last envelope that was read."""
        return self._after

    def forget(self, *, soon: bool = False) -> None:
        """Let the relay delete the answers that were read so far; if that is asked for again `soon`, only many."""
        if soon and len(self._unforgotten) < FORGET_MANY and sum(self._unforgotten) < FORGET_BYTES:
            return
        self._asked(lambda: self._client.forget(self.run, self._after + 1, list(KINDS)))
        self._unforgotten.clear()

    def forget_refusals(self) -> None:
        """Forget refusals of rounds by an earlier process: the sites are asked again."""
        self._refused.clear()

    def connected(self) -> frozenset[str]:
        """Return the sites that are connected, as of a second ago."""
        if time.monotonic() - self._looked >= LOOK_EVERY:
            found = self._asked(self._client.sites)
            self._connected = frozenset(site for site in self.sites if found.get(site, {}).get("connected"))
            self._looked = time.monotonic()
        return self._connected

    def heard(self, site: str) -> bool:
        """Return whether anything came from a site since `listen`."""
        return site in self._heard

    def undelivered(self) -> int:
        """Return how many envelopes wait for sites that are connected."""
        found = self._asked(self._client.sites)
        there = [found[site] for site in self.sites if found.get(site, {}).get("connected")]
        return sum(int(site.get("waiting") or 0) for site in there)

    def _read(self, data: bytes) -> None:
        """Check the size, the signature, the sender, the number and then the content of an envelope."""
        most = max(self._limit, MOST_ANSWER) + MOST_HEADER
        envelope = read_envelope(data, limit=most)
        header = envelope.header
        key = self.listed.key_of(header.sender) if header.sender in self.sites else None
        if key is None or not envelope.is_signed_by(key):
            raise FederationError("an envelope that no site of the run has signed")
        if (header.federation, header.run, header.receivers) != (self.listed.federation, self.run, (COORDINATOR,)):
            raise FederationError("an envelope that is not for this run")
        if not envelope.sealed:
            raise FederationError("an envelope that is not sealed")
        self._heard.add(header.sender)
        if header.kind in ("consent", "refusal"):
            self._read_answer(envelope)
        elif header.kind == self._kind and header.round == self._round:
            if header.number == self._numbers.get(header.sender):
                self._inbox.setdefault(header.sender, unseal(envelope, COORDINATOR, self._identity))
        elif header.kind not in KINDS:
            raise FederationError("an envelope of a kind that sites do not send")

    def _read_answer(self, envelope: Envelope) -> None:
        header, payload = envelope.header, unseal(envelope, COORDINATOR, self._identity)
        site = header.sender
        if len(payload) > MOST_ANSWER:
            raise FederationError("an answer that is too large")
        answer: Consent | Refusal
        if header.kind == "consent":
            answer = read_message(payload, Consent)
        else:
            answer = read_message(payload, Refusal)
            if header.number >= REFUSED_ROUND:
                if header.number != header.round + REFUSED_ROUND:
                    raise FederationError("a refusal of another round")
                self._refused[site] = max(self._refused.get(site, (-1, "")), (header.round, answer.code))
                return
        if header.number > self.standing.get(site, (-1, None))[0]:
            self.standing[site] = header.number, answer

    def _asked(self, ask: Callable[[], T]) -> T:
        """Ask the relay; one that is being restarted is waited for."""
        end, told = time.monotonic() + self._patience, False
        while True:
            try:
                return ask()
            except FederationError:
                if self._client.is_alive() or time.monotonic() > end:
                    raise
                if not told:
                    self._on_event("the relay does not answer; waiting for it")
                    told = True
                time.sleep(0.2)  # there is nobody yet who could tell


# -- sums in the clear -----------------------------------------------------------------------------------------------


class RelayedSites:
    """The transport over a relay: asks the sites of a run, which keep their own states.

    Parameters
    ----------
    letters : to and from the sites
    record : of the run
    algorithm : declares what sites may tell
    terms : how long to wait for whom
    on_wait : told why sites have not answered yet, while they are waited for

    Attributes
    ----------
    last : the sites that answered the last round, and why the others did not
    """

    states: ClientStates | None = None

    def __init__(
        self,
        letters: Correspondence,
        record: RunRecord,
        algorithm: Algorithm,
        terms: Terms,
        *,
        on_wait: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        self._letters, self._record, self._terms, self._on_wait = letters, record, terms, on_wait
        self._validator = ResponseValidator(algorithm)
        self._silent: set[str] = set()  # sites that let the last round pass
        self._before: Sums | None = None
        self._earlier = record.last_sums()  # of a run that was finished, and is played on for late sites
        self.last: tuple[tuple[str, ...], dict[str, str]] = (), {}

    def restore(self, states: ClientStates) -> None:
        """Nothing to restore: sites keep their own states."""

    def expect(self, number: int) -> None:
        """Keep what comes for a round that is about to be asked again."""
        self._letters.listen("response", dict.fromkeys(self._letters.sites, number), of_round=number, limit=MAX_BYTES)

    def ask(self, request: Request) -> Sums:
        """Ask all sites, wait as the terms say, and add up the responses that were admitted."""
        self._letters.refresh()
        self._broadcast(request)
        if self._earlier is not None and self._earlier.round == request.round:
            sums, reasons = self._late(request, self._earlier)
        else:
            sums, reasons = self._round(request)
        self._before = sums
        self.last = tuple(site for site in self._letters.sites if site not in reasons), reasons
        return sums

    def finish(self) -> None:
        """Set the end of the run down, and let the relay delete what was read."""
        self._record.commit(last=self._before)
        self._letters.forget()

    def _broadcast(self, request: Request) -> None:
        """Tell all sites the sums of the round before, from which they derive the request, with what is posted next."""
        data = self._record.broadcast(request.round)
        if data is None:
            message, before = RoundSums(real=real_fields(request)), self._before
            if request.round:
                if before is None or before.round != request.round - 1:
                    folder = self._record.folder
                    raise FederationError(
                        f"the sums of round {request.round - 1} are missing in {folder}; restore it from a backup"
                    )
                message = RoundSums(before.clients, pack(narrowed(before)), message.real)
            sites = self._letters.sites
            data = self._letters.sealed("sums", request.round, message, to=sites, of_round=request.round)
            self._record.commit(broadcast=(request.round, data))
        self._letters.hold(data)
        self._letters.forget(soon=True)  # what was read is on disk

    def _round(self, request: Request) -> tuple[Sums, dict[str, str]]:
        """Return the sums of a round, and why sites are not in them."""
        quorum = self._terms.quorum
        releases, reasons = self._responses(request, self._letters.sites, quorum=quorum)
        if len(releases) < quorum:
            raise quorum_error(request, len(releases), quorum, reasons=reasons)
        return summed(request, releases, reasons), reasons

    def _late(self, request: Request, earlier: Sums) -> tuple[Sums, dict[str, str]]:
        """Add the responses of sites that have missed the last round to its sums."""
        releases, reasons = self._responses(request, earlier.missing, quorum=1)
        if not releases:
            return earlier.of_round(request.round, missing=earlier.missing), reasons
        total = Sums.merged((earlier, summed(request, releases, {})))
        return total.of_round(request.round, missing=reasons), reasons

    def _responses(
        self, request: Request, sites: Sequence[str], *, quorum: int
    ) -> tuple[dict[str, Release], dict[str, str]]:
        limit = min(self._validator.most_bytes(request), MAX_BYTES)

        def read(site: str, data: bytes) -> Release:
            try:
                values = widened(unpack(read_message(data, Response).values, limit=limit))
            except FederationError as error:
                told = f"the response of {site} to round {request.round} was rejected: {error}"
                raise FederationError(told) from error
            self._validator.check(values, request, client=site)
            return Release(values)

        self._letters.listen("response", dict.fromkeys(sites, request.round), of_round=request.round, limit=limit)
        self._letters.post()
        return self._collect(sites, request, read, quorum=quorum, everyone=request.all_clients)

    def _collect(
        self,
        sites: Iterable[str],
        request: Request,
        read: Callable[[str, bytes], T],
        *,
        quorum: int,
        everyone: bool,
        moment: float = MOMENT,
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Wait for one message a site as the terms say; return what they hold, and why there is none."""
        wanted, letters, terms = tuple(sites), self._letters, self._terms
        came: dict[str, T] = {}
        reasons: dict[str, str] = {}
        begun, quorate, hopeless, told = time.monotonic(), math.inf, math.inf, dict[str, str]()
        while True:
            for site, data in letters.take().items():
                if site not in wanted:
                    continue
                try:
                    came[site] = read(site, data)
                    reasons.pop(site, None)
                except FederationError as error:
                    reasons[site] = str(error)
            missing = []
            for site in wanted:
                if site in came or site in reasons:
                    continue
                if (word := letters.refusal(site, request.round)) is not None:
                    reasons[site] = sentence(word)
                else:
                    missing.append(site)
            now = time.monotonic()
            end = begun + terms.round_timeout
            if len(came) >= quorum:
                quorate = min(quorate, now)
            elif len(came) + len(missing) < quorum:  # it is over, and the others may say why
                hopeless = min(hopeless, now)
                end = min(end, hopeless + MOMENT)
            waited = now - begun
            away = set(missing) - letters.connected() if waited > NAMED_AFTER else set[str]()
            if quorate < math.inf:
                ends = [
                    min(
                        terms.deadline(
                            begun=begun,
                            quorum=quorate,
                            everyone=everyone,
                            silent=(is_silent := site in self._silent and not letters.heard(site)),
                            away=site in away,
                        ),
                        quorate + moment if is_silent else math.inf,
                    )
                    for site in missing
                ]
                end = min(end, max(ends, default=end))
            if not missing or now >= end:
                break
            if waited > NAMED_AFTER:
                waiting = {**reasons, **{site: ABSENT if site in away else NOT_ANSWERED for site in missing}}
                if waiting != told:
                    told = waiting
                    self._on_wait(waiting)
            letters.poll(min(end - now, LOOK_EVERY), len(missing))
        connected = letters.connected() if missing else frozenset()
        reasons |= {site: NOT_ANSWERED if site in connected else ABSENT for site in missing}
        self._silent = (self._silent - set(came) - set(reasons)) | set(missing)
        return came, reasons


def summed(request: Request, releases: Mapping[str, Release], reasons: Mapping[str, str]) -> Sums:
    """Add up a round in the order of names, so that arrival does not show."""
    return Sums.of((releases[site] for site in sorted(releases)), missing=reasons, number=request.round)


def quorum_error(request: Request, came: int, quorum: int, *, reasons: Mapping[str, str]) -> QuorumError:
    """Return the error of a round for which too few sites have answered."""
    return QuorumError(reasons, f"round {request.round}: {came} sites answered and {quorum} are needed")


# -- masked sums -----------------------------------------------------------------------------------------------------


def sum_terms(plan: Plan, roster: Roster) -> SumTerms:
    """Return what all secure sums of a run have in common, as coordinator and sites derive it from the plan."""
    return SumTerms(plan.run_id, plan_digest(plan), roster.digest, plan.dropouts or 0)


class MaskedSites(RelayedSites):
    """Sites that tell nobody but each other's sum: a round is some trips of secure aggregation.

    Parameters
    ----------
    plan, roster : of the run, and of the sites by whose keys sums are masked
    """

    def __init__(self, *correspondence: Any, plan: Plan, roster: Roster, **more: Any) -> None:
        super().__init__(*correspondence, **more)
        counters = self._counters = self._record.counters()
        self._server = SecureServer(roster, sum_terms(plan, roster), first=counters.keys)
        self._keys_used, self._keys_reserved = counters.keys, counters.keys
        self._next, self._trips_reserved = counters.trips, counters.trips
        self._reached: set[str] = set()

    def expect(self, number: int) -> None:
        """Nothing that came before is of use: trips have new numbers."""
        self._letters.listen("secure", {}, of_round=number, limit=MOST_TRIP)

    def _round(self, request: Request) -> tuple[Sums, dict[str, str]]:
        total, reasons = self._play(request)
        values = from_vector(total.vector, total.layout)
        missing = {site: reasons.get(site, NOT_ANSWERED) for site in total.missing}
        sums = Sums(values, len(total.survivors), missing=missing, number=request.round)
        self._validator.check_sum(sums, request)
        return sums, missing

    def _late(self, request: Request, earlier: Sums) -> tuple[Sums, dict[str, str]]:
        """Let late sites have their assignment; the sum was confirmed and stays."""
        try:
            _, reasons = self._play(request)
        except QuorumError as error:
            reasons = error.reasons
        kept = earlier.of_round(request.round, missing=earlier.missing)
        late = set(earlier.missing) - self._reached
        return kept, {site: reasons.get(site, NOT_ANSWERED) for site in sorted(late)}

    def _play(self, request: Request) -> tuple[SecureTotal, dict[str, str]]:
        self._keys_used += KEYS_PER_ROUND
        if self._keys_used > self._keys_reserved:
            self._keys_reserved = self._keys_used + BLOCK
            self._counters = self._record.count(keys=self._keys_reserved)
        named = self._counters.survivors if self._counters.round == request.round else ()
        reasons: dict[str, str] = {}
        trips = self._server.aggregate(request.round, digest(request), named=named)
        self._reached = set()
        try:
            trip = next(trips)
            while True:
                if trip.survivors and trip.survivors != named:
                    self._counters = self._record.count(round=request.round, survivors=trip.survivors)
                replies, failed = self._trip(request, trip)
                reasons |= failed
                trip = trips.send(replies)
        except StopIteration as end:
            total: SecureTotal = end.value
            return total, reasons
        except TooFewError as error:
            raise QuorumError(reasons, str(error)) from error

    def _trip(self, request: Request, trip: Trip) -> tuple[dict[str, bytes], dict[str, str]]:
        """Bring the messages of a trip to their sites."""
        letters, needed = self._letters, self._server.needed(trip)
        refused = {
            site: sentence(word) for site in trip.messages if (word := letters.refusal(site, request.round)) is not None
        }
        sites = [site for site in sorted(trip.messages) if site not in refused]
        numbers = dict(zip(sites, self._numbers(len(sites)), strict=True))
        letters.listen("secure", numbers, of_round=request.round, limit=MOST_TRIP)
        letters.post(
            *(
                letters.sealed("secure", number, SecureTrip(trip.messages[site]), to=(site,), of_round=request.round)
                for site, number in numbers.items()
            )
        )
        ordered = trip.step == MASKED
        quorum = max(needed, self._terms.quorum) if ordered else needed
        came, reasons = self._collect(
            sites,
            request,
            lambda _, data: read_message(data, SecureTrip).message,
            quorum=quorum,
            everyone=ordered and request.all_clients,
            moment=MOMENT if ordered else 0.0,  # who is silent has had its moment in this round
        )
        reasons |= refused
        if ordered:
            self._reached |= set(came)
            if len(came) < self._terms.quorum:  # before survivors are named, since sites confirm a round once
                raise quorum_error(request, len(came), self._terms.quorum, reasons=reasons)
        return came, reasons

    def _numbers(self, count: int) -> range:
        """Return numbers that no message has had; they are reserved on disk before they are used."""
        first, self._next = self._next, self._next + count
        if self._next > self._trips_reserved:
            self._trips_reserved = self._next + BLOCK
            self._counters = self._record.count(trips=self._trips_reserved)
        return range(first, self._next)
