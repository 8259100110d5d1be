"""Estimators whose components may be refined before rows are assigned."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from felb.errors import InputError
from felb.estimators.federated import FederatedEstimator
from felb.federated.phases.refine import Refine
from felb.federated.recipes.refined import NODE_CAP, refined
from felb.linalg.exact import assign_rows_exact

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from felb.federated.server import Recipe
    from felb.privacy.policy import Crowd

SAMPLED_MEMORY = 0.5
"""Share of earlier rounds in the gains where a sample of the clients plays a round."""


class RefinableEstimator(FederatedEstimator):
    """Base of the estimators with a parameter `refine`; a subclass says what is refined in `plain_recipe`."""

    refine: bool

    @abstractmethod
    def plain_recipe(self, n_features: int) -> Recipe:
        """Return the recipe without refinement."""

    @property
    def refinement(self) -> Refine | None:
        """How components are refined, if they are."""
        if self.refine not in (True, False):
            raise InputError(f"refine must be True or False, got {self.refine!r}")
        if not self.refine:
            return None
        return Refine(memory=SAMPLED_MEMORY if self.sampled else 0.0)

    @property
    def max_rounds(self) -> int | None:
        """Rounds at most before the assignment, those of the refinement included."""
        plain, refinement = self.plain_rounds(), self.refinement
        return plain if plain is None or refinement is None else plain + refinement.rounds + 1

    def plain_rounds(self) -> int | None:
        """Return the rounds at most before refinement."""
        return super().max_rounds

    def recipe(self, n_features: int, *, crowd: Crowd | None = None, alone: bool = False) -> Recipe:  # noqa: ARG002
        """Return the recipe with this estimator's parameters, to be run on any engine."""
        plain, refinement = self.plain_recipe(n_features), self.refinement
        return plain if refinement is None else refined(plain, refinement)

    def transform(self, X: Any) -> NDArray[np.bool_]:
        """Assign rows to the components: U that minimises |X ⊕ U∘V| row by row (greedily, then by coordinate descent).

        To refined components, rows are assigned by branch and bound, as in the fit. Every row is assigned on its own,
        so new rows need no refit.
        """
        if self.refinement is None:
            return super().transform(X)
        check_is_fitted(self)
        return assign_rows_exact(self._matrix(X, reset=False), self.components_, node_cap=NODE_CAP)[0]
