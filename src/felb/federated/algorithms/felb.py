"""FELB and FELB-MU (paper, Alg. 1).

Round: every client starts from the shared V̂, takes b proximal steps on its own rows, and sends V_i; the server
averages and applies the proximal operator. After the last round V̂ is cut at ½ and every client assigns its rows to
the Boolean components. What the paper leaves open is in `felb_setting`.

Uploads are multiples of powers of two, so that their sum does not depend on the order of clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.aggregate import curvature_mean, mean
from felb.federated.algorithms.felb_setting import RECOMMENDED, FelbParameters, Setting
from felb.federated.protocol import Algorithm, Checkpoint, Request, Step, Update
from felb.federated.steps.assignment import ASSIGN, assign_task, assigned
from felb.federated.steps.init import INIT_TASKS, spectral_init
from felb.federated.steps.known import Known, stream
from felb.kernels.fixed_point import SKETCH_BITS, on_grid, whole_multiples
from felb.metrics import DECIDED, integrality_gap
from felb.optim.palm import Point, loss_at, palm_blocks, palm_step
from felb.optim.prox import prox_elb, prox_elb_exact
from felb.optim.random_start import typical_scale, uniform_columns
from felb.optim.steps import Lipschitz, Multiplicative

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Server, Sums, Task

    Factor = NDArray[np.floating[Any]]

LOCAL_FACTOR = "local_factor"
"""The task of the optimisation rounds: V_i and the loss, for their sums."""

START_HEIGHT = 0.75
"""Typical entry of a component at the spectral start: above the cut at ½, below the end of the box."""

START_NOISE = 0.05
"""Random entries of the start are below this; a multiplicative step moves small entries slowly."""

FLIPPED = 0.01
"""Share of the entries of V̂ that may still change sides in the last round."""


def felb(n_features: int, n_components: int, *, setting: Setting = RECOMMENDED, **parameters: Any) -> Algorithm:
    """FELB: proximal steps of Lipschitz size."""
    rule = Lipschitz(by_component=setting.step == "component")
    return _algorithm("felb", n_features, FelbParameters.of(n_components, rule, setting=setting, **parameters))


def felb_mu(n_features: int, n_components: int, *, setting: Setting = RECOMMENDED, **parameters: Any) -> Algorithm:
    """FELB-MU: FELB with multiplicative steps."""
    rule = Multiplicative(floor=setting.floor)
    return _algorithm("felb-mu", n_features, FelbParameters.of(n_components, rule, setting=setting, **parameters))


def _algorithm(name: str, n_features: int, parameters: FelbParameters) -> Algorithm:
    tasks: dict[str, Task] = {LOCAL_FACTOR: LocalSteps(parameters), ASSIGN: assign_task(ClientState)}
    if parameters.setting.start == "spectral":
        tasks |= INIT_TASKS
    return Algorithm(name, tasks, ClientState, felb_server(parameters, n_features))


# -- the server --------------------------------------------------------------------------------------------------


def felb_server(p: FelbParameters, n_features: int) -> Callable[[int], Server]:
    """Return the server of Alg. 1: average the V_i, apply the proximal operator, stop when V̂ is decided."""

    def server(seed: int) -> Server:
        V, settled = yield from first_factor(p, n_features, seed)
        t = 0
        while t < p.max_rounds and not settled:
            t, V, settled = yield Checkpoint((t, V, settled))
            sums = yield Request(LOCAL_FACTOR, t=t) if V is None else Request(LOCAL_FACTOR, t=t, V=V)
            before, V = V, aggregated(p, sums, t, before=V)
            settled = integrality_gap(V) <= p.tol and same_cut(V, before)
            sums.report(
                loss=float(sums["loss"]),
                integrality_gap=integrality_gap(V),
                change=np.inf if before is None else float(np.abs(V - before).max(initial=0.0)),
                lam=p.lam_at(t, p.local_steps - 1),
            )
            t += 1
        assert V is not None
        gap = integrality_gap(V)
        return (yield from assigned(V > 0.5, relaxed=V, integrality_gap=gap, converged=gap <= DECIDED))

    return server


def first_factor(p: FelbParameters, n_features: int, seed: int) -> Generator[Step, Known, tuple[Factor | None, bool]]:
    """Return the shared V̂ to start from, None if every client starts on its own, and whether it is exact already.

    The singular vectors are brought to the scale of a relaxed Boolean factor, with nothing at zero.
    """
    if p.setting.start == "independent":
        return None, False
    if p.setting.start == "random":
        return uniform_columns(seed, p.n_components, n_features, dtype=p.dtype), False
    found = yield Step("spectral init", spectral_init(n_features, p.n_components, seed=seed), Known)
    if found.components is not None:  # trivial data
        return found.components.astype(p.dtype), True
    assert found.relaxed is not None
    noise = START_NOISE * stream(seed, "felb", 0).random(found.relaxed.shape)
    return np.clip(START_HEIGHT * typical_scale(found.relaxed) + noise, 0, 1).astype(p.dtype), False


def aggregated(p: FelbParameters, sums: Sums, t: int, *, before: Factor | None) -> Factor:
    """V̂ ← prox^a(average of the V_i), kept in the box."""
    if p.setting.average == "equal":
        V = mean(sums["V"], sums.clients)
    else:
        assert before is not None  # a setting with independent starts weighs clients equally
        V = curvature_mean(sums["V"], sums["curvature"], otherwise=before)
    if p.setting.aggregation == "proximal":
        prox = prox_elb_exact if p.setting.exact_prox else prox_elb
        V = prox(V, p.kappa, p.lam_at(t, p.local_steps - 1))
    return np.clip(V, 0, p.objective.upper).astype(p.dtype)


def same_cut(V: Factor, before: Factor | None) -> bool:
    """Tell whether the cut at ½ has hardly changed.

    With noisy uploads, entries can be near 0 or 1 by chance, so that the integrality gap alone does not show that V̂ is
    decided.
    """
    return before is not None and float(np.mean((V > 0.5) != (before > 0.5))) <= FLIPPED


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
    """The task ``local_factor``: b proximal steps from V̂, then V_i and ‖A_i − U_iV_i‖² for the sum.

    Under curvature weights, s_i ⊙ V_i and s_i = diag(U_iᵀU_i) are sent in place of V_i.
    """

    parameters: FelbParameters

    def __call__(
        self, state: ClientState | None, shard: BinaryMatrix, request: Request, rng: np.random.Generator
    ) -> tuple[ClientState, Update]:
        """Play one round."""
        p, t = self.parameters, int(request.values["t"])
        shared = request.values.get("V")
        target = None if shared is None else np.ascontiguousarray(shared.T)
        point = self._starting_point(state, shard, t, target, rng)
        common: dict[str, Any] = {"rule": p.rule, "beta": p.beta, "target": target}
        if p.setting.order == "blocks":
            lam = p.lam_at(t)
            point, statistics = palm_blocks(shard, point, p.objective, lam=lam, steps=p.local_steps, **common)
        else:
            for step in range(p.local_steps):
                point, statistics = palm_step(shard, point, p.objective, lam=p.lam_at(t, step), **common)
        new = ClientState(point.U, point.U_before, shared, t)
        V = np.ascontiguousarray(point.Vt.T)
        loss = on_grid(np.asarray(loss_at(shard, point, statistics)), SKETCH_BITS)
        if p.setting.average == "equal":
            return new, Update({"V": on_grid(V), "loss": loss})
        curvature = np.diagonal(statistics.UtU).astype(np.float64)
        weighted = {"V": whole_multiples(curvature[:, None] * V), "curvature": whole_multiples(curvature)}
        return new, Update({**weighted, "loss": loss})

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
            if target is not None and p.setting.start != "independent":
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
