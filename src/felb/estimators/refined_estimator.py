"""Estimators whose components can be refined before rows are assigned."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from felb.errors import InputError
from felb.estimators.federated_estimator import FederatedEstimator
from felb.federated.algorithms.refined import NODE_CAP, refined
from felb.federated.steps.refine import REFINE_ROUNDS
from felb.kernels.exact import assign_rows_exact

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm
    from felb.privacy.spec import Population

SAMPLED_MEMORY = 0.5
"""Share of earlier rounds in the gains where a sample of the clients plays a round."""


class RefinableEstimator(FederatedEstimator):
    """Base of the estimators with a parameter `refine`; a subclass says what is refined in `plain_algorithm`."""

    refine: bool

    @abstractmethod
    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm without refinement."""

    @property
    def refines(self) -> bool:
        """Whether components are refined."""
        if self.refine not in (True, False):
            raise InputError(f"refine must be True or False, got {self.refine!r}")
        return bool(self.refine)

    @property
    def refine_memory(self) -> float:
        """Share of earlier rounds in the gains of the refinement."""
        return SAMPLED_MEMORY if self.sampled else 0.0

    @property
    def max_rounds(self) -> int | None:
        """Rounds at most before the assignment, those of the refinement included."""
        plain = self.plain_rounds()
        return plain if plain is None or not self.refines else plain + REFINE_ROUNDS + 1

    def plain_rounds(self) -> int | None:
        """Return the rounds at most before refinement."""
        return super().max_rounds

    def algorithm(
        self,
        n_features: int,
        *,
        population: Population | None = None,  # noqa: ARG002
        centralized: bool = False,  # noqa: ARG002
    ) -> Algorithm:
        """Return the algorithm with this estimator's parameters, to be run over any transport."""
        plain = self.plain_algorithm(n_features)
        return refined(plain, memory=self.refine_memory) if self.refines else plain

    def _assign(self, rows: BinaryMatrix) -> NDArray[np.bool_]:
        """Assign rows as in the fit: to refined components by branch and bound."""
        if not self.refines:
            return super()._assign(rows)
        return assign_rows_exact(rows, self.components_, node_cap=NODE_CAP)[0]
