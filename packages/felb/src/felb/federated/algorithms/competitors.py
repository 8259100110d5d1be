"""Competitors of FELB: federated NMF, and three federated optimisers of the objective of FELB.

Each is a short chain of steps. The optimisers start from the random V that the server draws and are cut at ½ in the
end, as FELB is; all assign rows to the Boolean components by branch and bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.aggregate import mean
from felb.federated.algorithms.felb import LOCAL_ROUND, LOSS, ROUNDING, count_members
from felb.federated.algorithms.wrappers import NODE_CAP
from felb.federated.protocol import Algorithm, Checkpoint, Request, TimeUp, Update
from felb.federated.steps.assignment import assign_task, request_exact_assignment
from felb.federated.steps.relaxed import (
    FACTOR_STATISTICS,
    THRESHOLD_COUNTS,
    check_memory,
    nmf,
    threshold_search,
)
from felb.federated.steps.starts import GRAM_SKETCH, SIGN_NORMS, random_init, spectral_init
from felb.federated.steps.state import ClientState, Solution, best_so_far, required, step, stream
from felb.federated.tasks import BOXED, LARGEST, MOST, MOST_STEPS, Input, Limits, Output, TaskSpec, Work, declare
from felb.kernels import SKETCH_BITS, WEIGHTED_BITS
from felb.kernels.passes import factor_step, on_grid, row_pass, squared_loss
from felb.metrics import DECIDED, integrality_gap
from felb.optim.prox import Geometric, check_local_steps, check_weights, prox_elb
from felb.optim.steps import GradientStep, Lipschitz, Penalty
from felb.privacy.disclosure import count_effectively

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Server, Sums
    from felb.federated.steps.state import Steps
    from felb.federated.tasks import Task

    Array = NDArray[np.floating[Any]]


# -- Local steps between two averages of V: shared code of FedProx, SCAFFOLD and ProxSkip ----------------------------
#
# All minimise the relaxed objective of FELB, Σ_i F_i(U_i, V) + R(U_i) + R(V), F_i = ½‖A_i − U_iV‖², U_i and V in [0,
# 1]. A local step moves the client's rows, then V by the gradient ∇F_i = U_iᵀU_iV − U_iᵀA_i with the step size 1/L_i,
# L_i = ‖U_iᵀU_i‖. The methods differ in what they add to ∇F_i, and in what the server does to the average. Here V is
# kept transposed at the clients (features × components), as in `felb.optim.palm`.
#
# What is told lies on a grid of powers of two, so that no sum depends on the order of clients.

RULE = Lipschitz()


# -- the client ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """A client's rows after a step, and all that a step of V needs of them."""

    U: Array
    AtU: Array
    UtU: Array

    @classmethod
    def step(cls, shard: BinaryMatrix, U: Array, Vt: Array, penalty: Penalty) -> Rows:
        """U ← prox(U − ν(UVVᵀ − AVᵀ)), ν = 1/‖VVᵀ‖."""
        gram = Vt.T @ Vt
        return cls(*row_pass(shard, U, Vt, rule=RULE.step(gram, penalty, beta=0.0), gram=gram))

    @property
    def step_size(self) -> float:
        """1/L_i."""
        return RULE.step_size(self.UtU, beta=0.0)

    @property
    def curvature(self) -> NDArray[np.float64]:
        """L_i, as it is told."""
        return curvature_of(self.step_size)

    def gradient(self, Vt: Array) -> Array:
        """∇F_i at V."""
        return np.asarray(Vt @ self.UtU - self.AtU)

    def loss(self, shard: BinaryMatrix, Vt: Array) -> NDArray[np.float64]:
        """‖A − UV‖², as it is told."""
        return on_grid(np.asarray(squared_loss(shard.nnz, self.AtU, self.UtU, Vt)), SKETCH_BITS)


def curvature_of(step_size: float) -> NDArray[np.float64]:
    """Return L_i = 1/η on the grid of weighted uploads."""
    return on_grid(np.asarray(1 / step_size), WEIGHTED_BITS)


def first_rows(state: ClientState | None, shard: BinaryMatrix, Vt: Array) -> Array:
    """Return the rows to go on from: those of the client's last round, or AVᵀ ⊘ 1VVᵀ."""
    return RULE.first_rows(shard, Vt) if state is None or state.relaxed is None else state.relaxed


def read_penalty(work: Work) -> Penalty:
    """Return the penalty of a round, without a pull."""
    return Penalty(float(work.values["kappa"]), float(work.values["lam"]))


def name_makers(work: Work, U: Array, *told: str) -> dict[str, NDArray[np.int64]]:
    """Return of how many records each component is made, for arrays of the client's own, and of how many L_i is."""
    if work.least == 1:
        return {}
    sizes = (U.astype(np.float64) ** 2).sum(axis=1, keepdims=True)
    (all_of_them,) = count_effectively(sizes.sum(axis=0), sizes.max(axis=0, initial=0.0))
    scalars = dict.fromkeys(("curvature", "curvature_change"), np.asarray(all_of_them))
    return {**dict.fromkeys(told, np.minimum(count_members(U), all_of_them)), **scalars}


def transposed(work: Work, name: str = "V") -> Array:
    """Return an array of a request as clients keep it."""
    return np.ascontiguousarray(work.values[name].T)


WEIGHT = Input("f", (), 0.0, LARGEST)
STEPS = Input("i", (), 1, MOST_STEPS)


def local_steps(
    name: str, do: Task, meaning: str, inputs: Mapping[str, Input], outputs: Mapping[str, Output]
) -> TaskSpec:
    """Declare the task of the rounds of an optimiser, with what all of them are asked and tell."""
    asked = {"V": BOXED, "t": LOCAL_ROUND, "kappa": WEIGHT, "lam": WEIGHT, "steps": STEPS}
    told = {"curvature": Output("f", bits=WEIGHTED_BITS, made_of="named"), "loss": LOSS}
    return TaskSpec(name, "local steps", do, meaning, {**asked, **inputs}, {**outputs, **told})


# -- the server ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schedule:
    """What all three methods are told; symbols as in the paper.

    Parameters
    ----------
    kappa, lam, rate : κ, and λ_t = λ·rate^t in round t
    local_steps : b, steps of a client between two averages (ProxSkip: on average)
    max_rounds : rounds at most
    tol : stop when V is Boolean up to `tol` and changes by no more
    """

    kappa: float = 0.001
    lam: float = 0.1
    rate: float = 1.05
    local_steps: int = 10
    max_rounds: int = 150
    tol: float = 0.01

    def __post_init__(self) -> None:
        check_weights(
            l1=(self.kappa, 0),
            l2=(self.lam, 0),
            l2_rate=(self.rate, 0),
            max_iter=(self.max_rounds, 1),
            tol=(self.tol, 0),
        )
        check_local_steps(self.local_steps)

    def lam_at(self, t: int) -> float:
        """λ_t in a round."""
        return Geometric(self.lam, self.rate)(t)

    def request(self, task: TaskSpec, t: int, V: Array, *, steps: int | None = None, **values: Any) -> Request:
        """Ask for local steps from V: b of them, unless another number is given."""
        steps = self.local_steps if steps is None else steps
        return Request(task, V=V, t=t, kappa=self.kappa, lam=self.lam_at(t), steps=steps, **values)

    def settled(self, sums: Sums, t: int, V: Array, before: Array) -> bool:
        """Report a round that has led from `before` to V, and return whether the run has converged."""
        gap, change = integrality_gap(V), float(np.abs(V - before).max(initial=0.0))
        sums.report(loss=float(sums["loss"]), integrality_gap=gap, change=change, lam=self.lam_at(t))
        return change <= self.tol and gap <= self.tol


def relaxed_start(solution: Solution) -> NDArray[np.float32]:
    """Return the relaxed V to start from, in the box."""
    return np.asarray(np.clip(required(solution.relaxed, "a relaxed V"), 0, 1), dtype=np.float32)


def cut_at_half(V: NDArray[np.float32]) -> Solution:
    """Return V with its cut at ½."""
    gap = integrality_gap(V)
    return Solution(relaxed=V, components=V > 0.5, gap=gap, settled=gap <= DECIDED)


# -- FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, MLSys 2020): local steps held near the shared V, then
# averaged.
#
# A client minimises F_i(U_i, V) + R(U_i) + R(V) + (γ_i/2)‖V − V̂‖² by b proximal steps from V̂; the server takes the
# plain average of the V_i and does nothing else to it.


def take_fedprox_steps(work: Work) -> tuple[ClientState, Update]:
    """Take b proximal steps from V̂; return V_i."""
    shard, penalty, gamma = work.rows, read_penalty(work), float(work.values["gamma"])
    shared = Vt = transposed(work)
    U = first_rows(work.state, shard, Vt)
    for _ in range(int(work.values["steps"])):
        rows = Rows.step(shard, U, Vt, penalty)
        eta = rows.step_size
        step = GradientStep(eta, replace(penalty, gamma=gamma / eta))
        U, Vt = rows.U, factor_step(Vt, rows.AtU, rows.UtU, rule=step, target=shared)
    told = {"V": on_grid(np.ascontiguousarray(Vt.T)), "curvature": rows.curvature, "loss": rows.loss(shard, Vt)}
    return ClientState(relaxed=U), Update(told, supports=name_makers(work, U, "V"))


FEDPROX = local_steps(
    "fedprox",
    take_fedprox_steps,
    "the client's own relaxed V, its curvature and its loss",
    {"gamma": WEIGHT},
    {"V": Output("f", ("k", "m"), -ROUNDING, 1 + ROUNDING, made_of="named", axes=1)},
)


def fedprox_steps(solution: Solution, schedule: Schedule, *, gamma: float = 0.0) -> Steps:
    """Play rounds of local proximal steps with a pull, and take the plain average (1/C) ΣV_i.

    Parameters
    ----------
    gamma : the pull in units of the curvature, γ_i = γL_i, so that it means the same for many and for few rows
    """
    t, V, settled = 0, relaxed_start(solution), False
    with best_so_far(lambda: cut_at_half(V)):
        while t < schedule.max_rounds and not settled:
            t, V, settled = yield Checkpoint((t, V, settled))
            sums = yield schedule.request(FEDPROX, t, V, gamma=gamma)
            before, V = V, np.asarray(mean(sums["V"], sums.clients), dtype=np.float32)
            settled = schedule.settled(sums, t, V, before)
            t += 1
    return cut_at_half(V)


# -- SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, ICML 2020): local steps corrected by control variates -
#
# Client i keeps c_i, the mean of ∇F_i over its last local steps (option II of the paper), and the server c = Σc_i. A
# local step follows ∇F_i(V) − c_i + (L_i/L)c, L = ΣL_i, and the prox of R: what the own rows say, less what they said
# in the last round, plus the client's share of what all said there. So clients drift less however different their rows
# are. V_i are averaged in proportion to L_i; with one local step, that is the gradient step which pooling all rows
# would take.


def take_scaffold_steps(work: Work) -> tuple[ClientState, Update]:
    """Take b corrected steps from V̂; return L_iV_i, L_i and the changes of L_i and c_i."""
    state, shard, penalty, steps = work.state, work.rows, read_penalty(work), int(work.values["steps"])
    shared, common = transposed(work), transposed(work, "control")
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
    supports = name_makers(work, U, "V", "control")
    return ClientState(relaxed=U, control=new, step_size=eta), Update(told, supports=supports)


_GRADIENT = Output("f", ("k", "m"), low=-MOST, bits=WEIGHTED_BITS, made_of="named", axes=1)

SCAFFOLD = local_steps(
    "scaffold",
    take_scaffold_steps,
    "the client's own relaxed V, the change of its gradient, its curvature and its loss",
    {
        # ΣL_iV_i / ΣL_i of rounded sums may leave the box by as much.
        "V": replace(BOXED, high=1 + ROUNDING),
        "control": Input("f", ("k", "m"), -LARGEST, LARGEST),
    },
    {
        "V": _GRADIENT,
        "control": _GRADIENT,
        "curvature_change": Output("f", low=-MOST, bits=WEIGHTED_BITS, made_of="named"),
    },
)


def scaffold_steps(solution: Solution, schedule: Schedule) -> Steps:
    """Play rounds of local proximal steps with control variates, and take the weighted average ΣL_iV_i / ΣL_i.

    Σc_i and ΣL_i are over all clients that ever played, by the changes of those that play now.
    """
    t, V, settled = 0, relaxed_start(solution), False
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


# -- ProxSkip (Mishchenko, Malinovsky, Stich, Richtárik, ICML 2022): the prox, which needs communication, is rare ----
#
# To minimise ΣF_i(V_i) + ψ(V_1, …, V_C), where ψ is C·R(V) if all V_i are one V in [0, 1] and infinite otherwise, a
# client takes gradient steps V_i ← V_i − (∇F_i(V_i) − h_i)/L_i. After each, with probability p, the prox of ψ follows:
#
#     V̂ = prox_{CR/(pL)}( Σ(L_iV_i − h_i/p) / L ),  L = ΣL_i          h_i ← h_i + pL_i(V̂ − V_i)
#
# A round is what lies between two proxes, a geometric number of steps, which the server draws for all.


def take_proxskip_steps(work: Work) -> tuple[ClientState, Update]:
    """Steps from V̂ after h_i has learned of it; L_iV_i − h_i/p and L_i are told."""
    shard, penalty, t, mean_steps = work.rows, read_penalty(work), int(work.values["t"]), int(work.values["mean_steps"])
    Vt = transposed(work)
    h = learn_control(work.state, Vt, t=t, mean_steps=mean_steps)
    U = first_rows(work.state, shard, Vt)
    for _ in range(int(work.values["steps"])):
        rows = Rows.step(shard, U, Vt, penalty)
        eta = rows.step_size
        U, Vt = rows.U, (Vt - eta * (rows.gradient(Vt) - h)).astype(Vt.dtype)
    told = {
        "V": on_grid(np.ascontiguousarray((Vt / eta - h * mean_steps).T), WEIGHTED_BITS),
        "curvature": rows.curvature,
        "loss": rows.loss(shard, Vt),
    }
    state = ClientState(relaxed=U, control=h, local=Vt, step_size=eta, t=t)
    return state, Update(told, supports=name_makers(work, U, "V"))


PROXSKIP = local_steps(
    "proxskip",
    take_proxskip_steps,
    "the client's own relaxed V less its control variate, its curvature and its loss",
    {"mean_steps": STEPS},
    {"V": _GRADIENT},
)


def learn_control(state: ClientState | None, Vt: Array, *, t: int, mean_steps: int) -> Array:
    """h_i + pL_i(V̂ − V_i), p = 1/`mean_steps`; unchanged if the V̂ at hand is not the one that V_i went into."""
    if state is None or state.control is None:
        return np.zeros_like(Vt)
    if state.local is None or state.step_size is None or state.t != t - 1:
        return state.control
    moved = (Vt - state.local) / (mean_steps * state.step_size)
    return np.asarray(state.control + moved, dtype=Vt.dtype)


def proxskip_steps(solution: Solution, schedule: Schedule, *, seed: int) -> Steps:
    """Play rounds of gradient steps with a control variate, and take the prox of the weighted average.

    Parameters
    ----------
    schedule : p = 1/`local_steps`
    seed : decides the number of steps of each round
    """
    t, V, settled = 0, relaxed_start(solution), False
    with best_so_far(lambda: cut_at_half(V)):
        while t < schedule.max_rounds and not settled:
            t, V, settled = yield Checkpoint((t, V, settled))
            steps = draw_steps_to_prox(schedule.local_steps, seed=seed, t=t)
            sums = yield schedule.request(PROXSKIP, t, V, steps=steps, mean_steps=schedule.local_steps)
            before, V = V, average_proximally(sums, schedule, t)
            settled = schedule.settled(sums, t, V, before)
            t += 1
    return cut_at_half(V)


def draw_steps_to_prox(mean_steps: int, *, seed: int, t: int) -> int:
    """Draw the number of steps up to a prox."""
    return int(stream(seed, PROXSKIP.name, t).geometric(1 / mean_steps))


def average_proximally(sums: Sums, schedule: Schedule, t: int) -> NDArray[np.float32]:
    """prox_{CR/(pL)}(Σ(L_iV_i − h_i/p) / L), in the box."""
    scale = sums.clients * schedule.local_steps / float(sums["curvature"])
    V = prox_elb(sums["V"] / sums["curvature"], schedule.kappa * scale, schedule.lam_at(t) * scale)
    return np.asarray(np.clip(V, 0, 1), dtype=np.float32)


def fednmf(n_features: int, n_components: int, *, max_rounds: int = 50, memory: float = 0.0) -> Algorithm:
    """Federated NMF from summed statistics, thresholded once; `memory` as in `nmf`."""
    check_weights(max_iter=(max_rounds, 1))
    check_memory(memory)

    def search(seed: int) -> Steps:
        solution = yield from step("spectral init", spectral_init(n_features, n_components, seed=seed))
        if solution.exact:
            return solution
        solution = yield from step("nmf", nmf(solution, max_rounds, memory=memory))
        return (yield from threshold_search(solution))

    tasks = (GRAM_SKETCH, SIGN_NORMS, FACTOR_STATISTICS, THRESHOLD_COUNTS)
    return _algorithm("fednmf", tasks, search, Limits(n_features, n_components, node_cap=NODE_CAP))


def fedprox(n_features: int, n_components: int, *, gamma: float = 0.3, **schedule: float) -> Algorithm:
    """FedProx: a pull towards the shared V, plain averages; `schedule` as in `Schedule`."""
    check_weights(proximity=(gamma, 0))

    def search(start: Solution, schedule: Schedule, seed: int) -> Steps:  # noqa: ARG001
        return fedprox_steps(start, schedule, gamma=gamma)

    return _optimiser(FEDPROX, search, (n_features, n_components), schedule)


def scaffold(n_features: int, n_components: int, **schedule: float) -> Algorithm:
    """SCAFFOLD: control variates; `schedule` as in `Schedule`."""

    def search(start: Solution, schedule: Schedule, seed: int) -> Steps:  # noqa: ARG001
        return scaffold_steps(start, schedule)

    return _optimiser(SCAFFOLD, search, (n_features, n_components), schedule)


def proxskip(n_features: int, n_components: int, **schedule: float) -> Algorithm:
    """ProxSkip: control variates, and the prox of R once a round; `schedule` as in `Schedule`."""

    def search(start: Solution, schedule: Schedule, seed: int) -> Steps:
        return proxskip_steps(start, schedule, seed=seed)

    return _optimiser(PROXSKIP, search, (n_features, n_components), schedule)


def _optimiser(
    task: TaskSpec,
    search: Callable[[Solution, Schedule, int], Steps],
    shape: tuple[int, int],
    parameters: Mapping[str, Any],
) -> Algorithm:
    """Return the algorithm that searches from a random V on a schedule."""
    schedule = Schedule(**parameters)
    limits = Limits(*shape, node_cap=NODE_CAP, rounds=schedule.max_rounds)
    return _algorithm(task.name, (task,), lambda seed: search(random_init(*shape, seed=seed), schedule, seed), limits)


def _algorithm(name: str, tasks: tuple[TaskSpec, ...], search: Callable[[int], Steps], limits: Limits) -> Algorithm:
    """Return the algorithm that searches, and then has everybody assign their rows."""

    def server(seed: int) -> Server:
        complete = True
        try:
            solution = yield from step(name, search(seed), interruptible=True)
        except TimeUp as up:
            solution, complete = up.found, False
        return (
            yield from request_exact_assignment(
                solution.boolean(),
                np.array([1.0, -1.0]) if solution.weights is None else solution.weights,
                node_cap=NODE_CAP,
                relaxed=solution.relaxed,
                integrality_gap=solution.gap,
                converged=solution.settled and complete,
                complete=complete,
            )
        )

    declared = declare(*tasks, assign_task(ClientState, exactly=True))
    return Algorithm(name, declared, ClientState, server, limits, interruptible=True)
