"""FELB and FELB-MU (paper, Alg. 1).

Round: every client starts from the shared V̂, takes b proximal steps on its own rows, and sends V_i; the server
averages and applies the proximal operator. After the last round V̂ is cut at ½ and every client assigns its rows to
the Boolean components.

Uploads are multiples of 2⁻³² (V_i) and 2⁻²⁰ (losses), so that their sum does not depend on the order of clients.

The paper leaves some choices open; `Setting` names them, `RECOMMENDED` is what measurements favour and `LITERAL`
what the algorithm says word for word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from felb.errors import InputError
from felb.federated.aggregate import mean, proximal_mean
from felb.federated.protocol import Algorithm, Checkpoint, Request, Update
from felb.federated.steps.assignment import ASSIGN, assign_task, assigned
from felb.linalg.fixed import SKETCH_BITS, on_grid
from felb.metrics import DECIDED, integrality_gap
from felb.optim.checks import check_inertia, check_weights
from felb.optim.palm import Objective, Point, loss_at, palm_step
from felb.optim.schedules import Geometric
from felb.optim.start import uniform_columns
from felb.optim.steps import Lipschitz, Multiplicative, StepRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from felb.federated.protocol import Server, Task
    from felb.linalg.binary import BinaryMatrix

    Factor = NDArray[np.floating[Any]]

LOCAL_FACTOR = "local_factor"
"""The task of the optimisation rounds: V_i and the loss, for their sums."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The open points of Alg. 1.

    Parameters
    ----------
    shared_start : all clients begin at one random V̂ (the server's) and at the U that follows from it, so
        that nothing depends on the order of rows or clients; otherwise each draws its own U_i and V_i, and components
        of different clients do not correspond
    clock : what t counts in λ_t, rounds or local steps
    server_scale : "clients" scales the server's prox by 1/C, "one" applies it in full
    aggregation : "proximal", or "mean" for no prox at the server
    boxed : keep factors in [0, 1]; otherwise only non-negative
    exact_prox : use the exact minimiser of the regularizer instead of the printed operator

    Examples
    --------
    >>> import felb
    >>> model = felb.FELB(n_components=5, setting=felb.FelbSetting(clock="steps"))
    >>> model.setting.shared_start
    True
    """

    shared_start: bool = True
    clock: Literal["rounds", "steps"] = "rounds"
    server_scale: Literal["clients", "one"] = "clients"
    aggregation: Literal["proximal", "mean"] = "proximal"
    boxed: bool = True
    exact_prox: bool = False

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("clock", self.clock, ("rounds", "steps")),
            ("server_scale", self.server_scale, ("clients", "one")),
            ("aggregation", self.aggregation, ("proximal", "mean")),
        ):
            if value not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


RECOMMENDED = Setting()
LITERAL = Setting(shared_start=False, clock="steps", server_scale="one", boxed=False)
SETTINGS = {"recommended": RECOMMENDED, "literal": LITERAL}


@dataclass(frozen=True, slots=True)
class FelbParameters:
    """Everything both sides of a run agree on; symbols as in the paper."""

    n_components: int
    rule: StepRule
    kappa: float = 0.001
    lam: float = 0.1
    rate: float = 1.05
    beta: float = 0.001
    gamma: float = 1.0
    local_steps: int = 10
    max_rounds: int = 100
    tol: float = 0.01
    setting: Setting = RECOMMENDED
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_weights(
            n_components=(self.n_components, 1),
            local_steps=(self.local_steps, 1),
            max_iter=(self.max_rounds, 1),
            l1=(self.kappa, 0),
            l2=(self.lam, 0),
            l2_rate=(self.rate, 0),
            proximity=(self.gamma, 0),
            tol=(self.tol, 0),
        )
        check_inertia(self.beta)

    def lam_at(self, round_: int, step: int) -> float:
        """λ_t for a local step of a round."""
        t = round_ if self.setting.clock == "rounds" else round_ * self.local_steps + step
        return Geometric(self.lam, self.rate)(t)

    @property
    def objective(self) -> Objective:
        """What the local steps minimise."""
        upper = 1.0 if self.setting.boxed else np.inf
        return Objective(kappa=self.kappa, gamma=self.gamma, upper=upper, exact=self.setting.exact_prox)


def felb(n_features: int, n_components: int, **parameters: Any) -> Algorithm:
    """FELB: proximal steps of Lipschitz size."""
    return _algorithm("felb", n_features, FelbParameters(n_components, Lipschitz(), **parameters))


def felb_mu(n_features: int, n_components: int, **parameters: Any) -> Algorithm:
    """FELB-MU: FELB with multiplicative steps."""
    return _algorithm("felb-mu", n_features, FelbParameters(n_components, Multiplicative(), **parameters))


def _algorithm(name: str, n_features: int, parameters: FelbParameters) -> Algorithm:
    tasks: dict[str, Task] = {LOCAL_FACTOR: LocalSteps(parameters), ASSIGN: assign_task(ClientState)}
    return Algorithm(name, tasks, ClientState, felb_server(parameters, n_features))


# -- the server --------------------------------------------------------------------------------------------------


def felb_server(p: FelbParameters, n_features: int) -> Callable[[int], Server]:
    """Return the server of Alg. 1: average the V_i, apply the proximal operator, stop when V̂ is Boolean and still."""

    def server(seed: int) -> Server:
        V = first_factor(p, n_features, seed)
        t, settled = 0, False
        while t < p.max_rounds and not settled:
            t, V, settled = yield Checkpoint((t, V, settled))
            sums = yield Request(LOCAL_FACTOR, t=t) if V is None else Request(LOCAL_FACTOR, t=t, V=V)
            before, V = V, aggregated(p, sums["V"], sums.clients, t)
            change = np.inf if before is None else float(np.abs(V - before).max(initial=0.0))
            settled = integrality_gap(V) <= p.tol and change <= p.tol
            sums.report(
                loss=float(sums["loss"]),
                integrality_gap=integrality_gap(V),
                change=change,
                lam=p.lam_at(t, p.local_steps - 1),
            )
            t += 1
        assert V is not None
        gap = integrality_gap(V)
        return (yield from assigned(V > 0.5, relaxed=V, integrality_gap=gap, converged=gap <= DECIDED))

    return server


def first_factor(p: FelbParameters, n_features: int, seed: int) -> Factor | None:
    """Draw the shared V̂; None if every client starts on its own."""
    return uniform_columns(seed, p.n_components, n_features, dtype=p.dtype) if p.setting.shared_start else None


def aggregated(p: FelbParameters, total: Factor, n_clients: int, t: int) -> Factor:
    """V̂ ← prox^a((1/C) Σ V_i), kept in the box."""
    scale = 1 / n_clients if p.setting.server_scale == "clients" else 1.0
    if p.setting.aggregation == "mean":
        V = mean(total, n_clients)
    else:
        lam = p.lam_at(t, p.local_steps - 1)
        V = proximal_mean(total, n_clients, kappa=p.kappa * scale, lam=lam * scale)
    return np.clip(V, 0, p.objective.upper).astype(p.dtype)


# -- the client --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientState:
    """Private to a client: U_i, what inertia needs, the round it last played, and at the end its assignment.

    `shared` is the V̂ that round began with, as it came: clients simulated in one process hold the same array.
    """

    U: Factor | None = None
    U_before: Factor | None = None
    shared: Factor | None = None
    t: int = -1
    assigned: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The task ``local_factor``: b proximal steps from V̂, then V_i and ‖A_i − U_iV_i‖² for the sum."""

    parameters: FelbParameters

    def __call__(
        self, state: ClientState | None, shard: BinaryMatrix, request: Request, rng: np.random.Generator
    ) -> tuple[ClientState, Update]:
        """Play one round."""
        p, t = self.parameters, int(request.values["t"])
        shared = request.values.get("V")
        target = None if shared is None else np.ascontiguousarray(shared.T)
        point = self._starting_point(state, shard, t, target, rng)
        for step in range(p.local_steps):
            lam = p.lam_at(t, step)
            point, statistics = palm_step(shard, point, p.objective, rule=p.rule, lam=lam, beta=p.beta, target=target)
        loss = loss_at(shard, point, statistics)
        update = {"V": on_grid(np.ascontiguousarray(point.Vt.T)), "loss": on_grid(np.asarray(loss), SKETCH_BITS)}
        return ClientState(point.U, point.U_before, shared, t), Update(update)

    def _starting_point(
        self,
        state: ClientState | None,
        shard: BinaryMatrix,
        t: int,
        target: Factor | None,
        rng: np.random.Generator,
    ) -> Point:
        p = self.parameters
        if state is None or state.U is None:
            n, m = shard.shape
            if target is not None and p.setting.shared_start:
                return Point.start(p.rule.first_rows(shard, target), target)
            U = rng.random((n, p.n_components)).astype(p.dtype)
            Vt = rng.random((m, p.n_components)).astype(p.dtype) if target is None else target
            return Point.start(U, Vt)
        assert target is not None  # a state exists, so a round was combined and V̂ is known
        # V moves on from V̂ to V̂ between rounds, whatever the local steps were; against a V̂ from before a missed round,
        # inertia would pull towards a stale point.
        recent = state.shared if state.t == t - 1 else None
        before = target if recent is None else np.ascontiguousarray(recent.T)
        return Point(state.U, target, state.U if state.U_before is None else state.U_before, before)
