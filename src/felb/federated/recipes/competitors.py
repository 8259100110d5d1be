"""What FELB is compared with: federated NMF, and three federated optimisers on the objective of FELB.

Each is a short chain of phases. The optimisers start from the random V that the server draws and are cut at ½ in the
end, as FELB is; all assign rows to the Boolean components by branch and bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.federated.phases.fedprox import FedProxSteps
from felb.federated.phases.local_steps import Schedule
from felb.federated.phases.pipeline import Chain, pipeline
from felb.federated.phases.proxskip import ProxSkipSteps
from felb.federated.phases.relaxed import Relaxed
from felb.federated.phases.scaffold import ScaffoldSteps
from felb.federated.phases.start import RandomStart, Start
from felb.federated.phases.thresholds import Thresholds

if TYPE_CHECKING:
    from felb.federated.phases.local_steps import Averaging
    from felb.federated.server import Recipe


def fednmf(n_features: int, n_components: int, *, max_rounds: int = 50, memory: float = 0.0) -> Recipe:
    """Federated NMF from summed statistics, thresholded once; `memory` as in `Relaxed`."""
    phases = Start(n_features, n_components), Relaxed(max_rounds, memory), Thresholds()
    return pipeline("fednmf", Chain(*phases))


def fedprox(
    n_features: int,
    n_components: int,
    *,
    kappa: float = 0.001,
    lam: float = 0.1,
    rate: float = 1.05,
    gamma: float = 0.3,
    local_steps: int = 10,
    max_rounds: int = 150,
    tol: float = 0.01,
) -> Recipe:
    """FedProx: a pull towards the shared V, plain averages."""
    schedule = Schedule(kappa, lam, rate, local_steps, max_rounds, tol)
    return _averaged(n_features, n_components, FedProxSteps(schedule, gamma))


def scaffold(
    n_features: int,
    n_components: int,
    *,
    kappa: float = 0.001,
    lam: float = 0.1,
    rate: float = 1.05,
    local_steps: int = 10,
    max_rounds: int = 150,
    tol: float = 0.01,
) -> Recipe:
    """SCAFFOLD: control variates."""
    schedule = Schedule(kappa, lam, rate, local_steps, max_rounds, tol)
    return _averaged(n_features, n_components, ScaffoldSteps(schedule))


def proxskip(
    n_features: int,
    n_components: int,
    *,
    kappa: float = 0.001,
    lam: float = 0.1,
    rate: float = 1.05,
    local_steps: int = 10,
    max_rounds: int = 150,
    tol: float = 0.01,
) -> Recipe:
    """ProxSkip: control variates, and the prox of R once a round."""
    schedule = Schedule(kappa, lam, rate, local_steps, max_rounds, tol)
    return _averaged(n_features, n_components, ProxSkipSteps(schedule))


def _averaged(n_features: int, n_components: int, steps: Averaging) -> Recipe:
    return pipeline(steps.name, Chain(RandomStart(n_features, n_components), steps))
