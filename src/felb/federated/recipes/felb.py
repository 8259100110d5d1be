"""FELB and FELB-MU (paper, Alg. 1).

Round: every client starts from the shared V̂, takes b proximal steps on its own rows, and sends V_i; the server
averages and applies the proximal operator. After the last round V̂ is cut at ½ and every client assigns its rows to
the Boolean components.

The paper leaves some choices open; `Setting` names them, `RECOMMENDED` is what measurements favour and `LITERAL`
what the algorithm says word for word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from felb.errors import InputError
from felb.federated.aggregate import mean, proximal_mean
from felb.federated.client import Client, Task
from felb.federated.messages import Broadcast, Update
from felb.federated.recipes.assignment import ASSIGN, assign_task, summed_counts
from felb.federated.server import Outcome, Recipe
from felb.linalg.trivial import exact_components
from felb.metrics import DECIDED, integrality_gap
from felb.optim.checks import check_inertia, check_weights
from felb.optim.palm import Objective, Point, loss_at, palm_step
from felb.optim.schedules import Geometric
from felb.optim.start import uniform_columns
from felb.optim.steps import Lipschitz, Multiplicative, StepRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.linalg.binary import BinaryMatrix

FACTORIZE = "factorize"
"""The task of the optimisation rounds."""

COLUMN_SUMS = "column sums"
"""Asked of everybody after a first round whose clients have no more ones than there are components."""


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


def felb(n_features: int, n_components: int, **parameters: Any) -> Recipe:
    """FELB: proximal steps of Lipschitz size."""
    return _recipe("felb", n_features, FelbParameters(n_components, Lipschitz(), **parameters))


def felb_mu(n_features: int, n_components: int, **parameters: Any) -> Recipe:
    """FELB-MU: FELB with multiplicative steps."""
    return _recipe("felb-mu", n_features, FelbParameters(n_components, Multiplicative(), **parameters))


def _recipe(name: str, n_features: int, parameters: FelbParameters) -> Recipe:
    tasks: dict[str, Task] = {
        FACTORIZE: LocalSteps(parameters),
        COLUMN_SUMS: column_sums_task,
        ASSIGN: assign_task(_assigned),
    }
    client = Client(tasks=tasks, state_type=ClientState, assignment=lambda state: state.assigned)
    return Recipe(name, client, FelbServer(parameters, n_features))


# -- the client --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientState:
    """Private to a client: U_i, what inertia needs, the round it last played, and at the end its assignment.

    `shared` is the V̂ that round began with, as it came: clients simulated in one process hold the same array.
    """

    U: NDArray[np.floating[Any]] | None
    U_before: NDArray[np.floating[Any]] | None
    shared: NDArray[np.floating[Any]] | None
    round: int
    assigned: NDArray[np.bool_] | None = None


def _assigned(state: ClientState | None, broadcast: Broadcast, U: NDArray[np.bool_]) -> ClientState:  # noqa: ARG001
    return ClientState(None, None, None, broadcast.round, U)


def column_sums_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Ones of each column, and the number of cells."""
    kept = ClientState(None, None, None, broadcast.round) if state is None else state
    return kept, Update({"columns": shard.column_sums(), "cells": np.asarray(shard.known_cells)})


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The task ``factorize``: b proximal steps from V̂, then V_i, ‖A_i − U_iV_i‖² and |A_i| for the sum."""

    parameters: FelbParameters

    def __call__(
        self, state: ClientState | None, shard: BinaryMatrix, broadcast: Broadcast, rng: np.random.Generator
    ) -> tuple[ClientState, Update]:
        """Play one round."""
        p = self.parameters
        shared = broadcast.values.get("V")
        target = None if shared is None else np.ascontiguousarray(shared.T)
        point = self._starting_point(state, shard, broadcast, target, rng)
        for step in range(p.local_steps):
            lam = p.lam_at(broadcast.round, step)
            point, statistics = palm_step(shard, point, p.objective, rule=p.rule, lam=lam, beta=p.beta, target=target)
        loss = loss_at(shard, point, statistics)
        new = ClientState(point.U, point.U_before, shared, broadcast.round)
        V = np.ascontiguousarray(point.Vt.T)
        return new, Update({"V": V, "loss": np.asarray(loss), "ones": np.asarray(shard.nnz)})

    def _starting_point(
        self,
        state: ClientState | None,
        shard: BinaryMatrix,
        broadcast: Broadcast,
        target: NDArray[np.floating[Any]] | None,
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
        recent = state.shared if state.round == broadcast.round - 1 else None
        before = target if recent is None else np.ascontiguousarray(recent.T)
        return Point(state.U, target, state.U if state.U_before is None else state.U_before, before)


# -- the server --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerState:
    """Public: the round to play, V̂, whether it has settled, and the figures of the round before."""

    round: int
    V: NDArray[np.floating[Any]] | None
    settled: bool = False
    loss: float = np.nan
    change: float = np.inf
    n_iter: int = 0
    few_ones: bool = False
    counts: NDArray[np.int64] | None = None
    supports: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class FelbServer:
    """Averages the V_i, applies the proximal operator, stops when V̂ is Boolean and stays put."""

    parameters: FelbParameters
    n_features: int
    state_type: type[Any] = ServerState

    def start(self, seed: int) -> ServerState:
        """Draw the shared V̂, unless every client starts on its own."""
        p = self.parameters
        if not p.setting.shared_start:
            return ServerState(0, None)
        return ServerState(0, uniform_columns(seed, p.n_components, self.n_features, dtype=p.dtype))

    def broadcast(self, state: ServerState) -> Broadcast | None:
        """Ask for local steps until settled or out of rounds, then for the assignment."""
        if state.counts is not None:
            return None
        if state.few_ones:
            return Broadcast(COLUMN_SUMS, state.round, {}, everyone=True)
        if state.settled or state.n_iter == self.parameters.max_rounds:
            return Broadcast(ASSIGN, state.round, {"components": self._boolean(state)}, everyone=True)
        return Broadcast(FACTORIZE, state.round, {} if state.V is None else {"V": state.V})

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: ServerState) -> ServerState:
        """V̂ ← prox^a((1/C) Σ V_i), or the summed counts after the assignment."""
        if "counts" in total:
            return replace(
                state,
                round=state.round + 1,
                counts=np.asarray(total["counts"]),
                supports=np.asarray(total["supports"]),
            )
        if "columns" in total:
            return self._without_search(total, state)
        p = self.parameters
        lam = p.lam_at(state.round, p.local_steps - 1)
        scale = 1 / n_clients if p.setting.server_scale == "clients" else 1.0
        if p.setting.aggregation == "mean":
            V = mean(total["V"], n_clients)
        else:
            V = proximal_mean(total["V"], n_clients, kappa=p.kappa * scale, lam=lam * scale)
        V = np.clip(V, 0, p.objective.upper).astype(p.dtype)
        change = np.inf if state.V is None else float(np.abs(V - state.V).max(initial=0.0))
        settled = integrality_gap(V) <= p.tol and change <= p.tol
        return ServerState(
            round=state.round + 1,
            V=V,
            settled=settled,
            loss=float(total["loss"]),
            change=change,
            n_iter=state.n_iter + 1,
            few_ones=state.n_iter == 0 and "ones" in total and int(total["ones"]) <= p.n_components,
        )

    def _without_search(self, total: Mapping[str, NDArray[Any]], state: ServerState) -> ServerState:
        """Take the exact components of trivial data; go on as before if the data is not."""
        columns, cells = np.asarray(total["columns"]), int(total["cells"])
        V = exact_components(columns, cells, self.parameters.n_components)
        state = replace(state, round=state.round + 1, few_ones=False)
        return state if V is None else replace(state, V=V.astype(self.parameters.dtype), settled=True, change=0.0)

    def record(self, state: ServerState) -> Mapping[str, float]:
        """Summed loss, integrality gap and largest change of V̂."""
        if state.counts is not None:
            return summed_counts(state.counts).scores()
        assert state.V is not None
        return {
            "loss": state.loss,
            "integrality_gap": integrality_gap(state.V),
            "change": state.change,
            "lam": self.parameters.lam_at(state.round - 1, self.parameters.local_steps - 1),
        }

    def outcome(self, state: ServerState) -> Outcome:
        """Return the Boolean V̂ with its scores."""
        if state.V is None:
            raise InputError("nothing was found yet: not a single round was completed")
        return Outcome(
            components=self._boolean(state),
            relaxed=state.V,
            integrality_gap=integrality_gap(state.V),
            converged=integrality_gap(state.V) <= DECIDED,
            n_iter=state.n_iter,
            counts=summed_counts(state.counts),
            supports=np.zeros(len(state.V), np.int64) if state.supports is None else state.supports,
        )

    @staticmethod
    def _boolean(state: ServerState) -> NDArray[np.bool_]:
        assert state.V is not None
        return np.asarray(state.V > 0.5)
