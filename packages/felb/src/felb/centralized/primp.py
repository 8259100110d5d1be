"""PRIMP and PanPal: Boolean factors of unknown rank by proximal steps and description length (Hess et al., 2017)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.base import RelaxedMethod
from felb.centralized.zhang import balanced
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import threshold_errors, threshold_grid
from felb.kernels.schedule import one_blas_thread
from felb.metrics import confusion, integrality_gap
from felb.metrics.counts import feature_counts
from felb.optim.palm import Objective, Point, loss_at, palm_step
from felb.optim.prox import check_weights
from felb.optim.steps import Lipschitz, uniform_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.centralized.base import Factors
    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline

    Array = NDArray[np.floating[Any]]
    Boolean = NDArray[np.bool_]

WARM_UP = 50
"""Steps for the squares alone before those with penalties."""

MOST_PAIRS = 16
"""Pairs of different factors whose exact cost is computed, those of the least bound, if it takes a pass for each."""


@dataclass(eq=False, repr=False)
class PALTilingMethod(RelaxedMethod):
    """Base of PRIMP and PanPal, which differ in their cost; `felb.Primp` describes the parameters."""

    if_collapsed = "another random_state, a larger rank_step"

    _: KW_ONLY
    rank_step: int = 10
    max_iter: int = 1000
    tol: float = 1e-5
    grid: int = 20

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        check_weights(max_iter=(self.max_iter, 1), rank_step=(self.rank_step, 1), tol=(self.tol, 0))
        threshold_grid(self.grid)

    @abstractmethod
    def cost(self, A: BinaryMatrix) -> Cost:
        """Return the cost of factors of A."""

    @property
    def of_shortcut(self) -> dict[str, Any]:
        """Return the thresholds for factors that are Boolean."""
        return {"thresholds_": (0.5, 0.5), "rank_": 0, "cost_": 0.0, "empty_cost_": 0.0}

    def warn_about(self, components: Boolean, supports: NDArray[np.int64] | None, gap: float) -> None:  # noqa: ARG002
        """Warn about a result that collapsed; one that is not Boolean is what the thresholds are for."""
        super().warn_about(components, supports, 0.0)

    def finished(self, rows: list[dict[str, float]]) -> bool:
        """Whether all iterations of a rank were taken, or the objective decreases by less than `tol`, relatively."""
        rows = [row for row in rows if row["rank"] == rows[-1]["rank"]]
        return len(rows) == self.max_iter or (
            len(rows) > 1 and abs(rows[-2]["objective"] - rows[-1]["objective"]) <= self.tol * rows[-2]["objective"]
        )

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:
        """Extend the factors, take proximal steps and round them, until the rounded rank falls behind."""
        cost, rows = self.cost(A), list[dict[str, float]]()
        U, Vt = (np.zeros((size, 0), dtype=self.dtype) for size in A.shape)
        best = empty = cost.of_empty()
        for rank in (*range(self.rank_step, k, self.rank_step), k):
            U, Vt = self._extend(A, U, Vt, rank, seed)
            warm = self._warm_up(A, U, Vt)
            U, Vt = self._descend(A, *warm, cost, rows, deadline)
            rounded = (cost.round(*factors, threshold_grid(self.grid)) for factors in ((U, Vt), warm))
            best = min((*(cost.prune(each, deadline) for each in rounded), empty), key=lambda each: each.cost)
            if rank - best.U.shape[1] > 1 or deadline.passed:
                break
        shown = {
            "rank_": best.U.shape[1],
            "cost_": best.cost,
            "empty_cost_": empty.cost,
            "thresholds_": best.thresholds,
        }
        V, relaxed = np.ascontiguousarray(best.Vt.T), np.zeros((k, A.shape[1]), dtype=self.dtype)
        relaxed[: Vt.shape[1]] = Vt.T
        return self.factors(best.U, V, relaxed=relaxed, gap=integrality_gap(relaxed), rows=rows, **shown)

    def _extend(self, A: BinaryMatrix, U: Array, Vt: Array, rank: int, seed: int) -> tuple[Array, Array]:
        """Return the factors with random components up to the rank."""
        more = rank - Vt.shape[1]
        fresh = np.ascontiguousarray(uniform_columns(seed + rank, more, A.shape[1], dtype=self.dtype).T)
        return np.hstack((U, Lipschitz().first_rows(A, fresh))), np.hstack((Vt, fresh))

    def _warm_up(self, A: BinaryMatrix, U: Array, Vt: Array) -> tuple[Array, Array]:
        """Take steps for the squares alone: random factors are small, and penalties would make zeros of them."""
        point = Point.start(U, Vt)
        with one_blas_thread():
            for _ in range(WARM_UP):
                rule = Lipschitz(by_component=True)
                point, _ = palm_step(A, point, Objective(kappa=0.0), rule=rule, lam=0.0)
        return balanced(point.U, point.Vt)

    def _descend(
        self, A: BinaryMatrix, U: Array, Vt: Array, cost: Cost, rows: list[dict[str, float]], deadline: Deadline
    ) -> tuple[Array, Array]:
        """Take proximal steps until the objective settles; a row is kept for each."""
        point, rank, rule = Point.start(U, Vt), Vt.shape[1], Lipschitz(by_component=True)
        objective = Objective(kappa=2 / cost.mu, exact=True)  # prox of Λ/μ, see `two_valued_penalty`
        with one_blas_thread():
            while not rows or rows[-1]["rank"] != rank or not (self.finished(rows) or deadline.passed):
                slopes = cost.slopes(point.U)
                point, statistics = palm_step(A, point, objective, rule=rule, lam=0.0, steps=1, slopes=slopes)
                loss = loss_at(A, point, statistics)
                value = cost.mu / 2 * loss + cost.smooth(point.U, point.Vt) + two_valued_penalty(point.U, point.Vt)
                gap = integrality_gap(point.Vt)
                rows.append(
                    {"round": len(rows), "rank": rank, "loss": loss, "objective": value, "integrality_gap": gap}
                )
                self.step_done(len(rows) % self.max_iter)
        return point.U, point.Vt


def two_valued_penalty(*factors: Array) -> float:
    """Σ Λ(x) with Λ(x) = 1 − |1 − 2x| on [0, 1], which is 0 at 0 and 1 and largest at ½.

    Its proximal operator max(0, x − 2α) for x <= ½, min(1, x + 2α) otherwise, is that of `prox_elb_exact` with κ = 2α
    and λ = 0 in the box [0, 1].
    """
    return float(sum((1 - np.abs(1 - 2 * factor)).sum(dtype=np.float64) for factor in factors))


@dataclass(frozen=True, slots=True)
class Rounded:
    """Boolean factors without empty components, the thresholds that gave them, and their cost."""

    U: Boolean
    Vt: Boolean
    thresholds: tuple[float, float]
    cost: float


class Cost:
    """What Boolean factors cost, and its relaxation μ/2 ‖A − UV‖² + S(U, V) with a smooth S."""

    mu: float = 1.0

    def __init__(self, A: BinaryMatrix) -> None:
        self.A = A

    @abstractmethod
    def slopes(self, U: Array) -> tuple[Array, Array]:
        """Return the gradients of S/μ, for U (a number for each component) and for Vᵀ (one for each feature)."""

    @abstractmethod
    def smooth(self, U: Array | Boolean, Vt: Array | Boolean) -> float:
        """S(U, V)."""

    @abstractmethod
    def bound(self, errors: int, U: Boolean, Vt: Boolean) -> float:
        """Return the cost of Boolean factors with so many wrong cells, or a bound of it."""

    def exact(self, U: Boolean, Vt: Boolean, bound: float) -> float:  # noqa: ARG002
        """Return the cost of Boolean factors whose bound is known."""
        return bound

    def of_empty(self) -> Rounded:
        """Return no components, and their cost."""
        U, Vt = np.zeros((self.A.shape[0], 0), dtype=bool), np.zeros((self.A.shape[1], 0), dtype=bool)
        return Rounded(U, Vt, (1.0, 1.0), self.exact(U, Vt, self.bound(self.A.nnz, U, Vt)))

    def prune(self, found: Rounded, deadline: Deadline) -> Rounded:
        """Drop components, the least used first, as long as that lowers the cost after rows are assigned anew."""
        for place in np.argsort(np.count_nonzero(found.U, axis=0), kind="stable").tolist():
            if deadline.passed:
                break
            Vt = found.Vt.copy()
            Vt[:, place] = False
            V = np.ascontiguousarray(Vt.T)
            U = assign_rows(self.A, V)
            Vt &= U.any(axis=0)
            cost = self.exact(U, Vt, self.bound(confusion(self.A, U, V).errors, U, Vt))
            if cost < found.cost:
                found = Rounded(U, Vt, found.thresholds, cost)
        kept = found.Vt.any(axis=0)
        return replace(found, U=np.ascontiguousarray(found.U[:, kept]), Vt=np.ascontiguousarray(found.Vt[:, kept]))

    def round(self, U: Array, Vt: Array, grid: NDArray[np.float64]) -> Rounded:
        """Return the factors [U >= s], [V >= t] of the least cost, for thresholds of the grid; of equals the first."""
        errors = threshold_errors(self.A, U, Vt, grid=grid)
        cuts = [[(float(s), np.float64(s) <= X) for s in grid] for X in (U, Vt)]
        # Sets for growing thresholds are nested, so those of equal size are equal.
        places = [
            sorted({int(np.count_nonzero(cut)): at for at, (_, cut) in reversed([*enumerate(line)])}.values())
            for line in cuts
        ]
        pairs = []
        for a, b in product(*places):
            kept = cuts[0][a][1].any(axis=0) & cuts[1][b][1].any(axis=0)
            parts = np.ascontiguousarray(cuts[0][a][1][:, kept]), np.ascontiguousarray(cuts[1][b][1][:, kept])
            pairs.append((self.bound(int(errors[a, b]), *parts), a, b, parts))
        pairs.sort(key=lambda pair: pair[:3])
        best: Rounded | None = None
        for bound, a, b, parts in pairs[:MOST_PAIRS]:
            cost = self.exact(*parts, bound)
            if best is None or cost < best.cost:
                best = Rounded(*parts, (cuts[0][a][0], cuts[1][b][0]), cost)
        assert best is not None  # the smallest threshold gives a pair
        return best


class SquaresCost(Cost):
    """PanPal: |A ⊕ U∘V| + |U| + |V|, relaxed by ½‖A − UV‖² + ½|U| + ½|V|."""

    def slopes(self, U: Array) -> tuple[Array, Array]:
        """Return ½ for every component and feature."""
        return np.full(U.shape[1], 0.5, dtype=U.dtype), np.full(self.A.shape[1], 0.5, dtype=U.dtype)

    def smooth(self, U: Array | Boolean, Vt: Array | Boolean) -> float:
        """½|U| + ½|V|."""
        return 0.5 * float(U.sum(dtype=np.float64) + Vt.sum(dtype=np.float64))

    def bound(self, errors: int, U: Boolean, Vt: Boolean) -> float:
        """Return the cost itself."""
        return float(errors + np.count_nonzero(U) + np.count_nonzero(Vt))


class CodeTableCost(Cost):
    """PRIMP: the length of A by a code table of components and single features, in nats.

    With N = A ⊕ U∘V, N_j wrong cells of feature j, codes of the standard table c_j = −log(|A_j| / |A|) and
    Z = |U| + |N|,

        −Σ_l |U_l| log(|U_l|/Z) − Σ_j N_j log(N_j/Z) + Σ_l (V_l·c − log(|U_l|/Z)) + Σ_{j: N_j > 0} (c_j − log(N_j/Z)),

    which is at most μ|N| + G(U, V) + Σ_j c_j with μ = 1 + log m and

        G = −Σ_l (|U_l| + 1) log((|U_l| + 1)/(|U| + k)) + Σ_l V_l·c + |U|.

    The relaxation is μ/2 ‖A − UV‖² + ½G. A feature without ones has the code of one that occurs once.
    """

    def __init__(self, A: BinaryMatrix) -> None:
        super().__init__(A)
        self.mu = 1 + float(np.log(max(2, A.shape[1])))
        self.codes = -np.log(np.maximum(A.column_sums(), 1) / max(1, A.nnz))

    def slopes(self, U: Array) -> tuple[Array, Array]:
        """½(1 − log((|U_l| + 1)/(|U| + k)))/μ for a component, ½c_j/μ for a feature.

        G is concave in U, so that steps of the size for the squares alone decrease the objective.
        """
        used = U.sum(axis=0, dtype=np.float64) + 1
        of_components = (1 - np.log(used / used.sum())) / (2 * self.mu)
        return of_components.astype(U.dtype), (self.codes / (2 * self.mu)).astype(U.dtype)

    def smooth(self, U: Array | Boolean, Vt: Array | Boolean) -> float:
        """½G(U, V)."""
        used = U.sum(axis=0, dtype=np.float64) + 1
        usage = float(used.sum() - used.size - used @ np.log(used / used.sum())) if used.size else 0.0
        return 0.5 * (usage + float(self.codes @ Vt.sum(axis=1, dtype=np.float64)))

    def bound(self, errors: int, U: Boolean, Vt: Boolean) -> float:
        """μ|N| + G(U, V) + Σ_j c_j."""
        return self.mu * errors + 2 * self.smooth(U, Vt) + float(self.codes.sum())

    def exact(self, U: Boolean, Vt: Boolean, bound: float) -> float:  # noqa: ARG002
        """Return the length by the code table."""
        counts = feature_counts(self.A, U, np.ascontiguousarray(Vt.T))
        noise, used = np.array(counts.missed) + np.array(counts.false), np.count_nonzero(U, axis=0)
        used = used[used > 0]
        total = float(noise.sum() + used.sum())
        if not total:
            return 0.0
        wrong = noise[noise > 0]
        data = -float(used @ np.log(used / total) + wrong @ np.log(wrong / total))
        table = float(self.codes @ Vt.sum(axis=1) + self.codes[noise > 0].sum())
        return data + table - float(np.log(used / total).sum() + np.log(wrong / total).sum())


@dataclass(eq=False, repr=False)
class PrimpMethod(PALTilingMethod):
    """The method of `felb.Primp`, which describes it and its parameters."""

    def cost(self, A: BinaryMatrix) -> Cost:
        """Return the length by a code table."""
        return CodeTableCost(A)


@dataclass(eq=False, repr=False)
class PanPalMethod(PALTilingMethod):
    """The method of `felb.PanPal`: PRIMP with the size of factors as their cost."""

    def cost(self, A: BinaryMatrix) -> Cost:
        """Return wrong cells plus ones of the factors."""
        return SquaresCost(A)
