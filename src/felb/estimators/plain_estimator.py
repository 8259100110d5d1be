"""The base of federated estimators that have neither refinement nor privacy; their parameters are fields."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from felb.estimators.federated_estimator import FederatedEstimator
from felb.federated.algorithms.refined import NODE_CAP
from felb.kernels.exact import assign_rows_exact

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.participation import Participation
    from felb.federated.protocol import Algorithm
    from felb.privacy.spec import Population


@dataclass(eq=False, repr=False)
class PlainEstimator(FederatedEstimator):
    """Base of estimators whose algorithm assigns rows by branch and bound.

    A subclass is a dataclass too (``eq=False, repr=False``, which scikit-learn brings): it adds its parameters as
    fields and says in `plain_algorithm` what is played.

    Parameters
    ----------
    n_components : number of components
    participation : who plays a round, see `felb.Participation`; everybody without it
    secure : add up by secure aggregation, as a deployed federation can; the result is the same
    n_jobs : clients that work at the same time; does not change the result
    binarize_threshold : make ones of values above it; without it, X must hold only 0 and 1
    random_state : int, RandomState or None
    """

    n_components: int = 10
    _: KW_ONLY
    participation: Participation | None = None
    secure: bool = False
    n_jobs: int | None = None
    binarize_threshold: float | None = None
    random_state: Any = None

    @abstractmethod
    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm with this estimator's parameters."""

    def algorithm(
        self,
        n_features: int,
        *,
        population: Population | None = None,  # noqa: ARG002
        centralized: bool = False,  # noqa: ARG002
    ) -> Algorithm:
        """Return the algorithm with this estimator's parameters, to be run over any transport."""
        return self.plain_algorithm(n_features)

    def _assign(self, rows: BinaryMatrix) -> NDArray[np.bool_]:
        """Assign each row to the best set of components by branch and bound, as in the fit."""
        return assign_rows_exact(rows, self.components_, node_cap=NODE_CAP)[0]
