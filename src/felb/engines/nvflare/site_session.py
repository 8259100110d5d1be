"""A site session: answers each request of the coordinator once and logs what leaves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.atomic import replacing
from felb.engines.nvflare.hardening import write_json
from felb.engines.nvflare.run_plan import Plan, fingerprint
from felb.engines.nvflare.site_budget import Spent
from felb.engines.nvflare.site_policy import TOTAL_DELTA, Refusal, SiteConfig
from felb.errors import InputError, MissingExtraError, PrivacyError
from felb.federated.gate import Gate
from felb.federated.responses import StoredResponses, answered_rounds
from felb.federated.streams import CLIENT_STREAM, random_stream
from felb.kernels.blas import one_blas_thread
from felb.privacy.log_chain import Head, drop_unsent, verify
from felb.privacy.outbound_log import OutboundLog, read_outbound_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Release, Request, Update

ASSIGNMENT, OUTBOUND, RESPONSES, PLAN = "assignment.npz", "outbound.jsonl", "responses", "plan.json"


class SiteSession:
    """One site in one run.

    Everything is kept under the site's own state folder, in a folder named by the run:

    plan.json          what was agreed on; the run's id stands for this plan and no other
    responses/         responses and states of the last rounds; in a private run, every response and its cost
    outbound.jsonl     one line for every array that left
    assignment.npz     U_i at the end, rows × components as a SciPy sparse matrix

    What all runs together may cost is in ``spent.json`` beside these folders.
    """

    def __init__(self, name: str, arguments: Any, config: SiteConfig) -> None:
        try:
            self.plan = Plan.of(arguments)
            self._algorithm = self.plan.algorithm()
        except (InputError, MissingExtraError) as error:  # speaks of the coordinator's arguments only
            raise Refusal(str(error)) from error
        config.policy.check_plan(self.plan)
        config.policy.check_disclosure(self.plan)
        config.policy.check_privacy(self._algorithm.privacy)
        self.name = name
        self.folder = Path(config.state) / self.plan.run_id
        self._config = config
        self._shard: BinaryMatrix | None = None
        self._check_known()
        guaranteed = self._algorithm.privacy
        self._responses = StoredResponses(
            self.folder / RESPONSES,
            None if guaranteed is None else guaranteed.accountant(),
            state_type=self._algorithm.state_type,
            charged=guaranteed is not None,
        )
        spent = Spent(config.state)
        if guaranteed is None or math.isinf(guaranteed.total_epsilon):
            spent.check_exact(allowed=config.policy.exact_after_private)
        else:
            spent.check_answers(self.plan.run_id, len(self._responses))
        drop_unsent(self.folder / OUTBOUND, answered_rounds(self.folder / RESPONSES))
        log = OutboundLog(self.folder / OUTBOUND)
        self._gate = Gate(
            name,
            log,
            accountant=self._responses.accountant,
            plan=guaranteed,
            responses=self._responses,
            disclosure=config.policy.rules,
        )
        # The coordinator must not be able to subtract the noise: its seed has no part in it.
        self._noise = np.random.default_rng()

    def answer(self, request: Request) -> Mapping[str, NDArray[Any]]:
        """Return what leaves the site for a request; for one that was answered before, the same again."""
        if request.task not in self._algorithm.tasks:
            raise Refusal(f"this site knows no task {request.task[:40]!r}")
        known = self._responses.find(request)
        if known is not None:
            return known
        before = self._responses.state_before(request.round)
        rng = random_stream(self.plan.seed, CLIENT_STREAM, request.round, self.name)
        with one_blas_thread():
            state, update = self._algorithm.respond(before, self.shard(), request, rng=rng)
        return self._release(update, request, state).values

    def shard(self) -> BinaryMatrix:
        """Return the site's rows, read once."""
        if self._shard is None:
            matrix = self._config.read()
            names = self._config.agreed_names(matrix)
            columns = None if names is None else fingerprint(names)
            self._config.policy.check_data(matrix, self.plan, columns=columns)
            self._config.policy.check_disclosure(self.plan, n_rows=len(matrix))
            self._config.policy.check_delta(matrix, self._algorithm.privacy)
            self._shard = matrix
        return self._shard

    def _release(self, update: Update, request: Request, state: Any) -> Release:
        """Release an update through the gate, after the budget of the site was checked."""
        if not self._known_plan.is_file():
            write_json(self._known_plan, self.plan.to_json())
        guaranteed = self._algorithm.privacy
        if guaranteed is not None:
            policy = self._config.policy
            limits = {"limit": policy.total_epsilon, "delta_limit": policy.total_delta or TOTAL_DELTA}
            Spent(self._config.state).reserve(self.plan.run_id, guaranteed, **limits)
        if request.all_clients and state is not None and state.assigned is not None:
            # Before the response is kept: a repeated request is answered from there and assigns nothing.
            self._keep_assignment(state.assigned)
        try:
            released = self._gate.release(update, request, rng=self._noise, state=state)
        except PrivacyError as error:
            raise Refusal("this request goes beyond what the run has guaranteed; nothing was sent") from error
        if guaranteed is not None:
            Spent(self._config.state).note_answers(self.plan.run_id, len(self._responses))
        return released

    def _check_known(self) -> None:
        """Refuse a run that was answered under another plan, or whose responses are lost: they are for one."""
        if self._known_plan.is_file():
            if json.loads(self._known_plan.read_text(encoding="utf-8")) != json.loads(json.dumps(self.plan.to_json())):
                raise Refusal("this site knows a run of this name with another plan; give the new run another id")
        elif self._algorithm.privacy is not None and self.plan.run_id in Spent(self._config.state).runs():
            raise Refusal("this site has answered a run of this name and lost its responses; give the run another id")

    @property
    def _known_plan(self) -> Path:
        return self.folder / PLAN

    def _keep_assignment(self, U: NDArray[np.bool_]) -> None:
        with replacing(self.folder / ASSIGNMENT) as partial, partial.open("wb") as file:
            sp.save_npz(file, sp.csr_array(U))


def read_outbound(state: Path, *, run_id: str | None = None) -> list[dict[str, Any]]:
    """Return the lines of a site's outbound logs, each with its run; a line that was cut short is left out."""
    lines = []
    for log in sorted(state.glob(f"*/{OUTBOUND}")):
        if run_id is not None and log.parent.name != run_id:
            continue
        lines += [{"run": log.parent.name, **line} for line in read_outbound_log(log)]
    return lines


def verify_outbound(state: Path, *, run_id: str | None = None) -> dict[str, Head]:
    """Return where the chain of each run's outbound log ends, or raise an error that names the first wrong line."""
    logs = [log for log in sorted(state.glob(f"*/{OUTBOUND}")) if run_id in (None, log.parent.name)]
    if run_id is not None and not logs:
        raise InputError(f"there is no log of a run {run_id!r}; `felb site log` shows those there are")
    return {log.parent.name: verify(log) for log in logs}
