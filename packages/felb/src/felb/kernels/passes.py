"""One pass over the ones of A gives the next U and all that the step of V and the loss need."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numba
import numpy as np

from felb.errors import InputError
from felb.kernels import SKETCH_BITS, UPLOAD_BITS, WEIGHTED_BITS
from felb.kernels.compiler import kernel
from felb.kernels.schedule import Schedule, block_of, plain_view, scratch_space, table_of, width_of

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


# -- How kernels are told in which way the rows of a factor are to move while the other factor is held ---------------
#
# A rule sees, for row u of U, the gathered row a = Σ_{j in row} V[:, j] and the Gram matrix G = V Vᵀ, that is all that
# ½‖A − U V‖² knows about u. The rows of Vᵀ move by the same rules with a = (AᵀU)_j and G = UᵀU. The rules are stated in
# `felb.optim.steps`; `felb.kernels.vector_passes` states each once more in vector code and takes its numbers.

GRADIENT, MULTIPLICATIVE, HALS, COMPONENT = 0.0, 1.0, 2.0, 3.0
"""The rules, as the kernels know them."""

SMALLEST_DENOMINATOR = 1e-12
"""Denominators of multiplicative steps are at least this."""

SMALLEST_SHARE, SMALLEST_SUM = 1e-6, 1e-4
"""Sums Σ_d |G_cd| that decide the step of a component are at least this share of the largest, and this in all."""

NEGLIGIBLE = 1e-15
"""Entries of a factor that are no larger after the proximal operator are 0."""


class Numbers(NamedTuple):
    """A rule as numbers.

    With step size η, the row x after the gradient step becomes, for t = 1 where x > ½, else 0, and d = x − t,

        y = t + sign(d) · max(|d| − ηκ, floor) / (1 + ηλ), clipped to [0, upper],   then   (y + ηγv̂) / (1 + ηγ).

    With `own`, coordinate l is drawn with γ√(G_ll tr(G)/k) in place of γ. The steps of `COMPONENT` are
    η_l = step / Σ_d |G_ld|.
    """

    code: float
    beta: float = 0.0
    lowest: float = 0.0
    step: float = 0.0  # or the number of sweeps
    kappa: float = 0.0
    lam: float = 0.0
    floor: float = 0.0
    upper: float = 0.0
    gamma: float = 0.0
    own: float = 0.0


class Rule(Protocol):
    """A way to move; NumPy does what `apply` says, kernels do what `numbers` says, and both must agree."""

    @property
    def lowest(self) -> float:
        """What points are raised to before they move."""
        ...

    def apply(
        self, u: NDArray[Any], a: NDArray[Any], gram: NDArray[Any], target: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the rows that follow `u`, drawn towards `target` if there is one."""
        ...

    def numbers(self, beta: float, *, pulled: bool) -> Numbers | None:
        """Return the rule as kernels take it; None if they do not know it."""
        ...


# -- The passes ------------------------------------------------------------------------------------------------------
#
# With V held, the rows of U move independently, each by its own row of A. So a single pass can do for each row
#
#     a = Σ_{j in row} Vᵀ[j, :]        u ← rule(u; a, G),  G = V Vᵀ
#     AᵀU[j, :] += u for j in row      UᵀU += u uᵀ
#
# and then ‖A − U V‖² is known (`squared_loss`) and Vᵀ can move by the same rules (`factor_step`), without A, U V or any
# n × m array. Rows go in chunks, the first line for all rows of a chunk and then the second. Float32 factors go through
# compiled vector code, float64 ones (and every one where Numba's compiler is switched off) through NumPy, but for HALS
# sweeps in `factor_step`. Results do not depend on the number of threads beyond rounding.

WHOLE_ROWS = 1 << 15
"""Rows of numbers below 2^16 whose sums fit 32 bits."""

NUMPY_ROWS = 1 << 13
"""Rows that NumPy handles together, so that temporaries stay small."""

LOSS_ROWS = 4096
"""Rows of Vᵀ that are widened to float64 at once; more would leave the cache."""


class RowPass(NamedTuple):
    """What a pass gives: the next U (n × k), AᵀU (m × k) and UᵀU (k × k) for it."""

    U: NDArray[Any]
    AtU: NDArray[Any]
    UtU: NDArray[Any]


class Statistics(NamedTuple):
    """All that the step of V needs to know: AᵀU (m × k) and UᵀU (k × k)."""

    AtU: NDArray[Any]
    UtU: NDArray[Any]


def row_pass(
    A: BinaryMatrix,
    U: NDArray[Any],
    Vt: NDArray[Any],
    *,
    rule: Rule,
    U_prev: NDArray[Any] | None = None,
    beta: float = 0.0,
    gram: NDArray[Any] | None = None,
    threads: int | None = None,
    out: RowPass | None = None,
) -> RowPass:
    """Move every row of U by `rule` from u + β(u − u_prev), with V held, and collect AᵀU and UᵀU of the moved rows.

    Parameters
    ----------
    A : BinaryMatrix, n × m
    U, Vt : float32 or float64 arrays, n × k and m × k (V transposed)
    rule : a step of `felb.optim.steps`; multiplicative steps and HALS start from max(u + β(u − u_prev), 0)
    U_prev, beta : the U before and the weight of inertia
    gram : V Vᵀ, if it is at hand
    threads : one for little work, otherwise all that the process may use, if not given
    out : arrays to write to; ``out.U`` may be `U_prev` or `U`, because a row is read before it is written

    Returns
    -------
    RowPass, of the same float type; nothing else that was passed in is changed.
    """
    U, Vt = _factors(A, U, Vt)
    (n, m), k = A.shape, U.shape[1]
    shapes = (n, k), (m, k), (k, k)
    if out is None:
        out = RowPass(*(np.empty(shape, U.dtype) for shape in shapes))
    for name, array, shape in zip(out._fields, out, shapes, strict=True):
        _check_shape(f"out.{name}", array, shape)
        if array.dtype != U.dtype or not array.flags.c_contiguous or not array.flags.writeable:
            raise InputError(f"out.{name} must be a C-contiguous {U.dtype} array that can be written to")
    U_prev = _like(U, U_prev, "U_prev")
    compiled, numbers = _compiled(U.dtype), rule.numbers(beta, pulled=False)
    if compiled is None or numbers is None:
        _row_pass_in_numpy(out, A, U, Vt, rule, U_prev, beta)
        return out
    schedule = Schedule(A, k, threads)
    factors = plain_view(U), plain_view(U_prev), out.U
    held = _table(compiled, Vt), _gram(Vt.T @ Vt if gram is None else gram)

    def run(span: tuple[int, int], totals: tuple[Any, Any], scratch: Any) -> None:
        # One after the other: rows of V and of AᵀU would drive each other out of the cache.
        compiled.move_pass(
            schedule.ones, span, factors, held, tuple(numbers), scratch, schedule.columns, schedule.width
        )
        compiled.statistics_pass(schedule.ones, span, out.U, totals, scratch, schedule.columns, schedule.width)

    schedule.accumulate(run, compiled.collect_pass, out.AtU, out.UtU)
    return out


def move_rows(
    A: BinaryMatrix, U: NDArray[Any], Vt: NDArray[Any], *, rule: Rule, threads: int | None = None
) -> NDArray[Any]:
    """Return every row of U moved by `rule`, with V held, to the bits of `row_pass`, but without AᵀU and UᵀU."""
    U, Vt = _factors(A, U, Vt)
    compiled, numbers = _compiled(U.dtype), rule.numbers(0.0, pulled=False)
    if compiled is None or numbers is None:
        return row_pass(A, U, Vt, rule=rule).U
    out = np.empty_like(U)
    schedule = Schedule(A, U.shape[1], threads)
    factors = plain_view(U), plain_view(U), out
    held = _table(compiled, Vt), _gram(Vt.T @ Vt)

    def run(span: tuple[int, int]) -> None:
        scratch = schedule.scratch()
        compiled.move_pass(
            schedule.ones, span, factors, held, tuple(numbers), scratch, schedule.columns, schedule.width
        )

    schedule.each(run)
    return out


def whole_sums(A: BinaryMatrix, X: NDArray[np.int32]) -> NDArray[np.int64] | None:
    """Return AᵀX of whole numbers up to 2^16, exactly; None if there is no compiler for it."""
    compiled = _compiled(np.dtype(np.float32))
    if compiled is None:
        return None
    schedule = Schedule(A, X.shape[1], 1)
    sums, scratch = np.zeros((A.shape[1], X.shape[1]), np.int64), schedule.scratch()
    table = table_of(*sums.shape).view(np.int32)
    for first in range(0, len(X), WHOLE_ROWS):
        span = first, min(first + WHOLE_ROWS, len(X))
        compiled.whole_pass(schedule.ones, span, plain_view(X), table, scratch, schedule.columns, schedule.width)
        compiled.collect_whole(table, sums)
    return sums


def statistics_pass(A: BinaryMatrix, U: NDArray[Any], *, threads: int | None = None) -> Statistics:
    """Return AᵀU and UᵀU."""
    U = _floats(U, "U")
    m, k = A.shape[1], U.shape[1]
    _check_shape("U", U, (A.shape[0], k))
    compiled = _compiled(U.dtype)
    if compiled is None:
        return Statistics(A.to_scipy(U.dtype).T @ U, U.T @ U)
    out = Statistics(np.empty((m, k), U.dtype), np.empty((k, k), U.dtype))
    schedule, rows = Schedule(A, k, threads), plain_view(U)

    def run(span: tuple[int, int], totals: tuple[Any, Any], scratch: Any) -> None:
        compiled.statistics_pass(schedule.ones, span, rows, totals, scratch, schedule.columns, schedule.width)

    schedule.accumulate(run, compiled.collect_pass, *out)
    return out


def gather(A: BinaryMatrix, Vt: NDArray[Any], *, threads: int | None = None) -> NDArray[Any]:
    """Return A · Vᵀ (n × k): for each row of A, the sum of the rows of `Vt` at its ones."""
    Vt = _floats(Vt, "Vt")
    n, k = A.shape[0], Vt.shape[1]
    _check_shape("Vt", Vt, (A.shape[1], k))
    compiled = _compiled(Vt.dtype)
    if compiled is None:
        return np.asarray(A.to_scipy(Vt.dtype) @ Vt)
    out, schedule, table = np.empty((n, k), Vt.dtype), Schedule(A, k, threads), _table(compiled, Vt)

    def run(span: tuple[int, int]) -> None:
        scratch = schedule.scratch()
        compiled.gather_pass(schedule.ones, span, table, out, scratch, schedule.columns, schedule.width)

    schedule.each(run)
    return out


def factor_step(
    X: NDArray[Any],
    gathered: NDArray[Any],
    gram: NDArray[Any],
    *,
    rule: Rule,
    X_prev: NDArray[Any] | None = None,
    beta: float = 0.0,
    target: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return every row of X moved by `rule`, from `gathered` rows and a Gram matrix that are at hand.

    ``factor_step(Vt, AtU, UtU, rule=...)`` is the step of V that follows a `row_pass`; rows are drawn towards `target`,
    if one is given and the rule's penalty says how strongly.
    """
    return factor_steps(X, gathered, gram, steps=1, rule=rule, X_prev=X_prev, beta=beta, target=target)[0]


def factor_steps(
    X: NDArray[Any],
    gathered: NDArray[Any],
    gram: NDArray[Any],
    *,
    steps: int,
    rule: Rule,
    X_prev: NDArray[Any] | None = None,
    beta: float = 0.0,
    target: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return X after `steps` times `factor_step`, and what it was before the last one; arguments are prepared once."""
    X = _floats(X, "X")
    n, k = X.shape
    _check_shape("gathered", gathered, (n, k))
    _check_shape("gram", gram, (k, k))
    gathered, X_prev = np.ascontiguousarray(gathered, X.dtype), _like(X, X_prev, "X_prev")
    if target is not None:
        target = _like(X, target, "target")
    compiled, numbers = _compiled(X.dtype), rule.numbers(beta, pulled=target is not None)
    if X.dtype == np.float64 and numbers is not None and numbers.code == HALS and not beta:
        doubles = _kernels()
        if doubles is not None:
            for _ in range(steps):
                swept: NDArray[np.float64] = np.maximum(X, numbers.lowest)
                doubles.sweep_doubles_into(swept, plain_view(gathered), plain_view(gram), int(numbers.step))
                X, X_prev = swept, X
            return X, X_prev
    if compiled is None or numbers is None:
        for _ in range(steps):
            X, X_prev = _move_in_numpy(X, gathered, gram, rule, X_prev, beta, target), X
        return X, X_prev
    held = plain_view(gathered), _gram(gram), tuple(numbers), scratch_space(n, k), width_of(k)
    X, X_prev, towards = plain_view(X), plain_view(X_prev), None if target is None else plain_view(target)
    for _ in range(steps):
        out = np.empty_like(X)
        compiled.dense_pass((X, X_prev, X if towards is None else towards, out), *held)
        X, X_prev = out, X
    return X, X_prev


def squared_loss(nnz: float, AtU: NDArray[Any], UtU: NDArray[Any], Vt: NDArray[Any]) -> float:
    """Return ‖A − U V‖² = ‖A‖² − 2⟨AᵀU, Vᵀ⟩ + ⟨UᵀU, V Vᵀ⟩, accumulated in float64; ‖A‖² is the number of ones `nnz`."""
    common, gram = 0.0, np.zeros(UtU.shape)
    for first in range(0, len(Vt), LOSS_ROWS):
        V = Vt[first : first + LOSS_ROWS].astype(np.float64)
        common += float(np.vdot(AtU[first : first + LOSS_ROWS].astype(np.float64), V))
        gram += V.T @ V
    return float(nnz - 2 * common + np.vdot(UtU.astype(np.float64), gram))


def _row_pass_in_numpy(
    out: RowPass, A: BinaryMatrix, U: NDArray[Any], Vt: NDArray[Any], rule: Rule, U_prev: NDArray[Any], beta: float
) -> None:
    """Do `row_pass` for any float type and rule, without a compiler, several times slower."""
    gram = Vt.T @ Vt
    out.AtU[:], out.UtU[:] = 0, 0
    for first in range(0, A.shape[0], NUMPY_ROWS):
        block = slice(first, first + NUMPY_ROWS)
        ones = A.rows(first, first + NUMPY_ROWS).to_scipy(U.dtype)
        rows = out.U[block] = _move_in_numpy(U[block], ones @ Vt, gram, rule, U_prev[block], beta, None)
        out.AtU[:] += ones.T @ rows
        out.UtU[:] += rows.T @ rows


def _move_in_numpy(
    X: NDArray[Any],
    gathered: NDArray[Any],
    gram: NDArray[Any],
    rule: Rule,
    X_prev: NDArray[Any],
    beta: float,
    target: NDArray[Any] | None,
) -> NDArray[Any]:
    point = np.maximum(X + X.dtype.type(beta) * (X - X_prev), X.dtype.type(rule.lowest))
    return rule.apply(point, gathered, gram, target)


# -- what comes in -----------------------------------------------------------------------------------------------------


def _factors(A: BinaryMatrix, U: NDArray[Any], Vt: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return U and Vᵀ, of the shapes that go with A, in the float type of U."""
    U = _floats(U, "U")
    _check_shape("U", U, (A.shape[0], U.shape[1]))
    _check_shape("Vt", Vt, (A.shape[1], U.shape[1]))
    return U, np.ascontiguousarray(Vt, U.dtype)


def _floats(X: NDArray[Any], name: str) -> NDArray[Any]:
    if X.ndim != 2 or X.shape[1] < 1:
        raise InputError(f"{name} has shape {X.shape}; expected a 2D array with at least one component")
    if X.dtype not in (np.float32, np.float64):
        raise InputError(f"{name} holds {X.dtype}; expected float32 (fast) or float64")
    return np.ascontiguousarray(X)


def _like(X: NDArray[Any], previous: NDArray[Any] | None, name: str) -> NDArray[Any]:
    if previous is None:
        return X
    _check_shape(name, previous, X.shape)
    return np.ascontiguousarray(previous, X.dtype)


def _gram(gram: NDArray[Any]) -> NDArray[np.float32]:
    """Return a Gram matrix as a block of rows."""
    k = gram.shape[0]
    block = block_of(k, k)
    block[:, :k] = gram
    return block


def _table(compiled: ModuleType, X: NDArray[Any]) -> NDArray[np.float32]:
    """Return X as a table."""
    table = table_of(*X.shape)
    compiled.table_pass(plain_view(X), table)
    return table


def _check_shape(name: str, X: NDArray[Any], shape: tuple[int, ...]) -> None:
    if X.shape != shape:
        raise InputError(f"{name} has shape {X.shape}; expected {shape}")


def _compiled(dtype: np.dtype[Any]) -> ModuleType | None:
    """Return the module of compiled kernels, if there are any for this float type."""
    return _kernels() if dtype == np.float32 else None


@cache
def _kernels() -> ModuleType | None:
    if numba.config.DISABLE_JIT:
        warnings.warn("Numba's compiler is switched off: felb computes in NumPy, several times slower", stacklevel=4)
        return None
    from felb.kernels import vector_passes as kernels

    return kernels


# -- Sums in fixed point: integer multiples of a power of two, so that the order of addition does not matter ---------
#
# Floating-point sums over rows depend on how the rows are grouped. Sums of integers do not, so a statistic that is
# rounded row by row before it is added is the same for one client with all rows and for many with a few rows each.

UNIT_BITS = 12
"""Fractional bits of a relaxed row: far finer than any threshold it is cut at, coarse enough for sums of squares."""

LARGEST_UNITS = (1 << 16) - 1
"""Rows are clipped to this many units, so that squares add up exactly in float64 over 2^21 rows."""

GRAM_ROWS = 1 << 20
"""Rows whose squares are added in float64 at once."""


def whole_multiples(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return values in units of 2^-24, so that sums over clients are exact and do not depend on their order."""
    return np.rint(np.ldexp(np.asarray(values, np.float64), WEIGHTED_BITS)).astype(np.int64)


class FixedStatistics(NamedTuple):
    """AᵀX (m × k), XᵀX (k × k) and column sums (k) of whole-numbered rows X, as int64."""

    AtX: NDArray[np.int64]
    XtX: NDArray[np.int64]
    sums: NDArray[np.int64]


def units_of(V: NDArray[Any]) -> NDArray[np.float64]:
    """Return the unit for each column of U: a power of two, finer where the row of V (k × m) it goes with is larger.

    Products U_rl V_lj are of order one, so a unit of 2^-12 / max_j V_lj, rounded down to a power of two, resolves them
    alike for every scale. Rows of zeros get the unit 2^-12.
    """
    highest = V.max(axis=1, initial=0.0).astype(np.float64)
    _, exponent = np.frexp(np.where(highest > 0, highest, 0.5))
    return np.asarray(np.ldexp(1.0, -UNIT_BITS - exponent))


def in_units(U: NDArray[Any], units: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the columns of U >= 0 as whole multiples of their units, rounded to nearest and clipped."""
    whole = np.empty(U.shape, dtype=np.int32)
    # Units are powers of two, so that a product with their inverses is exact.
    in_units_into(whole, np.ascontiguousarray(U), (1 / units).astype(U.dtype))
    return whole


def fixed_statistics(A: BinaryMatrix, X: NDArray[np.int32]) -> FixedStatistics:
    """Return AᵀX, XᵀX and the column sums of X exactly; entries of X are at most `LARGEST_UNITS`."""
    if X.shape[0] != A.shape[0]:
        raise InputError(f"X has {X.shape[0]} rows, but the data has {A.shape[0]}")
    k = X.shape[1]
    AtX = whole_sums(A, np.ascontiguousarray(X))
    if AtX is None:
        AtX = np.zeros((A.shape[1], k), dtype=np.int64)
        add_rows_into(AtX, A.indptr, A.indices, np.ascontiguousarray(X))
    XtX, sums = np.zeros((k, k), dtype=np.int64), np.zeros(k, dtype=np.int64)
    for first in range(0, X.shape[0], GRAM_ROWS):
        # BLAS knows no integers, but sums below 2^53 are exact in float64, in any order.
        rows = X[first : first + GRAM_ROWS].astype(np.float64)
        XtX += (rows.T @ rows).astype(np.int64)
        sums += (np.ones(len(rows)) @ rows).astype(np.int64)
    return FixedStatistics(AtX, XtX, sums)


def from_squares(total: NDArray[np.int64]) -> float:
    """Read a sum of squares in units of 2^-SKETCH_BITS as a number."""
    return float(np.ldexp(np.float64(total), -SKETCH_BITS))


def as_sketch(Q: NDArray[Any]) -> NDArray[np.float64]:
    """Round Q (entries up to 1) to `SKETCH_BITS` fractional bits."""
    return np.asarray(np.ldexp(np.rint(np.ldexp(Q, SKETCH_BITS)), -SKETCH_BITS))


def on_grid(values: NDArray[Any], bits: int = UPLOAD_BITS) -> NDArray[Any]:
    """Round values to multiples of 2^-bits, in their own type: sums of them below 2^(53−bits) are exact in float64."""
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, bits)), -bits), dtype=values.dtype)


def fixed_sketch(A: BinaryMatrix, Q: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return AᵀA Q in units of 2^-SKETCH_BITS, exactly, for a Q rounded by `as_sketch`."""
    ones = A.to_scipy(np.float64)
    return to_sketch(ones.T @ (ones @ Q))


def to_sketch(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return numbers in units of 2^-SKETCH_BITS."""
    return np.asarray(np.rint(np.ldexp(values, SKETCH_BITS)), dtype=np.int64)


def from_sketch(total: NDArray[np.int64]) -> NDArray[np.float64]:
    """Read a sum of `fixed_sketch` as numbers."""
    return np.ldexp(total.astype(np.float64), -SKETCH_BITS)


@kernel
def in_units_into(whole: Any, U: Any, per_unit: Any) -> None:
    """Write the columns of U >= 0, times the number of units in 1, as whole numbers, rounded to nearest and clipped."""
    k = U.shape[1]
    most = U.dtype.type(LARGEST_UNITS)
    for r in range(U.shape[0]):
        for c in range(k):
            whole[r, c] = np.int32(min(max(np.rint(U[r, c] * per_unit[c]), U.dtype.type(0)), most))


@kernel
def add_rows_into(total: Any, indptr: Any, indices: Any, X: Any) -> None:
    """Add row r of X to ``total[j]`` for every one (r, j)."""
    k = X.shape[1]
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            for c in range(k):
                total[j, c] += X[r, c]


# -- Relaxed rows with unknown cells: they are computed from the known cells and predict the unknown ones ------------
#
# With K_r the known columns of row r, its best u given V minimises Σ_{j ∈ K_r} (A_rj − (uV)_j)², so the Gram matrix of
# the row is VVᵀ without its unknown columns. For the step of V, an unknown cell is filled with (uV)_j in [0, 1].

LEAST_KNOWN = 1e-6
"""A component of which less than this share is known in a row is not looked for in it."""


def sweep_known_into(
    swept: NDArray[np.float32], A: BinaryMatrix, U: NDArray[np.float32], Vt: NDArray[np.float32], *, sweeps: int
) -> None:
    """Replace those rows of `swept` that have unknown cells by the rows of U after HALS sweeps over their known ones.

    A sweep sets u_l ← max(0, u_l + (a_l − (uG)_l) / G_ll) with a = Σ_{j: A_rj = 1} Vᵀ[j] and G = Σ_{j ∈ K_r} v_j v_jᵀ;
    a component without known columns gets 0. Each row depends on itself alone.
    """
    if A.unknown is not None:
        wide = Vt.astype(np.float64)
        known_sweeps_into(
            swept,
            plain_view(A.indptr),
            plain_view(A.indices),
            plain_view(A.unknown.indptr),
            plain_view(A.unknown.indices),
            plain_view(U),
            wide,
            wide.T @ wide,
            int(sweeps),
        )


def add_filled(
    AtX: NDArray[np.int64], unknown: BinaryMatrix, X: NDArray[np.int32], *, V: NDArray[Any], units: NDArray[np.float64]
) -> tuple[NDArray[np.int64], int]:
    """Return AᵀX with the unknown cells filled, and the sum of their squares in units of 2^-SKETCH_BITS.

    Rows X are whole multiples of the units of their columns. Every addend is rounded to a whole number, so sums are
    exact however rows are split.
    """
    filled = AtX.copy()
    scaled = np.ascontiguousarray((V.astype(np.float64) * units[:, None]).T)
    squares = fill_cells_into(filled, plain_view(unknown.indptr), plain_view(unknown.indices), X, scaled)
    return filled, int(squares)


@kernel
def known_sweeps_into(
    swept: Any,
    indptr: Any,
    indices: Any,
    unknown_indptr: Any,
    unknown_indices: Any,
    U: Any,
    Vt: Any,
    gram: Any,
    sweeps: int,
) -> None:
    """Sweep over the rows with unknown cells; see `sweep_known_into`."""
    k = gram.shape[0]
    known, gathered, u = np.empty((k, k)), np.empty(k), np.empty(k)
    for r in range(swept.shape[0]):
        if unknown_indptr[r] == unknown_indptr[r + 1]:
            continue
        known[:] = gram
        for p in range(unknown_indptr[r], unknown_indptr[r + 1]):
            v = Vt[unknown_indices[p]]
            for c in range(k):
                for d in range(k):
                    known[c, d] -= v[c] * v[d]
        gathered[:] = 0.0
        for p in range(indptr[r], indptr[r + 1]):
            v = Vt[indices[p]]
            for c in range(k):
                gathered[c] += v[c]
        for c in range(k):
            u[c] = U[r, c] if known[c, c] > LEAST_KNOWN * gram[c, c] else 0.0
        for _ in range(sweeps):
            for c in range(k):
                if known[c, c] > LEAST_KNOWN * gram[c, c]:
                    slope = gathered[c]
                    for d in range(k):
                        slope -= known[c, d] * u[d]
                    u[c] = max(u[c] + slope / known[c, c], 0.0)
        for c in range(k):
            swept[r, c] = u[c]


@kernel
def fill_cells_into(total: Any, unknown_indptr: Any, unknown_indices: Any, X: Any, scaled: Any) -> Any:
    """Add x̂·X[r] to ``total[j]`` for every unknown cell (r, j), x̂ = X[r]·scaled[j] in [0, 1]; return Σ x̂²."""
    k = X.shape[1]
    squares = np.int64(0)
    for r in range(unknown_indptr.shape[0] - 1):
        for p in range(unknown_indptr[r], unknown_indptr[r + 1]):
            j = unknown_indices[p]
            value = 0.0
            for c in range(k):
                value += X[r, c] * scaled[j, c]
            value = min(value, 1.0)
            for c in range(k):
                total[j, c] += np.int64(np.rint(value * X[r, c]))
            squares += np.int64(np.rint(value * value * (1 << SKETCH_BITS)))
    return squares
