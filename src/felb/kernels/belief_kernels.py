"""The loops of belief propagation in rows; `felb.kernels.belief_passes` states the messages and what the sums are.

Lists of all active cells of a row, component after component, hold the messages; `left` is Π_l (1 − u v) for each
column. Lookups by column and arithmetic have loops of their own, so that the latter becomes vector code: no loop over
cells has a branch, an integer type wider than its floats, or a function of a library, and none reads memory that it
writes under another name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from felb.kernels.belief_passes import LARGEST_LOG_ODDS, LEAST_RATE, UNIT

SURE = np.float32(1e-6)
"""1 − u v is at least this, so that a component can be taken out of a product again."""

SMALLEST_PRODUCT = np.float32(1e-30)
"""Products of 1 − u v are at least this."""

FACTORS = 64
"""Likelihood ratios, each between 1e-3 and 1e3, whose product fits float64."""

ONE, ZERO, TWO = np.float32(1), np.float32(0), np.float32(2)
LEAST = np.float32(LEAST_RATE)
NEVER = np.float32(np.inf)
"""The level of an unknown cell, at which q = 0: covering it is as likely as not doing so."""
PER_UNIT = np.float32(1 / UNIT)

# log x = e·log 2 + 2·artanh(s), s = (x/2^e − 1)/(x/2^e + 1), with x/2^e between √½ and √2; next term s^11·2/11 < 1e-9
ROOT_HALF = np.int32(0x3F3504F3)
LOG_2 = np.float32(np.log(2))
THIRD, FIFTH, SEVENTH, NINTH = (np.float32(1 / i) for i in (3, 5, 7, 9))


@njit(cache=True, nogil=True, error_model="numpy")
def infer_rows_into(
    L: Any,
    evidence: Any,
    members: Any,
    cells: Any,
    indptr: Any,
    indices: Any,
    unknown_indptr: Any,
    unknown_indices: Any,
    span: Any,
    starts: Any,
    columns: Any,
    odds: Any,
    prior: Any,
    noise: Any,
    settled: bool,
) -> None:
    """Replace the rows of L in `span` by the next ones and add their messages to the sums."""
    k, m = evidence.shape
    inside, outside = noise[0], noise[1]
    at_one = np.float32(inside / (inside - outside))
    at_zero = np.float32(-(1 - inside) / (inside - outside))
    size = columns.shape[0]
    u, v = np.empty(size, np.float32), np.empty(size, np.float32)
    others, level = np.empty(size, np.float32), np.empty(size, np.float32)
    level_of, left = np.empty(m, np.float32), np.empty(m, np.float32)
    bare, ratio = np.empty(m, np.float32), np.empty(m, np.float32)
    spare, exponents = np.empty(m, np.float32), np.empty(m, np.int32)
    bits, mantissas = ratio.view(np.int32), spare.view(np.int32)
    for r in range(span[0], span[1]):
        level_of[:] = at_zero
        for p in range(indptr[r], indptr[r + 1]):
            level_of[indices[p]] = at_one
        unknown = unknown_indices[:0]
        if unknown_indptr.shape[0] > 1:
            unknown = unknown_indices[unknown_indptr[r] : unknown_indptr[r + 1]]
        for j in unknown:
            level_of[j] = NEVER
        for y in range(size):
            level[y] = level_of[columns[y]]
        for c in range(k):
            here = slice(starts[c], starts[c + 1])
            _begin_into(u[here], v[here], others[here], odds[here], _odds_of(L[r, c]))
        for sweep in range(2):
            _multiply_into(left, others, columns)
            for i in range(k):
                c = i if sweep == 0 else k - 1 - i
                here = slice(starts[c], starts[c + 1])
                _look_up_into(bare, left, columns[here])
                _listen_into(bare, ratio, v[here], u[here], others[here], odds[here], level[here], settled)
                L[r, c] = prior[c] + _log_product(ratio, starts[c + 1] - starts[c])
                _answer_into(bare, u[here], others[here], ratio, v[here], _odds_of(L[r, c]))
                _put_back_into(left, bare, columns[here])
        for c in range(k):
            e = _odds_of(L[r, c])
            share = e / (e + ONE)
            members[c] += np.int64(np.rint(share * PER_UNIT))
            if share >= LEAST:
                here = slice(starts[c], starts[c + 1])
                _speak_into(ratio, bare, spare, left, level_of, share, u[here], others[here], columns[here])
                _add_logarithms_into(evidence[c], bits, exponents, mantissas, spare)
        ones = indices[indptr[r] : indptr[r + 1]]
        _count_cells_into(cells, bare, left, level_of, ones, unknown, inside, outside)


@njit(cache=True, nogil=True, error_model="numpy")
def _odds_of(x: Any) -> Any:
    return np.float32(np.exp(np.float64(min(max(x, -LARGEST_LOG_ODDS), LARGEST_LOG_ODDS))))


@njit(cache=True, nogil=True, error_model="numpy")
def _begin_into(u: Any, v: Any, others: Any, odds: Any, e: Any) -> None:
    """Set the cavities of a component as if no cell had said anything yet."""
    share = e / (e + ONE)
    for y in range(u.shape[0]):
        u[y] = share
        v[y] = odds[y] / (odds[y] + ONE)
        others[y] = max(ONE - share * v[y], SURE)


@njit(cache=True, nogil=True, error_model="numpy")
def _multiply_into(left: Any, others: Any, columns: Any) -> None:
    left[:] = ONE
    for y in range(columns.shape[0]):
        left[columns[y]] = max(left[columns[y]] * others[y], SMALLEST_PRODUCT)


@njit(cache=True, nogil=True, error_model="numpy")
def _look_up_into(bare: Any, left: Any, columns: Any) -> None:
    for y in range(columns.shape[0]):
        bare[y] = left[columns[y]]


@njit(cache=True, nogil=True, error_model="numpy")
def _put_back_into(left: Any, bare: Any, columns: Any) -> None:
    for y in range(columns.shape[0]):
        left[columns[y]] = bare[y]


@njit(cache=True, nogil=True, error_model="numpy")
def _listen_into(bare: Any, ratio: Any, v: Any, u: Any, others: Any, odds: Any, level: Any, settled: bool) -> None:
    """Set z̄ (in place of the product), Ru and the cavity of V for one component."""
    for y in range(u.shape[0]):
        bare[y] = min(bare[y] / others[y], ONE)
    for y in range(u.shape[0]):
        ratio[y] = bare[y] / (level[y] - bare[y])  # q
    if settled:
        for y in range(u.shape[0]):
            q = ratio[y]
            ratio[y] = ONE + v[y] * q
            v[y] = odds[y] / (odds[y] + (ONE + u[y] * q))
    else:
        for y in range(u.shape[0]):
            ratio[y] = ONE + v[y] * ratio[y]


@njit(cache=True, nogil=True, error_model="numpy")
def _answer_into(bare: Any, u: Any, others: Any, ratio: Any, v: Any, e: Any) -> None:
    """Set the cavity of U for one component, 1 − u v, and the product with it (in place of z̄)."""
    for y in range(u.shape[0]):
        u[y] = e / (e + ratio[y])
        others[y] = max(ONE - u[y] * v[y], SURE)
    for y in range(u.shape[0]):
        bare[y] = max(bare[y] * others[y], SMALLEST_PRODUCT)


@njit(cache=True, nogil=True, error_model="numpy")
def _log_product(ratio: Any, count: int) -> float:
    """Return Σ log of the first `count` numbers; one logarithm serves many."""
    total = 0.0
    for first in range(0, count, FACTORS):
        total += np.log(_product(ratio[first : min(first + FACTORS, count)]))
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc"})
def _product(x: Any) -> float:
    product = 1.0
    for y in range(x.shape[0]):
        product *= np.float64(x[y])
    return product


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc"})
def _sum(x: Any) -> float:
    total = 0.0
    for y in range(x.shape[0]):
        total += np.float64(x[y])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _speak_into(
    ratio: Any, bare: Any, spare: Any, left: Any, level_of: Any, share: Any, u: Any, others: Any, columns: Any
) -> None:
    """Set 1 + u q of one component for all columns; in those that are not active, cavities are the beliefs."""
    _look_up_into(spare, left, columns)
    for y in range(columns.shape[0]):
        spare[y] = min(spare[y] / others[y], ONE)
    for j in range(left.shape[0]):
        bare[j] = left[j]
        ratio[j] = share
    _put_back_into(bare, spare, columns)
    _put_back_into(ratio, u, columns)
    for j in range(left.shape[0]):
        ratio[j] = ONE + ratio[j] * (bare[j] / (level_of[j] - bare[j]))


@njit(cache=True, nogil=True, error_model="numpy")
def _add_logarithms_into(total: Any, bits: Any, exponents: Any, mantissas: Any, fractions: Any) -> None:
    """Add log x in fixed point, given the bits of x; `mantissas` and `fractions` share their memory."""
    for j in range(bits.shape[0]):
        exponent = np.int32(np.int32(bits[j] - ROOT_HALF) >> np.int32(23))
        exponents[j] = exponent
        mantissas[j] = np.int32(bits[j] - np.int32(exponent << np.int32(23)))
    for j in range(bits.shape[0]):
        s = (fractions[j] - ONE) / (fractions[j] + ONE)
        square = s * s
        series = ONE + square * (THIRD + square * (FIFTH + square * (SEVENTH + square * NINTH)))
        logarithm = np.float32(exponents[j]) * LOG_2 + TWO * s * series
        total[j] += np.int64(np.int32(np.rint(logarithm * PER_UNIT)))


@njit(cache=True, nogil=True, error_model="numpy")
def _count_cells_into(
    cells: Any, covered: Any, left: Any, level_of: Any, ones: Any, unknown: Any, inside: float, outside: float
) -> None:
    """Add the expected numbers of covered and uncovered ones and known cells of a row."""
    against_one = np.float32(outside / inside)
    against_zero = np.float32((1 - outside) / (1 - inside))
    for j in range(left.shape[0]):
        z = ONE - left[j]
        against = against_one if level_of[j] > ZERO else against_zero
        covered[j] = z / (z + left[j] * against)
    for p in range(unknown.shape[0]):
        covered[unknown[p]] = ZERO
    covered_ones = 0.0
    for p in range(ones.shape[0]):
        covered_ones += np.float64(covered[ones[p]])
    fixed_ones = np.int64(np.rint(covered_ones / UNIT))
    fixed = np.int64(np.rint(_sum(covered) / UNIT))
    cells[0] += fixed_ones
    cells[1] += fixed
    cells[2] += np.int64(ones.shape[0] / UNIT) - fixed_ones
    cells[3] += np.int64((left.shape[0] - unknown.shape[0]) / UNIT) - fixed


@njit(cache=True, nogil=True, error_model="numpy")
def count_cover_into(
    claimed: Any,
    expected: Any,
    totals: Any,
    L: Any,
    span: Any,
    starts: Any,
    columns: Any,
    odds: Any,
    m: int,
    thresholds: Any,
) -> None:
    """Add the counts of `CoverCounts` for the rows in `span`; `totals` are covered cells and members."""
    left = np.empty(m, np.float32)
    top = np.empty(m, np.float32)
    claims = np.empty(thresholds.shape[0] + 1, np.int64)
    weights = np.empty(thresholds.shape[0] + 1)
    for r in range(span[0], span[1]):
        left[:] = ONE
        top[:] = ZERO
        for c in range(L.shape[1]):
            e = _odds_of(L[r, c])
            share = e / (e + ONE)
            totals[1] += np.int64(share > np.float32(0.5))
            for y in range(starts[c], starts[c + 1]):
                j = columns[y]
                left[j] = max(left[j] * (ONE - share * (odds[y] / (odds[y] + ONE))), SMALLEST_PRODUCT)
                if odds[y] > ONE:
                    top[j] = max(top[j], share)
        claims[:] = 0
        weights[:] = 0.0
        for j in range(m):
            # A cell is claimed at the thresholds below the likeliest component that covers it.
            i = np.searchsorted(thresholds, top[j])
            claims[i] += 1
            weights[i] += np.float64(ONE - left[j])
        n_claimed = 0
        weight = 0.0
        for i in range(thresholds.shape[0], 0, -1):
            n_claimed += claims[i]
            weight += weights[i]
            claimed[i - 1] += n_claimed
            expected[i - 1] += np.int64(np.rint(weight / UNIT))
        totals[0] += np.int64(np.rint((weight + weights[0]) / UNIT))
