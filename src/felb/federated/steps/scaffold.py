"""SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, ICML 2020): local steps corrected by control variates.

Client i keeps c_i, the mean of ∇F_i over its last local steps (option II of the paper), and the server c = Σc_i. A
local step follows ∇F_i(V) − c_i + (L_i/L)c, L = ΣL_i, and the prox of R: what the own rows say, less what they said in
the last round, plus the client's share of what all said there. So clients drift less however different their rows are.
V_i are averaged in proportion to L_i; with one local step, that is the gradient step which pooling all rows would take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from felb.federated.protocol import Checkpoint, Request, Update
from felb.federated.steps.known import ClientState, Known, best_so_far
from felb.federated.steps.local_steps import (
    Rows,
    curvature_of,
    cut_at_half,
    first_rows,
    penalty_in,
    relaxed_start,
    transposed,
)
from felb.kernels.fixed_point import WEIGHTED_BITS, on_grid
from felb.kernels.passes import factor_step
from felb.optim.steps import GradientStep

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.steps.known import Steps
    from felb.federated.steps.local_steps import Schedule

SCAFFOLD = "scaffold"


def scaffold_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Take b corrected steps from V̂; return L_iV_i, L_i and the changes of L_i and c_i."""
    penalty, steps = penalty_in(request), int(request.values["steps"])
    shared, common = transposed(request), transposed(request, "control")
    own, curvature = np.zeros_like(shared), np.zeros(())
    if state is not None and state.control is not None and state.step_size is not None:
        own, curvature = state.control, curvature_of(state.step_size)
    correction = own - float(curvature) * common
    Vt, U = shared, first_rows(state, shard, shared)
    new = np.zeros_like(shared)
    for _ in range(steps):
        rows = Rows.step(shard, U, Vt, penalty)
        eta = rows.step_size
        new += rows.gradient(Vt) / steps
        U, Vt = rows.U, factor_step(Vt, rows.AtU + correction, rows.UtU, rule=GradientStep(eta, penalty))
    told = {
        "V": on_grid(np.ascontiguousarray(Vt.T) / eta, WEIGHTED_BITS),
        "control": on_grid(np.ascontiguousarray((new - own).T), WEIGHTED_BITS),
        "curvature": rows.curvature,
        "curvature_change": np.asarray(rows.curvature - curvature),
        "loss": rows.loss(shard, Vt),
    }
    return ClientState(relaxed=U, control=new, step_size=eta), Update(told)


def scaffold_steps(known: Known, schedule: Schedule) -> Steps:
    """Play rounds of local proximal steps with control variates, and take the weighted average ΣL_iV_i / ΣL_i.

    Σc_i and ΣL_i are over all clients that ever played, by the changes of those that play now.
    """
    t, V, settled = 0, relaxed_start(known), False
    control, curvature = np.zeros(V.shape), 0.0
    with best_so_far(lambda: cut_at_half(V)):
        while t < schedule.max_rounds and not settled:
            t, V, settled, control, curvature = yield Checkpoint((t, V, settled, control, curvature))
            sums = yield schedule.request(SCAFFOLD, t, V, control=common_control(control, curvature))
            before, V = V, np.asarray(sums["V"] / sums["curvature"], dtype=np.float32)
            control, curvature = sums["control"] + control, curvature + float(sums["curvature_change"])
            settled = schedule.settled(sums, t, V, before)
            t += 1
    return cut_at_half(V)


def common_control(control: NDArray[np.float64], curvature: float) -> NDArray[np.float32]:
    """c/L; zeros before the first round."""
    return (control / curvature if curvature > 0 else np.zeros(control.shape)).astype(np.float32)
