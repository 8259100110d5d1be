"""A site's desk: takes a question of the coordinator, answers it once, and writes down what leaves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.atomic import replacing
from felb.engines.nvflare.memory import Memory, Remembered
from felb.engines.nvflare.plan import Plan, fingerprint
from felb.engines.nvflare.policy import Refusal, SiteConfig
from felb.engines.nvflare.wire import digest
from felb.engines.streams import CLIENT_STREAM, random_stream
from felb.errors import InputError
from felb.federated.gate import Gate
from felb.linalg.blas import one_blas_thread
from felb.privacy.outbound import OutboundLog, read_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.messages import Broadcast
    from felb.linalg.binary import BinaryMatrix

ASSIGNMENT, OUTBOUND, ROUNDS = "assignment.npz", "outbound.jsonl", "rounds"


class Desk:
    """One site in one run.

    Everything is kept under the site's own state folder, in a folder named by the run:

    rounds/            states and answers of the last rounds
    outbound.jsonl     one line for every array that left
    assignment.npz     U_i at the end, rows × components as a SciPy sparse matrix
    """

    def __init__(self, name: str, arguments: Any, config: SiteConfig) -> None:
        try:
            self.plan = Plan.of(arguments)
        except InputError as error:  # speaks of the coordinator's arguments only
            raise Refusal(str(error)) from error
        config.policy.check_plan(self.plan)
        mechanism = config.policy.mechanism(self.plan)
        self.name = name
        self.folder = Path(config.state) / self.plan.run_id
        self._config = config
        self._shard: BinaryMatrix | None = None
        self._recipe = self.plan.recipe()
        self._memory = Memory(self.folder / ROUNDS, self._recipe.client.state_type)
        self._gate = Gate(name, OutboundLog(self.folder / OUTBOUND), mechanism)
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
        release = self._gate.release(update, broadcast, rng=self._noise)
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
            self._shard = matrix
        return self._shard

    def _keep_assignment(self, state: Any) -> None:
        U = self._recipe.client.assignment(state)
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
