"""The compiled passes over a binary matrix, block of rows after block of rows, in `felb.linalg.vector`'s terms.

Everything here works on float32. Factors with a row for each record (U) are plain n × k arrays. Tables that are looked
up for each one of A (Vᵀ, AᵀU), Gram matrices and the scratch space of a block have rows padded with zeros to
``LANES · NV`` numbers and start at a multiple of 64 bytes, so that a row touches no more cache lines than it must.

Importing this module imports Numba (half a second); `felb.linalg.passes` does so when the first pass is run.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.linalg.rules import HALS, LIPSCHITZ, SMALLEST_DENOMINATOR
from felb.linalg.schedule import BLOCK, LANES
from felb.linalg.vector import (
    add_outer,
    fma,
    gather,
    load,
    load_first,
    maximum,
    minimum,
    multiply_rows,
    scatter,
    select_greater,
    splat,
    store,
    store_first,
    tile_rows,
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
    Numbers = tuple[float, ...]  # a rule, see felb.linalg.rules.encode
    Scratch = tuple[Floats, Floats, Floats, NDArray[np.int64]]  # see felb.linalg.schedule.scratch_space


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile when first called, without the GIL; keep the result on disk for the next process if that is possible."""
    options = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
    try:
        return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # Numba found no folder it may write to
        _warn_that_nothing_is_kept()
        return njit(**options)(function)  # type: ignore[no-any-return]


@cache
def _warn_that_nothing_is_kept() -> None:
    warnings.warn(
        "felb cannot keep its compiled kernels, so every process compiles them anew; "
        "set NUMBA_CACHE_DIR to a folder that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )


# -- rows between memory and scratch space -----------------------------------------------------------------------------


@kernel
def load_rows(U: Floats, first: int, count: int, lowest: float, rows: Floats, width: Width) -> None:
    """Write max(u, lowest) for `count` rows of U from `first` on into padded rows."""
    k, whole = U.shape[1], LANES * (len(width) - 1)
    least = splat(np.float32(lowest))
    for r in range(count):
        source, place = (first + r) * k, r * LANES * len(width)
        for i in range(0, whole, LANES):
            store(rows, place + i, maximum(load(U, source + i), least))
        store(rows, place + whole, maximum(load_first(U, source + whole, k - whole), least))


@kernel
def extrapolate_rows(
    U: Floats, U_prev: Floats, first: int, count: int, inertia: tuple[float, float], rows: Floats, width: Width
) -> None:
    """Write max(u + β(u − u_prev), lowest) for `count` rows from `first` on into padded rows."""
    k, whole = U.shape[1], LANES * (len(width) - 1)
    beta, least = splat(np.float32(inertia[0])), splat(np.float32(inertia[1]))
    for r in range(count):
        source, place = (first + r) * k, r * LANES * len(width)
        for i in range(0, whole, LANES):
            u = load(U, source + i)
            store(rows, place + i, maximum(fma(beta, u - load(U_prev, source + i), u), least))
        u = load_first(U, source + whole, k - whole)
        u_prev = load_first(U_prev, source + whole, k - whole)
        store(rows, place + whole, maximum(fma(beta, u - u_prev, u), least))


@kernel
def store_rows(rows: Floats, U: Floats, first: int, count: int, width: Width) -> None:
    """Copy padded rows into `count` rows of U from `first` on."""
    k, whole = U.shape[1], LANES * (len(width) - 1)
    for r in range(count):
        place, target = r * LANES * len(width), (first + r) * k
        for i in range(0, whole, LANES):
            store(U, target + i, load(rows, place + i))
        store_first(U, target + whole, load(rows, place + whole), k - whole)


# -- the row rules -----------------------------------------------------------------------------------------------------


@kernel
def prox(x: Vector, kappa: Vector, shrink: Vector, floor: Vector, upper: Vector) -> Vector:
    """Return `felb.linalg.rules.Prox` of x; shrink = 1 / (1 + curvature · λ)."""
    zero, one = splat(np.float32(0)), splat(np.float32(1))
    target = select_greater(x, splat(np.float32(0.5)), one, zero)
    d = x - target
    sign = select_greater(d, zero, one, select_greater(zero, d, splat(np.float32(-1)), zero))
    y = fma(sign * maximum(sign * d - kappa, floor), shrink, target)
    return minimum(maximum(y, zero), upper)


@kernel
def lipschitz_rows(point: Floats, gathered: Floats, product: Floats, size: int, numbers: Numbers) -> None:
    """Turn product = point · G into the next rows by `felb.linalg.rules.Lipschitz`."""
    _code, _beta, _lowest, eta, kappa, lam, floor, upper = numbers
    step, pull, shrink = splat(np.float32(eta)), splat(np.float32(eta * kappa)), splat(np.float32(1 / (1 + eta * lam)))
    least, most = splat(np.float32(floor)), splat(np.float32(upper))
    for i in range(0, size, LANES):
        x = fma(step, load(gathered, i) - load(product, i), load(point, i))
        store(product, i, prox(x, pull, shrink, least, most))


@kernel
def multiplicative_rows(point: Floats, gathered: Floats, product: Floats, size: int, numbers: Numbers) -> None:
    """Turn product = point · G into the next rows by `felb.linalg.rules.Multiplicative`."""
    _code, _beta, _lowest, _eta, kappa, lam, floor, upper = numbers
    pull, pull2, one = splat(np.float32(kappa)), splat(np.float32(lam)), splat(np.float32(1))
    least, most = splat(np.float32(floor)), splat(np.float32(upper))
    smallest = splat(np.float32(SMALLEST_DENOMINATOR))
    for i in range(0, size, LANES):
        step = load(point, i) / maximum(load(product, i), smallest)
        x = step * load(gathered, i)
        store(product, i, prox(x, step * pull, one / fma(step, pull2, one), least, most))


@kernel
def hals_rows(
    point: Floats, gathered: Floats, out: Floats, first: int, gram: Floats, k: int, sweeps: int, lanes: Floats
) -> None:
    """Move `BLOCK` rows by `felb.linalg.rules.Hals`, with a row in each lane, so that their sweeps go side by side."""
    for r in range(BLOCK):
        for c in range(k):
            lanes[0, c, r] = point[first + r, c]
            lanes[1, c, r] = gathered[first + r, c]
    u, a, zero = lanes[0], lanes[1], splat(np.float32(0))
    for _ in range(sweeps):
        for c in range(k):
            if gram[c, c] > 0:
                at = c * BLOCK
                s0, s1, s2, s3 = load(a, at), load(a, at + 16), load(a, at + 32), load(a, at + 48)
                for d in range(k):
                    factor, other = splat(-gram[c, d]), d * BLOCK
                    s0 = fma(factor, load(u, other), s0)
                    s1 = fma(factor, load(u, other + 16), s1)
                    s2 = fma(factor, load(u, other + 32), s2)
                    s3 = fma(factor, load(u, other + 48), s3)
                scale = splat(np.float32(1) / gram[c, c])
                store(u, at, maximum(fma(s0, scale, load(u, at)), zero))
                store(u, at + 16, maximum(fma(s1, scale, load(u, at + 16)), zero))
                store(u, at + 32, maximum(fma(s2, scale, load(u, at + 32)), zero))
                store(u, at + 48, maximum(fma(s3, scale, load(u, at + 48)), zero))
    for r in range(BLOCK):
        for c in range(k):
            out[first + r, c] = u[c, r]
        for c in range(k, out.shape[1]):
            out[first + r, c] = np.float32(0)


@kernel
def move_rows(rows: Floats, count: int, k: int, gram: Floats, numbers: Numbers, lanes: Floats, width: Width) -> None:
    """Write the rows that follow the points ``rows[0]``, with ``rows[1]`` gathered for them, into ``rows[2]``."""
    if numbers[0] == HALS:
        for first in range(0, count, BLOCK):
            hals_rows(rows[0], rows[1], rows[2], first, gram, k, int(numbers[3]), lanes)
        return
    for first in range(0, count, tile_rows(width)):
        multiply_rows(rows[0], first, gram, k, rows[2], width)
    if numbers[0] == LIPSCHITZ:
        lipschitz_rows(rows[0], rows[1], rows[2], count * rows.shape[2], numbers)
    else:
        multiplicative_rows(rows[0], rows[1], rows[2], count * rows.shape[2], numbers)


# -- passes over the ones ----------------------------------------------------------------------------------------------


@kernel
def gather_block(
    ones: Ones, first: int, count: int, columns: int, table: Floats, cursor: Ints, rows: Floats, width: Width
) -> None:
    """Write Σ_{j in row} table[j] for `count` rows from `first` on, one tile of `columns` columns after another."""
    indptr, indices = ones
    rows[:count] = np.float32(0)
    cursor[:count] = indptr[first : first + count]
    for bound in range(columns, table.shape[0] + columns, columns):
        for r in range(count):
            cursor[r] = gather(indices, cursor[r], indptr[first + r + 1], bound, table, rows, r, width)


@kernel
def scatter_block(
    ones: Ones, first: int, count: int, columns: int, table: Floats, cursor: Ints, rows: Floats, width: Width
) -> None:
    """Add each of `count` rows to table[j] for every j in its row of A, one tile of columns after another."""
    indptr, indices = ones
    cursor[:count] = indptr[first : first + count]
    for bound in range(columns, table.shape[0] + columns, columns):
        for r in range(count):
            cursor[r] = scatter(indices, cursor[r], indptr[first + r + 1], bound, table, rows, r, width)


@kernel
def add_gram(rows: Floats, count: int, k: int, sums: Floats, total: Doubles, width: Width) -> None:
    """Add Σ_r u_r u_rᵀ over `count` rows to `total`; float32 is exact enough for the rows of a block."""
    sums[:] = np.float32(0)
    for first in range(0, k, tile_rows(width)):
        add_outer(rows, count, sums, first, width)
    for i in range(k):
        for j in range(k):
            total[i, j] += sums[i, j]


@kernel
def row_pass(
    ones: Ones,
    span: tuple[int, int],
    factors: tuple[Floats, Floats, Floats],
    held: tuple[Floats, Floats],
    numbers: Numbers,
    totals: tuple[Floats, Doubles],
    scratch: Scratch,
    columns: int,
    width: Width,
) -> None:
    """Move a span of rows of U by a rule, with V held, and add what they contribute to AᵀU and UᵀU."""
    U, U_prev, out = factors
    Vt, gram = held
    AtU, UtU = totals
    rows, sums, lanes, cursor = scratch
    k, block = U.shape[1], rows.shape[1]
    for first in range(span[0], span[1], block):
        count = min(block, span[1] - first)
        gather_block(ones, first, count, columns, Vt, cursor, rows[1], width)
        if numbers[1] == 0:
            load_rows(U, first, count, numbers[2], rows[0], width)
        else:
            extrapolate_rows(U, U_prev, first, count, numbers[1:3], rows[0], width)
        move_rows(rows, count, k, gram, numbers, lanes, width)
        store_rows(rows[2], out, first, count, width)
        scatter_block(ones, first, count, columns, AtU, cursor, rows[2], width)
        add_gram(rows[2], count, k, sums, UtU, width)


@kernel
def statistics_pass(
    ones: Ones,
    span: tuple[int, int],
    U: Floats,
    totals: tuple[Floats, Doubles],
    scratch: Scratch,
    columns: int,
    width: Width,
) -> None:
    """Add what a span of rows contributes to AᵀU and UᵀU."""
    rows, sums, _lanes, cursor = scratch
    block = rows.shape[1]
    for first in range(span[0], span[1], block):
        count = min(block, span[1] - first)
        load_rows(U, first, count, -np.inf, rows[0], width)
        scatter_block(ones, first, count, columns, totals[0], cursor, rows[0], width)
        add_gram(rows[0], count, U.shape[1], sums, totals[1], width)


@kernel
def gather_pass(
    ones: Ones, span: tuple[int, int], Vt: Floats, out: Floats, scratch: Scratch, columns: int, width: Width
) -> None:
    """Write a span of rows of A · Vᵀ."""
    rows, _sums, _lanes, cursor = scratch
    block = rows.shape[1]
    for first in range(span[0], span[1], block):
        count = min(block, span[1] - first)
        gather_block(ones, first, count, columns, Vt, cursor, rows[0], width)
        store_rows(rows[0], out, first, count, width)


@kernel
def dense_pass(
    factors: tuple[Floats, Floats, Floats],
    gathered: Floats,
    gram: Floats,
    numbers: Numbers,
    scratch: Scratch,
    width: Width,
) -> None:
    """Move all rows by a rule, when A · Vᵀ is at hand."""
    X, X_prev, out = factors
    rows, _sums, lanes, _cursor = scratch
    n, k = X.shape
    for first in range(0, n, BLOCK):
        count = min(BLOCK, n - first)
        extrapolate_rows(X, X_prev, first, count, numbers[1:3], rows[0], width)
        load_rows(gathered, first, count, -np.inf, rows[1], width)
        move_rows(rows, count, k, gram, numbers, lanes, width)
        store_rows(rows[2], out, first, count, width)
