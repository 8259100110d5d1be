"""(Inertial) proximal alternating linearized minimization of the relaxed factorization; data that needs no search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.kernels.passes import Statistics, factor_steps, gather, row_pass, squared_loss, statistics_pass
from felb.optim.prox import elb_penalty
from felb.optim.steps import Penalty

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.optim.prox import Array
    from felb.optim.steps import StepRule


# -- Data that needs no search: no ones, no more ones than components, or nothing but ones ---------------------------
#
# Of such data the components follow from column sums, so that no iteration is worth its time.

ROUNDING = 0.01
"""How far a number of ones that was solved for may be from a whole one."""


def exact_components(column_sums: NDArray[Any], cells: int, k: int) -> NDArray[np.bool_] | None:
    """Return k components with which every row can be written exactly, or None if the data is not trivial.

    With at most k ones, every column that has some is a component; with nothing but ones, the first component has all
    columns. Components that are not needed are empty.

    Parameters
    ----------
    column_sums : ones in each column, over all rows
    cells : known cells of all rows
    k : number of components

    Examples
    --------
    >>> exact_components(np.array([0, 2, 0, 1]), 40, 3).astype(int)
    array([[0, 1, 0, 0],
           [0, 0, 0, 1],
           [0, 0, 0, 0]])
    >>> exact_components(np.array([0, 2, 0, 2]), 40, 3) is None
    True
    """
    ones = int(column_sums.sum())
    if ones <= k:
        return _one_column_each(np.flatnonzero(column_sums), (k, column_sums.size))
    return _all_columns((k, column_sums.size)) if ones == cells else None


def exact_components_of_sketch(
    product: NDArray[np.float64], Q: NDArray[np.float64], k: int
) -> NDArray[np.bool_] | None:
    """Return the same from AᵀA Q and a random Q that does not depend on A; A may also consist of equal columns.

    A column without ones has a row of zeros in AᵀA Q. If at most k columns S have ones, (AᵀA)_SS follows from
    (AᵀA)_SS Q_S = (AᵀA Q)_S, and its trace is the number of ones. If all columns are equal, AᵀA = c 11ᵀ.

    Parameters
    ----------
    product : AᵀA Q over all rows, features × width, without rounding
    Q : features × width, width > k unless there are fewer features
    k : number of components
    """
    shape = (k, len(Q))
    used = np.flatnonzero(product.any(axis=1))
    if used.size <= k and used.size <= Q.shape[1]:
        ones = float(np.trace(product[used] @ np.linalg.pinv(Q[used]))) if used.size else 0.0
        if abs(ones - round(ones)) < ROUNDING and round(ones) <= k:
            return _one_column_each(used, shape)
    sums = Q.sum(axis=0)
    at = int(np.abs(sums).argmax())
    if used.size == len(Q) and (product == product[0]).all() and sums[at]:
        count = product[0, at] / sums[at]
        if count > 0 and np.allclose(product[0], count * sums, rtol=1e-9, atol=1e-9 * count):
            return _all_columns(shape)
    return None


def _one_column_each(columns: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    V = np.zeros(shape, dtype=bool)
    V[np.arange(columns.size), columns] = True
    return V


def _all_columns(shape: tuple[int, int]) -> NDArray[np.bool_]:
    V = np.zeros(shape, dtype=bool)
    V[0] = True
    return V


# -- (Inertial) proximal alternating linearized minimization of the relaxed factorization ----------------------------
#
#     argmin_{U,V} ½‖A − UV‖² + R_κλ(U) + R_κλ(V) + (γ/2)‖V − V̂‖²,  U, V in [0, upper]
#
# `palm_step` updates U for fixed V, then V for the new U (Gauss-Seidel). A is touched once, by
# `kernels.passes.row_pass`: what the V step and the loss need, AᵀU and UᵀU, falls off the same pass. With several steps
# of U for fixed V and of V for fixed U, A is touched twice, however many there are. V is kept transposed (features ×
# components).


@dataclass(frozen=True, slots=True)
class Objective:
    """The regularizer but for its growing λ: κ (`l1`), the pull γ towards V̂, the upper end of the box, which prox.

    With `relative`, κ and λ are in units of the mean curvature tr(G)/k of the factor that moves, G = VVᵀ for U and UᵀU
    for V, and γ in units of √(G_ll tr(G)/k), component by component. Multiplying the rows of A then multiplies every
    term of the objective alike.
    """

    kappa: float = 0.001
    gamma: float = 0.0
    upper: float = 1.0
    exact: bool = False
    relative: bool = False

    def penalty(self, lam: float, gram: Array) -> Penalty:
        """Return the penalty with λ at its present value, for the factor whose data term has the curvature `gram`."""
        unit = mean_curvature(gram) if self.relative else 1.0
        return Penalty(unit * self.kappa, unit * lam, self.gamma, self.upper, self.exact, own=self.relative)

    def value(self, loss: float, U: Array, Vt: Array, *, lam: float, target: Array | None = None) -> float:
        """½ loss + R(U) + R(V) + (γ/2)‖V − V̂‖² in float64, absolute weights, with the λ that the prox belongs to."""
        weight = lam if self.exact else lam / 2
        pull = 0.0 if target is None else self.gamma / 2 * float(((Vt - target).astype(np.float64) ** 2).sum())
        return loss / 2 + elb_penalty(U, self.kappa, weight) + elb_penalty(Vt, self.kappa, weight) + pull


@dataclass(frozen=True, slots=True)
class Point:
    """Where the optimisation stands: both factors, and where they stood one step before (for inertia)."""

    U: Array
    Vt: Array
    U_before: Array
    Vt_before: Array

    @classmethod
    def start(cls, U: Array, Vt: Array) -> Point:
        """Begin at rest."""
        return cls(U, Vt, U, Vt)


def palm_step(
    A: BinaryMatrix,
    point: Point,
    objective: Objective,
    *,
    rule: StepRule,
    lam: float,
    beta: float = 0.0,
    target: Array | None = None,
    steps: int | None = None,
    slopes: tuple[Array, Array] | None = None,
    threads: int | None = None,
) -> tuple[Point, Statistics]:
    """Take one Gauss-Seidel step; return the new point and its AᵀU and UᵀU, from which `loss_at` follows.

    U ← prox(Ũ − ν(ŨVVᵀ − AVᵀ)) with Ũ = U + β(U − U_before), then V ← prox(Ṽ − ξ(UᵀUṼ − UᵀA)) likewise. With `steps`,
    so many steps of U for fixed V are followed by as many of V for fixed U; one of each is the same but for rounding.
    `slopes`, which need `steps`, are added to the gradients: a number for each component to that of U, and one for each
    feature to that of V.
    """
    gram = point.Vt.T @ point.Vt
    step = rule.step(gram, objective.penalty(lam, gram), beta=beta)
    if steps is None:
        U, AtU, UtU = row_pass(
            A, point.U, point.Vt, rule=step, U_prev=point.U_before, beta=beta, gram=gram, threads=threads
        )
        U_before = point.U
    else:
        gathered = gather(A, point.Vt, threads=threads)
        if slopes is not None:
            gathered -= slopes[0]
        U, U_before = factor_steps(point.U, gathered, gram, steps=steps, rule=step, X_prev=point.U_before, beta=beta)
        AtU, UtU = statistics_pass(A, U, threads=threads)
    step = rule.step(UtU, objective.penalty(lam, UtU), beta=beta)
    Vt, Vt_before = factor_steps(
        point.Vt,
        AtU if slopes is None else AtU - slopes[1][:, None],
        UtU,
        steps=steps or 1,
        rule=step,
        X_prev=point.Vt_before,
        beta=beta,
        target=target,
    )
    return Point(U, Vt, U_before, Vt_before), Statistics(AtU, UtU)


def mean_curvature(gram: Array) -> float:
    """tr(G)/k, the mean second derivative of ½‖A − UV‖² along the components of the factor that moves."""
    return float(np.trace(gram, dtype=np.float64)) / len(gram)


def loss_at(A: BinaryMatrix, point: Point, statistics: Statistics) -> float:
    """‖A − UV‖² in float64, without another pass over A."""
    return squared_loss(A.nnz, statistics.AtU, statistics.UtU, point.Vt)
