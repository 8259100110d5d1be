"""ProxSkip (Mishchenko, Malinovsky, Stich, Richtárik, ICML 2022): the prox, which needs communication, is rare.

To minimise ΣF_i(V_i) + ψ(V_1, …, V_C), where ψ is C·R(V) if all V_i are one V in [0, 1] and infinite otherwise, a
client takes gradient steps V_i ← V_i − (∇F_i(V_i) − h_i)/L_i. After each, with probability p, the prox of ψ follows:

    V̂ = prox_{CR/(pL)}( Σ(L_iV_i − h_i/p) / L ),  L = ΣL_i          h_i ← h_i + pL_i(V̂ − V_i)

A round is what lies between two proxes, a geometric number of steps, which the server draws for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.protocol import Checkpoint, Request, Update
from felb.federated.steps.known import ClientState, Known, best_so_far, stream
from felb.federated.steps.local_steps import Rows, cut_at_half, first_rows, penalty_in, relaxed_start, transposed
from felb.kernels.fixed_point import WEIGHTED_BITS, on_grid
from felb.optim.prox import prox_elb

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Sums
    from felb.federated.steps.known import Steps
    from felb.federated.steps.local_steps import Schedule

    Array = NDArray[np.floating[Any]]

PROXSKIP = "proxskip"


def proxskip_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Steps from V̂ after h_i has learned of it; L_iV_i − h_i/p and L_i are told."""
    penalty, t, mean_steps = penalty_in(request), int(request.values["t"]), int(request.values["mean_steps"])
    Vt = transposed(request)
    h = learned_control(state, Vt, t=t, mean_steps=mean_steps)
    U = first_rows(state, shard, Vt)
    for _ in range(int(request.values["steps"])):
        rows = Rows.step(shard, U, Vt, penalty)
        eta = rows.step_size
        U, Vt = rows.U, (Vt - eta * (rows.gradient(Vt) - h)).astype(Vt.dtype)
    told = {
        "V": on_grid(np.ascontiguousarray((Vt / eta - h * mean_steps).T), WEIGHTED_BITS),
        "curvature": rows.curvature,
        "loss": rows.loss(shard, Vt),
    }
    return ClientState(relaxed=U, control=h, local=Vt, step_size=eta, t=t), Update(told)


def learned_control(state: ClientState | None, Vt: Array, *, t: int, mean_steps: int) -> Array:
    """h_i + pL_i(V̂ − V_i), p = 1/`mean_steps`; unchanged if the V̂ at hand is not the one that V_i went into."""
    if state is None or state.control is None:
        return np.zeros_like(Vt)
    if state.local is None or state.step_size is None or state.t != t - 1:
        return state.control
    moved = (Vt - state.local) / (mean_steps * state.step_size)
    return np.asarray(state.control + moved, dtype=Vt.dtype)


def proxskip_steps(known: Known, schedule: Schedule, *, seed: int) -> Steps:
    """Play rounds of gradient steps with a control variate, and take the prox of the weighted average.

    Parameters
    ----------
    schedule : p = 1/`local_steps`
    seed : decides the number of steps of each round
    """
    t, V, settled = 0, relaxed_start(known), False
    with best_so_far(lambda: cut_at_half(V)):
        while t < schedule.max_rounds and not settled:
            t, V, settled = yield Checkpoint((t, V, settled))
            steps = steps_to_prox(schedule.local_steps, seed=seed, t=t)
            sums = yield schedule.request(PROXSKIP, t, V, steps=steps, mean_steps=schedule.local_steps)
            before, V = V, proximal_average(sums, schedule, t)
            settled = schedule.settled(sums, t, V, before)
            t += 1
    return cut_at_half(V)


def steps_to_prox(mean_steps: int, *, seed: int, t: int) -> int:
    """Draw the number of steps up to a prox."""
    return int(stream(seed, PROXSKIP, t).geometric(1 / mean_steps))


def proximal_average(sums: Sums, schedule: Schedule, t: int) -> NDArray[np.float32]:
    """prox_{CR/(pL)}(Σ(L_iV_i − h_i/p) / L), in the box."""
    scale = sums.clients * schedule.local_steps / float(sums["curvature"])
    V = prox_elb(sums["V"] / sums["curvature"], schedule.kappa * scale, schedule.lam_at(t) * scale)
    return np.asarray(np.clip(V, 0, 1), dtype=np.float32)
