"""The rules of `felb.optim.steps` in vector code: blocks of rows move, with what was gathered for them.

Importing this module imports Numba (half a second).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.kernels.compiling import inner
from felb.kernels.loops import multiply, rows_at_once
from felb.kernels.rules import (
    COMPONENT,
    GRADIENT,
    HALS,
    NEGLIGIBLE,
    SMALLEST_DENOMINATOR,
    SMALLEST_SHARE,
    SMALLEST_SUM,
)
from felb.kernels.schedule import LANES, SIDE_BY_SIDE
from felb.kernels.vector import fma, load, maximum, minimum, select_greater, splat, store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ints = NDArray[np.integer[Any]]
    Vector = Any
    Width = tuple[int, ...]
    Numbers = tuple[float, ...]  # see felb.kernels.rules.Numbers
    By = tuple[Floats, Floats, Floats]  # blocks: targets, pulls, steps
    # See felb.kernels.schedule.scratch_space.
    Scratch = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Ints]


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
    """Turn product = point · G into the next rows by `ComponentStep` or `MultiplicativeStep` of `felb.optim.steps`."""
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
def move_rows(scratch: Scratch, count: int, k: int, gram: Floats, numbers: Numbers, width: Width) -> None:
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
