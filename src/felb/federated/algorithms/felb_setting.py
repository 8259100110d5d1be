"""The choices that the paper leaves open in Alg. 1, and the parameters of a run of FELB or FELB-MU.

`RECOMMENDED` minimises what pooling the rows would minimise, in units that follow the data;
docs/explanation/felb-setting.md derives it. `LITERAL` is the algorithm as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from felb.errors import InputError
from felb.federated.steps.init import SPECTRAL_ROUNDS
from felb.metrics import DECIDED
from felb.optim.checks import check_inertia, check_local_steps, check_weights
from felb.optim.palm import Objective
from felb.optim.schedules import Geometric

if TYPE_CHECKING:
    from felb.optim.steps import StepRule

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
