"""`FedNMF`, `FedProx`, `Scaffold` and `ProxSkip`: competitors of FELB as estimators."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from felb.estimators.plain_estimator import PlainEstimator
from felb.estimators.refined_estimator import SAMPLED_MEMORY
from felb.federated.algorithms.competitors import fednmf, fedprox, proxskip, scaffold

if TYPE_CHECKING:
    from felb.federated.protocol import Algorithm


@dataclass(eq=False, repr=False)
class FedNMF(PlainEstimator):
    """Federated non-negative matrix factorization, thresholded once.

    Clients keep their rows of U and send UᵀA and UᵀU, from whose sums the server finds the non-negative V of all rows
    (Li et al., 2021; Si et al., 2022). In the end both factors are cut by the pair of thresholds with the fewest wrong
    cells, and rows are assigned. Nothing is refined after that, which is where `FederatedBMF` goes on.

    Parameters
    ----------
    n_components : int
    max_iter : rounds of the factorization; the start takes four more, the thresholds one
    participation : client sampling and dropout, see `felb.Participation`; by default all clients take part
    secure : add up by secure aggregation, as a deployed federation can; the result is the same
    n_jobs : number of clients that compute in parallel; does not change the result
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
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
    >>> centralized = felb.FedNMF(n_components=4, random_state=0).fit(data.A)
    >>> shared = felb.FedNMF(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> bool((centralized.components_ == shared.components_).all())
    True
    """

    if_collapsed = "another random_state"

    _: KW_ONLY
    max_iter: int = 50

    @property
    def max_rounds(self) -> int | None:
        """Rounds before the assignment: those of the start, the factorization and the thresholds."""
        return int(self.max_iter) + 5

    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm; where a sample of the clients plays a round, statistics are averaged over rounds."""
        memory = SAMPLED_MEMORY if self.sampled else 0.0
        return fednmf(n_features, int(self.n_components), max_rounds=self.max_iter, memory=memory)


@dataclass(eq=False, repr=False)
class LocalStepsEstimator(PlainEstimator):
    """Base of the optimisers on the objective of FELB.

    Parameters
    ----------
    l1, l2 : weights κ and λ of the regularizer
    l2_rate : λ grows by this factor each round
    local_steps : b, steps between two averages
    max_iter : rounds at most
    tol : stop when V̂ is Boolean up to `tol` and changes by no more
    """

    _: KW_ONLY
    l1: float = 0.001
    l2: float = 0.1
    l2_rate: float = 1.05
    local_steps: int = 10
    max_iter: int = 150
    tol: float = 0.01

    def settings(self) -> dict[str, Any]:
        """Return what every optimiser of this file is told, in the symbols of the paper."""
        return {
            "kappa": self.l1,
            "lam": self.l2,
            "rate": self.l2_rate,
            "local_steps": self.local_steps,
            "max_rounds": self.max_iter,
            "tol": self.tol,
        }

    @abstractmethod
    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm with this estimator's parameters."""


@dataclass(eq=False, repr=False)
class FedProx(LocalStepsEstimator):
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
    participation : client sampling and dropout, see `felb.Participation`; by default all clients take part
    secure : add up by secure aggregation, as a deployed federation can; the result is the same
    n_jobs : number of clients that compute in parallel; does not change the result
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
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

    _: KW_ONLY
    proximity: float = 0.3

    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm with this estimator's parameters."""
        return fedprox(n_features, int(self.n_components), gamma=self.proximity, **self.settings())


@dataclass(eq=False, repr=False)
class Scaffold(LocalStepsEstimator):
    """The objective of FELB by SCAFFOLD: control variates against the drift of clients.

    A client corrects each of its `local_steps` steps by the difference between its own gradient and that of all, as
    they were in the last round; the server averages the V_i and sums the changes of their gradients (Karimireddy et
    al., 2020). A client sends twice as much as under FELB.

    Parameters and attributes are those of `FedProx` without `proximity`: n_components, l1, l2, l2_rate, local_steps,
    max_iter, tol, participation, secure, n_jobs, binarize_threshold, random_state.

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.data.partition.even(600, 5)
    >>> model = felb.Scaffold(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> model.components_.shape
    (4, 60)
    """

    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm with this estimator's parameters."""
        return scaffold(n_features, int(self.n_components), **self.settings())


@dataclass(eq=False, repr=False)
class ProxSkip(LocalStepsEstimator):
    """The objective of FELB by ProxSkip: gradient steps with a control variate, and the prox once a round.

    Clients take plain gradient steps; after each one, with probability 1/`local_steps`, the server averages the V_i and
    applies the proximal operator of the regularizer (Mishchenko et al., 2022). So the number of steps of a round is
    random, the same for all clients, and `local_steps` on average.

    Parameters and attributes are those of `Scaffold`: n_components, l1, l2, l2_rate, local_steps, max_iter, tol,
    participation, secure, n_jobs, binarize_threshold, random_state.

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.data.partition.even(600, 5)
    >>> model = felb.ProxSkip(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> model.components_.shape
    (4, 60)
    """

    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm with this estimator's parameters."""
        return proxskip(n_features, int(self.n_components), **self.settings())
