"""The compiled passes over a binary matrix, block of rows after block of rows, in `felb.kernels.vector`'s terms.

Everything here works on float32, but for the sweeps over V in float64. Factors with a row for each record (U) are
plain n × k arrays; Vᵀ and AᵀU, which are looked up for each one of A, are tables; what is worked on is copied into
blocks (see `felb.kernels.loops`).

Importing this module imports Numba (half a second); `felb.kernels.passes` does so when the first pass is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.kernels.compiled_rules import move_rows, weigh_components
from felb.kernels.compiling import inner, kernel
from felb.kernels.loops import add_outer, gather, scatter
from felb.kernels.rules import COMPONENT
from felb.kernels.schedule import LANES, SIDE_BY_SIDE
from felb.kernels.vector import (
    fma,
    load,
    load_first,
    maximum,
    splat,
    store,
    store_first,
)

if TYPE_CHECKING:
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
    Scratch = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Ints]


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
    point, gathered, moved, _target, gammas, steps, _sums, _lanes, cursor = scratch
    block = point.shape[0]
    if numbers[0] == COMPONENT:
        weigh_components(gram, min(block, span[1] - span[0]), numbers, gammas, steps)
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
    point, _gathered, _moved, _target, _gammas, _steps, sums, _lanes, cursor = scratch
    block = point.shape[0]
    for first in range(span[0], span[1], block):
        count = min(block, span[1] - first)
        load_rows(U, first, count, -np.inf, point)
        scatter_rows(ones, first, count, columns, totals[0], cursor, point, width)
        add_outer(point, count, sums, width)
        flush(sums, totals[1])


@kernel
def whole_pass(
    ones: Ones, span: tuple[int, int], X: Ints, table: Ints, scratch: Scratch, columns: Columns, width: Width
) -> None:
    """Add AᵀX of a span of rows of whole numbers to a table of whole numbers."""
    block, cursor = scratch[0].view(np.int32), scratch[8]
    block[:] = 0
    for first in range(span[0], span[1], block.shape[0]):
        count = min(block.shape[0], span[1] - first)
        block[:count, : X.shape[1]] = X[first : first + count]
        scatter_rows(ones, first, count, columns, table, cursor, block, width)


@kernel
def collect_whole(table: Ints, X: Ints) -> None:
    """Add the rows of a table of whole numbers to X, and empty it."""
    n, k = X.shape
    stride = table.size // max(1, n)
    whole = stride // LANES * LANES
    for r in range(n):
        for c in range(min(k, whole)):
            X[r, c] += table[r * whole + c]
        for c in range(whole, k):
            X[r, c] += table[n * whole + r * (stride - whole) + c - whole]
    table[:] = 0


@kernel
def gather_pass(
    ones: Ones, span: tuple[int, int], Vt: Floats, out: Floats, scratch: Scratch, columns: Columns, width: Width
) -> None:
    """Write a span of rows of A · Vᵀ."""
    point, _gathered, _moved, _target, _gammas, _steps, _sums, _lanes, cursor = scratch
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
    point, gathered, moved, target, gammas, steps, _sums, _lanes, _cursor = scratch
    n, k = X.shape
    block = point.shape[0]
    if numbers[8] > 0 or numbers[0] == COMPONENT:
        weigh_components(gram, min(block, n), numbers, gammas, steps)
    for first in range(0, n, block):
        count = min(block, n - first)
        extrapolate_rows(X, X_prev, first, count, numbers[1:3], point)
        load_rows(given, first, count, -np.inf, gathered)
        if numbers[8] > 0:
            load_rows(towards, first, count, -np.inf, target)
        move_rows(scratch, count, k, gram, numbers, width)
        store_rows(moved, out, first, count)


@kernel
def sweep_doubles_into(X: Doubles, given: Doubles, gram: Doubles, sweeps: int) -> None:
    """Move the rows of X >= 0 by HALS sweeps in float64, many rows side by side."""
    n, k = X.shape
    u, a, slope = np.zeros((k, SIDE_BY_SIDE)), np.zeros((k, SIDE_BY_SIDE)), np.empty(SIDE_BY_SIDE)
    for first in range(0, n, SIDE_BY_SIDE):
        count = min(SIDE_BY_SIDE, n - first)
        for r in range(count):
            for c in range(k):
                u[c, r], a[c, r] = X[first + r, c], given[first + r, c]
        for _ in range(sweeps):
            for c in range(k):
                if gram[c, c] > 0:
                    slope[:] = a[c]
                    for d in range(k):
                        for r in range(SIDE_BY_SIDE):
                            slope[r] -= u[d, r] * gram[d, c]
                    for r in range(SIDE_BY_SIDE):
                        u[c, r] = max(u[c, r] + slope[r] / gram[c, c], 0.0)
        for r in range(count):
            for c in range(k):
                X[first + r, c] = u[c, r]
