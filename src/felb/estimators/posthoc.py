"""`PostHoc`: any method for pooled data, run at every client and aggregated once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.estimators.uploads import UploadingEstimator
from felb.federated.algorithms.post_hoc import post_hoc
from felb.models.elbmf import ELBMF
from felb.models.pooled import PooledFactorization
from felb.privacy.uploads import Uploads

if TYPE_CHECKING:
    from felb.engines import Participation
    from felb.federated.protocol import Algorithm
    from felb.privacy.policy import Privacy


class PostHoc(UploadingEstimator):
    """Post-hoc federation (paper, Alg. 2): every client factorizes its own rows, the Boolean components are aggregated.

    Clients share nothing while they search, and components are aggregated by their number, so those of different
    clients need not correspond. This is what the federated methods are compared with.

    Parameters
    ----------
    model : a method for pooled data, such as ``felb.Asso(20, tau=0.9)``; `ELBMF` without it
    aggregation : "vote" (an entry that at least half of the clients have), "mean" (more than half), or "or" (any)
    refine : flip entries of the Boolean components by what all clients together would gain, for ten rounds at most,
        and assign rows by branch and bound; with heavy noise or few rows a client this finds much more
    privacy : `felb.privacy.Privacy` about clients; None for no noise. ``mechanism="uploads"`` hides a client by
        flipping bits of its upload; ``mechanism="paper"`` flips as many as the paper does, for reproduction. Then
        nothing else leaves the clients, `counts_` and `supports_` are None, and `refine` cannot be had
    participation : who plays a round, see `felb.Participation`; everybody without it
    n_jobs : clients that work at the same time; does not change the result
    binarize_threshold : make ones of values above it; without it, X must hold only 0 and 1
    random_state : int, RandomState or None; fixes every client's own randomness

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    history_ : figures per round
    counts_ : summed confusion counts of all clients, with ``.f1``, ``.rmsd``, …
    supports_ : records of all clients that have each component
    privacy_statement_ : what was promised to whom, or what the paper's noise adds up to; None without `privacy`
    complete_ : False if a time limit of `model` ended the search of a client
    n_iter_ : rounds before the assignment, 1 without refinement

    Examples
    --------
    >>> import felb
    >>> data = felb.datasets.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.datasets.partition.even(600, 5)
    >>> model = felb.PostHoc(felb.ELBMF(n_components=4), "vote", random_state=0).fit(data.A, groups=hospitals)
    >>> model.components_.shape
    (4, 60)
    """

    if_collapsed = 'another aggregation (such as "or")'

    def __init__(
        self,
        model: PooledFactorization | None = None,
        aggregation: str = "vote",
        *,
        refine: bool = False,
        privacy: Privacy | None = None,
        participation: Participation | None = None,
        n_jobs: int | None = None,
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.aggregation = aggregation
        self.refine = refine
        self.privacy = privacy
        self.participation = participation
        self.n_jobs = n_jobs
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

    def rank(self) -> int:
        """Return the number of components of `model`."""
        return self._model().n_components

    def limit(self) -> float | None:
        """Return the time limit of `model`, for each client."""
        return self._model().time_limit

    def plain_rounds(self) -> int:
        """One."""
        return 1

    def plain_algorithm(self, n_features: int) -> Algorithm:  # noqa: ARG002
        """Return the algorithm without refinement."""
        return post_hoc(self._model(), self.aggregation)

    def uploads(self, n_features: int, *, rounds: int | None) -> Uploads:  # noqa: ARG002
        """V as bits, once."""
        return Uploads(1, int(self.rank()) * n_features, boolean=True)

    def uploading_algorithm(self, n_features: int, uploads: Uploads) -> Algorithm:  # noqa: ARG002
        """Return the plain algorithm."""
        return self.plain_algorithm(n_features)

    def _model(self) -> PooledFactorization:
        model = ELBMF() if self.model is None else self.model
        if not isinstance(model, PooledFactorization):
            raise InputError(f"model must be a method for pooled data such as felb.Asso(10), got {model!r}")
        return model
