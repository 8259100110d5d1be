"""The competitors of FELB as plain data."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003  # the annotation of a field
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from felb.federated.algorithms.competitors import fednmf, fedprox, proxskip, scaffold
from felb.federated.algorithms.methods import PlainMethod

if TYPE_CHECKING:
    from felb.federated.protocol import Algorithm


@dataclass(eq=False, repr=False)
class FedNMFMethod(PlainMethod):
    """The method of `felb.FedNMF`, which describes it and its parameters."""

    if_collapsed = "another random_state"

    _: KW_ONLY
    max_iter: int = 50

    @property
    def max_rounds(self) -> int | None:
        """Rounds before the assignment: those of the start, the factorization and the thresholds."""
        return int(self.max_iter) + 5

    def exact_algorithm(self, n_features: int, **_: bool) -> Algorithm:
        """Return the algorithm; where a sample of the clients plays a round, statistics are averaged over rounds."""
        return fednmf(n_features, int(self.n_components), max_rounds=self.max_iter, memory=self.memory)


@dataclass(eq=False, repr=False)
class LocalStepsMethod(PlainMethod):
    """Base of the optimisers on the objective of FELB; `felb.FedProx` describes the parameters."""

    _: KW_ONLY
    l1: float = 0.001
    l2: float = 0.1
    l2_rate: float = 1.05
    local_steps: int = 10
    max_iter: int = 150
    tol: float = 0.01

    _make: ClassVar[Callable[..., Algorithm]]

    def exact_algorithm(self, n_features: int, **_: bool) -> Algorithm:
        """Return the algorithm, which is told its parameters in the symbols of the paper."""
        return self._make(
            n_features,
            int(self.n_components),
            kappa=self.l1,
            lam=self.l2,
            rate=self.l2_rate,
            local_steps=self.local_steps,
            max_rounds=self.max_iter,
            tol=self.tol,
            **self._own(),
        )

    def _own(self) -> dict[str, Any]:
        return {}


@dataclass(eq=False, repr=False)
class FedProxMethod(LocalStepsMethod):
    """The method of `felb.FedProx`."""

    _: KW_ONLY
    proximity: float = 0.3

    _make = staticmethod(fedprox)

    def _own(self) -> dict[str, Any]:
        return {"gamma": self.proximity}


@dataclass(eq=False, repr=False)
class ScaffoldMethod(LocalStepsMethod):
    """The method of `felb.Scaffold`."""

    _make = staticmethod(scaffold)


@dataclass(eq=False, repr=False)
class ProxSkipMethod(LocalStepsMethod):
    """The method of `felb.ProxSkip`."""

    _make = staticmethod(proxskip)
