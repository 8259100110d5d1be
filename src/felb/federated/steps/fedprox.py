"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, MLSys 2020): local steps held near the shared V, then averaged.

A client minimises F_i(U_i, V) + R(U_i) + R(V) + (γ_i/2)‖V − V̂‖² by b proximal steps from V̂; the server takes the plain
average of the V_i and does nothing else to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from felb.federated.aggregate import mean
from felb.federated.protocol import Checkpoint, Request, Update
from felb.federated.steps.known import ClientState, Known, best_so_far
from felb.federated.steps.local_steps import Rows, cut_at_half, first_rows, penalty_in, relaxed_start, transposed
from felb.kernels.fixed_point import on_grid
from felb.kernels.passes import factor_step
from felb.optim.steps import GradientStep

if TYPE_CHECKING:
    from felb.data.binary import BinaryMatrix
    from felb.federated.steps.known import Steps
    from felb.federated.steps.local_steps import Schedule

FEDPROX = "fedprox"


def fedprox_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Take b proximal steps from V̂; return V_i."""
    penalty, gamma = penalty_in(request), float(request.values["gamma"])
    shared = Vt = transposed(request)
    U = first_rows(state, shard, Vt)
    for _ in range(int(request.values["steps"])):
        rows = Rows.step(shard, U, Vt, penalty)
        eta = rows.step_size
        step = GradientStep(eta, replace(penalty, gamma=gamma / eta))
        U, Vt = rows.U, factor_step(Vt, rows.AtU, rows.UtU, rule=step, target=shared)
    told = {"V": on_grid(np.ascontiguousarray(Vt.T)), "curvature": rows.curvature, "loss": rows.loss(shard, Vt)}
    return ClientState(relaxed=U), Update(told)


def fedprox_steps(known: Known, schedule: Schedule, *, gamma: float = 0.0) -> Steps:
    """Play rounds of local proximal steps with a pull, and take the plain average (1/C) ΣV_i.

    Parameters
    ----------
    gamma : the pull in units of the curvature, γ_i = γL_i, so that it means the same for many and for few rows
    """
    t, V, settled = 0, relaxed_start(known), False
    with best_so_far(lambda: cut_at_half(V)):
        while t < schedule.max_rounds and not settled:
            t, V, settled = yield Checkpoint((t, V, settled))
            sums = yield schedule.request(FEDPROX, t, V, gamma=gamma)
            before, V = V, np.asarray(mean(sums["V"], sums.clients), dtype=np.float32)
            settled = schedule.settled(sums, t, V, before)
            t += 1
    return cut_at_half(V)
