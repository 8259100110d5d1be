"""The choices that the paper leaves open in Alg. 1, and the parameters of a run of FELB or FELB-MU.

`RECOMMENDED` minimises what pooling the rows would minimise, in units that follow the data;
docs/explanation/felb-setting.md derives it. `LITERAL` is the algorithm as printed, with the readings of
docs/explanation/readings.md where the print leaves something open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from felb.errors import InputError
from felb.federated.aggregate import curvature_mean, mean
from felb.federated.protocol import Algorithm, Checkpoint, Request, Step, Update
from felb.federated.steps.assignment import assign_task, assigned
from felb.federated.steps.starts import GRAM_SKETCH, SIGN_NORMS, SPECTRAL_ROUNDS, spectral_init
from felb.federated.steps.state import Solution, stream
from felb.federated.tasks import BOXED, Bounds, Input, Limits, Output, TaskSpec, Work, declare, require
from felb.kernels import SKETCH_BITS
from felb.kernels.passes import on_grid, whole_multiples
from felb.metrics import DECIDED, integrality_gap
from felb.optim.palm import Objective, Point, loss_at, palm_step
from felb.optim.prox import Geometric, check_inertia, check_local_steps, check_weights, prox_elb, prox_elb_exact
from felb.optim.steps import Lipschitz, Multiplicative, typical_scale, uniform_columns
from felb.privacy.disclosure import count_effectively

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Server, Sums, Values
    from felb.optim.steps import StepRule

    Factor = NDArray[np.floating[Any]]

CHOICES: dict[str, tuple[str, ...]] = {
    "start": ("spectral", "random", "independent"),
    "order": ("blocks", "alternating"),
    "step": ("component", "factor"),
    "units": ("curvature", "absolute"),
    "average": ("curvature", "equal"),
    "aggregation": ("proximal", "mean"),
    "clock": ("rounds", "steps"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """The open points of Alg. 1, and the weights that go with them where the estimator is given none.

    Parameters
    ----------
    start : "spectral": V̂ from the leading singular vectors of all rows, by sums over clients (four rounds); "random":
        one random V̂ for all; "independent": every client draws its own U_i and V_i, and components of different
        clients do not correspond
    order : "blocks": a client takes its local steps on U_i with V̂ held, then on V_i with U_i held; "alternating": U_i
        and V_i in turn
    step : size of the gradient steps of FELB. "component": one for each component, by its row of the Gram matrix;
        "factor": one for all, by the norm of that matrix. Multiplicative steps have a size for each entry
    floor : entries of the factors are raised to this before a multiplicative step of FELB-MU, since such a step cannot
        leave zero; with 0, an entry that has once become zero remains zero
    units : of κ, λ and γ. "curvature": of the client's own data term, which grows with its rows; the mean curvature
        tr(UᵀU)/k for κ and λ (tr(VVᵀ)/k for U), its geometric mean with (UᵀU)_ll for γ; "absolute": 1
    average : of the V_i. "curvature": component l of client i weighs (U_iᵀU_i)_ll; "equal": clients weigh the same
    aggregation : "proximal": the server's prox after the average; "mean": none
    clock : what t counts in λ_t, rounds or local steps
    boxed : keep factors in [0, 1]; otherwise only non-negative
    exact_prox : use the exact minimiser of the regularizer instead of the printed operator
    l1, l2, l2_rate, proximity : κ, λ, the factor by which λ grows, and γ
    max_iter : rounds of local steps at most
    tol : end when no entry of V̂ is farther than this from 0 and 1, and the cut at ½ stays as it is

    Examples
    --------
    >>> import felb
    >>> model = felb.FELB(n_components=5, setting=felb.FelbSetting(start="random"))
    >>> model.setting.order
    'blocks'
    """

    start: Literal["spectral", "random", "independent"] = "spectral"
    order: Literal["blocks", "alternating"] = "blocks"
    step: Literal["component", "factor"] = "component"
    floor: float = 0.001
    units: Literal["curvature", "absolute"] = "curvature"
    average: Literal["curvature", "equal"] = "curvature"
    aggregation: Literal["proximal", "mean"] = "proximal"
    clock: Literal["rounds", "steps"] = "rounds"
    boxed: bool = True
    exact_prox: bool = False
    l1: float = 0.0
    l2: float = 0.001
    l2_rate: float = 1.05
    proximity: float = 0.3
    max_iter: int = 200
    tol: float = DECIDED

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if not (isinstance(self.floor, int | float) and 0 <= self.floor < 0.5):
            raise InputError(f"floor must lie in [0, 0.5), got {self.floor!r}")
        if self.start == "independent" and self.average == "curvature":
            raise InputError(
                "average='curvature' weighs components that clients share; with start='independent' they share none, "
                "so use average='equal'"
            )
        if self.order == "blocks" and self.clock == "steps":
            raise InputError("clock='steps' counts alternating steps; use it with order='alternating'")

    @property
    def start_rounds(self) -> int:
        """Rounds before the first local step."""
        return SPECTRAL_ROUNDS if self.start == "spectral" else 0


RECOMMENDED = Setting()
LITERAL = Setting(
    start="independent",
    order="alternating",
    step="factor",
    floor=0.0,
    units="absolute",
    average="equal",
    clock="steps",
    boxed=False,
    l1=0.001,
    l2=0.1,
    proximity=1.0,
    max_iter=100,
    tol=0.01,
)
UNWEIGHTED = Setting(start="random", step="factor", average="equal")
"""V_i leaves a client without weights, and all weigh the same; what noise on uploads can be calibrated for."""

SETTINGS = {"recommended": RECOMMENDED, "unweighted": UNWEIGHTED, "literal": LITERAL}


@dataclass(frozen=True, slots=True)
class FelbParameters:
    """Everything both sides of a run agree on; symbols as in the paper."""

    n_components: int
    rule: StepRule
    kappa: float = RECOMMENDED.l1
    lam: float = RECOMMENDED.l2
    rate: float = RECOMMENDED.l2_rate
    gamma: float = RECOMMENDED.proximity
    beta: float = 0.001
    local_steps: int = 10
    max_rounds: int = RECOMMENDED.max_iter
    tol: float = RECOMMENDED.tol
    setting: Setting = RECOMMENDED
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_weights(
            n_components=(self.n_components, 1),
            max_iter=(self.max_rounds, 1),
            l1=(self.kappa, 0),
            l2=(self.lam, 0),
            l2_rate=(self.rate, 0),
            proximity=(self.gamma, 0),
            tol=(self.tol, 0),
        )
        check_local_steps(self.local_steps)
        check_inertia(self.beta)

    @classmethod
    def of(cls, n_components: int, rule: StepRule, *, setting: Setting = RECOMMENDED, **given: Any) -> FelbParameters:
        """Return parameters in which whatever is None, or not given, is the setting's."""
        weights = {"kappa": setting.l1, "lam": setting.l2, "rate": setting.l2_rate, "gamma": setting.proximity}
        weights |= {"max_rounds": setting.max_iter, "tol": setting.tol}
        given = {name: value for name, value in given.items() if value is not None}
        return cls(n_components, rule, setting=setting, **{**weights, **given})

    def lam_at(self, t: int, step: int = 0) -> float:
        """λ_t for a local step of the t-th round of optimisation."""
        return Geometric(self.lam, self.rate)(t * self.local_steps + step if self.setting.clock == "steps" else t)

    @property
    def objective(self) -> Objective:
        """What the local steps minimise."""
        setting, upper = self.setting, 1.0 if self.setting.boxed else np.inf
        relative = setting.units == "curvature"
        return Objective(self.kappa, self.gamma, upper, exact=setting.exact_prox, relative=relative)


# -- FELB and FELB-MU (paper, Alg. 1) --------------------------------------------------------------------------------
#
# Round: every client starts from the shared V̂, takes b proximal steps on its own rows, and sends V_i; the server
# averages and applies the proximal operator. After the last round V̂ is cut at ½ and every client assigns its rows to
# the Boolean components. What the paper leaves open is in `felb_setting`.
#
# Uploads are multiples of powers of two, so that their sum does not depend on the order of clients.

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


def _algorithm(name: str, n_features: int, p: FelbParameters) -> Algorithm:
    starts = (GRAM_SKETCH, SIGN_NORMS) if p.setting.start == "spectral" else ()
    tasks = declare(*starts, local_factor(p), assign_task(FelbState))
    limits = Limits(n_features, p.n_components, rounds=p.max_rounds)
    return Algorithm(name, tasks, FelbState, felb_server(p, n_features), limits)


# -- the server --------------------------------------------------------------------------------------------------


def felb_server(p: FelbParameters, n_features: int) -> Callable[[int], Server]:
    """Return the server of Alg. 1: average the V_i, apply the proximal operator, stop when V̂ is decided."""

    def server(seed: int) -> Server:
        V, settled = yield from find_first_factor(p, n_features, seed)
        t = 0
        while t < p.max_rounds and not settled:
            t, V, settled = yield Checkpoint((t, V, settled))
            sums = yield Request(LOCAL_FACTOR, t=t) if V is None else Request(LOCAL_FACTOR, t=t, V=V)
            before, V = V, aggregate_factors(p, sums, t, before=V)
            settled = integrality_gap(V) <= p.tol and has_same_cut(V, before)
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


def find_first_factor(
    p: FelbParameters, n_features: int, seed: int
) -> Generator[Step, Solution, tuple[Factor | None, bool]]:
    """Return the shared V̂ to start from, None if every client starts on its own, and whether it is exact already.

    The singular vectors are brought to the scale of a relaxed Boolean factor, with nothing at zero.
    """
    if p.setting.start == "independent":
        return None, False
    if p.setting.start == "random":
        return uniform_columns(seed, p.n_components, n_features, dtype=p.dtype), False
    found = yield Step("spectral init", spectral_init(n_features, p.n_components, seed=seed), Solution)
    if found.components is not None:  # trivial data
        return found.components.astype(p.dtype), True
    assert found.relaxed is not None
    noise = START_NOISE * stream(seed, "felb", 0).random(found.relaxed.shape)
    return np.clip(START_HEIGHT * typical_scale(found.relaxed) + noise, 0, 1).astype(p.dtype), False


def aggregate_factors(p: FelbParameters, sums: Sums, t: int, *, before: Factor | None) -> Factor:
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


def has_same_cut(V: Factor, before: Factor | None) -> bool:
    """Tell whether the cut at ½ has hardly changed.

    With noisy uploads, entries can be near 0 or 1 by chance, so that the integrality gap alone does not show that V̂ is
    decided.
    """
    return before is not None and float(np.mean((V > 0.5) != (before > 0.5))) <= FLIPPED


# -- the client --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FelbState:
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
    """The task: b proximal steps from V̂, then V_i and ‖A_i − U_iV_i‖² for the sum.

    Under curvature weights, s_i ⊙ V_i and s_i = diag(U_iᵀU_i) are sent in place of V_i.
    """

    parameters: FelbParameters

    def __call__(self, work: Work) -> tuple[FelbState, Update]:
        """Play one round."""
        p, t, shard = self.parameters, int(work.values["t"]), work.rows
        shared = work.values.get("V")
        target = None if shared is None else np.ascontiguousarray(shared.T)
        point = self._starting_point(work.state, shard, t, target, work.rng)
        common: dict[str, Any] = {"rule": p.rule, "beta": p.beta, "target": target}
        if p.setting.order == "blocks":
            lam = p.lam_at(t)
            point, statistics = palm_step(shard, point, p.objective, lam=lam, steps=p.local_steps, **common)
        else:
            for step in range(p.local_steps):
                point, statistics = palm_step(shard, point, p.objective, lam=p.lam_at(t, step), **common)
        new = FelbState(point.U, point.U_before, shared, t)
        V = np.ascontiguousarray(point.Vt.T)
        loss = on_grid(np.asarray(loss_at(shard, point, statistics)), SKETCH_BITS)
        records = count_members(point.U) if work.least > 1 else None
        supports = {} if records is None else {"V": records, "curvature": records}
        if p.setting.average == "equal":
            return new, Update({"V": on_grid(V), "loss": loss}, supports=supports)
        curvature = np.diagonal(statistics.UtU).astype(np.float64)
        weighted = {"V": whole_multiples(curvature[:, None] * V), "curvature": whole_multiples(curvature)}
        return new, Update({**weighted, "loss": loss}, supports=supports)

    def _starting_point(
        self,
        state: FelbState | None,
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


def count_members(U: Factor) -> NDArray[np.int64]:
    """Return of how many records each row of a client's own V is made, by their shares in ‖U_l‖²."""
    squares = U.astype(np.float64) ** 2
    return count_effectively(squares.sum(axis=0), squares.max(axis=0, initial=0.0))


LOCAL_FACTOR = "local_factor"

MOST_ENTRY = 1000
"""Of a factor that is not kept in the box, as in the literal setting."""

ROUNDING = 1e-4
"""Entries of V are rounded to a grid, and averages of them weighed; so the box is this much wider."""


def local_factor(p: FelbParameters) -> TaskSpec:
    """Declare the task of the optimisation rounds: V_i and the loss, for their sums."""
    k = p.n_components
    outputs = {"V": Output("f", (k, "m"), -ROUNDING, MOST_ENTRY, made_of="named", axes=1), "loss": LOSS}
    if p.setting.average == "curvature":
        own = {"V": Output("i", (k, "m"), made_of="named", axes=1), "curvature": Output("i", (k,), made_of="named")}
        outputs = {**own, "loss": LOSS}
    return TaskSpec(
        LOCAL_FACTOR,
        "local steps",
        LocalSteps(p),
        "the client's own relaxed V, weighed by its curvature, and its loss",
        {"t": LOCAL_ROUND, "V": replace(BOXED, high=p.objective.upper, optional=True)},
        outputs,
        relations=_check_weighed if p.setting.average == "curvature" else None,
    )


LOCAL_ROUND = Input("i", (), 0, lambda limits: limits.rounds)
LOSS = Output("f", (), low=-1, bits=SKETCH_BITS, made_of="all")
"""A sum of squares, up to rounding."""


def _check_weighed(told: Values, values: Values, bounds: Bounds) -> None:  # noqa: ARG001
    """S ⊙ V with V in the box, up to rounding."""
    most = told["curvature"].astype(np.float64)[:, None] * (1 + ROUNDING) + bounds.clients
    require(told["V"] <= most, "V lies outside of [0, 1]")
