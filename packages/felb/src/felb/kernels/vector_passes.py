"""The compiled passes over a binary matrix, and the step rules in vector code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.kernels.compiler import inner, vector_kernel
from felb.kernels.passes import (
    COMPONENT,
    GRADIENT,
    HALS,
    NEGLIGIBLE,
    SMALLEST_DENOMINATOR,
    SMALLEST_SHARE,
    SMALLEST_SUM,
)
from felb.kernels.schedule import LANES, SIDE_BY_SIDE
from felb.kernels.vector import (
    add_outer,
    fma,
    gather,
    load,
    load_first,
    maximum,
    minimum,
    multiply,
    rows_at_once,
    scatter,
    select_greater,
    splat,
    store,
    store_first,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ints = NDArray[np.integer[Any]]
    Vector = Any
    Width = tuple[int, ...]
    Numbers = tuple[float, ...]  # see felb.kernels.passes.Numbers
    By = tuple[Floats, Floats, Floats]  # blocks: targets, pulls, steps
    Scratch = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Ints]
    Doubles = NDArray[np.float64]
    Ones = tuple[Ints, Ints]  # indptr, indices
    Columns = tuple[int, int]  # of the matrix, of a tile


# -- The rules of `felb.optim.steps` in vector code: blocks of rows move, with what was gathered for them ------------


@inner
def prox(x: Vector, kappa: Vector, shrink: Vector, floor: Vector, upper: Vector) -> Vector:
    """Return y of `felb.kernels.passes.Numbers` for x; kappa = ηκ and shrink = 1 / (1 + ηλ).

    What is negligible becomes 0: values that halve with every step would end as denormal numbers, which are slow.
    """
    zero, one = splat(np.float32(0)), splat(np.float32(1))
    target = select_greater(x, splat(np.float32(0.5)), one, zero)
    d = x - target
    sign = select_greater(d, zero, one, select_greater(zero, d, splat(np.float32(-1)), zero))
    y = fma(sign * maximum(sign * d - kappa, floor), shrink, target)
    return select_greater(y, splat(np.float32(NEGLIGIBLE)), minimum(y, upper), zero)


@inner
def gradient_rows(point: Floats, gathered: Floats, product: Floats, by: By, size: int, numbers: Numbers) -> None:
    """Turn product = point · G into the next rows by `felb.optim.steps.GradientStep`."""
    _code, _beta, _lowest, eta, kappa, lam, floor, upper, gamma, _own = numbers
    target, gammas, _steps = by
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
def entrywise_rows(point: Floats, gathered: Floats, product: Floats, by: By, size: int, numbers: Numbers) -> None:
    """Turn product = point · G into the next rows by a gradient step by component or a multiplicative step."""
    code, _beta, _lowest, _scale, kappa, lam, floor, upper, gamma, _own = numbers
    target, gammas, steps = by
    less, less2, one = splat(np.float32(kappa)), splat(np.float32(lam)), splat(np.float32(1))
    least, most = splat(np.float32(floor)), splat(np.float32(upper))
    smallest = splat(np.float32(SMALLEST_DENOMINATOR))
    for i in range(0, size, LANES):
        if code == COMPONENT:
            step = load(steps, i)
            x = fma(step, load(gathered, i) - load(product, i), load(point, i))
        else:
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
def weigh_components(gram: Floats, count: int, numbers: Numbers, gammas: Floats, steps: Floats) -> None:
    """Write what a rule has for each component of the factor that moves, its pull and step, into `count` rows."""
    k = gram.shape[0]
    mean, longest = np.float32(0), np.float32(0)
    for c in range(k):
        mean += gram[c, c] / np.float32(k)
        longest = max(longest, row_sum(gram, c, k))
    least = max(longest * np.float32(SMALLEST_SHARE), np.float32(SMALLEST_SUM))
    for c in range(k):
        unit = np.sqrt(gram[c, c] * mean) if numbers[9] > 0 else np.float32(1)
        pull = np.float32(numbers[8]) * unit
        step = np.float32(numbers[3]) / max(row_sum(gram, c, k), least)
        for r in range(count):
            gammas[r, c] = pull
            steps[r, c] = step


@inner
def row_sum(gram: Floats, row: int, k: int) -> np.float32:
    """Return Σ_d |G_cd| of row c."""
    total = np.float32(0)
    for d in range(k):
        total += abs(gram[row, d])
    return total


@inner
def move_block(scratch: Scratch, count: int, k: int, gram: Floats, numbers: Numbers, width: Width) -> None:
    """Put the rows that follow the points, with what was gathered for them, in the place of the products."""
    point, gathered, moved, target, gammas, steps, _sums, lanes, _cursor = scratch
    if numbers[0] == HALS:
        for first in range(0, count, SIDE_BY_SIDE):
            hals_rows(point, gathered, moved, first, gram, k, int(numbers[3]), lanes)
        return
    for first in range(0, count, rows_at_once(width)):
        multiply(point, first, gram, k, moved, width)
    if numbers[0] == GRADIENT:
        gradient_rows(point, gathered, moved, (target, gammas, steps), count * moved.shape[1], numbers)
    else:
        entrywise_rows(point, gathered, moved, (target, gammas, steps), count * moved.shape[1], numbers)


# -- The compiled passes over a binary matrix, block of rows after block of rows, in `felb.kernels.vector`'s terms ---
#
# Everything here works on float32, but for the sweeps over V in float64. Factors with a row for each record (U) are
# plain n × k arrays; Vᵀ and AᵀU, which are looked up for each one of A, are tables; what is worked on is copied into
# blocks (see `felb.kernels.vector`).

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


@vector_kernel
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


@vector_kernel
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


@vector_kernel
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
        move_block(scratch, count, U.shape[1], gram, numbers, width)
        store_rows(moved, out, first, count)


@vector_kernel
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


@vector_kernel
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


@vector_kernel
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


@vector_kernel
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


@vector_kernel
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
        move_block(scratch, count, k, gram, numbers, width)
        store_rows(moved, out, first, count)


@vector_kernel
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
