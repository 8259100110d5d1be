"""The FLARE controller at the coordinator: executes rounds of a run from its journal; a job names it by path."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable

from felb.errors import FederationError, FelbError
from felb.federated.loop import play
from felb.federated.protocol import Release
from felb_sites.messages import CODE, HAVE, ROUND, TASK, VALUES, write_question, write_request
from felb_sites.reasons import WAITING, sentence
from felb_sites.response_validation import ResponseValidator
from felb_sites.rounds import ABSENT, NOT_ANSWERED, Answers, NotReady, QuorumError, quorum_error, summed
from felb_sites.run_plan import Plan
from felb_sites.run_record import RunRecord, Status, runs_folder
from felb_sites.terms import FEWEST_SITES, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nvflare.apis.client import Client
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.signal import Signal

    from felb.federated.loop import RunProgress
    from felb.federated.protocol import ClientStates, Request, Sums
    from felb_sites.sum_store import SumStore


class RunController(Controller):
    """Plays rounds over the sites that are connected.

    Parameters
    ----------
    plan : what is run, see `Plan`
    terms : how long to wait for whom, see `Terms`
    wanted : sites whose absence is written down
    roster : of a run whose sums are masked, as `site_roster` writes it
    """

    def __init__(
        self, plan: Any = None, terms: Any = None, wanted: Sequence[str] = (), roster: str | None = None
    ) -> None:
        super().__init__(task_check_period=0.1)
        self._plan, self._terms = Plan.of(plan), Terms.of(terms)
        self._wanted, self._roster = tuple(wanted), b"" if roster is None else roster.encode()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Find the run's record."""
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        self._record = RunRecord(runs_folder(workspace.get_site_config_dir()), self._plan.run_id)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Play up to the agreed number of rounds, then let the job end, so that sites that were away can rejoin."""
        status = Status("running", job=fl_ctx.get_job_id(), process=os.getpid())
        try:
            lock = self._record.lock(patience=self._terms.patience)
        except FederationError as error:  # the status belongs to the process that plays the run
            self.system_panic(str(error), fl_ctx)
            return
        try:
            with lock, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._play(status, abort_signal, fl_ctx)
        except (FelbError, OSError) as error:
            self.log_error(fl_ctx, f"felb: {error}")
            self._report_failure(status, error)
            self.system_panic(str(error), fl_ctx)

    def _report_failure(self, status: Status, error: Exception) -> None:
        reasons = error.reasons if isinstance(error, QuorumError) else {}
        passing = {NOT_ANSWERED, ABSENT, *(sentence(word) for word in WAITING)}
        away = isinstance(error, OSError) or bool(passing & set(reasons.values()))
        if isinstance(error, NotReady):
            away = False  # who is not ready was asked by name; a person decides
        with contextlib.suppress(OSError, FelbError):  # on a full disk nothing can be written down
            self._record.report(
                replace(
                    status,
                    state="failed",
                    round=self._record.status().round,
                    reasons=reasons,
                    message=str(error),
                    hopeless=not away,
                    time=time.time(),
                )
            )

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to clean up: what counts is on disk."""

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,  # noqa: ARG002
        client_task_id: str,  # noqa: ARG002
        result: Shareable,  # noqa: ARG002
        fl_ctx: FLContext,
    ) -> None:
        """Drop what comes after its round was closed; the site keeps its response."""
        self.log_info(fl_ctx, f"felb: a late response of {client.name} was dropped")

    def _play(self, status: Status, abort_signal: Signal, fl_ctx: FLContext) -> None:
        plan, algorithm, journal = self._plan, self._plan.algorithm(), self._record.journal()
        status = replace(status, round=journal.next_round, time=time.time())
        self._record.report(status)
        sites = self._sites(ResponseValidator(algorithm), abort_signal, fl_ctx)

        def report(progress: RunProgress) -> None:
            nonlocal status
            answered, reasons = sites.last
            status = replace(status, round=len(progress.history), sites=answered, reasons=reasons, time=time.time())
            self._record.report(status)

        try:
            sites.check_ready(begun=journal.next_round > 0)
            finished = play(
                algorithm,
                sites,
                seed=plan.seed,
                journal=journal,
                most_rounds=self._terms.rounds_per_job,
                on_round=report,
            )
        except Aborted as aborted:
            if aborted.amid_a_round:
                return  # the round will be requested again
            finished = None
        state = "paused" if finished is None else "finished"
        self._record.report(replace(status, state=state, time=time.time()))

    def _sites(self, validator: ResponseValidator, abort_signal: Signal, fl_ctx: FLContext) -> ConnectedSites:
        """Return the transport: sums in the clear, or masked."""
        if self._plan.roster is None:
            return ConnectedSites(self, validator, abort_signal, fl_ctx)
        from felb_sites.masked_sites import MaskedSites

        rounds = self._record.masked_rounds(self._plan, self._roster, rounds=self._terms.rounds_per_job)
        return MaskedSites(self, validator, abort_signal, fl_ctx, rounds=rounds)

    # -- for the transport -------------------------------------------------------------------------------------------

    @property
    def roster(self) -> bytes:
        """What is proposed to the sites of a run whose sums are masked."""
        return self._roster

    @property
    def terms(self) -> Terms:
        """How long to wait for whom."""
        return self._terms

    @property
    def sums(self) -> SumStore:
        """The sums of the run's rounds."""
        return self._record.sums()

    @property
    def exact(self) -> bool:
        """Whether sums are told without noise."""
        return self._plan.privacy is None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Sites whose absence is written down."""
        return self._wanted


class Aborted(Exception):
    """The job was aborted."""

    def __init__(self, *, amid_a_round: bool) -> None:
        super().__init__("the job was aborted")
        self.amid_a_round = amid_a_round


class ConnectedSites:
    """The transport over FLARE: asks the sites of a job; they keep their own states.

    Parameters
    ----------
    controller : FLARE's end of the job
    response validation : checks what comes
    """

    states: ClientStates | None = None

    def __init__(
        self, controller: RunController, validator: ResponseValidator, abort_signal: Signal, fl_ctx: FLContext
    ) -> None:
        self._controller, self._validator = controller, validator
        self._abort, self._fl_ctx = abort_signal, fl_ctx
        # Sites that let the last round pass; FLARE takes nobody back into a job, so one that was cut off is gone.
        self._silent: set[str] = set()
        self.last: tuple[tuple[str, ...], dict[str, str]] = (), {}
        self._have: dict[str, int] = {}
        self._sums = controller.sums

    def restore(self, states: ClientStates) -> None:
        """Nothing to restore: sites keep their own states."""

    def check_ready(self, *, begun: bool) -> None:
        """Ask every site whether it will take part, before any of them spends anything; raise unless all say yes.

        In a run that has `begun` they are only asked which sums they have.
        """
        controller, terms = self._controller, self._controller.terms
        sites = self.connected()
        ready: set[str] = set()
        reasons = {site: ABSENT for site in controller.wanted if site not in sites}

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:  # noqa: ARG001
            site, result = client_task.client.name, client_task.result
            client_task.result = None
            self._note_sums(site, result)
            if result.get_return_code() == ReturnCode.OK:
                ready.add(site)
            else:
                reasons[site] = sentence(result.get(CODE))

        self._carry(
            write_question(controller.roster),
            sites,
            terms,
            received=received,
            counts=lambda: (len(ready), len(reasons.keys() & set(sites))),
            allowance=lambda: terms.grace if begun else terms.round_timeout,
        )
        reasons |= {site: NOT_ANSWERED for site in sites if site not in ready and site not in reasons}
        if reasons and not begun:
            raise NotReady(reasons)

    def ask(self, request: Request) -> Sums:
        """Ask all sites, wait as the terms say, and add up the responses that were admitted."""
        if self._abort.triggered:
            raise Aborted(amid_a_round=False)
        if (known := self._sums.find(request)) is not None:
            self.last = self.last[0], dict.fromkeys(known.missing, NOT_ANSWERED)
            return known  # sites were told these, so the round has no others
        sums, reasons = self._round(request)
        for site, reason in reasons.items():
            self._controller.log_warning(self._fl_ctx, f"felb: round {request.round} goes on without {site}: {reason}")
        self._sums.keep(request, sums)
        return sums

    def _round(self, request: Request) -> tuple[Sums, dict[str, str]]:
        """Return the sums of a round, and why sites are not in them."""
        controller, terms = self._controller, self._controller.terms
        sites, answers = self.connected(), Answers[Release]()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:  # noqa: ARG001
            site, result = client_task.client.name, client_task.result
            client_task.result = None
            self._note_sums(site, result)
            try:
                answers.add(site, self._read(result, request, site=site))
            except FederationError as error:
                answers.fail(site, str(error))

        self._carry(
            write_request(request, self._missing_sums(request, sites)),
            sites,
            terms,
            received=received,
            counts=answers.counts,
            allowance=lambda: terms.allowance(
                everyone=request.all_clients, silent=set(sites) - answers.heard() <= self._silent
            ),
        )
        releases, reasons = answers.taken()
        self._silent = {site for site in sites if site not in releases and site not in reasons}
        reasons |= dict.fromkeys(self._silent, NOT_ANSWERED)
        reasons |= {site: ABSENT for site in controller.wanted if site not in sites}
        if len(releases) < terms.quorum:
            raise quorum_error(request, len(releases), terms.quorum, reasons=reasons)
        self.last = tuple(sorted(releases)), reasons
        return summed(request, releases, reasons), reasons

    def connected(self) -> list[str]:
        """Return the sites of the job, in order."""
        return sorted(client.name for client in self._fl_ctx.get_engine().get_clients())

    def _carry(
        self,
        content: Mapping[str, Any],
        sites: Sequence[str],
        terms: Terms,
        *,
        received: Callable[[ClientTask, FLContext], None],
        counts: Callable[[], tuple[int, int]],
        allowance: Callable[[], float],
    ) -> None:
        """Send one message to sites, and wait for their replies as the terms say."""
        told = Shareable()
        told.update(content)
        task = Task(name=TASK, data=told, result_received_cb=received)
        self._controller.broadcast(task, self._fl_ctx, targets=list(sites), min_responses=0)
        try:
            done = terms.wait(counts, len(sites), allowance=allowance, gone=lambda: self._abort.triggered)
        finally:
            if task.completion_status is None:
                self._controller.cancel_task(task, TaskCompletionStatus.CANCELLED, self._fl_ctx)
        if not done:
            raise Aborted(amid_a_round=True)

    def _note_sums(self, site: str, result: Shareable) -> None:
        have = result.get(HAVE)
        if type(have) is int and have >= 0:
            self._have[site] = have

    def _missing_sums(self, request: Request, sites: Sequence[str]) -> list[Sums]:
        """Return the sums that some of the sites miss; of exact sums, two sites would learn each other's."""
        controller = self._controller
        if controller.exact and max(len(controller.wanted), len(sites)) < FEWEST_SITES:
            return []
        first = min((self._have.get(site, request.round - 1) for site in sites), default=request.round)
        if controller.wanted and all(site in self._have for site in controller.wanted):
            self._sums.prune(min(self._have[site] for site in controller.wanted) - 1)
        return self._sums.between(first, request.round)

    def _read(self, result: Shareable, request: Request, *, site: str) -> Release:
        if result.get_return_code() != ReturnCode.OK:
            raise FederationError(sentence(result.get(CODE)))
        if result.get(ROUND) != request.round:
            raise FederationError(f"the response of {site} is to another request")
        return self._validator.admit(result.get(VALUES), request, site=site)
