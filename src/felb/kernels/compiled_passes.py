"""The compiled passes over a binary matrix, block of rows after block of rows, in `felb.kernels.vector`'s terms.

Everything here works on float32. Factors with a row for each record (U) are plain n × k arrays; Vᵀ and AᵀU, which are
looked up for each one of A, are tables; what is worked on is copied into blocks (see `felb.kernels.loops`).

Importing this module imports Numba (half a second); `felb.kernels.passes` does so when the first pass is run.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.kernels.loops import add_outer, gather, multiply, rows_at_once, scatter
from felb.kernels.rules import GRADIENT, HALS, NEGLIGIBLE, SMALLEST_DENOMINATOR
from felb.kernels.schedule import LANES, SIDE_BY_SIDE
from felb.kernels.vector import (
    fma,
    load,
    load_first,
    maximum,
    minimum,
    select_greater,
    splat,
    store,
    store_first,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Doubles = NDArray[np.float64]
    Ints = NDArray[np.integer[Any]]
    Vector = Any
    Width = tuple[int, ...]
    Ones = tuple[Ints, Ints]  # indptr, indices
    Numbers = tuple[float, ...]  # see felb.kernels.rules.Numbers
    Columns = tuple[int, int]  # of the matrix, of a tile
    # See felb.kernels.schedule.scratch_space.
    Scratch = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Ints]


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile when first called, without the GIL; keep the result on disk for the next process if that is possible."""
    return _compiled(function, no_cfunc_wrapper=True)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of kernels, which takes a third less time than what Python can call, too."""
    return _compiled(function, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def _compiled(function: Callable[..., Any], **wrappers: bool) -> Callable[..., Any]:
    options = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": {"contract", "nsz"}, **wrappers}
    try:
        return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # Numba found no folder it may write to
        _warn_that_nothing_is_kept()
        return njit(**options)(function)  # type: ignore[no-any-return]


@cache
def _warn_that_nothing_is_kept() -> None:
    warnings.warn(
        "felb cannot cache its compiled kernels, so every process compiles them again; "
        "set NUMBA_CACHE_DIR to a folder that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )


# -- rows between memory and scratch space -----------------------------------------------------------------------------


@inner
def lines_of(count: int, k: int, stride: int) -> tuple[int, int]:
    """Return how `count` rows of k numbers are copied: as one long line if a block has no gaps, else one by one."""
    if k == stride:
        return 1, count * k
    return count, k


@inner
def load_rows(U: Floats, first: int, count: int, lowest: float, block: Floats) -> None:
    """Write max(u, lowest) for `count` rows of U from `first` on into a block."""
    k, stride, least = U.shape[1], block.shape[1], splat(np.float32(lowest))
    lines, length = lines_of(count, k, stride)
    whole = (length - 1) // LANES * LANES
    for r in range(lines):
        source, place = (first + r) * k, r * stride
        for i in range(0, whole, LANES):
            store(block, place + i, maximum(load(U, source + i), least))
        # Beyond the row this writes zeros, which the next row replaces where it begins.
        store(block, place + whole, maximum(load_first(U, source + whole, length - whole), least))


@inner
def extrapolate_rows(
    U: Floats, U_prev: Floats, first: int, count: int, inertia: tuple[float, float], block: Floats
) -> None:
    """Write max(u + β(u − u_prev), lowest) for `count` rows from `first` on into a block."""
    k, stride, beta, least = U.shape[1], block.shape[1], splat(np.float32(inertia[0])), splat(np.float32(inertia[1]))
    lines, length = lines_of(count, k, stride)
    whole = (length - 1) // LANES * LANES
    for r in range(lines):
        source, place = (first + r) * k, r * stride
        for i in range(0, whole, LANES):
            u = load(U, source + i)
            store(block, place + i, maximum(fma(beta, u - load(U_prev, source + i), u), least))
        u = load_first(U, source + whole, length - whole)
        u_prev = load_first(U_prev, source + whole, length - whole)
        store(block, place + whole, maximum(fma(beta, u - u_prev, u), least))


@inner
def store_rows(block: Floats, U: Floats, first: int, count: int) -> None:
    """Copy a block into `count` rows of U from `first` on."""
    k, stride = U.shape[1], block.shape[1]
    lines, length = lines_of(count, k, stride)
    whole = (length - 1) // LANES * LANES
    for r in range(lines):
        place, target = r * stride, (first + r) * k
        for i in range(0, whole, LANES):
            store(U, target + i, load(block, place + i))
        store_first(U, target + whole, load(block, place + whole), length - whole)


# -- tables ------------------------------------------------------------------------------------------------------------


@kernel
def table_pass(X: Floats, table: Floats) -> None:
    """Write the rows of X into a table, which has a row for each."""
    n, k = X.shape
    stride = table.size // max(1, n)
    whole = stride // LANES * LANES
    for r in range(n):
        for i in range(0, whole, LANES):
            store(table, r * whole + i, load_first(X, r * k + i, min(LANES, k - i)))
        if stride > whole:
            rest = stride - whole
            store_first(table, n * whole + r * rest, load_first(X, r * k + whole, k - whole), rest)


@kernel
def collect_pass(table: Floats, X: Floats, keep: bool) -> None:
    """Add the rows of a table to X, or put them in its place unless that is to be kept."""
    n, k = X.shape
    stride = table.size // max(1, n)
    whole = stride // LANES * LANES
    for r in range(n):
        for i in range(0, stride, LANES):
            at, count = r * k + i, min(LANES, k - i)
            if i < whole:
                found = load(table, r * whole + i)
            else:
                found = load_first(table, n * whole + r * (stride - whole), count)
            if keep:
                found = found + load_first(X, at, count)
            store_first(X, at, found, count)


# -- the row rules -----------------------------------------------------------------------------------------------------


@inner
def prox(x: Vector, kappa: Vector, shrink: Vector, floor: Vector, upper: Vector) -> Vector:
    """Return y of `felb.kernels.rules.Numbers` for x; kappa = ηκ and shrink = 1 / (1 + ηλ).

    What is negligible becomes 0: values that halve with every step would end as denormal numbers, which are slow.
    """
    zero, one = splat(np.float32(0)), splat(np.float32(1))
    target = select_greater(x, splat(np.float32(0.5)), one, zero)
    d = x - target
    sign = select_greater(d, zero, one, select_greater(zero, d, splat(np.float32(-1)), zero))
    y = fma(sign * maximum(sign * d - kappa, floor), shrink, target)
    return select_greater(y, splat(np.float32(NEGLIGIBLE)), minimum(y, upper), zero)


@inner
def gradient_rows(
    point: Floats, gathered: Floats, product: Floats, pull: tuple[Floats, Floats], size: int, numbers: Numbers
) -> None:
    """Turn product = point · G into the next rows by `felb.optim.steps.GradientStep`."""
    _code, _beta, _lowest, eta, kappa, lam, floor, upper, gamma, _own = numbers
    target, gammas = pull
    step, less, shrink = splat(np.float32(eta)), splat(np.float32(eta * kappa)), splat(np.float32(1 / (1 + eta * lam)))
    least, most = splat(np.float32(floor)), splat(np.float32(upper))
    for i in range(0, size, LANES):
        x = fma(step, load(gathered, i) - load(product, i), load(point, i))
        store(product, i, prox(x, less, shrink, least, most))
    if gamma > 0:
        one = splat(np.float32(1))
        for i in range(0, size, LANES):
            hold = step * load(gammas, i)
            store(product, i, fma(hold, load(target, i), load(product, i)) / (one + hold))


@inner
def multiplicative_rows(
    point: Floats, gathered: Floats, product: Floats, pull: tuple[Floats, Floats], size: int, numbers: Numbers
) -> None:
    """Turn product = point · G into the next rows by `felb.optim.steps.MultiplicativeStep`."""
    _code, _beta, _lowest, _eta, kappa, lam, floor, upper, gamma, _own = numbers
    target, gammas = pull
    less, less2, one = splat(np.float32(kappa)), splat(np.float32(lam)), splat(np.float32(1))
    least, most = splat(np.float32(floor)), splat(np.float32(upper))
    smallest = splat(np.float32(SMALLEST_DENOMINATOR))
    for i in range(0, size, LANES):
        step = load(point, i) / maximum(load(product, i), smallest)
        x = step * load(gathered, i)
        y = prox(x, step * less, one / fma(step, less2, one), least, most)
        if gamma > 0:
            hold = step * load(gammas, i)
            y = fma(hold, load(target, i), y) / (one + hold)
        store(product, i, y)


@inner
def hals_rows(
    point: Floats, gathered: Floats, out: Floats, first: int, gram: Floats, k: int, sweeps: int, lanes: Floats
) -> None:
    """Move 64 rows by `felb.optim.steps.HalsStep`, a row in each lane, so that their sweeps go side by side."""
    for r in range(SIDE_BY_SIDE):
        for c in range(k):
            lanes[0, c, r] = point[first + r, c]
            lanes[1, c, r] = gathered[first + r, c]
    u, a, zero = lanes[0], lanes[1], splat(np.float32(0))
    for _ in range(sweeps):
        for c in range(k):
            if gram[c, c] > 0:
                at = c * SIDE_BY_SIDE
                s0, s1, s2, s3 = load(a, at), load(a, at + 16), load(a, at + 32), load(a, at + 48)
                for d in range(k):
                    factor, other = splat(-gram[c, d]), d * SIDE_BY_SIDE
                    s0 = fma(factor, load(u, other), s0)
                    s1 = fma(factor, load(u, other + 16), s1)
                    s2 = fma(factor, load(u, other + 32), s2)
                    s3 = fma(factor, load(u, other + 48), s3)
                scale = splat(np.float32(1) / gram[c, c])
                store(u, at, maximum(fma(s0, scale, load(u, at)), zero))
                store(u, at + 16, maximum(fma(s1, scale, load(u, at + 16)), zero))
                store(u, at + 32, maximum(fma(s2, scale, load(u, at + 32)), zero))
                store(u, at + 48, maximum(fma(s3, scale, load(u, at + 48)), zero))
    for r in range(SIDE_BY_SIDE):
        for c in range(k):
            out[first + r, c] = u[c, r]
        for c in range(k, out.shape[1]):
            out[first + r, c] = np.float32(0)


@inner
def move_rows(scratch: Scratch, count: int, k: int, gram: Floats, numbers: Numbers, width: Width) -> None:
    """Put the rows that follow the points, with what was gathered for them, in the place of the products."""
    point, gathered, moved, target, gammas, _sums, lanes, _cursor = scratch
    if numbers[0] == HALS:
        for first in range(0, count, SIDE_BY_SIDE):
            hals_rows(point, gathered, moved, first, gram, k, int(numbers[3]), lanes)
        return
    for first in range(0, count, rows_at_once(width)):
        multiply(point, first, gram, k, moved, width)
    if numbers[0] == GRADIENT:
        gradient_rows(point, gathered, moved, (target, gammas), count * moved.shape[1], numbers)
    else:
        multiplicative_rows(point, gathered, moved, (target, gammas), count * moved.shape[1], numbers)


# -- passes over the ones ----------------------------------------------------------------------------------------------


@inner
def gather_rows(
    ones: Ones, first: int, count: int, columns: Columns, table: Floats, cursor: Ints, block: Floats, width: Width
) -> None:
    """Write Σ_{j in row} table[j] for `count` rows from `first` on, one tile of columns after another."""
    indptr, indices = ones
    for i in range(0, count * block.shape[1], LANES):
        store(block, i, splat(np.float32(0)))
    for r in range(count):
        cursor[r] = indptr[first + r]
    for bound in range(columns[1], columns[0] + columns[1], columns[1]):
        for r in range(count):
            cursor[r] = gather(indices, cursor[r], indptr[first + r + 1], bound, table, block, r, width)


@inner
def scatter_rows(
    ones: Ones, first: int, count: int, columns: Columns, table: Floats, cursor: Ints, block: Floats, width: Width
) -> None:
    """Add each of `count` rows to table[j] for every j in its row of A, one tile of columns after another."""
    indptr, indices = ones
    for r in range(count):
        cursor[r] = indptr[first + r]
    for bound in range(columns[1], columns[0] + columns[1], columns[1]):
        for r in range(count):
            cursor[r] = scatter(indices, cursor[r], indptr[first + r + 1], bound, table, block, r, width)


@inner
def flush(sums: Floats, total: Doubles) -> None:
    """Move float32 sums of UᵀU into the float64 total, on and below the diagonal.

    Done after each block: small numbers added to a large one lose digits.
    """
    for i in range(total.shape[0]):
        for j in range(i + 1):
            total[i, j] += sums[i, j]
        for j in range(sums.shape[1]):
            sums[i, j] = np.float32(0)


@kernel
def move_pass(
    ones: Ones,
    span: tuple[int, int],
    factors: tuple[Floats, Floats, Floats],
    held: tuple[Floats, Floats],
    numbers: Numbers,
    scratch: Scratch,
    columns: Columns,
    width: Width,
) -> None:
    """Move a span of rows of U by a rule, with V held."""
    U, U_prev, out = factors
    Vt, gram = held
    point, gathered, moved, _target, _gammas, _sums, _lanes, cursor = scratch
    block = point.shape[0]
    for first in range(span[0], span[1], block):
        count = min(block, span[1] - first)
        gather_rows(ones, first, count, columns, Vt, cursor, gathered, width)
        if numbers[1] == 0:
            load_rows(U, first, count, numbers[2], point)
        else:
            extrapolate_rows(U, U_prev, first, count, numbers[1:3], point)
        move_rows(scratch, count, U.shape[1], gram, numbers, width)
        store_rows(moved, out, first, count)


@kernel
def statistics_pass(
    ones: Ones,
    span: tuple[int, int],
    U: Floats,
    totals: tuple[Floats, Doubles],
    scratch: Scratch,
    columns: Columns,
    width: Width,
) -> None:
    """Add what a span of rows contributes to AᵀU and, on and below the diagonal, to UᵀU."""
    point, _gathered, _moved, _target, _gammas, sums, _lanes, cursor = scratch
    block = point.shape[0]
    for first in range(span[0], span[1], block):
        count = min(block, span[1] - first)
        load_rows(U, first, count, -np.inf, point)
        scatter_rows(ones, first, count, columns, totals[0], cursor, point, width)
        add_outer(point, count, sums, width)
        flush(sums, totals[1])


@kernel
def gather_pass(
    ones: Ones, span: tuple[int, int], Vt: Floats, out: Floats, scratch: Scratch, columns: Columns, width: Width
) -> None:
    """Write a span of rows of A · Vᵀ."""
    point, _gathered, _moved, _target, _gammas, _sums, _lanes, cursor = scratch
    block = point.shape[0]
    for first in range(span[0], span[1], block):
        count = min(block, span[1] - first)
        gather_rows(ones, first, count, columns, Vt, cursor, point, width)
        store_rows(point, out, first, count)


@kernel
def dense_pass(
    factors: tuple[Floats, Floats, Floats, Floats],
    given: Floats,
    gram: Floats,
    numbers: Numbers,
    scratch: Scratch,
    width: Width,
) -> None:
    """Move all rows by a rule, when A · Vᵀ is given; what they are drawn towards is the third factor."""
    X, X_prev, towards, out = factors
    point, gathered, moved, target, gammas, _sums, _lanes, _cursor = scratch
    n, k = X.shape
    block = point.shape[0]
    mean = np.float32(0)
    for c in range(k):
        mean += gram[c, c] / np.float32(k)
    for r in range(min(block, n) if numbers[8] > 0 else 0):
        for c in range(k):
            unit = np.sqrt(gram[c, c] * mean) if numbers[9] > 0 else np.float32(1)
            gammas[r, c] = np.float32(numbers[8]) * unit
    for first in range(0, n, block):
        count = min(block, n - first)
        extrapolate_rows(X, X_prev, first, count, numbers[1:3], point)
        load_rows(given, first, count, -np.inf, gathered)
        if numbers[8] > 0:
            load_rows(towards, first, count, -np.inf, target)
        move_rows(scratch, count, k, gram, numbers, width)
        store_rows(moved, out, first, count)
