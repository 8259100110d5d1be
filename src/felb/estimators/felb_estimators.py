"""`FELB` and `FELBMU`, the paper's methods as estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.estimators.uploading_estimator import UploadingEstimator
from felb.federated.algorithms.felb import felb, felb_mu
from felb.federated.algorithms.felb_setting import SETTINGS, UNWEIGHTED, Setting
from felb.privacy.private_uploads import Uploads

if TYPE_CHECKING:
    from felb.federated.participation import Participation
    from felb.federated.protocol import Algorithm
    from felb.privacy.spec import Privacy


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
        client, in total over the run; ``mechanism="paper"`` adds the paper's noise to each upload, for reproduction.
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
    privacy_statement_ : the guarantee in words, or what the paper's noise adds up to; None without `privacy`
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
