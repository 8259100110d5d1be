"""`FedNMF`, `FedProx`, `Scaffold` and `ProxSkip`: what FELB is compared with, as estimators."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from felb.estimators.federated_estimator import FederatedEstimator
from felb.estimators.refined_estimator import SAMPLED_MEMORY
from felb.federated.algorithms.competitors import fednmf, fedprox, proxskip, scaffold
from felb.federated.algorithms.refined import NODE_CAP
from felb.kernels.exact import assign_rows_exact

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from felb.federated.participation import Participation
    from felb.federated.protocol import Algorithm
    from felb.privacy.spec import Population


class CompetingEstimator(FederatedEstimator):
    """Base of the estimators of this file; a subclass says what is played in `plain_algorithm`."""

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

    def transform(self, X: Any) -> NDArray[np.bool_]:
        """Assign rows to the components, each to the best set of them by branch and bound, as in the fit."""
        check_is_fitted(self)
        return assign_rows_exact(self._matrix(X, reset=False), self.components_, node_cap=NODE_CAP)[0]


class FedNMF(CompetingEstimator):
    """Federated non-negative matrix factorization, thresholded once.

    Clients keep their rows of U and send UᵀA and UᵀU, from whose sums the server finds the non-negative V that pooled
    data would give (Li et al., 2021; Si et al., 2022). In the end both factors are cut by the pair of thresholds with
    the fewest wrong cells, and rows are assigned. Nothing is refined after that, which is where `FederatedBMF`
    goes on.

    Parameters
    ----------
    n_components : int
    max_iter : rounds of the factorization; the start takes four more, the thresholds one
    participation : who plays a round, see `felb.Participation`; everybody without it
    n_jobs : clients that work at the same time; does not change the result
    binarize_threshold : make ones of values above it; without it, X must hold only 0 and 1
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : the non-negative V they were cut from
    history_, counts_, supports_, n_iter_ : as in `FELB`
    integrality_gap_ : 0, the components are Boolean

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.data.partition.even(600, 5)
    >>> pooled = felb.FedNMF(n_components=4, random_state=0).fit(data.A)
    >>> shared = felb.FedNMF(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> bool((pooled.components_ == shared.components_).all())
    True
    """

    if_collapsed = "another random_state"

    def __init__(
        self,
        n_components: int = 10,
        *,
        max_iter: int = 50,
        participation: Participation | None = None,
        n_jobs: int | None = None,
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.participation = participation
        self.n_jobs = n_jobs
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

    @property
    def max_rounds(self) -> int | None:
        """Rounds before the assignment: those of the start, the factorization and the thresholds."""
        return int(self.max_iter) + 5

    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm; where a sample of the clients plays a round, statistics are averaged over rounds."""
        memory = SAMPLED_MEMORY if self.sampled else 0.0
        return fednmf(n_features, int(self.n_components), max_rounds=self.max_iter, memory=memory)


class FedProx(CompetingEstimator):
    """The objective of FELB by FedProx: a pull towards the shared components, plain averages.

    Every client takes `local_steps` proximal gradient steps on its own rows, held near the shared V̂; the server
    averages the V_i and leaves the average as it is (Li et al., 2020). V is drawn towards Boolean values at the clients
    only.

    Parameters
    ----------
    n_components : int
    l1, l2 : weights κ and λ of the regularizer
    l2_rate : λ grows by this factor each round
    proximity : γ, how strongly clients are held near V̂, in units of the curvature of their loss
    local_steps : b, steps between two averages
    max_iter : rounds at most
    tol : stop when V̂ is Boolean up to `tol` and changes by no more
    participation : who plays a round, see `felb.Participation`; everybody without it
    n_jobs : clients that work at the same time; does not change the result
    binarize_threshold : make ones of values above it; without it, X must hold only 0 and 1
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : the shared components before they were cut at ½
    history_, counts_, supports_, integrality_gap_, converged_, n_iter_ : as in `FELB`

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.data.partition.even(600, 5)
    >>> model = felb.FedProx(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> model.components_.shape
    (4, 60)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        l1: float = 0.001,
        l2: float = 0.1,
        l2_rate: float = 1.05,
        proximity: float = 0.3,
        local_steps: int = 10,
        max_iter: int = 150,
        tol: float = 0.01,
        participation: Participation | None = None,
        n_jobs: int | None = None,
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.l1 = l1
        self.l2 = l2
        self.l2_rate = l2_rate
        self.proximity = proximity
        self.local_steps = local_steps
        self.max_iter = max_iter
        self.tol = tol
        self.participation = participation
        self.n_jobs = n_jobs
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm with this estimator's parameters."""
        return fedprox(
            n_features,
            int(self.n_components),
            kappa=self.l1,
            lam=self.l2,
            rate=self.l2_rate,
            gamma=self.proximity,
            local_steps=self.local_steps,
            max_rounds=self.max_iter,
            tol=self.tol,
        )


class Scaffold(CompetingEstimator):
    """The objective of FELB by SCAFFOLD: control variates against the drift of clients.

    A client corrects each of its `local_steps` steps by the difference between its own gradient and that of all, as
    they were in the last round; the server averages the V_i and sums the changes of their gradients (Karimireddy et
    al., 2020). A client sends twice as much as under FELB.

    Parameters
    ----------
    n_components : int
    l1, l2 : weights κ and λ of the regularizer
    l2_rate : λ grows by this factor each round
    local_steps : b, steps between two averages
    max_iter : rounds at most
    tol : stop when V̂ is Boolean up to `tol` and changes by no more
    participation : who plays a round, see `felb.Participation`; everybody without it
    n_jobs : clients that work at the same time; does not change the result
    binarize_threshold : make ones of values above it; without it, X must hold only 0 and 1
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : the shared components before they were cut at ½
    history_, counts_, supports_, integrality_gap_, converged_, n_iter_ : as in `FELB`

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.data.partition.even(600, 5)
    >>> model = felb.Scaffold(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> model.components_.shape
    (4, 60)
    """

    _make = staticmethod(scaffold)

    def __init__(
        self,
        n_components: int = 10,
        *,
        l1: float = 0.001,
        l2: float = 0.1,
        l2_rate: float = 1.05,
        local_steps: int = 10,
        max_iter: int = 150,
        tol: float = 0.01,
        participation: Participation | None = None,
        n_jobs: int | None = None,
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.l1 = l1
        self.l2 = l2
        self.l2_rate = l2_rate
        self.local_steps = local_steps
        self.max_iter = max_iter
        self.tol = tol
        self.participation = participation
        self.n_jobs = n_jobs
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm with this estimator's parameters."""
        return self._make(
            n_features,
            int(self.n_components),
            kappa=self.l1,
            lam=self.l2,
            rate=self.l2_rate,
            local_steps=self.local_steps,
            max_rounds=self.max_iter,
            tol=self.tol,
        )


class ProxSkip(Scaffold):
    """The objective of FELB by ProxSkip: gradient steps with a control variate, and the prox once a round.

    Clients take plain gradient steps; after each one, with probability 1/`local_steps`, the server averages the V_i and
    applies the proximal operator of the regularizer (Mishchenko et al., 2022). So the number of steps of a round is
    random, the same for all clients, and `local_steps` on average.

    Parameters and attributes are those of `Scaffold`: n_components, l1, l2, l2_rate, local_steps, max_iter, tol,
    participation, n_jobs, binarize_threshold, random_state.

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.data.partition.even(600, 5)
    >>> model = felb.ProxSkip(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> model.components_.shape
    (4, 60)
    """

    _make = staticmethod(proxskip)
