"""FELB and FELB-MU (paper, Alg. 1).

Round: every client starts from the shared V̂, takes b proximal steps on its own rows, and sends V_i; the server
averages and applies the proximal operator. After the last round V̂ is cut at ½ and every client assigns its rows to
the Boolean components. What the paper leaves open is in `felb_setting`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.aggregate import curvature_mean, mean
from felb.federated.client import Client, Task
from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import Known, stream
from felb.federated.phases.start import Start, StartState
from felb.federated.recipes.assignment import ASSIGN, assign_task, summed_counts
from felb.federated.recipes.felb_setting import FelbParameters
from felb.federated.server import Outcome, Recipe
from felb.federated.state import holding
from felb.linalg.fixed import on_grid
from felb.metrics import DECIDED, integrality_gap
from felb.optim.palm import Point, loss_at, palm_blocks, palm_step
from felb.optim.prox import prox_elb
from felb.optim.start import typical_scale, uniform_columns
from felb.optim.steps import Lipschitz, Multiplicative

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.linalg.binary import BinaryMatrix

FACTORIZE = "factorize"
"""The task of the optimisation rounds."""

START_HEIGHT = 0.75
"""Typical entry of a component at the spectral start: above the cut at ½, below the end of the box."""

FLOOR = 0.05
"""Random entries of the start are below this; a multiplicative step cannot leave zero."""

FLIPPED = 0.01
"""Share of the entries of V̂ that may still change sides in the last round."""


def felb(n_features: int, n_components: int, **parameters: Any) -> Recipe:
    """FELB: proximal steps of Lipschitz size."""
    return _recipe("felb", n_features, FelbParameters.of(n_components, Lipschitz(), **parameters))


def felb_mu(n_features: int, n_components: int, **parameters: Any) -> Recipe:
    """FELB-MU: FELB with multiplicative steps."""
    return _recipe("felb-mu", n_features, FelbParameters.of(n_components, Multiplicative(), **parameters))


def _recipe(name: str, n_features: int, parameters: FelbParameters) -> Recipe:
    tasks: dict[str, Task] = {FACTORIZE: LocalSteps(parameters), ASSIGN: assign_task(_assigned)}
    start = Start(n_features, parameters.n_components) if parameters.setting.start == "spectral" else None
    if start is not None:
        tasks |= {word: _before_the_first_step(task) for word, task in start.tasks.items()}
    client = Client(tasks=tasks, state_type=ClientState, assignment=lambda state: state.assigned)
    return Recipe(name, client, FelbServer(parameters, n_features, start))


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


def _before_the_first_step(task: Task) -> Task:
    """Return a task of the start, which needs no state and leaves none."""

    def started(
        state: ClientState | None,  # noqa: ARG001
        shard: BinaryMatrix,
        broadcast: Broadcast,
        rng: np.random.Generator,
    ) -> tuple[ClientState, Update]:
        _, update = task(None, shard, broadcast, rng)
        return ClientState(None, None, None, broadcast.round), update

    return started


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The task ``factorize``: b proximal steps from V̂, then V_i and ‖A_i − U_iV_i‖² for the sum.

    Under curvature weights, s_i ⊙ V_i and s_i = diag(U_iᵀU_i) are sent, as whole numbers: what they add up to does not
    depend on the order of clients.
    """

    parameters: FelbParameters

    def __call__(
        self, state: ClientState | None, shard: BinaryMatrix, broadcast: Broadcast, rng: np.random.Generator
    ) -> tuple[ClientState, Update]:
        """Play one round."""
        p = self.parameters
        shared = broadcast.values.get("V")
        target = None if shared is None else np.ascontiguousarray(shared.T)
        point = self._starting_point(state, shard, broadcast, target, rng)
        t = broadcast.round - p.setting.start_rounds
        common: dict[str, Any] = {"rule": p.rule, "beta": p.beta, "target": target}
        if p.setting.order == "blocks":
            lam = p.lam_at(t)
            point, statistics = palm_blocks(shard, point, p.objective, lam=lam, steps=p.local_steps, **common)
        else:
            for step in range(p.local_steps):
                point, statistics = palm_step(shard, point, p.objective, lam=p.lam_at(t, step), **common)
        loss = np.asarray(loss_at(shard, point, statistics))
        new = ClientState(point.U, point.U_before, shared, broadcast.round)
        V = np.ascontiguousarray(point.Vt.T)
        if p.setting.average == "equal":
            return new, Update({"V": V, "loss": loss})
        curvature = np.diagonal(statistics.UtU).astype(np.float64)
        return new, Update({"V": on_grid(curvature[:, None] * V), "curvature": on_grid(curvature), "loss": loss})

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
            if target is not None and p.setting.start != "independent":
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
    """Public: the round to play, V̂ (or the start that finds it), whether it has settled, figures of the last round."""

    round: int
    V: NDArray[np.floating[Any]] | None
    seed: int = 0
    start: StartState | None = field(default=None, metadata=holding(StartState))
    settled: bool = False
    loss: float = np.nan
    change: float = np.inf
    counts: NDArray[np.int64] | None = None
    supports: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class FelbServer:
    """Averages the V_i, applies the proximal operator, stops when V̂ is Boolean up to the tolerance."""

    parameters: FelbParameters
    n_features: int
    spectral: Start | None = None
    state_type: type[Any] = ServerState

    def start(self, seed: int) -> ServerState:
        """Draw the shared V̂, or what finds it; nothing if every client starts on its own."""
        p = self.parameters
        if self.spectral is not None:
            return ServerState(0, None, seed, self.spectral.start(Known(), seed))
        if p.setting.start == "independent":
            return ServerState(0, None)
        return ServerState(0, uniform_columns(seed, p.n_components, self.n_features, dtype=p.dtype))

    def broadcast(self, state: ServerState) -> Broadcast | None:
        """Ask for what the start needs, for local steps until settled or out of rounds, then for the assignment."""
        if state.counts is not None:
            return None
        if self.spectral is not None and state.start is not None:
            asked = self.spectral.broadcast(state.start)
            assert asked is not None  # a start that is over has left the state
            return asked
        p = self.parameters
        if state.settled or state.round == p.setting.start_rounds + p.max_rounds:
            return Broadcast(ASSIGN, state.round, {"components": self._boolean(state)}, everyone=True)
        return Broadcast(FACTORIZE, state.round, {} if state.V is None else {"V": state.V})

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: ServerState) -> ServerState:
        """V̂ ← prox^a(average of the V_i), what the start makes of its sums, or the counts after the assignment."""
        new = replace(state, round=state.round + 1)
        if "counts" in total:
            return replace(new, counts=np.asarray(total["counts"]), supports=np.asarray(total["supports"]))
        if self.spectral is not None and state.start is not None:
            started = self.spectral.combine(total, n_clients, state.start)
            if self.spectral.broadcast(started) is not None:
                return replace(new, start=started)
            return self._started(replace(new, start=None), self.spectral.result(started))
        V = self._averaged(total, n_clients, state)
        change = np.inf if state.V is None else float(np.abs(V - state.V).max(initial=0.0))
        settled = integrality_gap(V) <= self.parameters.tol and _same_cut(V, state.V)
        return replace(new, V=V, settled=settled, loss=float(total["loss"]), change=change)

    def _started(self, state: ServerState, found: Known) -> ServerState:
        """Begin with the singular vectors, on the scale of a relaxed Boolean factor; end with exact components."""
        if found.components is not None:  # trivial data
            return replace(state, V=found.components.astype(self.parameters.dtype), settled=True, change=0.0)
        assert found.relaxed is not None
        floor = FLOOR * stream(state.seed, "felb", 0).random(found.relaxed.shape)
        V = np.clip(START_HEIGHT * typical_scale(found.relaxed) + floor, 0, 1)
        return replace(state, V=np.asarray(V, dtype=self.parameters.dtype))

    def _averaged(
        self, total: Mapping[str, NDArray[Any]], n_clients: int, state: ServerState
    ) -> NDArray[np.floating[Any]]:
        p = self.parameters
        if p.setting.average == "equal":
            V = mean(total["V"], n_clients)
        else:
            assert state.V is not None  # clients that start on their own have no common component to weigh
            V = curvature_mean(total["V"], total["curvature"], otherwise=state.V)
        if p.setting.aggregation == "proximal":
            V = prox_elb(V, p.kappa, self._lam(state))
        return np.asarray(np.clip(V, 0, p.objective.upper), dtype=p.dtype)

    def _lam(self, state: ServerState) -> float:
        """λ of the round that is being combined."""
        return self.parameters.lam_at(
            state.round - self.parameters.setting.start_rounds, self.parameters.local_steps - 1
        )

    def record(self, state: ServerState) -> Mapping[str, float]:
        """Summed loss, integrality gap and largest change of V̂."""
        if state.counts is not None:
            return summed_counts(state.counts).scores()
        if state.round <= self.parameters.setting.start_rounds:
            return {}
        assert state.V is not None
        return {
            "loss": state.loss,
            "integrality_gap": integrality_gap(state.V),
            "change": state.change,
            "lam": self._lam(replace(state, round=state.round - 1)),
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
            n_iter=state.round - int(state.counts is not None),
            counts=summed_counts(state.counts),
            supports=np.zeros(len(state.V), np.int64) if state.supports is None else state.supports,
        )

    @staticmethod
    def _boolean(state: ServerState) -> NDArray[np.bool_]:
        assert state.V is not None
        return np.asarray(state.V > 0.5)


def _same_cut(V: NDArray[np.floating[Any]], before: NDArray[np.floating[Any]] | None) -> bool:
    """Tell whether the cut at ½ has hardly changed; of noisy uploads, entries are at the ends of the box by chance."""
    return before is not None and float(np.mean((V > 0.5) != (before > 0.5))) <= FLIPPED
