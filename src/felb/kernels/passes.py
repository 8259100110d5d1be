"""One pass over the ones of A gives the next U and all that the step of V and the loss need of A.

With V held, the rows of U move independently, each by its own row of A. So a single pass can do for each row

    a = Σ_{j in row} Vᵀ[j, :]        u ← rule(u; a, G),  G = V Vᵀ        (see `felb.kernels.rules`)
    AᵀU[j, :] += u for j in row      UᵀU += u uᵀ

and then ‖A − U V‖² is known (`squared_loss`) and Vᵀ can move by the same rules (`factor_step`), without A, U V or any
n × m array. Rows go in chunks, the first line for all rows of a chunk and then the second. Float32 factors go through
compiled vector code, float64 ones (and every one where Numba's compiler is switched off) through NumPy, but for HALS
sweeps in `factor_step`. Results do not
depend on the number of threads beyond rounding.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.errors import InputError
from felb.kernels import plain
from felb.kernels.rules import HALS
from felb.kernels.schedule import Schedule, block_of, plain_view, scratch_space, table_of, width_of

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.kernels.rules import Rule


WHOLE_ROWS = 1 << 15
"""Rows of numbers below 2^16 whose sums fit 32 bits."""

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


# -- the public functions ----------------------------------------------------------------------------------------------


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

    Returns
    -------
    RowPass, of the same float type; nothing that was passed in is changed.
    """
    U, Vt = _factors(A, U, Vt)
    (n, m), k = A.shape, U.shape[1]
    out = RowPass(np.empty((n, k), U.dtype), np.empty((m, k), U.dtype), np.empty((k, k), U.dtype))
    row_pass_into(out, A, U, Vt, rule=rule, U_prev=U_prev, beta=beta, gram=gram, threads=threads)
    return out


def row_pass_into(
    out: RowPass,
    A: BinaryMatrix,
    U: NDArray[Any],
    Vt: NDArray[Any],
    *,
    rule: Rule,
    U_prev: NDArray[Any] | None = None,
    beta: float = 0.0,
    gram: NDArray[Any] | None = None,
    threads: int | None = None,
) -> None:
    """Do `row_pass` into given arrays; ``out.U`` may be `U_prev` or `U`, because a row is read before it is written."""
    U, Vt = _factors(A, U, Vt)
    (n, m), k = A.shape, U.shape[1]
    for name, array, shape in zip(out._fields, out, ((n, k), (m, k), (k, k)), strict=True):
        _check_shape(f"out.{name}", array, shape)
        if array.dtype != U.dtype or not array.flags.c_contiguous or not array.flags.writeable:
            raise InputError(f"out.{name} must be a C-contiguous {U.dtype} array that can be written to")
    U_prev = _like(U, U_prev, "U_prev")
    compiled, numbers = _compiled(U.dtype), rule.numbers(beta, pulled=False)
    if compiled is None or numbers is None:
        plain.row_pass_into(out, A, U, Vt, rule=rule, U_prev=U_prev, beta=beta)
        return
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


def moved_rows(
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
    out = Statistics(np.empty((m, k), U.dtype), np.empty((k, k), U.dtype))
    compiled = _compiled(U.dtype)
    if compiled is None:
        plain.statistics_into(out, A, U)
        return out
    schedule = Schedule(A, k, threads)

    rows = plain_view(U)

    def run(span: tuple[int, int], totals: tuple[Any, Any], scratch: Any) -> None:
        compiled.statistics_pass(schedule.ones, span, rows, totals, scratch, schedule.columns, schedule.width)

    schedule.accumulate(run, compiled.collect_pass, *out)
    return out


def gather(A: BinaryMatrix, Vt: NDArray[Any], *, threads: int | None = None) -> NDArray[Any]:
    """Return A · Vᵀ (n × k): for each row of A, the sum of the rows of `Vt` at its ones."""
    Vt = _floats(Vt, "Vt")
    n, k = A.shape[0], Vt.shape[1]
    _check_shape("Vt", Vt, (A.shape[1], k))
    out = np.empty((n, k), Vt.dtype)
    compiled = _compiled(Vt.dtype)
    if compiled is None:
        plain.gather_into(out, A, Vt)
        return out
    schedule = Schedule(A, k, threads)
    table = _table(compiled, Vt)

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
            moved = plain.move(X, gathered, gram, rule=rule, X_prev=X_prev, beta=beta, target=target)
            X, X_prev = moved, X
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
    import numba  # half a second, so not before the first pass

    if numba.config.DISABLE_JIT:
        warnings.warn("Numba's compiler is switched off: felb computes in NumPy, several times slower", stacklevel=4)
        return None
    from felb.kernels import compiled_passes as kernels

    return kernels
