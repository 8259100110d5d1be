"""The federated methods as estimators: the default, FELB and FELB-MU, their competitors, and post-hoc votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb.federated.algorithms.competitor_methods import FedNMFMethod, FedProxMethod, ProxSkipMethod, ScaffoldMethod
from felb.federated.algorithms.felb_methods import FELBMethod, FELBMUMethod
from felb.federated.algorithms.methods import FederatedBMFMethod
from felb.federated.algorithms.post_hoc_methods import PostHocMethod
from felb.federated.algorithms.registry import MDL
from felb.kernels.exact import assign_rows_exact
from felb.optim.belief import assign_new_rows
from felb.sklearn.base import FederatedEstimator

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Outcome
    from felb.metrics.counts import History


@dataclass(eq=False, repr=False)
class FederatedBMF(FederatedBMFMethod, FederatedEstimator):
    """Boolean matrix factorization from sums over clients, the recommended method.

    Rows never leave a client, only counts that are added up over clients do. The sums are integers and the same however
    the rows are split, so the components are exactly those of centralized data; without `groups` this is a
    centralized method. The method starts with a non-negative factorization, makes it Boolean by thresholds, and flips
    single entries of the components as long as the summed loss decreases. Cells that are missing (NaN), or unknown by
    the missing mask of `fit`, are left out of all counts.

    Parameters
    ----------
    n_components : int, or "mdl" for rank selection by minimum description length (see `rank_curve_`)
    max_components : with "mdl", the number at which the search starts; it should be well above the expected one
    objective : "hamming" for the fewest (or cheapest) wrong cells, "f1" for the largest F1, "recover" for components
        behind heavy or one-sided noise, which is not the best fit; "auto" tries "hamming" and, unless the data is
        large (rows × features × components > 2²⁸), costs are given, clients are sampled or the number of components is
        to be found, "recover", and takes the latter if it has at most 1.05 times the wrong cells (1.1 times, if F1 is
        no smaller) or 1.25 times the F1
    effort : "fast", "default" or "high": how much computation is spent on leaving local minima; or an `Effort`. With
        "high", and without `groups`, patterns for the search come from single rows too; then the components may differ
        from those of a federation with the same rows
    time_limit : seconds after which the run ends with the best components so far; see `complete_`
    false_positive_cost, false_negative_cost : costs of a covered zero and of an uncovered one; only their
        ratio matters, and only for the objectives "hamming" and "auto". One of them may be infinite:
        ``false_positive_cost=inf`` gives a factorization from below, which covers no zero (role mining), and
        ``false_negative_cost=inf`` one from above, which covers every one
    privacy : `felb.privacy.Privacy`, the privacy specification of records, with the mechanism
        "cooccurrence", "statistics" or "hybrid"; None for no noise. Then only noisy sums leave the clients, each
        charged to the budget, and the server computes the components from them (objective "hamming"). The noise
        cannot be seeded, so runs differ whatever `random_state` is. The guarantee is for one call of ``fit``; another
        one on the same records spends as much again
    participation : client sampling and dropout, see `felb.Participation`; by default all clients take part. If
        clients are sampled, statistics are averaged over rounds, and steps that compare losses are omitted
    secure : add up by secure aggregation, as a deployed federation can; the result is the same
    n_jobs : number of threads that share the rows of one owner (default: one for each core that the process may use),
        or of clients that compute in parallel (default: one after the other); -1 for all cores. It does not change the
        result
    node_cap : limit of the search for the best assignment of a row
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : the non-negative components they were cut from; None where they were found without
    history_ : metrics per round; ``history_["loss"]`` gives one of them over time
    counts_ : summed confusion counts of all clients' known cells, with ``.f1``, ``.rmsd``, …; None under `privacy`,
        where clients keep them to themselves, or noisy if `score_share` was agreed on
    supports_ : records of all clients that have each component; None likewise
    privacy_statement_ : the guarantee in words; None without `privacy`
    integrality_gap_ : 0, the components are Boolean
    converged_ : the refinement ended because nothing was left to improve
    complete_ : False if the time limit ended the run
    rank_curve_ : with ``n_components="mdl"``, the description length in bits of each number of components tried
    objective_ : which objective the components were taken from; with "auto" "hamming" or "recover"
    weights_ : what covering a one and covering a zero is worth when rows are assigned
    belief_ : the model of the noise that rows are inferred under (`felb.optim.belief.Belief`), if that was chosen
    n_iter_ : rounds played

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> centralized = felb.FederatedBMF(n_components=4, random_state=0).fit(data.A)
    >>> hospitals = felb.data.partition.uneven(600, 5)
    >>> shared = felb.FederatedBMF(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> bool((centralized.components_ == shared.components_).all())
    True
    """

    def _assign(self, rows: BinaryMatrix) -> NDArray[np.bool_]:
        """Assign each row to the best set of components, or infer it under the model of the noise if there is one."""
        if self.belief_ is not None:
            return assign_new_rows(rows, self.belief_)
        one, zero = self.weights_
        cap = int(self.node_cap)
        return assign_rows_exact(rows, self.components_, weight_one=one, weight_zero=zero, node_cap=cap)[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _show(self, outcome: Outcome, history: History, privacy: Mapping[str, Any] | None) -> None:
        super()._show(outcome, history, privacy)
        self.weights_, self.belief_ = outcome.weights, outcome.belief
        fewest = "hamming" if self.objective == "auto" else self.objective  # "auto" takes the components of one of two
        self.objective_ = fewest if outcome.belief is None else "recover"
        if self.n_components == MDL:
            self.rank_curve_ = {
                int(row["n_components"]): float(row["description_length"])
                for row in history
                if "description_length" in row
            }


@dataclass(eq=False, repr=False)
class FELB(FELBMethod, FederatedEstimator):
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


@dataclass(eq=False, repr=False)
class FELBMU(FELBMUMethod, FELB):
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


@dataclass(eq=False, repr=False)
class FedNMF(FedNMFMethod, FederatedEstimator):
    """Federated non-negative matrix factorization, thresholded once.

    Clients keep their rows of U and send UᵀA and UᵀU, from whose sums the server finds the non-negative V of all rows
    (Li et al., 2021; Si et al., 2022). In the end both factors are cut by the pair of thresholds with the fewest wrong
    cells, and rows are assigned. Nothing is refined after that, which is where `FederatedBMF` goes on.

    Parameters
    ----------
    n_components : int
    max_iter : rounds of the factorization; the start takes four more, the thresholds one
    participation, secure, n_jobs, binarize_threshold, random_state : as in `FELB`

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


@dataclass(eq=False, repr=False)
class FedProx(FedProxMethod, FederatedEstimator):
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
    participation, secure, n_jobs, binarize_threshold, random_state : as in `FELB`

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


@dataclass(eq=False, repr=False)
class Scaffold(ScaffoldMethod, FederatedEstimator):
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


@dataclass(eq=False, repr=False)
class ProxSkip(ProxSkipMethod, FederatedEstimator):
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


@dataclass(eq=False, repr=False)
class PostHoc(PostHocMethod, FederatedEstimator):
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
    refine : as in `FELB`
    privacy : `felb.privacy.Privacy` about clients; None for no noise. ``mechanism="uploads"`` hides a client by
        flipping bits of its uploads. An aligned aggregation uploads once more for each pass, or
        ``Privacy(rounds=…)`` times in all. Then nothing else leaves the clients, `counts_` and `supports_` are None,
        and `refine` is not available
    participation, secure, n_jobs, binarize_threshold : as in `FELB`
    random_state : int, RandomState or None; seed of all clients

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    history_, counts_, supports_, privacy_statement_ : as in `FELB`
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
