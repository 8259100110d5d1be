"""The coordinator's side of FLARE: plays some rounds of a run from its last checkpoint; named by path in a job."""

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

from felb.engines.local import Snapshot
from felb.engines.nvflare.messages import ROUND, RUN, TASK, VALUES, question, reason_of
from felb.engines.nvflare.plan import Plan
from felb.engines.nvflare.record import RunRecord, Status, runs_folder
from felb.engines.nvflare.referee import Referee
from felb.engines.nvflare.rounds import ABSENT, NOT_ANSWERED, Answers, QuorumError, combined
from felb.engines.nvflare.terms import Terms
from felb.errors import FederationError, FelbError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nvflare.apis.client import Client
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.signal import Signal

    from felb.federated.messages import Broadcast, Release


class RunController(Controller):
    """Plays rounds: broadcast, collect, check, sum, combine, keep.

    Parameters
    ----------
    plan : what is run, see `Plan`
    terms : how long to wait for whom, see `Terms`
    wanted : sites whose absence is written down
    """

    def __init__(self, plan: Any = None, terms: Any = None, wanted: Sequence[str] = ()) -> None:
        super().__init__(task_check_period=0.1)
        self._plan, self._terms = Plan.of(plan), Terms.of(terms)
        self._wanted = tuple(wanted)
        # Sites that let the last round pass; FLARE takes nobody back into a job, so one that was cut off is gone.
        self._silent: set[str] = set()

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
        away = isinstance(error, OSError) or bool({NOT_ANSWERED, ABSENT} & set(reasons.values()))
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
        """Drop what comes after its round was closed; the site has its step in its own memory."""
        self.log_info(fl_ctx, f"felb: a late answer of {client.name} was dropped")

    def _play(self, status: Status, abort_signal: Signal, fl_ctx: FLContext) -> None:
        plan, recipe = self._plan, self._plan.recipe()
        referee = Referee(recipe, plan.n_features)
        snapshot = self._record.load(recipe) or Snapshot(recipe.server.start(plan.seed))
        status = replace(status, round=len(snapshot.history), time=time.time())
        self._record.report(status)
        for _ in range(self._terms.rounds_per_job):
            broadcast = recipe.server.broadcast(snapshot.server)
            if broadcast is None or abort_signal.triggered:
                break
            answers = self._ask(broadcast, referee, abort_signal, fl_ctx)
            if answers is None:
                return  # aborted; the round will be asked again
            releases, reasons = answers
            snapshot = combined(recipe, snapshot, broadcast, releases=releases, reasons=reasons)
            self._record.save(snapshot)
            status = replace(
                status, round=len(snapshot.history), sites=tuple(sorted(releases)), reasons=reasons, time=time.time()
            )
            self._record.report(status)
        over = recipe.server.broadcast(snapshot.server) is None
        self._record.report(replace(status, state="finished" if over else "paused", time=time.time()))

    def _ask(
        self, broadcast: Broadcast, referee: Referee, abort_signal: Signal, fl_ctx: FLContext
    ) -> tuple[dict[str, Release], dict[str, str]] | None:
        """Ask all sites and return their answers and why others are missing; None if the job was aborted."""
        sites = sorted(client.name for client in fl_ctx.get_engine().get_clients())
        answers = Answers()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:  # noqa: ARG001
            site, result = client_task.client.name, client_task.result
            client_task.result = None
            try:
                answers.add(site, self._read(result, broadcast, referee, site=site))
            except FederationError as error:
                answers.fail(site, str(error))

        content = Shareable()
        content.update(question(self._plan.run_id, broadcast))
        task = Task(name=TASK, data=content, result_received_cb=received)
        self.broadcast(task, fl_ctx, targets=sites, min_responses=0)
        try:
            referee.expect(broadcast)  # while the sites are at work
            done = self._terms.wait(
                answers.counts,
                len(sites),
                allowance=lambda: self._terms.allowance(
                    everyone=broadcast.everyone, silent=set(sites) - answers.heard() <= self._silent
                ),
                gone=lambda: abort_signal.triggered,
            )
        finally:
            if task.completion_status is None:
                self.cancel_task(task, TaskCompletionStatus.CANCELLED, fl_ctx)
        if not done:
            return None
        releases, reasons = answers.taken()
        self._silent = {site for site in sites if site not in releases and site not in reasons}
        reasons |= dict.fromkeys(self._silent, NOT_ANSWERED)
        reasons |= {site: ABSENT for site in self._wanted if site not in sites}
        for site, reason in reasons.items():
            self.log_warning(fl_ctx, f"felb: round {broadcast.round} goes on without {site}: {reason}")
        if len(releases) < self._terms.quorum:
            told = "; ".join(f"{site}: {reason}" for site, reason in sorted(reasons.items()))
            came = f"{len(releases)} of {len(sites)} sites answered and {self._terms.quorum} are needed"
            raise QuorumError(reasons, f"round {broadcast.round}: {came}. {told}")
        return releases, reasons

    def _read(self, result: Shareable, broadcast: Broadcast, referee: Referee, *, site: str) -> Release:
        code = result.get_return_code()
        if code != ReturnCode.OK:
            raise FederationError(reason_of(result, str(code)))
        if result.get(RUN) != self._plan.run_id or result.get(ROUND) != broadcast.round:
            raise FederationError(f"the answer of {site} is to another question")
        return referee.admit(result.get(VALUES), broadcast, site=site)
