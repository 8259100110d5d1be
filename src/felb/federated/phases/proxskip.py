"""ProxSkip (Mishchenko, Malinovsky, Stich, Richtárik, ICML 2022): the prox, for which clients must talk, is rare.

To minimise ΣF_i(V_i) + ψ(V_1, …, V_C), where ψ is C·R(V) if all V_i are one V in [0, 1] and infinite otherwise, a
client takes gradient steps V_i ← V_i − (∇F_i(V_i) − h_i)/L_i. After each, with probability p, the prox of ψ follows:

    V̂ = prox_{CR/(pL)}( Σ(L_iV_i − h_i/p) / L ),  L = ΣL_i          h_i ← h_i + pL_i(V̂ − V_i)

A round is what lies between two proxes, a geometric number of steps, drawn from a seed that the server tells all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.phases.base import ClientState, stream
from felb.federated.phases.local_steps import Averaging, AveragingState, Rows
from felb.optim.prox import prox_elb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.messages import Broadcast
    from felb.linalg.binary import BinaryMatrix


@dataclass(frozen=True, slots=True)
class ProxSkipSteps(Averaging):
    """Gradient steps with a control variate, and the prox of the weighted average; p = 1/`local_steps`."""

    @property
    def name(self) -> str:
        """The word for this phase and its task."""
        return "proxskip"

    def told(self, state: AveragingState) -> dict[str, NDArray[Any]]:
        """V̂, and the seed that the number of steps is drawn from."""
        return {"V": state.V, "seed": np.asarray(state.seed)}

    def steps_in(self, round_: int, seed: int) -> int:
        """Return the number of steps up to a prox."""
        return int(stream(seed, self.name, round_).geometric(1 / self.schedule.local_steps))

    def local(
        self, state: ClientState | None, shard: BinaryMatrix, broadcast: Broadcast
    ) -> tuple[ClientState, Mapping[str, NDArray[Any]]]:
        """Steps from V̂ after h_i has learned of it; L_iV_i − h_i/p and L_i are told."""
        s, lam = self.schedule, self.schedule.lam_at(broadcast.round)
        Vt = np.ascontiguousarray(broadcast.values["V"].T)
        h = self._control(state, broadcast, Vt)
        U = Rows.first(state, shard, Vt)
        for _ in range(self.steps_in(broadcast.round, int(broadcast.values["seed"]))):
            rows = Rows.step(shard, U, Vt, kappa=s.kappa, lam=lam)
            eta = rows.step_size
            U, Vt = rows.U, (Vt - eta * (rows.gradient(Vt) - h)).astype(Vt.dtype)
        told = {
            "V": np.ascontiguousarray((Vt / eta - h * s.local_steps).T),
            "curvature": np.asarray(1 / eta),
            "loss": rows.loss(shard, Vt),
        }
        return ClientState(broadcast.round, relaxed=U, control=h, local=Vt, step_size=eta), told

    def _control(
        self, state: ClientState | None, broadcast: Broadcast, Vt: NDArray[np.floating[Any]]
    ) -> NDArray[np.floating[Any]]:
        """h_i + pL_i(V̂ − V_i); unchanged if the V̂ at hand is not the one that V_i went into."""
        if state is None or state.control is None:
            return np.zeros_like(Vt)
        if state.local is None or state.step_size is None or state.round != broadcast.round - 1:
            return state.control
        moved = (Vt - state.local) / (self.schedule.local_steps * state.step_size)
        return np.asarray(state.control + moved, dtype=Vt.dtype)

    def average(
        self,
        total: Mapping[str, NDArray[Any]],
        n_clients: int,
        state: AveragingState,
    ) -> NDArray[np.floating[Any]]:
        """prox_{CR/(pL)}(Σ(L_iV_i − h_i/p) / L), in the box."""
        s = self.schedule
        scale = n_clients * s.local_steps / float(total["curvature"])
        V = prox_elb(total["V"] / total["curvature"], s.kappa * scale, s.lam_at(state.round) * scale)
        return np.clip(V, 0, 1)
