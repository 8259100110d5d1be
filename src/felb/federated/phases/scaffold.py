"""SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, ICML 2020): local steps corrected by control variates.

Client i keeps c_i, the mean of ∇F_i over its last local steps (option II of the paper), and the server c = Σc_i. A
local step follows ∇F_i(V) − c_i + (L_i/L)c, L = ΣL_i, and the prox of R: what the own rows say, less what they said in
the last round, plus the client's share of what all said there. So clients drift less however different their rows are.
V_i are averaged in proportion to L_i; with one local step, that is the gradient step which pooling all rows would take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.phases.base import ClientState
from felb.federated.phases.local_steps import Averaging, AveragingState, Rows
from felb.linalg.passes import factor_step
from felb.optim.steps import GradientStep, Penalty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.messages import Broadcast
    from felb.linalg.binary import BinaryMatrix


@dataclass(frozen=True, slots=True)
class ScaffoldSteps(Averaging):
    """Local proximal steps with control variates, and the weighted average."""

    @property
    def name(self) -> str:
        """The word for this phase and its task."""
        return "scaffold"

    def told(self, state: AveragingState) -> dict[str, NDArray[Any]]:
        """V̂ and c/L; zeros in the first round."""
        if state.control is None or state.curvature <= 0:
            return {"V": state.V, "control": np.zeros_like(state.V)}
        return {"V": state.V, "control": (state.control / state.curvature).astype(np.float32)}

    def local(
        self, state: ClientState | None, shard: BinaryMatrix, broadcast: Broadcast
    ) -> tuple[ClientState, Mapping[str, NDArray[Any]]]:
        """Take b corrected steps from V̂; tell L_iV_i, L_i and the changes of L_i and c_i."""
        s, lam = self.schedule, self.schedule.lam_at(broadcast.round)
        shared, common = (np.ascontiguousarray(broadcast.values[name].T) for name in ("V", "control"))
        own, curvature = np.zeros_like(shared), 0.0
        if state is not None and state.control is not None and state.step_size is not None:
            own, curvature = state.control, 1 / state.step_size
        correction = own - curvature * common
        Vt, U = shared, Rows.first(state, shard, shared)
        new = np.zeros_like(shared)
        for _ in range(s.local_steps):
            rows = Rows.step(shard, U, Vt, kappa=s.kappa, lam=lam)
            eta = rows.step_size
            new += rows.gradient(Vt) / s.local_steps
            step = GradientStep(eta, Penalty(s.kappa, lam))
            U, Vt = rows.U, factor_step(Vt, rows.AtU + correction, rows.UtU, rule=step)
        told = {
            "V": np.ascontiguousarray(Vt.T) / eta,
            "control": np.ascontiguousarray((new - own).T),
            "curvature": np.asarray(1 / eta),
            "curvature_change": np.asarray(1 / eta - curvature),
            "loss": rows.loss(shard, Vt),
        }
        return ClientState(broadcast.round, relaxed=U, control=new, step_size=eta), told

    def average(
        self,
        total: Mapping[str, NDArray[Any]],
        n_clients: int,  # noqa: ARG002
        state: AveragingState,  # noqa: ARG002
    ) -> NDArray[np.floating[Any]]:
        """ΣL_iV_i / ΣL_i."""
        return np.asarray(total["V"] / total["curvature"])

    def next_control(self, total: Mapping[str, NDArray[Any]], state: AveragingState) -> NDArray[np.float64]:
        """Σc_i over all that ever played, by the changes of those that played now."""
        return np.asarray(total["control"] + (0 if state.control is None else state.control), dtype=np.float64)

    def next_curvature(self, total: Mapping[str, NDArray[Any]], state: AveragingState) -> float:
        """ΣL_i over the same clients."""
        return state.curvature + float(total["curvature_change"])
