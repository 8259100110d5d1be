"""The federated methods beside the default as estimators: FELB, FELB-MU, their competitors, and post-hoc votes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

from felb.centralized.base import CentralizedFactorization
from felb.centralized.elbmf import ELBMF
from felb.errors import InputError
from felb.federated.aggregate import ALIGNED_AGGREGATIONS, BOOLEAN_AGGREGATIONS
from felb.federated.algorithms.competitors import fednmf, fedprox, proxskip, scaffold
from felb.federated.algorithms.felb import SETTINGS, UNWEIGHTED, Setting, felb, felb_mu
from felb.federated.algorithms.post_hoc import PASSES, aligned, check_passes, post_hoc
from felb.privacy.releases import Uploads
from felb.sklearn.base import SAMPLED_MEMORY, PlainEstimator, UploadingEstimator

if TYPE_CHECKING:
    from felb.federated.protocol import Algorithm, Participation
    from felb.privacy.spec import Privacy


# -- `FELB` and `FELBMU`, the paper's methods as estimators ----------------------------------------------------------


class FELB(UploadingEstimator):
    """Federated Boolean matrix factorization by proximal optimisation (paper, Alg. 1).

    The paper is Dalleiger, Vreeken and Kamp: Federated Binary Matrix Factorization using Proximal Optimization, AAAI
    2025, doi:10.1609/aaai.v39i15.33773.

    Every client takes `local_steps` proximal gradient steps on its own rows and sends its V_i; the server averages
    them and applies the proximal operator of the regularizer. Rows and their assignments never leave a client.

    Parameters
    ----------
    n_components : int
    l1, l2 : weights κ and λ of the regularizer, in the units of the setting; None for those of the setting
    l2_rate : λ grows by this factor each round; None for that of the setting
    inertia : β of iPALM; 0 gives PALM
    proximity : γ, weight of the proximal term towards the shared components, in the units of the setting; None for that
        of the setting
    local_steps : b, steps between two synchronisations
    max_iter : rounds of local steps at most; None for those of the setting (200)
    tol : stop when no entry of the shared components is farther than `tol` from 0 and 1 and at most 1% of them have
        changed sides; None for that of the setting (¼, at which the cut at ½ is unambiguous)
    refine : flip entries of the Boolean components by their summed gain over all clients, for ten rounds at most,
        and assign rows by branch and bound; useful for heavy noise or few rows per client
    setting : "recommended", "unweighted" (equal weights, from a random start), "literal" (Alg. 1 as
        printed) or a `felb.FelbSetting`
    privacy : `felb.privacy.Privacy` about clients; None for no noise. ``mechanism="uploads"`` (needs `theta`) hides a
        client, in total over the run.
        Then only noisy V leave the clients, `counts_` and `supports_` are None, and `refine` is not available
    participation : client sampling and dropout, see `felb.Participation`; by default all clients take part
    secure : add up by secure aggregation, as a deployed federation can; the result is the same
    n_jobs : number of clients that compute in parallel; does not change the result
    dtype : "float32" or "float64"
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : the shared components before they were cut at ½
    history_ : metrics per round; ``history_["loss"]`` gives one of them over time
    counts_ : summed confusion counts of all clients, with ``.f1``, ``.rmsd``, …
    supports_ : records of all clients that have each component
    privacy_statement_ : the guarantee in words; None without `privacy`
    integrality_gap_ : largest distance of an entry of `relaxed_components_` from 0 and 1
    converged_ : every entry lies within ¼ of 0 or 1, so that the cut at ½ is unambiguous
    n_iter_ : rounds played before the assignment, those of the spectral start included

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.data.partition.even(600, 5)
    >>> model = felb.FELB(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> model.components_.shape
    (4, 60)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        l1: float | None = None,
        l2: float | None = None,
        l2_rate: float | None = None,
        inertia: float = 0.001,
        proximity: float | None = None,
        local_steps: int = 10,
        max_iter: int | None = None,
        tol: float | None = None,
        refine: bool = False,
        setting: str | Setting = "recommended",
        privacy: Privacy | None = None,
        participation: Participation | None = None,
        secure: bool = False,
        n_jobs: int | None = None,
        dtype: str = "float32",
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.l1 = l1
        self.l2 = l2
        self.l2_rate = l2_rate
        self.inertia = inertia
        self.proximity = proximity
        self.local_steps = local_steps
        self.max_iter = max_iter
        self.tol = tol
        self.refine = refine
        self.setting = setting
        self.privacy = privacy
        self.participation = participation
        self.secure = secure
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

    _make = staticmethod(felb)

    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm without refinement."""
        return self._with_rounds(n_features, self._rounds())

    def uploads(self, n_features: int, *, rounds: int | None) -> Uploads:
        """V in every round, of which there are `max_iter` unless the specification says otherwise."""
        return Uploads(rounds or self._rounds(), int(self.n_components) * n_features)

    def uploading_algorithm(self, n_features: int, uploads: Uploads) -> Algorithm:
        """Return the algorithm with as many rounds as there may be uploads, in which V alone leaves a client."""
        alone = {name: getattr(UNWEIGHTED, name) for name in ("start", "step", "average")}
        return self._with_rounds(n_features, uploads.rounds, **alone)

    def plain_rounds(self) -> int:
        """Return the rounds at most before refinement: those of the start and of local steps."""
        return as_setting(self.setting).start_rounds + self._rounds()

    def _rounds(self) -> int:
        return as_setting(self.setting).max_iter if self.max_iter is None else int(self.max_iter)

    def _with_rounds(self, n_features: int, rounds: int, **changes: Any) -> Algorithm:
        setting = as_setting(self.setting)
        if changes and setting.start != "independent":
            setting = replace(setting, **changes)
        return self._make(
            n_features,
            int(self.n_components),
            kappa=self.l1,
            lam=self.l2,
            rate=self.l2_rate,
            beta=self.inertia,
            gamma=self.proximity,
            local_steps=self.local_steps,
            max_rounds=rounds,
            tol=self.tol,
            setting=setting,
            dtype=self.dtype,
        )


class FELBMU(FELB):
    """FELB with multiplicative steps, one step size per entry.

    Parameters and attributes are those of `FELB`.

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> hospitals = felb.data.partition.even(600, 5)
    >>> model = felb.FELBMU(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> model.converged_, model.counts_.cells
    (True, 36000)
    """

    _make = staticmethod(felb_mu)


def as_setting(setting: str | Setting) -> Setting:
    """Return the setting of that name, or the setting itself."""
    if isinstance(setting, Setting):
        return setting
    if not isinstance(setting, str) or setting not in SETTINGS:
        names = ", ".join(SETTINGS)
        raise InputError(f"setting must be one of {names}, or a felb.FelbSetting, got {setting!r}", parameter="setting")
    return SETTINGS[setting]


# -- `FedNMF`, `FedProx`, `Scaffold` and `ProxSkip`: competitors of FELB as estimators -------------------------------


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


# -- `PostHoc`: any centralized method, run once at every client, with aggregated components -------------------------


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
        flipping bits of its uploads. An aligned aggregation uploads once more for each pass, or
        ``Privacy(rounds=…)`` times in all. Then nothing else leaves the clients, `counts_` and `supports_` are None,
        and `refine` is not available
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
    privacy_statement_ : the guarantee in words; None without `privacy`
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
            return post_hoc(self._model(), self.aggregation, n_features)
        return aligned(
            post_hoc(self._model(), ALIGNED_AGGREGATIONS[self.aggregation], n_features), n_features, passes=passes
        )

    def _model(self) -> CentralizedFactorization:
        model = ELBMF() if self.model is None else self.model
        if not isinstance(model, CentralizedFactorization):
            raise InputError(f"model must be a method for centralized data such as felb.Asso(10), got {model!r}")
        return model
