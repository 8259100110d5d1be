"""A site's desk: takes a question of the coordinator, answers it once, and writes down what leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.atomic import replacing
from felb.engines.books import open_book
from felb.engines.nvflare.lockdown import write_json
from felb.engines.nvflare.memory import Memory, Remembered
from felb.engines.nvflare.plan import Plan, fingerprint
from felb.engines.nvflare.policy import Refusal, SiteConfig
from felb.engines.nvflare.spent import Spent
from felb.engines.nvflare.wire import digest
from felb.engines.streams import CLIENT_STREAM, random_stream
from felb.errors import FederationError, InputError, MissingExtraError, PrivacyError
from felb.federated.gate import Gate
from felb.linalg.blas import one_blas_thread
from felb.privacy.outbound import OutboundLog, read_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.messages import Broadcast, Release, Update
    from felb.linalg.binary import BinaryMatrix

ASSIGNMENT, OUTBOUND, ROUNDS, BOOK, PLAN = "assignment.npz", "outbound.jsonl", "rounds", "book", "plan.json"


class Desk:
    """One site in one run.

    Everything is kept under the site's own state folder, in a folder named by the run:

    plan.json          what was agreed on; the run's id stands for this plan and no other
    rounds/            states and answers of the last rounds
    book/              under a promise of privacy: every answer with what it cost
    outbound.jsonl     one line for every array that left
    assignment.npz     U_i at the end, rows × components as a SciPy sparse matrix

    What all runs together may cost is in ``spent.json`` beside these folders.
    """

    def __init__(self, name: str, arguments: Any, config: SiteConfig) -> None:
        try:
            self.plan = Plan.of(arguments)
            self._recipe = self.plan.recipe()
        except (InputError, MissingExtraError) as error:  # speaks of the coordinator's arguments only
            raise Refusal(str(error)) from error
        config.policy.check_plan(self.plan)
        config.policy.check_privacy(self._recipe.privacy)
        self.name = name
        self.folder = Path(config.state) / self.plan.run_id
        self._config = config
        self._shard: BinaryMatrix | None = None
        self._check_known()
        self._memory = Memory(self.folder / ROUNDS, self._recipe.client.state_type)
        self._gate = self._make_gate(OutboundLog(self.folder / OUTBOUND))
        # The coordinator must not be able to subtract the noise: its seed has no part in it.
        self._noise = np.random.default_rng()

    def answer(self, broadcast: Broadcast) -> Mapping[str, NDArray[Any]]:
        """Return what leaves the site for a question; for one that was answered before, the same again."""
        if broadcast.task not in self._recipe.client.tasks:
            raise Refusal(f"this site knows no task {broadcast.task[:40]!r}")
        question = digest(broadcast.task, broadcast.values)
        known = self._memory.answered(broadcast.round, question)
        if known is not None:
            return known
        before = self._memory.before(broadcast.round)
        rng = random_stream(self.plan.seed, CLIENT_STREAM, broadcast.round, self.name)
        with one_blas_thread():
            state, update = self._recipe.client.step(before, self.shard(), broadcast, rng=rng)
        release = self._release(update, broadcast)
        if broadcast.everyone:
            self._keep_assignment(state)
        self._memory.remember(Remembered(broadcast.round, question, state, release.values))
        return release.values

    def shard(self) -> BinaryMatrix:
        """Return the site's rows, read once."""
        if self._shard is None:
            matrix = self._config.read()
            columns = None if matrix.columns is None else fingerprint(matrix.columns)
            self._config.policy.check_data(matrix, self.plan, columns=columns)
            self._config.policy.check_delta(matrix, self._recipe.privacy)
            self._shard = matrix
        return self._shard

    def _make_gate(self, log: OutboundLog) -> Gate:
        """Return the exit of this site; under a promise, its book is read, so that nothing is charged twice."""
        promised = self._recipe.privacy
        if promised is None:
            return Gate(self.name, log)
        return Gate.private(self.name, log, plan=promised, book=open_book(self.folder / BOOK, promised))

    def _release(self, update: Update, broadcast: Broadcast) -> Release:
        """Let an update leave by the gate, after the site's budget for all runs was asked."""
        if not self._known_plan.is_file():
            write_json(self._known_plan, self.plan.to_json())
        promised = self._recipe.privacy
        if promised is not None:
            limit = self._config.policy.total_epsilon
            Spent(self._config.state).reserve(self.plan.run_id, promised, limit=limit)
        try:
            return self._gate.release(update, broadcast, rng=self._noise)
        except PrivacyError as error:
            raise Refusal("this question goes beyond what the run has promised; nothing was sent") from error

    def _check_known(self) -> None:
        """Refuse a run that was answered under another plan, or whose book is lost: books and states are for one."""
        if self._known_plan.is_file():
            if json.loads(self._known_plan.read_text(encoding="utf-8")) != json.loads(json.dumps(self.plan.to_json())):
                raise Refusal("this site knows a run of this name with another plan; give the new run another id")
        elif self._recipe.privacy is not None and self.plan.run_id in Spent(self._config.state).runs():
            raise Refusal("this site has answered a run of this name and lost its book; give the run another id")

    @property
    def _known_plan(self) -> Path:
        return self.folder / PLAN

    def _keep_assignment(self, state: Any) -> None:
        try:
            U = self._recipe.client.assignment(state)
        except FederationError:  # many a task is for everyone and comes before the assignment
            return
        if U is not None:
            with replacing(self.folder / ASSIGNMENT) as partial, partial.open("wb") as file:
                sp.save_npz(file, sp.csr_array(U))


def read_outbound(state: Path, *, run_id: str | None = None) -> list[dict[str, Any]]:
    """Return the lines of a site's outbound logs, each with its run; a line that was cut short is left out."""
    lines = []
    for log in sorted(state.glob(f"*/{OUTBOUND}")):
        if run_id is not None and log.parent.name != run_id:
            continue
        lines += [{"run": log.parent.name, **line} for line in read_log(log)]
    return lines
