"""The vault of a site: takes envelopes, decides, computes, and sets envelopes down to be sent.

It knows no carrier and trusts none: whoever brings envelopes may lose, double, delay or forge them. An envelope is
taken if the coordinator of the member list has signed it, it is for this site, and its number is new; its content is
then checked against the plan that this site has approved, and against the tasks that the plan's algorithm declares.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from felb.errors import FederationError, FelbError, InputError
from felb.federated.journal import digest as request_digest
from felb.federated.journal import narrow_integers, pack
from felb.privacy.accounting import public_size
from felb.secure_sum.protocol import Terms
from felb.secure_sum.releases import as_vector, read_bits
from felb.secure_sum.site import SecureSite, SiteState
from felb_sites import SHORT, messages
from felb_sites.carrier import CONNECTIONS, MOST_AT_ONCE, NOT_CONNECTED, Outgoing
from felb_sites.envelopes import COORDINATOR, MOST_PAYLOAD, Header, digest, read_envelope, seal, seal_nothing, unseal
from felb_sites.keys.members import SignedMembers
from felb_sites.run_plan import RUN_ID, plan_digest
from felb_sites.vault.policy import Refusal
from felb_sites.vault.session import NotKept, Session, check_budget, read_plan
from felb_sites.vault.snapshot import draw_rows, find_snapshot, open_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.secure_sum.protocol import MaskOrder, Roster
    from felb_sites.envelopes import Envelope
    from felb_sites.keys.identity import Identity
    from felb_sites.run_plan import Plan
    from felb_sites.vault.policy import SiteConfig
    from felb_sites.vault.snapshot import Snapshot
    from felb_sites.vault.store import Store

MOST_SESSIONS = 2
"""Runs whose rows and states are kept in memory at the same time."""
MOST_PENDING, MOST_RUNS = 100, 10_000
"""That wait for a decision, and in all: a coordinator that proposes for ever must not fill the disk."""
REPLIES = 1000
"""Consents and refusals to one proposal: what answers proposal p is numbered from 1000 p."""
REFUSED_ROUND = 10**9
"""Refusals of rounds are numbered from here, apart from those of proposals."""
MOST_NUMBER = 10**9
"""Of envelopes and rounds that a site takes, so that the numbers of its own answers, above, have room."""
LITTLE = 0.2
"""Share of the budget for all runs below which a person is told."""
RECEIPT_SECONDS = 0.5
"""A receipt waits so long for an envelope that takes it along."""
MOST_RECEIPTS = 64
MOST_LATER = 8
"""Envelopes that could not be dealt with yet and are tried again; the relay keeps the others."""
SECURE = "secure"
"""The name under which the state of secure sums is kept."""
PENDING, ROSTER = "pending", "roster"
APPROVED, WAITS, DENIED, REFUSED = "approved", "waiting", "denied", "refused"
Rounds: TypeAlias = "dict[str, list[tuple[Header, bytes]]]"
"""Sums in the clear that came together, by run, in their order; the last ones of a run are answered."""

log = logging.getLogger("felb.vault")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a person at the site may want to know.

    Parameters
    ----------
    kind : "pending", "roster", "began", "round", "ended", "refused", "members", "connection" or "budget"
    run : which run; empty if it is of none
    text : in words; stays at the site
    round : of the run, if it has begun
    """

    kind: str
    run: str
    text: str
    round: int | None = None
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a site says to a plan, before a person is asked.

    Parameters
    ----------
    status : "approved", "waiting", "denied" or "refused"
    code : a word of `felb_sites.reasons`: why it is refused, or what it waits for
    reason : in words, for this site
    needs : the number that is missing, where that may be told
    by : "policy" if it has approved the run
    """

    status: str
    code: str = ""
    reason: str = ""
    needs: int | None = None
    by: str = ""


class _TooEarlyError(Exception):
    """A message came before the sums from which the request of its round follows."""


class Vault:
    """Answers for one site.

    Parameters
    ----------
    name, identity : of the site
    federation, authority : identifier of the federation, and the coordinator's offline key
    store : all that must survive
    config : reads the site's settings; asked every time, so that a changed policy holds from then on
    on_event : told what happens, for the console of the site
    end_process : see `Session`
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        *,
        federation: str,
        authority: bytes,
        store: Store,
        config: Callable[[], SiteConfig],
        on_event: Callable[[Event], None] = lambda _: None,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        self.name, self.identity, self.store, self.config = name, identity, store, config
        self._federation, self._authority = federation, authority
        self._tell, self._end_process = on_event, end_process
        self._sessions: OrderedDict[str, tuple[SiteConfig, Session]] = OrderedDict()
        self._read: tuple[Snapshot, BinaryMatrix] | None = None
        self._rounds: Rounds = {}
        self._acknowledged: set[bytes] = set()
        self._secure_site_kept: tuple[SignedMembers | None, Plan, SecureSite] | None = None
        self._members = self._load_members()
        self._work = threading.Lock()
        self._later: dict[bytes, bytes] = {}  # envelopes that could not be dealt with yet, by their digest
        self._posted = threading.Condition()
        self.connection = NOT_CONNECTED, time.time()

    # -- for the courier -----------------------------------------------------------------------------------------------

    def deliver(self, envelopes: Sequence[bytes]) -> None:
        """Deal with envelopes in their order; whatever is wrong with one is noted here and told to nobody."""
        with self._work:
            self._deal(envelopes)
            self._deal(tuple(self._later.values()))  # what came too early may be due now
        self._wake()

    def _deal(self, envelopes: Sequence[bytes]) -> None:
        bodies = {digest(data): data for data in envelopes}
        self._rounds.clear()
        for name, data in bodies.items():
            with self._dealing(bodies, name):
                self._take(data, name)
        for run in list(self._rounds):  # a site that was away answers the last round, not those that are over
            with self._dealing(bodies, *(name for _, name in self._rounds[run])):
                try:
                    self._answer(run)
                finally:
                    del self._rounds[run]
        self._acknowledged.clear()

    def _try_again(self) -> None:
        """Deal with what could not be kept before, unless the vault is busy."""
        if self._later and self._work.acquire(blocking=False):
            try:
                self._deal(tuple(self._later.values()))
            finally:
                self._work.release()

    @contextmanager
    def _dealing(self, bodies: Mapping[bytes, bytes], *names: bytes) -> Iterator[None]:
        """Acknowledge envelopes once they were dealt with; those that could not be, as by a full disk, wait here."""
        for name in names:
            self._later.pop(name, None)
        try:
            yield
        except (sqlite3.Error, OSError, NotKept, _TooEarlyError) as error:
            if not isinstance(error, _TooEarlyError):
                log.warning("an envelope could not be kept: %s", error)
            for name in names:
                self._later[name] = bodies[name]
            while len(self._later) > MOST_LATER:
                self._later.pop(next(iter(self._later)))
            return
        except (FelbError, ValueError) as error:
            said = str(error) if isinstance(error, FelbError) else type(error).__name__
            self._note(None, f"an envelope was refused: {said}")
        done = self._acknowledged.union(name for came in self._rounds.values() for _, name in came)
        with unless_full():
            self._acknowledge(*(name for name in names if name not in done))

    def _acknowledge(self, *names: bytes) -> None:
        """Set receipts down; within the transaction of an answer they go along with it."""
        if names:
            self.store.acknowledge(*names)
            self._acknowledged.update(names)

    def fetch(self, sent: int, seconds: float) -> Outgoing:
        """Return what is to be sent, after waiting for it for a while."""
        end = time.monotonic() + seconds
        while True:
            found = self.store.outgoing(sent, MOST_AT_ONCE)
            if found:
                return Outgoing(tuple(found))
            left = end - time.monotonic()
            waiting = self.store.row("select 1 from receipts") is not None
            with self._posted:
                self._posted.wait(max(0.0, min(left, RECEIPT_SECONDS if waiting or self._later else left)))
            self._try_again()
            if waiting and not self.store.outgoing(sent, 1):
                self._post_receipts()
            elif time.monotonic() >= end:
                return Outgoing(tuple(self.store.outgoing(sent, MOST_AT_ONCE)))

    def note_connection(self, state: str) -> None:
        """Keep what the courier says about the connection."""
        if state != self.connection[0]:
            self.connection = state, time.time()
            self._tell(Event("connection", "", CONNECTIONS.get(state, NOT_CONNECTED)))

    def close(self) -> None:
        """Let go of all runs."""
        self._sessions.clear()
        self.store.close()

    @property
    def fingerprint(self) -> str:
        """Of this site's entry on the list, or of its keys alone while it is on none."""
        own = None if self._members is None else self._members.listed.find(self.name)
        return "" if own is None else own.fingerprint

    def check_data(self) -> None:
        """Raise a `Refusal` unless the site's data can be read."""
        self._data(find_snapshot(self.store.folder))

    def purge(self, run: str) -> None:
        """Forget what was computed in a run; log, charges and decision stay."""
        with self._work:
            self._sessions.pop(run, None)
            self.store.purge(run)
            self.store.update_run(run, state="left")
        (self.store.folder / "assignments" / f"{run}.npz").unlink(missing_ok=True)

    # -- members -------------------------------------------------------------------------------------------------------

    @property
    def members(self) -> SignedMembers | None:
        """The newest member list, if one has come."""
        return self._members

    @property
    def is_member(self) -> bool:
        """Whether this site is on the list with its keys."""
        if self._members is None:
            return False
        own = self._members.listed.find(self.name)
        return own is not None and (own.sign, own.seal) == (self.identity.sign_public, self.identity.seal_public)

    def _load_members(self) -> SignedMembers | None:
        found = self.store.row("select data from members order by number desc limit 1")
        if found is None:
            return None
        return SignedMembers.read(found["data"], federation=self._federation, authority=self._authority)

    def _take_members(self, envelope: Envelope, data: bytes) -> None:
        made = SignedMembers.open(envelope, data, federation=self._federation, authority=self._authority)
        if self._members is not None and made.listed.number <= self._members.listed.number:
            if made.listed.number == self._members.listed.number and made.digest != self._members.digest:
                raise FederationError("two member lists have the same number")
            return
        self.store.write("insert into members values(?, ?, ?)", made.listed.number, data, time.time())
        self._members = made
        self._sessions.clear()
        known = "this site is on it" if self.is_member else "THIS SITE IS NOT ON IT: it was revoked, or has another key"
        self._tell(Event("members", "", f"list {made.listed.number} of {len(made.listed.members)} sites; {known}"))

    def _roster(self, sites: Sequence[str], plan: Plan) -> Roster:
        """Return the roster of a masked run; its keys are those of the newest list."""
        assert self._members is not None
        try:
            roster = self._members.listed.roster(sites)
        except InputError as error:
            raise Refusal(str(error), code="members") from error
        if roster.digest != plan.roster or len(roster.names) != plan.sites:
            raise Refusal("the keys of the sites are not those of the plan", code="members")
        return roster

    def unconfirmed(self, sites: Sequence[str]) -> list[str]:
        """Return the sites whose keys no person here has confirmed."""
        assert self._members is not None
        trusted = {row["name"]: row["sign"] for row in self.store.rows("select name, sign from trusted")}
        listed = [self._members.listed.find(name) for name in sites if name != self.name]
        return [member.name for member in listed if member is not None and trusted.get(member.name) != member.sign]

    # -- envelopes -----------------------------------------------------------------------------------------------------

    def _take(self, data: bytes, name: bytes) -> None:
        envelope = read_envelope(data, limit=MOST_PAYLOAD)
        header = envelope.header
        if header.federation != self._federation:
            raise FederationError("it is of another federation")
        if header.kind == "members":
            self._take_members(envelope, data)
            return
        if self._members is None or not self.is_member:
            raise FederationError("this site is not on the member list")
        listed = self._members.listed
        if header.sender != COORDINATOR or self.name not in header.receivers or not envelope.sealed:
            raise FederationError("it is not from the coordinator to this site")
        if not envelope.is_signed_by(listed.run_sign):
            raise FederationError("the coordinator has not signed it")
        if not RUN_ID.fullmatch(header.run):
            raise FederationError("it is of no run")
        if max(header.number, header.round) > MOST_NUMBER:
            raise FederationError("its number is too large")
        known = self.store.heard(header.run, header.sender, header.kind)
        if known is None and self.store.row("select count(*) as n from heard")["n"] >= 4 * MOST_RUNS:  # type: ignore[index]
            raise FederationError("too many runs are known here")
        if known is not None and header.number <= known[0]:
            if header.number == known[0] and name != known[1]:
                raise FederationError("its number was used for another envelope")
            if header.number < known[0] or self._repost(header):
                return
        self._handle(header, unseal(envelope, self.name, self.identity), name)

    def _repost(self, header: Header) -> bool:
        """Send the answer to a repeated envelope again; False if it was broken off before there was one."""
        kinds = {"sums": ("response", header.round), "secure": ("secure", header.number)}
        return header.kind not in kinds or self.store.repost(header.run, *kinds[header.kind])

    def _handle(self, header: Header, payload: bytes, name: bytes) -> None:
        run = header.run
        if header.kind == "proposal":
            with self.store.transaction():
                self._propose(run, header.number, messages.read_message(payload, messages.Proposal))
                self._hear(header, name)
        elif header.kind == "end":
            messages.read_message(payload, messages.End)
            if self.store.run(run) is not None:
                self.store.update_run(run, state="ended")
                self._tell(Event("ended", run, "the coordinator has ended the run"))
            self._sessions.pop(run, None)
            self._hear(header, name)
        elif header.kind == "sums":
            self._receive(header, payload, name)
        elif header.kind == "secure":
            self._secure(header, payload, name)
        else:
            raise FederationError("it is of a kind that sites do not receive")

    def _hear(self, header: Header, name: bytes) -> None:
        self.store.hear(header.run, header.sender, header.kind, header.number, name)

    def _post(self, run: str, kind: Any, number: int, message: Any, *, round: int = 0) -> None:  # noqa: A002
        """Set a message to the coordinator down, to be sent; receipts that wait go along."""
        assert self._members is not None
        receipts = self.store.take_receipts(MOST_RECEIPTS)
        header = Header(self._federation, run, round, self.name, (COORDINATOR,), kind, number, receipts)
        keys = {COORDINATOR: self._members.listed.run_seal}
        envelope = seal(header, messages.write_message(message), self.identity, receivers=keys)
        self.store.post(run, kind, number, envelope.to_bytes())

    def _post_receipts(self) -> None:
        with unless_full(), self.store.transaction():
            receipts = self.store.take_receipts(MOST_RECEIPTS)
            number = int(self.store.get("receipts", "0")) + 1
            self.store.set("receipts", str(number))
            header = Header(self._federation, "", 0, self.name, (), "receipt", number, receipts)
            self.store.post("", "receipt", number, seal_nothing(header, b"", self.identity).to_bytes())

    def _wake(self) -> None:
        with self._posted:
            self._posted.notify_all()

    # -- proposals and decisions ---------------------------------------------------------------------------------------

    def _propose(self, run: str, number: int, proposal: messages.Proposal) -> None:
        known = self.store.run(run)
        try:
            plan = read_plan(proposal.plan)
            if plan.run_id != run:
                raise Refusal("the plan is of another run", code="plan")
        except Refusal as refusal:
            self._note(run, str(refusal))
            self._post(run, "refusal", number * REPLIES, messages.Refusal(refusal.code))
            return
        name = plan_digest(plan)
        if known is not None and known["digest"] != name:
            decided = known["status"] in (APPROVED, DENIED) or known["round"] >= 0
            if decided:
                self._note(run, "another plan of this name was decided")
                code = "denied" if known["status"] == DENIED else "known"
                self._post(run, "refusal", number * REPLIES, messages.Refusal(code))
                return
            known = None
        if known is None and not self._has_room():
            self._note(run, "too many runs wait here for a decision")
            self._post(run, "refusal", number * REPLIES, messages.Refusal("full"))
            return
        with self.store.transaction():
            if known is None:
                self.store.write(
                    "insert or replace into runs(run, digest, plan, sites, members, proposal, status, asked, epoch) "
                    "values(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    run,
                    name,
                    json.dumps(plan.to_json()),
                    json.dumps(proposal.sites),
                    proposal.members,
                    number,
                    WAITS,
                    time.time(),
                    self.store.epoch,
                )
            else:
                self.store.update_run(run, proposal=number, replies=0, members=proposal.members)
        self.reconsider(run)

    def _has_room(self) -> bool:
        counts = self.store.row("select count(*) as n, sum(status='waiting') as waiting from runs")
        assert counts is not None
        return bool(counts["n"] < MOST_RUNS and (counts["waiting"] or 0) < MOST_PENDING)

    def reconsider(self, run: str) -> Verdict:
        """Judge a run anew and tell the coordinator; called for a proposal, and when a person has decided."""
        row = self.store.run(run)
        assert row is not None
        verdict = self.judge(row)
        kept = WAITS if verdict.status == REFUSED else verdict.status
        with self.store.transaction():
            now = self.store.run(run)
            assert now is not None
            if any(now[name] != row[name] for name in ("status", "digest", "proposal", "replies")):
                return self.reconsider(run)  # a person has decided meanwhile, or another plan has come
            if row["status"] != DENIED:
                self.store.update_run(run, status=kept, code=verdict.code, reason=verdict.reason, needs=verdict.needs)
            if verdict.by:
                self.store.update_run(run, by=verdict.by, decided=time.time())
            number = row["proposal"] * REPLIES + row["replies"]
            self.store.update_run(run, replies=min(row["replies"] + 1, REPLIES - 1))
            if verdict.status in (APPROVED, WAITS):
                members = "" if self._members is None else self._members.digest
                told = messages.Consent(verdict.status, row["digest"], members, verdict.code)  # type: ignore[arg-type]
                self._post(run, "consent", number, told)
            else:
                self._post(run, "refusal", number, messages.Refusal(verdict.code, verdict.needs))
                self.store.note_refusal(run, verdict.reason)
        self._wake()
        kind = {APPROVED: "approved", WAITS: verdict.code}.get(verdict.status, "refused")
        self._tell(Event(kind, run, verdict.reason or row["digest"][:SHORT]))
        return verdict

    def judge(self, row: sqlite3.Row) -> Verdict:
        """Say what becomes of a proposed run: everything that can be refused is refused before a person is asked."""
        if row["status"] == DENIED:
            return Verdict(DENIED, "denied", "a person has denied this run")
        if row["state"] in ("lost", "left"):
            return Verdict(REFUSED, "known", "the run is over at this site; the new one needs another id")
        try:
            plan = read_plan(json.loads(row["plan"]))
            sites = json.loads(row["sites"])
            if self._members is None or row["members"] != self._members.digest:
                raise Refusal("the coordinator has another member list than this site", code="members")
            self._check_sites(plan, sites)
            config = self.config()
            guaranteed = plan.algorithm().privacy
            config.policy.check(plan, guaranteed)
            check_budget(self.store, plan, guaranteed, config.policy)
            self._check_rows(config, plan)
        except Refusal as refusal:
            return Verdict(REFUSED, refusal.code, str(refusal), refusal.needs)
        except (FelbError, OSError) as error:
            return Verdict(REFUSED, "data", type(error).__name__)
        if plan.roster is not None and (strangers := self.unconfirmed(sites)):
            return Verdict(WAITS, ROSTER, f"nobody here has confirmed the keys of {', '.join(strangers)}")
        if row["status"] == APPROVED:
            return Verdict(APPROVED)
        if config.policy.approves(plan):
            return Verdict(APPROVED, by="policy")
        return Verdict(WAITS, PENDING, "the run waits for approval")

    def _check_sites(self, plan: Plan, sites: Sequence[str]) -> None:
        assert self._members is not None
        strangers = [name for name in sites if self._members.listed.find(name) is None]
        if strangers or self.name not in sites or len(set(sites)) != len(sites):
            raise Refusal("the run is not among members of the federation", code="members")
        if plan.sites is not None and plan.sites != len(sites):
            raise Refusal(f"the plan counts {plan.sites} sites, and {len(sites)} are named", code="plan")
        if plan.roster is not None:
            self._roster(sites, plan)

    def _check_rows(self, config: SiteConfig, plan: Plan) -> BinaryMatrix:
        """Return the site's data, if a plan may be run on it; of a rehearsal, synthetic rows of about their number."""
        snapshot, policy = find_snapshot(self.store.folder), config.policy
        n = snapshot.rows
        policy.check_shape((n, snapshot.columns), plan, columns=snapshot.names)
        policy.check_disclosure(plan, n_rows=(n + 1) // 2 if plan.resample else n)
        policy.check_delta(n, plan.algorithm().privacy)
        if plan.rehearsal:
            size = public_size(n), plan.n_features, plan.most_components
            return draw_rows(*size, seed=plan.seed, site=self.name)
        matrix = self._data(snapshot)
        policy.check_known(matrix, plan)
        policy.check_rare_features(matrix, plan)
        return matrix

    def _data(self, snapshot: Snapshot) -> BinaryMatrix:
        """Return the rows of a snapshot."""
        if self._read is None or self._read[0] != snapshot:
            self._read = snapshot, open_rows(self.store.folder, snapshot)
        return self._read[1]

    def approve(self, run: str, name: str, *, by: str) -> Verdict:
        """Agree to a run by the beginning of its digest, so that what was read is what is approved."""
        with self.store.transaction():  # no other plan comes between
            row = self.known(run)
            if len(name) < SHORT or not row["digest"].startswith(name.lower()):
                raise InputError(
                    f"the digest is not that of run {run!r} as it was proposed; read it again with `felb site show`"
                )
            if row["status"] == DENIED:
                raise InputError(f"run {run!r} was denied, which is for good; it may be proposed again by another id")
            self.store.update_run(run, status=APPROVED, by=by, decided=time.time())
        return self.reconsider(run)

    def deny(self, run: str, *, by: str) -> Verdict:
        """Refuse a run, also one that was approved before; for good, whatever plan comes under its name."""
        self.known(run)
        self.store.update_run(run, status=DENIED, code="denied", by=by, decided=time.time())
        return self.reconsider(run)

    def confirm(self, names: Sequence[str], *, by: str) -> None:
        """Set down that a person has compared the keys of sites by telephone; runs that waited are judged anew."""
        assert self._members is not None
        with self.store.transaction():
            for name in names:
                member = self._members.listed.find(name)
                assert member is not None
                values = name, member.sign, by, time.time()
                self.store.write("insert or replace into trusted values(?, ?, ?, ?)", *values)
        for row in self.store.rows("select run from runs where status='waiting' and state='proposed'"):
            self.reconsider(row["run"])

    def known(self, run: str) -> sqlite3.Row:
        """Return what is known of a run, or say that nothing is."""
        found = self.store.run(run) if RUN_ID.fullmatch(run) else None
        if found is None:
            raise InputError(f"no run {run!r} was proposed to this site; `felb site pending` lists those that were")
        return found

    # -- rounds --------------------------------------------------------------------------------------------------------

    def _session(self, run: str) -> Session:
        """Return the session of a run that is approved; looked up every time, since a person may have decided."""
        row, config = self.store.run(run), self.config()
        if row is None:
            raise Refusal("nobody has proposed this run", code="plan")
        if row["status"] != APPROVED:
            code = "denied" if row["status"] == DENIED else PENDING
            raise Refusal("the run is not approved", code=code)
        if row["state"] in ("lost", "left") or row["epoch"] != self.store.epoch:
            raise Refusal("the run is over at this site", code="known")
        kept = self._sessions.get(run)
        if kept is not None and kept[0] == config:
            self._sessions.move_to_end(run)
            return kept[1]
        self._sessions.pop(run, None)
        verdict = self.judge(row)
        if verdict.status != APPROVED:
            raise Refusal(verdict.reason, code=verdict.code, needs=verdict.needs)
        while len(self._sessions) >= MOST_SESSIONS:
            self._sessions.popitem(last=False)
        plan = read_plan(json.loads(row["plan"]))
        session = Session(
            self.store,
            self.name,
            plan,
            plan.algorithm(),
            policy=config.policy,
            rows=self._check_rows(config, plan),
            end_process=self._end_process,
        )
        self._sessions[run] = config, session
        if row["round"] < 0:
            kind = "rehearsal of " if plan.rehearsal else ""
            self._tell(Event("began", run, f"{kind}{plan.method}, {plan.n_components} components"))
        return session

    def _receive(self, header: Header, payload: bytes, name: bytes) -> None:
        """Play on with the sums of a round; they are kept with the attempt to answer it, at the latest by `_answer`."""
        run, number = header.run, header.round
        if header.number != number:
            raise FederationError("the number of sums is that of their round")
        told = messages.read_message(payload, messages.RoundSums)
        try:
            session = self._session(run)
            if run in self._rounds:
                with self._atomic(run):
                    session.keep_journal()  # whatever becomes of the next sums
            try:
                session.receive(number, told)
            except BaseException:
                self._sessions.pop(run, None)
                raise
            self._rounds.setdefault(run, []).append((header, name))
        except Refusal as refusal:
            self._refuse(run, number, refusal)

    def _keep_sums(self, run: str, session: Session) -> None:
        """Keep what came for a run, within the transaction of the caller."""
        if run in self._rounds:
            session.keep_journal()
            self._hear(*self._rounds[run][-1])

    def _answer(self, run: str) -> None:
        """Answer the request of a round in the clear: the attempt is on disk before, the answer before it leaves."""
        came = self._rounds[run]
        number = came[-1][0].round
        try:
            session = self._session(run)
            if session.plan.roster is not None:  # the masked input is ordered by a message of its own
                with self._atomic(run):
                    self._keep_sums(run, session)
                    self._acknowledge(*(name for _, name in came))
                return
            values, refused = session.find(), None
            is_new = values is None
            with self._atomic(run):
                self._keep_sums(run, session)
                if is_new:
                    refused = session.begin()
            if refused is not None:
                raise refused
            if values is None:
                values = session.compute()
            with self._atomic(run):
                self._check_approved(run)
                if is_new:
                    session.commit(masked=None)
                self._acknowledge(*(name for _, name in came))
                told = {name: narrow_integers(np.asarray(value)) for name, value in values.items()}
                self._post(run, "response", number, messages.Response(pack(told)), round=number)
        except Refusal as refusal:
            self._refuse(run, number, refusal)
        else:
            self._tell_round(session, run, number)

    @contextmanager
    def _atomic(self, run: str) -> Iterator[None]:
        """Write all or nothing of a run; if that fails, its session is opened again, since it is ahead of the disk."""
        try:
            with self.store.transaction():
                yield
        except (sqlite3.Error, OSError) as error:
            self._drop(run)
            raise NotKept(f"the disk is full, or fails: {error}") from error
        except BaseException:
            self._drop(run)
            raise

    def _drop(self, run: str) -> None:
        """Let go of a session that is ahead of the disk."""
        self._sessions.pop(run, None)
        self._acknowledged.clear()  # receipts may have been undone; twice does no harm

    def _check_approved(self, run: str) -> None:
        """Refuse to let anything leave of a run that a person has denied while it was computed."""
        row = self.store.run(run)
        if row is None or row["status"] != APPROVED:
            raise Refusal("the run is not approved any more", code="denied")

    def _tell_round(self, session: Session, run: str, number: int) -> None:
        request = session.request
        assert request is not None
        self._tell(Event("round", run, request.task, number))
        if session.is_last(request):
            kept = "the assignment is kept here" if session.plan.assigns else "no record was assigned"
            self._tell(Event("ended", run, kept, number))
            self._tell_budget(session.plan)

    def _secure(self, header: Header, payload: bytes, name: bytes) -> None:
        """Answer a message of secure aggregation."""
        run, number = header.run, header.number
        trip = messages.read_message(payload, messages.SecureTrip)
        computed: list[Session] = []
        try:
            session = self._session(run)
            row, kept = self.store.run(run), self.store.find(run, SECURE)
            assert row is not None
            site = self._secure_site(session.plan, json.loads(row["sites"]))
            state = SiteState() if kept is None else SiteState.from_bytes(kept)
            after, reply = site.respond(
                state, trip.message, lambda order: self._masked_input(session, site, order, computed)
            )
            with self._atomic(run):
                self._check_approved(run)
                if computed:
                    session.commit(masked=session.plan.roster)
                self._hear(header, name)
                self._acknowledge(name)
                if after is not state:
                    self.store.keep(run, SECURE, after.to_bytes())
                self._post(run, "secure", number, messages.SecureTrip(reply), round=header.round)
        except Refusal as refusal:
            self._refuse(run, header.round, refusal)
        except FederationError as error:
            self._refuse(run, header.round, Refusal(str(error), code="request"))
        else:
            if computed:
                self._tell_round(session, run, header.round)

    def _secure_site(self, plan: Plan, sites: Sequence[str]) -> SecureSite:
        if plan.roster is None:
            raise Refusal("the sums of this run are not masked", code="request")
        if self.unconfirmed(sites):
            raise Refusal("no person has confirmed the keys of this run", code=ROSTER)
        known = self._secure_site_kept
        if known is not None and known[0] is self._members and known[1] is plan:
            return known[2]
        roster = self._roster(sites, plan)
        terms = Terms(plan.run_id, plan_digest(plan), roster.digest, plan.dropouts or 0)
        made = SecureSite(self.name, roster, terms, self.identity.sign)
        self._secure_site_kept = self._members, plan, made
        return made

    def _masked_input(
        self, session: Session, site: SecureSite, order: MaskOrder, computed: list[Session]
    ) -> tuple[NDArray[np.int64], bytes]:
        """Return the input that is ordered; a session that has computed it is added to `computed`, to be committed."""
        request, run = session.request, session.plan.run_id
        if order.round == (0 if request is None else request.round + 1):
            raise _TooEarlyError  # its sums are on the way; an order of any other round is refused
        if request is None or (order.round, order.request) != (request.round, request_digest(request)):
            raise Refusal("an input was ordered for another request", code="request")
        values = session.find()
        if values is None:
            with self._atomic(run):
                self._keep_sums(run, session)
                self._acknowledge(*(name for _, name in self._rounds.get(run, ())))
                refused = session.begin()
            self._rounds.pop(run, None)
            if refused is not None:
                raise refused
            values = session.compute()
            computed.append(session)
        values = dict(sorted(values.items()))  # what was stored comes back in another order, and all sites need one
        try:
            return as_vector(values, read_bits(session.algorithm, request), sites=len(site.roster.names))
        except FederationError as error:  # it speaks of the data
            raise Refusal(str(error), code="failed") from error

    # -- refusals ------------------------------------------------------------------------------------------------------

    def _refuse(self, run: str, number: int, refusal: Refusal) -> None:
        """Tell the coordinator a word of the list, and the people here the reason."""
        self._note(run, f"round {number}: {refusal}")
        if self._members is None or self.store.run(run) is None:
            return
        with unless_full():
            told = messages.Refusal(refusal.code, refusal.needs)
            self._post(run, "refusal", REFUSED_ROUND + number, told, round=number)
        if isinstance(refusal, NotKept):
            raise refusal

    def _note(self, run: str | None, reason: str) -> None:
        with unless_full():
            self.store.note_refusal(run, reason)
        self._tell(Event("refused", run or "", reason))

    def _tell_budget(self, plan: Plan) -> None:
        limit = self.config().policy.total_limits(plan)[0]
        if limit is None or plan.privacy is None:
            return
        spent = sum(row["epsilon"] for row in self.store.rows("select epsilon from budget"))
        if limit - spent < LITTLE * limit:
            self._tell(Event("budget", plan.run_id, f"epsilon {limit - spent:g} of {limit:g} is left for further runs"))


@contextmanager
def unless_full() -> Iterator[None]:
    """Let a disk that is full pass, where what could not be written is a note."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        log.warning("a note could not be kept: %s", error)
