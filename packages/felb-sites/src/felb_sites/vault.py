"""The vault of a site: its data, policy, journal, accountant, noise, masks and log, behind one function.

It answers two kinds of messages: whether a plan may be run here, and a request of a run that was approved; where sums
are masked, instead of the second, the messages of secure aggregation, one of which comes with the request. It knows no
engine and trusts none: whoever carries the messages may crash, flood it, send garbage or be replaced by an enemy. A
message is a table of plain words and numbers, with bytes for arrays; a reply is a word of a closed list, and bytes only
if the gate has let them out.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from felb.errors import FederationError, FelbError, InputError
from felb.federated.journal import pack, unpack
from felb.federated.protocol import Part, Request
from felb_sites import SHORT
from felb_sites.approvals import APPROVED, DENIED, Approvals, plan_digest
from felb_sites.refusals import note_refusal
from felb_sites.replay import unpack_sums
from felb_sites.run_plan import RUN_ID
from felb_sites.site_budget import Spent
from felb_sites.site_policy import Refusal, SiteConfig
from felb_sites.site_session import SiteSession, read_plan
from felb_sites.vault_words import ANSWER, MASK, OK, READY, TRIP, WORDS, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from felb.privacy.spec import PrivacyPlan
    from felb_sites.masked_session import MaskedSession
    from felb_sites.run_plan import Plan
    from felb_sites.site_roster import SiteRosters

MOST_SESSIONS = 2
"""Runs whose rows are kept in memory at the same time."""
LITTLE = 0.2
"""Share of the budget for all runs below which a person is told."""
MOST_ROUND, MOST_TASK = 10_000_000, 64

log = logging.getLogger("felb.vault")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a person at the site may want to know.

    Parameters
    ----------
    kind : "pending", "roster", "began", "round", "ended", "refused" or "budget"
    run : which run; empty if its name is not known
    text : in words; stays at the site
    round : of the run, if it has begun
    """

    kind: str
    run: str
    text: str
    round: int | None = None
    time: float = field(default_factory=time.time)


class Vault:
    """Answers for one site.

    Parameters
    ----------
    name : of the site
    config : reads the site's settings; asked for every plan, so that a changed policy holds from then on
    rosters : of secure aggregation, and the key of this vault; without them no sums are masked here
    on_event : told what happens, for the console of the site
    end_process : see `SiteSession`
    """

    def __init__(
        self,
        name: str,
        config: Callable[[], SiteConfig],
        *,
        rosters: SiteRosters | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        self._name, self._config, self._rosters = name, config, rosters
        self._tell, self._end_process = on_event, end_process
        self._sessions: OrderedDict[str, SiteSession] = OrderedDict()
        self._masked: dict[str, tuple[SiteSession, MaskedSession]] = {}
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def handle(self, message: Any, values: bytes = b"") -> Reply:
        """Return the reply to a message; never raises, and says nothing but a word of the list about what was wrong."""
        try:
            return self._handle(message, values)
        except Refusal as refusal:
            self._refused(message, str(refusal))
            return Reply(refusal.code, have=self._have(message) if refusal.code == "behind" else None)
        except Exception as error:  # whatever it was, it may speak of the data
            log.exception("a message could not be handled")
            self._refused(message, repr(error))
            return Reply("failed")

    def close(self) -> None:
        """Let go of all runs."""
        self._masked.clear()
        while self._sessions:
            self._sessions.popitem()[1].close()

    def _handle(self, message: Any, values: bytes) -> Reply:
        if not isinstance(message, dict) or not set(message) <= WORDS:
            raise Refusal("a message of another form", code="request")
        verb, plan = message.get("verb"), self._plan(message.get("plan"))
        if verb == READY:
            self._note_roster(plan, values)
            session = self._session(plan)
            if plan.roster is not None:
                self._masks(plan, session)
            session.check_ready()
            return Reply(have=session.have)
        if verb not in ((ANSWER,) if plan.roster is None else (MASK, TRIP)):
            raise Refusal("a message of another kind", code="request")
        if verb == TRIP:
            session = self._session(plan)
            return Reply(OK, self._masks(plan, session).reply(values), session.have)
        values, trip = cut(values, message.get("trip", len(values) if verb == ANSWER else None))
        packed, data = cut(values, message.get("size"))
        request = request_of(message, packed)
        sums = unpack_sums(message.get("sums"), data)
        session = self._session(plan)
        if verb == ANSWER:
            reply = pack(session.answer(request, sums))
        else:
            reply = self._masks(plan, session).reply(trip, request, sums)
        self._tell(Event("round", plan.run_id, request.task, request.round))
        if request.all_clients and session.finished(request):
            kept = "nothing is assigned by a refit" if plan.resample else "the assignment is kept here"
            self._tell(Event("ended", plan.run_id, kept, request.round))
            self._tell_budget(plan, self._config())
        return Reply(OK, reply, session.have)

    def _note_roster(self, plan: Plan, data: bytes) -> None:
        """Set down the roster that came with a plan, for a person to compare; it is that of the plan or none."""
        if plan.roster is None or self._rosters is None or not data:
            return
        self._config().policy.check_plan(plan)
        known = {roster.digest for roster in (*self._rosters.proposed(), *self._rosters.confirmed())}
        try:
            roster = self._rosters.propose(data)
        except InputError as error:
            raise Refusal(str(error), code="roster") from error
        if roster.digest != plan.roster:
            raise Refusal("the roster that came with the plan is not the plan's", code="plan")
        if roster.digest not in known:
            self._tell(Event("roster", plan.run_id, roster.digest[:SHORT]))

    def _masks(self, plan: Plan, session: SiteSession) -> MaskedSession:
        """Return what masks the answers of a session; looked up every time, since a roster may have been replaced."""
        from felb_sites.masked_session import MaskedSession, secure_site

        if self._rosters is None:
            raise Refusal("this vault has no key of its own", code="roster")
        site = secure_site(plan, self._rosters)
        known, masked = self._masked.get(plan.run_id, (None, None))
        if known is not session or masked is None:
            masked = MaskedSession(session, site)
            self._masked = {plan.run_id: (session, masked)}
        return masked

    def _plan(self, arguments: Any) -> Plan:
        """Read a plan; the same one comes with every request of a run."""
        key = repr(arguments)
        plan = self._plans.pop(key, None) or read_plan(arguments)
        self._plans[key] = plan
        while len(self._plans) > MOST_SESSIONS:
            self._plans.popitem(last=False)
        return plan

    def _session(self, plan: Plan) -> SiteSession:
        """Return the session of a run that is approved; looked up every time, since it may have been denied."""
        config = self._config()
        known = self._sessions.get(plan.run_id)
        self._approve(plan, config, plan.algorithm().privacy if known is None else known.privacy)
        if known is not None and (known.stale or known.config != config):  # a person may have changed the policy
            self._sessions.pop(plan.run_id).close()
            known = None
        if known is not None and known.plan == plan:
            self._sessions.move_to_end(plan.run_id)
            return known
        if known is not None:
            raise Refusal("a run of this name with another plan is being answered", code="known")
        while len(self._sessions) >= MOST_SESSIONS:
            self._sessions.popitem(last=False)[1].close()
        session = SiteSession(self._name, plan.to_json(), config, end_process=self._end_process)
        self._sessions[plan.run_id] = session
        self._tell(Event("began", plan.run_id, f"{plan.method}, {plan.n_components} components"))
        return session

    def _approve(self, plan: Plan, config: SiteConfig, guaranteed: PrivacyPlan | None) -> None:
        """Refuse a plan that the policy does not allow, or that nobody has approved."""
        approvals = Approvals(config.state)
        status = approvals.status(plan)
        if status == DENIED:
            raise Refusal("a person has denied this run", code="denied")
        config.policy.check(plan, guaranteed)
        if status == APPROVED:
            return
        approval = approvals.propose(plan, approved=config.policy.approves(plan))
        if approval.digest != plan_digest(plan):
            said = "known" if approval.status == APPROVED else "denied"
            raise Refusal(f"another plan of this name was {approval.status}", code=said)
        if approval.status != APPROVED:
            if status is None:
                self._tell(Event("pending", plan.run_id, approval.digest[:SHORT]))
            raise Refusal("the run waits for approval", code="pending")

    def _have(self, message: Mapping[str, Any]) -> int | None:
        session = self._sessions.get(self._plan(message["plan"]).run_id)
        return None if session is None else session.have

    def _tell_budget(self, plan: Plan, config: SiteConfig) -> None:
        limit = config.policy.total_limits(plan)[0]
        if limit is None or plan.privacy is None:
            return
        spent = Spent(config.state).total()[0]
        if limit - spent < LITTLE * limit:
            self._tell(Event("budget", plan.run_id, f"epsilon {limit - spent:g} of {limit:g} is left for further runs"))

    def _refused(self, message: Any, reason: str) -> None:
        plan = message.get("plan") if isinstance(message, dict) else None
        named = plan.get("run_id") if isinstance(plan, dict) else None
        try:
            note_refusal(self._config().state, plan, reason)
        except (OSError, FelbError) as error:  # the refusal stands, noted or not
            log.warning("a refusal could not be noted: %s", error)
        is_name = isinstance(named, str) and RUN_ID.fullmatch(named)
        self._tell(Event("refused", str(named) if is_name else "", reason))


def cut(data: bytes, size: Any) -> tuple[bytes, bytes]:
    """Return the first `size` bytes and the others."""
    if type(size) is not int or not 0 <= size <= len(data):
        raise Refusal("a request without its size", code="request")
    return data[:size], data[size:]


def request_of(message: Mapping[str, Any], values: bytes) -> Request:
    """Read the request of a message."""
    number, task, everyone = message.get("round"), message.get("task"), message.get("all_clients")
    if type(number) is not int or not 0 <= number <= MOST_ROUND:
        raise Refusal("a request without a round", code="request")
    if not isinstance(task, str) or len(task) > MOST_TASK or not isinstance(everyone, bool):
        raise Refusal("a request without a task", code="request")
    try:
        return Request.of([Part(task, unpack(values))], all_clients=everyone, number=number)
    except FederationError as error:
        raise Refusal(str(error), code="request") from error
