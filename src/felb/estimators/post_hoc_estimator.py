"""`PostHoc`: any centralized method, run once at every client, with aggregated components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.centralized.elbmf import ELBMF
from felb.centralized.method import CentralizedFactorization
from felb.errors import InputError
from felb.estimators.uploading_estimator import UploadingEstimator
from felb.federated.aggregate import ALIGNED_AGGREGATIONS, BOOLEAN_AGGREGATIONS
from felb.federated.algorithms.aligned import PASSES, aligned, check_passes
from felb.federated.algorithms.post_hoc import post_hoc
from felb.privacy.private_uploads import Uploads

if TYPE_CHECKING:
    from felb.federated.participation import Participation
    from felb.federated.protocol import Algorithm
    from felb.privacy.spec import Privacy


class PostHoc(UploadingEstimator):
    """Post-hoc federation (paper, Alg. 2): every client factorizes its own rows, the Boolean components are aggregated.

    Clients share nothing while they search. As in the paper, components are aggregated by their number, so those of
    different clients need not correspond. An aligned aggregation first lets every client permute its components to a
    common reference (Hungarian matching), which finds far more with many clients. It is the baseline of the
    federated methods.

    Parameters
    ----------
    model : a centralized method, such as ``felb.Asso(20, tau=0.9)``; `ELBMF` without it
    aggregation : "vote" (an entry that at least half of the clients have), "mean" (more than half), or "or" (any);
        "aligned-vote", "aligned-mean" and "aligned-or" do the same with aligned components
    alignment_passes : alignments at most to the sum of all clients, after the first one to random weights; ends
        before if the sum stays. Each is an upload of k × m bits more. Only for aligned aggregations
    refine : flip entries of the Boolean components by their summed gain over all clients, for ten rounds at most,
        and assign rows by branch and bound; useful for heavy noise or few rows per client
    privacy : `felb.privacy.Privacy` about clients; None for no noise. ``mechanism="uploads"`` hides a client by
        flipping bits of its uploads; ``mechanism="paper"`` flips as many as the paper does, for reproduction. An
        aligned aggregation uploads once more for each pass, or ``Privacy(rounds=…)`` times in all. Then nothing else
        leaves the clients, `counts_` and `supports_` are None, and `refine` is not available
    participation : client sampling and dropout, see `felb.Participation`; by default all clients take part
    secure : add up by secure aggregation, as a deployed federation can; the result is the same
    n_jobs : number of clients that compute in parallel; does not change the result
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : int, RandomState or None; seed of all clients

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    history_ : metrics per round
    counts_ : summed confusion counts of all clients, with ``.f1``, ``.rmsd``, …
    supports_ : records of all clients that have each component
    privacy_statement_ : the guarantee in words, or what the paper's noise adds up to; None without `privacy`
    complete_ : False if a time limit of `model` ended the search of a client
    n_iter_ : rounds before the assignment, 1 without alignment and refinement

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.data.partition.even(600, 5)
    >>> model = felb.PostHoc(felb.ELBMF(n_components=4), "vote", random_state=0).fit(data.A, groups=hospitals)
    >>> model.components_.shape
    (4, 60)
    >>> aligned = felb.PostHoc(felb.ELBMF(n_components=4), "aligned-vote", random_state=0).fit(data.A, groups=hospitals)
    >>> aligned.counts_.f1 > model.counts_.f1
    True
    """

    if_collapsed = 'another aggregation (such as "aligned-vote" or "or")'

    def __init__(
        self,
        model: CentralizedFactorization | None = None,
        aggregation: str = "vote",
        *,
        alignment_passes: int = PASSES,
        refine: bool = False,
        privacy: Privacy | None = None,
        participation: Participation | None = None,
        secure: bool = False,
        n_jobs: int | None = None,
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.aggregation = aggregation
        self.alignment_passes = alignment_passes
        self.refine = refine
        self.privacy = privacy
        self.participation = participation
        self.secure = secure
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
        """One, and one for each pass of an alignment."""
        return 1 + (check_passes(self.alignment_passes) if self._aligned else 0)

    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm without refinement."""
        return self._with_passes(n_features, self.alignment_passes)

    def uploads(self, n_features: int, *, rounds: int | None) -> Uploads:
        """V as bits, once; for an alignment as often as was agreed on, or as it may have passes."""
        times = (rounds or self.plain_rounds()) if self._aligned else 1
        return Uploads(times, int(self.rank()) * n_features, boolean=True)

    def uploading_algorithm(self, n_features: int, uploads: Uploads) -> Algorithm:
        """Return the algorithm without refinement that aligns as often as there may be uploads."""
        return self._with_passes(n_features, uploads.rounds - 1)

    @property
    def _aligned(self) -> bool:
        known = (*BOOLEAN_AGGREGATIONS, *ALIGNED_AGGREGATIONS)
        if self.aggregation not in known:
            raise InputError(f"unknown aggregation {self.aggregation!r}; use one of {', '.join(known)}")
        return self.aggregation in ALIGNED_AGGREGATIONS

    def _with_passes(self, n_features: int, passes: int) -> Algorithm:
        if not self._aligned:
            return post_hoc(self._model(), self.aggregation)
        return aligned(post_hoc(self._model(), ALIGNED_AGGREGATIONS[self.aggregation]), n_features, passes=passes)

    def _model(self) -> CentralizedFactorization:
        model = ELBMF() if self.model is None else self.model
        if not isinstance(model, CentralizedFactorization):
            raise InputError(f"model must be a method for centralized data such as felb.Asso(10), got {model!r}")
        return model
