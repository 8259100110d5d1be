"""The methods for centralized data as estimators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from felb.centralized.asso import AssoMethod
from felb.centralized.base import check_parameters
from felb.centralized.csalt import CSaltMethod
from felb.centralized.elbmf import ELBMFMethod
from felb.centralized.faststep import FastStepMethod, count_step_cells
from felb.centralized.grecond import GreConDMethod
from felb.centralized.grecond_plus import GreConDPlusMethod
from felb.centralized.greess import GreEssMethod
from felb.centralized.mebf import MEBFMethod
from felb.centralized.primp import PanPalMethod, PrimpMethod
from felb.centralized.sofa import SofaMethod
from felb.centralized.zhang import ZhangMethod
from felb.errors import InputError
from felb.metrics.counts import History
from felb.sklearn.base import CentralizedFactorization, draw_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.metrics.counts import Counts


@dataclass(eq=False, repr=False)
class ELBMF(ELBMFMethod, CentralizedFactorization):
    """Boolean matrix factorization of centralized data by inertial proximal alternating minimization.

    Minimises ½‖A − UV‖² + R(U) + R(V) over [0, 1] with a regularizer that grows until the factors are Boolean.

    Parameters
    ----------
    n_components : int
    l1, l2 : weights κ and λ of the regularizer
    l2_rate : λ grows by this factor each iteration
    inertia : β of iPALM; 0 gives PALM
    max_iter : iterations at most
    tol : stop when the components are Boolean up to `tol` and the loss changes by less than `tol`, relatively
    exact_prox : use the exact minimiser of the regularizer instead of the printed operator
    setting : "recommended", or "published": U starts at random too, factors are kept non-negative and not in [0, 1],
        and the U of the last iteration is cut at ½, where the recommended setting assigns every record to the Boolean
        components anew
    dtype : "float32" or "float64"
    time_limit : seconds after which the iterations end, with what was found until then
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : the components before they were cut at ½
    history_ : loss, integrality gap and λ per iteration
    integrality_gap_ : largest distance of an entry of `relaxed_components_` from 0 and 1
    converged_ : every entry lies within ¼ of 0 or 1, so that the cut at ½ is unambiguous
    n_iter_ : iterations taken
    supports_ : records that have each component
    complete_ : False if the time limit ended the iterations

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 40, 3, seed=0)
    >>> model = felb.ELBMF(n_components=3, random_state=0).fit(data.A)
    >>> model.transform(data.A).shape
    (300, 3)
    """


@dataclass(eq=False, repr=False)
class Asso(AssoMethod, CentralizedFactorization):
    """Boolean matrix factorization of centralized data by greedy cover with association rules.

    Every column i proposes the component {j : |i ∧ j| / |i| >= τ}. One after another, the component is taken that gains
    most, where a row that uses it gains `bonus` for each one and loses `penalty` for each zero that was not covered
    before, and uses it iff that is positive. Of equals the first wins; a component may be taken again; when none gains
    anything, the rest stays empty.

    Parameters
    ----------
    n_components : int
    tau : threshold τ in (0, 1], or several of them, of which the first with the fewest errors |A ⊕ U∘V| is kept;
        "auto" tries .1, .2, …, 1
    bonus : gain of covering a one, w₁ > 0
    penalty : loss of covering a zero, w₀ >= 0
    time_limit, binarize_threshold : as in `ELBMF`
    random_state : taken because all estimators take it; nothing here is random

    Attributes
    ----------
    components_, supports_, complete_ : as in `ELBMF`
    tau_ : the threshold that was kept
    n_iter_ : components found; the others are empty

    References
    ----------
    P. Miettinen, T. Mielikäinen, A. Gionis, G. Das and H. Mannila. The Discrete Basis Problem. IEEE Transactions on
    Knowledge and Data Engineering 20(10), 2008.

    Examples
    --------
    >>> from felb.data import load
    >>> from felb.metrics import confusion
    >>> from felb import Asso
    >>> zoo = load("zoo")
    >>> model = Asso(n_components=5, tau="auto")
    >>> U = model.fit_transform(zoo)
    >>> model.tau_, confusion(zoo, U, model.components_).errors
    (0.9, 199)
    """


@dataclass(eq=False, repr=False)
class GreConD(GreConDMethod, CentralizedFactorization):
    """Boolean matrix factorization of centralized data from below, by formal concepts.

    Every component is a formal concept, a block of ones that cannot be made larger. It grows from nothing: the column
    is added after which the concept covers most of the ones that are not covered yet, the first of equals, until no
    column makes it cover more. No zero is ever covered, and with enough components the factorization is exact.

    Parameters
    ----------
    n_components : int
    time_limit, binarize_threshold : as in `ELBMF`
    random_state : taken because all estimators take it; nothing here is random

    Attributes
    ----------
    components_, supports_, complete_ : as in `ELBMF`
    n_iter_ : components found; the others are empty, because nothing was left to cover

    References
    ----------
    R. Belohlavek and V. Vychodil. Discovery of optimal factors in binary data via a novel method of matrix
    decomposition. Journal of Computer and System Sciences 76(1), 2010.

    Examples
    --------
    >>> from felb.data import load
    >>> from felb.metrics import confusion
    >>> from felb import GreConD
    >>> zoo = load("zoo")
    >>> model = GreConD(n_components=10)
    >>> counts = confusion(zoo, model.fit_transform(zoo), model.components_)
    >>> counts.fn, counts.fp
    (69, 0)
    """


@dataclass(eq=False, repr=False)
class MEBF(MEBFMethod, CentralizedFactorization):
    """Median expansion for Boolean factorization: one dense block after the other, by what is left of the data.

    A column of median size is the pattern of a block; the columns that hold more than a share `threshold` of it join.
    Rows are tried as patterns in the same way, and the block that covers most for the zeros it takes in is the next
    factor. Its ones are removed, and the next block is sought in the rest. Where no median pattern yields a block, what
    the two fullest columns, or the two fullest rows, have in common is the pattern. The method is greedy and without
    randomness: `random_state` is ignored.

    Parameters
    ----------
    n_components : factors at most; never more than min(rows, columns) − 1
    threshold : t, between 0 and 1; a line joins a pattern of b ones if it has at least min(t·b + 1, b) of them
    uncovered : P, between 0 and 1; the share of ones that may be left uncovered, at which the search ends
    time_limit, binarize_threshold : as in `ELBMF`
    random_state : ignored; equal data gives equal factors

    Attributes
    ----------
    components_ : bool array, n_components × n_features; the last ones are empty if fewer were found
    n_iter_ : factors found
    supports_, complete_ : as in `ELBMF`

    References
    ----------
    C. Wan, W. Chang, T. Zhao, M. Li, S. Cao, C. Zhang: Fast and efficient Boolean matrix factorization by geometric
    segmentation. AAAI 2020.

    Examples
    --------
    >>> from felb.data import load
    >>> from felb import MEBF
    >>> model = MEBF(n_components=3).fit(load("zoo"))
    >>> model.n_iter_, model.component_features()[0]
    (3, ('eggs', 'aquatic', 'predator', 'toothed', 'backbone', 'breathes', 'tail', 'legs<=4'))
    """


@dataclass(eq=False, repr=False)
class Zhang(ZhangMethod, CentralizedFactorization):
    """Binary matrix factorization by multiplicative updates, with thresholds chosen on a grid.

    Minimises ½‖A − WH‖² + (λ/2) Σ (H² − H)² + (λ/2) Σ (W² − W)² over W, H >= 0 for a growing λ by

        H ← H (WᵀA + 3λH²) / (WᵀWH + 2λH³ + λH),    W likewise.

    The limit need not be Boolean, so U = [W >= s] and V = [H >= t] take the pair of thresholds, of `grid` equidistant
    ones on [1e-12, 1] each, with the fewest wrong cells of U∘V; of equals the smallest s, then the smallest t. Before
    the updates and before the thresholds, each component is rescaled so that its greatest entries in W and H are equal,
    which leaves WH as it is and makes one threshold for all components meaningful.

    Parameters
    ----------
    n_components : int
    l2 : weight λ of the penalty at the start
    l2_rate : λ grows by this factor each iteration
    max_iter : iterations at most
    tol : stop when the components are Boolean up to `tol` and the loss changes by less than `tol`, relatively
    grid : thresholds to try for each factor
    time_limit : seconds after which the iterations end; thresholds are still sought for what was found until then
    dtype, binarize_threshold, random_state : as in `ELBMF`

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : H in [0, 1] before the threshold; what was above 1, and so above all thresholds, is 1
    thresholds_ : (s, t), for W and for H
    history_ : loss ‖A − WH‖², integrality gap and λ per iteration
    integrality_gap_, converged_, n_iter_, supports_, complete_ : as in `ELBMF`

    References
    ----------
    Z. Zhang, T. Li, C. Ding, X. Zhang: Binary matrix factorization with applications. ICDM 2007.

    Examples
    --------
    >>> from felb.data import planted
    >>> from felb import Zhang
    >>> data = planted(300, 40, 3, seed=0)
    >>> model = Zhang(n_components=3, random_state=0)
    >>> U = model.fit_transform(data.A)
    >>> U.shape, len(model.thresholds_)
    ((300, 3), 2)
    """


@dataclass(eq=False, repr=False)
class GreConDPlus(GreConDPlusMethod, CentralizedFactorization):
    """Boolean matrix factorization of centralized data by formal concepts that may cover some zeros.

    A concept is found as in `GreConD`. Then rows and columns are added to it: a line gains its ones that are not
    covered and loses `penalty` for each of its zeros. Rows that gain are added first, then the column that gains most,
    until no line gains. Earlier components whose ones are all covered by others are dropped, and so are added lines.

    Parameters
    ----------
    n_components : int
    penalty : loss w >= 0 of a covered zero; a large one gives `GreConD` but for the components that it drops
    time_limit, binarize_threshold : as in `ELBMF`
    random_state : taken because all estimators take it; nothing here is random

    Attributes
    ----------
    components_, supports_, complete_ : as in `ELBMF`
    n_iter_ : components found; the others are empty, because nothing was left to cover

    References
    ----------
    R. Belohlavek and M. Trnecka. A new algorithm for Boolean matrix factorization which admits overcovering. Discrete
    Applied Mathematics 249, 2018.

    Examples
    --------
    >>> from felb.data import load
    >>> from felb.metrics import confusion
    >>> from felb import GreConDPlus
    >>> zoo = load("zoo")
    >>> model = GreConDPlus(n_components=10)
    >>> counts = confusion(zoo, model.fit_transform(zoo), model.components_)
    >>> counts.fn, counts.fp
    (40, 14)
    """


@dataclass(eq=False, repr=False)
class GreEss(GreEssMethod, CentralizedFactorization):
    """Boolean matrix factorization of centralized data from below, by the essential ones.

    A one is essential if no row with a one in its column is a proper subset of its row, and no column with a one in its
    row is a proper subset of its column; concepts that cover all essential ones cover all ones. Concepts of the
    essential ones are taken greedily, and each stands for an interval of concepts of the data. The components are
    concepts of different intervals, in each step the one that covers most of what is not covered yet. No zero is ever
    covered, and fewer components than those of `GreConD` make the factorization exact on most data.

    Parameters
    ----------
    n_components : int
    time_limit, binarize_threshold : as in `ELBMF`
    random_state : taken because all estimators take it; nothing here is random

    Attributes
    ----------
    components_, supports_, complete_ : as in `ELBMF`
    n_iter_ : components found; the others are empty, because nothing was left to cover
    n_intervals_ : intervals from which no component was taken

    References
    ----------
    R. Belohlavek and M. Trnecka. From-below approximations in Boolean matrix factorization: Geometry and new algorithm.
    Journal of Computer and System Sciences 81(8), 2015.

    Examples
    --------
    >>> from felb.data import load
    >>> from felb import GreEss
    >>> model = GreEss(n_components=17).fit(load("zoo"))
    >>> model.n_iter_, round(model.score(load("zoo")), 3)
    (17, 0.992)
    """


@dataclass(eq=False, repr=False)
class Primp(PrimpMethod, CentralizedFactorization):
    """Boolean factorization of centralized data whose number of components follows from description length.

    Minimises μ/2 ‖A − UV‖² + ½G(U, V) + Σ Λ(U) + Σ Λ(V) over [0, 1] by proximal alternating linearized minimization,
    where G bounds the length of a code table of the components and Λ(x) = 1 − |1 − 2x| draws entries to 0 and 1. The
    factors are rounded by the pair of thresholds of the least description length. Beginning with `rank_step` random
    components, as many are added as long as at most one of them is not needed. Components without which the
    description is shorter are dropped. The result is never longer than the description without components.

    Parameters
    ----------
    n_components : components at most; those that are not needed are empty
    rank_step : components that are added at a time
    grid : thresholds to try for each factor
    max_iter : iterations at most for each number of components
    tol : stop when the objective decreases by less than this share
    dtype : "float32" or "float64"
    time_limit : seconds after which the iterations end; thresholds are still sought for what was found until then
    binarize_threshold, random_state : as in `ELBMF`

    Attributes
    ----------
    components_ : bool array, n_components × n_features; the last ones are empty if fewer are needed
    rank_ : components that are not empty
    cost_, empty_cost_ : description length of the result, and without any component
    relaxed_components_ : V before the thresholds; components that were dropped are there
    thresholds_ : for U and for V
    history_ : loss, objective and integrality gap per iteration
    integrality_gap_, converged_, n_iter_, supports_, complete_ : as in `ELBMF`

    References
    ----------
    S. Hess, K. Morik and N. Piatkowski. The PRIMPing routine: Tiling through proximal alternating linearized
    minimization. Data Mining and Knowledge Discovery 31(4), 2017.

    Examples
    --------
    >>> from felb.data import planted
    >>> from felb import Primp
    >>> model = Primp(n_components=20, random_state=0).fit(planted(500, 100, 5, noise=0.05, seed=1).A)
    >>> model.rank_, model.cost_ < model.empty_cost_
    (5, True)
    """


@dataclass(eq=False, repr=False)
class PanPal(PanPalMethod, CentralizedFactorization):
    """PRIMP with a simpler cost: wrong cells plus the ones of both factors, |A ⊕ U∘V| + |U| + |V|.

    The relaxed objective is ½‖A − UV‖² + ½|U| + ½|V| + Σ Λ(U) + Σ Λ(V). All else is as in `Primp`. A component must
    cover more cells than it has rows and columns, so that small or noisy components are not found.

    Parameters
    ----------
    n_components, rank_step, grid, max_iter, tol, dtype, time_limit, binarize_threshold, random_state : as in `Primp`

    Attributes
    ----------
    cost_, empty_cost_ : cost of the result, and the number of ones of the data
    components_, rank_, relaxed_components_, thresholds_, history_, n_iter_ : as in `Primp`

    References
    ----------
    As for `Primp`.

    Examples
    --------
    >>> from felb.data import load
    >>> from felb import PanPal
    >>> model = PanPal(n_components=10, random_state=0).fit(load("zoo"))
    >>> model.cost_ < model.empty_cost_
    True
    """


@dataclass(eq=False, repr=False)
class Sofa(SofaMethod, CentralizedFactorization):
    """Boolean factorization of a stream of rows: one pass for the components, a second one for the rows.

    The first pass keeps centres of rows. A centre counts the columns of the rows that joined it; its pattern is those
    that occur in at least half of them. A row joins the centres that cover it, greedily, and what none of them covers
    opens a new one in place of the lightest. The components are the patterns, or single columns, that cover a sample of
    the rows best, chosen greedily as in `Asso`. Memory is O(centres · features + sample); it does not depend on the
    number of rows. The result depends on their order, but not on the blocks in which they come.

    Parameters
    ----------
    n_components : int
    centres : centres that are kept; by default 8 for each component and at least 64
    overlap : share of a pattern that a row must hold to join its centre
    rest : share of the columns of a row that opens a new centre if no centre covers them
    sample : rows among which components are chosen, drawn uniformly from the stream
    time_limit : seconds after which the first pass ends, with what was found until then
    binarize_threshold, random_state : as in `ELBMF`

    Attributes
    ----------
    components_, supports_, complete_ : as in `ELBMF`; supports are not known after `partial_fit`
    n_iter_ : components found; the others are empty
    n_records_ : rows seen

    References
    ----------
    S. Neumann and P. Miettinen. Biclustering and Boolean Matrix Factorization in Data Streams. PVLDB 13(10), 2020.

    Examples
    --------
    >>> from felb.data import planted
    >>> from felb import Sofa
    >>> data, model = planted(3000, 100, 5, noise=0.05, seed=1), Sofa(n_components=5, random_state=0)
    >>> for block in data.A.row_blocks(500):
    ...     _ = model.partial_fit(block)
    >>> model.n_records_, round(model.score(data.signal), 2)
    (3000, 1.0)
    """

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Add rows of a stream and choose the components by all rows so far; `fit` starts anew.

        Choosing takes the time of some thousand rows, so blocks should not be much smaller.

        Parameters
        ----------
        X : records × features, 0/1; the next rows
        """
        check_parameters(self)
        self.check()
        begun = hasattr(self, "_stream")
        A = self._matrix(X, reset=not begun)
        if not begun:
            k = self.check_rank(self.n_components, (A.shape[1], A.shape[1]))
            self._stream = self.open_stream(A.shape[1], k, draw_seed(self.random_state))
        self._stream.add(A)
        self.components_ = self._stream.components(int(self.n_components), A.shape[1])
        self.n_iter_ = int(np.count_nonzero(self.components_.any(axis=1)))
        self.n_records_, self.supports_, self.complete_ = self._stream.sample.seen, None, True
        self.history_, self.integrality_gap_, self.converged_ = History(), 0.0, True
        return self

    def fit_transform(  # type: ignore[override]
        self, X: Any, y: Any = None, *, verbose: bool = False
    ) -> NDArray[np.bool_]:
        """Fit in one pass over the rows of X, and return the assignment of a second one."""
        if hasattr(self, "_stream"):
            del self._stream
        return super().fit_transform(X, y, verbose=verbose)


@dataclass(eq=False, repr=False)
class FastStep(FastStepMethod, CentralizedFactorization):
    """Factorization of centralized data by a step: A ≈ [UVᵀ >= τ] with real U, V > 0.

    Minimises Σ_{ones} log(1 + exp(τ − X_ij)) + Σ_{zeros} X_ij²/(4τ) for X = UVᵀ by Newton steps in single coordinates,
    each halved until the loss does not grow. The zeros enter by UᵀU and VᵀV, so that only ones are visited. A block of
    which half are ones has its best X at τ. The factors are not Boolean: `step_counts` counts the cells of the step
    reconstruction, and `components_` are V cut at the threshold with the fewest wrong cells after rows are assigned.

    Parameters
    ----------
    n_components : int
    tau : where the step is, τ > 0
    max_iter : iterations at most
    tol : stop when the loss decreases by less than this share
    grid : thresholds to try, equidistant on [0, 1], but for 0
    dtype : of `relaxed_components_` of trivial data; all else is computed in double precision
    time_limit : seconds after which the iterations end; a threshold is still sought for what was found until then
    binarize_threshold, random_state : as in `ELBMF`

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    step_rows_, step_columns_ : U and V, records × components and features × components; None for trivial data
    relaxed_components_ : Vᵀ, each component divided by its typical entry, at most 1
    threshold_ : at which `relaxed_components_` are cut
    history_ : loss per iteration
    integrality_gap_, converged_, n_iter_, supports_, complete_ : as in `ELBMF`

    References
    ----------
    M. Araujo, P. Ribeiro and C. Faloutsos. FastStep: Scalable Boolean Matrix Decomposition. PAKDD 2016.

    Examples
    --------
    >>> from felb.data import load
    >>> from felb import FastStep
    >>> model = FastStep(n_components=10, random_state=0).fit(load("zoo"))
    >>> model.step_counts(load("zoo")).f1 > 0.8
    True
    """

    def step_counts(self, X: Any) -> Counts:
        """Count the cells of [UVᵀ >= τ] against the data of the fit.

        Parameters
        ----------
        X : the records of the fit, in their order
        """
        check_is_fitted(self)
        A = self._matrix(X, reset=False)
        if self.step_rows_ is None or len(A) != len(self.step_rows_):
            raise InputError("step_counts needs the records of the fit, and data that is not trivial")
        return count_step_cells(A, self.step_rows_, self.step_columns_, self.tau)


@dataclass(eq=False, repr=False)
class CSalt(CSaltMethod, CentralizedFactorization):
    """Boolean factorization of labelled records: shared components, and what single classes add to them.

    The records A_a of class a are A_a ≈ U_a∘(V ∨ W_a), with an alteration W_a that is empty where V is not. Minimises
    Σ_a ½‖A_a − U_a(V + W_a)‖² + ½|U_a| + ½α|W_a| + ⟨V, W_a⟩, plus ½|V| and the penalty Λ of `Primp` on all factors, by
    proximal steps for U, V and W in turn. V and W are cut at the threshold with the least cost, wrong cells plus ones
    of V and W. Without labels all records are of one class, and there are no alterations.

    Parameters
    ----------
    n_components : int
    alteration : weight α of the ones of alterations; the larger, the fewer
    grid : thresholds to try, equidistant on [0, 1], but for 0
    max_iter : iterations at most
    tol : stop when the objective changes by less than this share
    dtype : "float32" or "float64"
    time_limit, binarize_threshold, random_state : as in `ELBMF`

    Attributes
    ----------
    components_ : V, bool array, n_components × n_features
    classes_ : labels, ascending
    alterations_ : W, bool array, classes × n_components × n_features; None for trivial data
    relaxed_components_ : V before the threshold
    history_ : loss, objective and integrality gap per iteration
    integrality_gap_, converged_, n_iter_, supports_, complete_ : as in `ELBMF`

    References
    ----------
    S. Hess and K. Morik. C-SALT: Mining Class-Specific ALTerations in Boolean Matrix Factorization. ECML PKDD 2017.

    Examples
    --------
    >>> from felb.data import load
    >>> from felb import CSalt
    >>> zoo = load("zoo")
    >>> milk = zoo.toarray()[:, zoo.columns.index("milk")]
    >>> model = CSalt(n_components=4, random_state=0).fit(zoo, milk)
    >>> model.alterations_.shape, bool((model.alterations_ & model.components_).any())
    ((2, 4, 17), False)
    """

    def fit(self, X: Any, y: Any = None, *, verbose: bool = False) -> Self:
        """Find the components of X and the alterations of the classes y.

        Parameters
        ----------
        X : records × features, 0/1
        y : label of each record; without it there is one class
        verbose : show a progress bar over the iterations
        """
        self.fit_transform(X, y, verbose=verbose)
        return self

    def fit_transform(  # type: ignore[override]
        self, X: Any, y: Any = None, *, verbose: bool = False
    ) -> NDArray[np.bool_]:
        """Fit and return U, the rows of class a assigned to V ∨ W_a; `transform` assigns rows to V."""
        self._labels = y
        try:
            return super().fit_transform(X, verbose=verbose)
        finally:
            del self._labels
