"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, MLSys 2020): local steps held near the shared V, then averaged.

A client minimises F_i(U_i, V) + R(U_i) + R(V) + (γ_i/2)‖V − V̂‖² by b proximal steps from V̂; the server takes the plain
average of the V_i and does nothing else to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.aggregate import mean
from felb.federated.phases.base import ClientState
from felb.federated.phases.local_steps import Averaging, AveragingState, Rows
from felb.linalg.passes import factor_step
from felb.optim.checks import check_weights
from felb.optim.steps import GradientStep, Penalty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.messages import Broadcast
    from felb.linalg.binary import BinaryMatrix


@dataclass(frozen=True, slots=True)
class FedProxSteps(Averaging):
    """Local proximal steps with a pull, and the plain average.

    Parameters
    ----------
    gamma : the pull in units of the curvature, γ_i = γL_i, so that it means the same for many and for few rows
    """

    gamma: float = 0.0

    def __post_init__(self) -> None:
        check_weights(proximity=(self.gamma, 0))

    @property
    def name(self) -> str:
        """The word for this phase and its task."""
        return "fedprox"

    def local(
        self, state: ClientState | None, shard: BinaryMatrix, broadcast: Broadcast
    ) -> tuple[ClientState, Mapping[str, NDArray[Any]]]:
        """Take b proximal steps from V̂; tell V_i."""
        s, lam = self.schedule, self.schedule.lam_at(broadcast.round)
        shared = Vt = np.ascontiguousarray(broadcast.values["V"].T)
        U = Rows.first(state, shard, Vt)
        for _ in range(s.local_steps):
            rows = Rows.step(shard, U, Vt, kappa=s.kappa, lam=lam)
            eta = rows.step_size
            step = GradientStep(eta, Penalty(s.kappa, lam, self.gamma / eta))
            U, Vt = rows.U, factor_step(Vt, rows.AtU, rows.UtU, rule=step, target=shared)
        told = {"V": np.ascontiguousarray(Vt.T), "curvature": np.asarray(1 / eta), "loss": rows.loss(shard, Vt)}
        return ClientState(broadcast.round, relaxed=U), told

    def average(
        self,
        total: Mapping[str, NDArray[Any]],
        n_clients: int,
        state: AveragingState,  # noqa: ARG002
    ) -> NDArray[np.floating[Any]]:
        """(1/C) ΣV_i."""
        return mean(total["V"], n_clients)
