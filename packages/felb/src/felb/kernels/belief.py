"""Belief propagation for A ≈ U∘V under noise: what the rows infer, and the sums by which V learns."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.errors import InputError
from felb.kernels.boolean import unknown_arrays
from felb.kernels.compiler import compiled
from felb.kernels.schedule import count_threads, plain_view, run_spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from felb.data.binary import BinaryMatrix


# Cells are independent given the factors: P(A_rj = 1) is a where U∘V covers the cell and b < a where it does not. The
# shared knowledge about V are log-odds Θ (k × m), the private knowledge about a row of U are log-odds L_r (k). All
# messages of a row are made anew in every round from Θ and the row's L of the round before, so L is all that is kept.
# With D = a − b and
#
#     t_rj = a/D where A_rj = 1, −(1−a)/D where A_rj = 0,     q = z̄/(t − z̄),     z̄ = Π_{l' != l} (1 − u_l'j v_l'j),
#
# 1 + q is the likelihood ratio of covering the cell by component l against not doing so, given the others; q = 0 for an
# unknown cell (t = ∞). In it u and v are *cavities*: what is believed of U_rl and V_lj without what this very cell said
# of them,
#
#     u = e^L/(e^L + Ru),   v = e^Θ/(e^Θ + Rv),   Ru = 1 + v q,   Rv = 1 + u q,   L_l = logit π_l + Σ_j log Ru,
#
# and two sweeps over the components, there and back, update them one component after the other. Then each row adds
#
#     log(1 + u q) to the evidence for each V_lj,   σ(L_l) to the members of l,   P(covered | A_rj) to counts for a, b.
#
# Every addend is rounded to a multiple of 2^-24 and sums are kept as integers, which makes them exact: rows may be
# split among clients and threads in any way.

UNIT = 2.0**-24
"""What 1 means in a sum of fixed-point numbers.

An addend to the evidence is at most log 1000 < 2^3 in size and one to the other sums at most the columns of a row, so
64 bits suffice for `MOST_ROWS` rows and `MOST_CELLS` cells.
"""

MOST_ROWS, MOST_CELLS = 1 << 35, 1 << 38
"""Rows and cells, of all clients together, whose sums cannot overflow."""

LEAST_RATE = 1e-3
"""Entries of V and U that are less likely than this send nothing; b and 1 − a are no smaller."""

LARGEST_LOG_ODDS = 25.0
"""Beyond this, odds are all the same; their products still fit float32."""

SERIAL_CELLS = 1 << 21
"""Rounds with less work than this, n · m · k, run in one thread unless told otherwise."""


class RowMessages(NamedTuple):
    """What a round gives: the rows' new log-odds, which stay private, and four sums over rows in multiples of `UNIT`.

    Parameters
    ----------
    L : float32, n × k
    evidence : int64, k × m, Σ_r log(1 + u q)
    members : int64, k, Σ_r σ(L_rl)
    cells : int64, 4, expected numbers of covered ones, covered cells, uncovered ones, uncovered cells; known ones only
    """

    L: NDArray[np.float32]
    evidence: NDArray[np.int64]
    members: NDArray[np.int64]
    cells: NDArray[np.int64]


class CoverCounts(NamedTuple):
    """What V = [Θ > 0] and U = [σ(L) > τ] would cover for each of some τ; `expected` and `covered` in units of `UNIT`.

    Parameters
    ----------
    claimed : int64, number of cells of U∘V, for each τ
    expected : int64, how many of them are expected to be covered in truth, for each τ
    covered : int64, how many cells are expected to be covered in truth
    members : int64, number of entries with σ(L) > ½
    """

    claimed: NDArray[np.int64]
    expected: NDArray[np.int64]
    covered: NDArray[np.int64]
    members: NDArray[np.int64]


def infer_rows(
    A: BinaryMatrix,
    L: ArrayLike,
    theta: ArrayLike,
    *,
    inside: float,
    outside: float,
    row_rates: ArrayLike,
    settled: bool = True,
    threads: int | None = None,
) -> RowMessages:
    """Do one round: infer the rows of U from A and Θ and collect what they say about V and the noise.

    Parameters
    ----------
    A : data, n × m
    L : log-odds of U of the round before, n × k
    theta : log-odds Θ of V, k × m
    inside, outside : a and b, densities of ones where U∘V covers and where it does not; 0.001 <= b < a <= 0.999
    row_rates : π, prior probabilities of the k components in a row
    settled : false in the first round, when Θ owes nothing to the rows and Rv = 1 instead
    threads : one for little work, otherwise all that the process may use, if not given

    Returns
    -------
    RowMessages; nothing that was passed in is changed.
    """
    rows, odds = _check(A.shape[0], L, theta, m=A.shape[1])
    if not LEAST_RATE <= outside < inside <= 1 - LEAST_RATE:
        raise InputError(
            f"inside={inside} and outside={outside}: densities must obey "
            f"{LEAST_RATE} <= outside < inside <= {1 - LEAST_RATE}"
        )
    pi = np.asarray(row_rates, dtype=np.float64)
    if pi.shape != odds.shape[:1] or not ((pi > 0) & (pi < 1)).all():
        raise InputError(f"row_rates must be {odds.shape[0]} probabilities between 0 and 1, one for each component")
    (n, m), k = A.shape, odds.shape[0]
    new = np.array(rows, dtype=np.float32, order="C")
    table, prior = _active_table(odds), np.log(pi / (1 - pi))
    ones = plain_view(A.indptr), plain_view(A.indices), *(plain_view(part) for part in unknown_arrays(A))
    noise = np.array([inside, outside], dtype=np.float64)

    def run(span: tuple[int, int]) -> tuple[NDArray[np.int64], ...]:
        sums = np.zeros((k, m), np.int64), np.zeros(k, np.int64), np.zeros(4, np.int64)
        infer_rows_into(new, *sums, *ones, span, *table, prior, noise, bool(settled))
        return sums

    return RowMessages(new, *_sum_over_rows(run, n, n * m * k, threads))


def count_cover(L: ArrayLike, theta: ArrayLike, *, thresholds: ArrayLike, threads: int | None = None) -> CoverCounts:
    """Count, for each threshold τ of U, the cells of U∘V and how many of these and of all are covered in truth.

    A cell is covered with probability 1 − Π_l (1 − σ(L_rl) σ(Θ_lj)) as far as is known.
    """
    rows, odds = _check(None, L, theta, m=None)
    (n, k), m = rows.shape, odds.shape[1]
    taus = np.asarray(thresholds, dtype=np.float32)
    if taus.ndim != 1 or (np.diff(taus) <= 0).any():
        raise InputError("thresholds must be a list of ascending numbers")
    rows, table = np.ascontiguousarray(rows, dtype=np.float32), _active_table(odds)

    def run(span: tuple[int, int]) -> tuple[NDArray[np.int64], ...]:
        sums = np.zeros(taus.size, np.int64), np.zeros(taus.size, np.int64), np.zeros(2, np.int64)
        count_cover_into(*sums, plain_view(rows), span, *table, m, taus)
        return sums

    claimed, expected, totals = _sum_over_rows(run, n, n * m * k, threads)
    return CoverCounts(claimed, expected, totals[0], totals[1])


# -- what comes in and who does it -------------------------------------------------------------------------------------


def _check(n: int | None, L: ArrayLike, theta: ArrayLike, *, m: int | None) -> tuple[NDArray[Any], NDArray[np.float64]]:
    rows, odds = np.asarray(L), np.asarray(theta, dtype=np.float64)
    if odds.ndim != 2 or (m is not None and odds.shape[1] != m):
        raise InputError(f"theta has shape {odds.shape}; expected components x {'columns' if m is None else m}")
    if rows.ndim != 2 or rows.shape[1] != odds.shape[0] or (n is not None and rows.shape[0] != n):
        raise InputError(f"L has shape {rows.shape}; expected {'rows' if n is None else n} x {odds.shape[0]}")
    if np.isnan(odds).any() or np.isnan(rows).any():
        raise InputError("log-odds must be numbers, but some are NaN")
    if rows.shape[0] > MOST_ROWS or rows.shape[0] * odds.shape[1] > MOST_CELLS:
        raise InputError(
            f"{rows.shape[0]} x {odds.shape[1]} cells are too many: sums are known to fit for {MOST_ROWS} rows "
            f"and {MOST_CELLS} cells"
        )
    return rows, odds


def _active_table(theta: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return where each component starts in the lists of columns with v > `LEAST_RATE` and of their odds e^Θ."""
    active = theta > np.log(LEAST_RATE / (1 - LEAST_RATE))
    starts = np.concatenate(([0], np.cumsum(active.sum(axis=1, dtype=np.int64))))
    odds = np.exp(np.clip(theta[active], -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS))
    return starts, np.nonzero(active)[1].astype(np.int32), odds.astype(np.float32)


def _sum_over_rows(
    run: Callable[[tuple[int, int]], tuple[NDArray[np.int64], ...]], n: int, work: int, threads: int | None
) -> list[NDArray[np.int64]]:
    """Add up what ``run(span)`` returns for spans of rows, each in a thread of its own; integers add in any order."""
    threads = count_threads(work, threads, serial=SERIAL_CELLS)
    cuts = [n * part // threads for part in range(threads + 1)]
    spans = [span for span in pairwise(cuts) if span[0] < span[1]] or [(0, 0)]
    parts = run_spans(run, spans)
    return [np.asarray(sum(sums[1:], start=sums[0])) for sums in zip(*parts, strict=True)]


# -- The loops of belief propagation in rows -------------------------------------------------------------------------
#
# Lists of all active cells of a row, component after component, hold the messages; `left` is Π_l (1 − u v) for each
# column. Lookups by column and arithmetic have loops of their own, so that the latter becomes vector code: no loop over
# cells has a branch, an integer type wider than its floats, or a function of a library, and none reads memory that it
# writes under another name.

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


@compiled(error_model="numpy")
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


@compiled(error_model="numpy")
def _odds_of(x: Any) -> Any:
    return np.float32(np.exp(np.float64(min(max(x, -LARGEST_LOG_ODDS), LARGEST_LOG_ODDS))))


@compiled(error_model="numpy")
def _begin_into(u: Any, v: Any, others: Any, odds: Any, e: Any) -> None:
    """Set the cavities of a component as if no cell had said anything yet."""
    share = e / (e + ONE)
    for y in range(u.shape[0]):
        u[y] = share
        v[y] = odds[y] / (odds[y] + ONE)
        others[y] = max(ONE - share * v[y], SURE)


@compiled(error_model="numpy")
def _multiply_into(left: Any, others: Any, columns: Any) -> None:
    left[:] = ONE
    for y in range(columns.shape[0]):
        left[columns[y]] = max(left[columns[y]] * others[y], SMALLEST_PRODUCT)


@compiled(error_model="numpy")
def _look_up_into(bare: Any, left: Any, columns: Any) -> None:
    for y in range(columns.shape[0]):
        bare[y] = left[columns[y]]


@compiled(error_model="numpy")
def _put_back_into(left: Any, bare: Any, columns: Any) -> None:
    for y in range(columns.shape[0]):
        left[columns[y]] = bare[y]


@compiled(error_model="numpy")
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


@compiled(error_model="numpy")
def _answer_into(bare: Any, u: Any, others: Any, ratio: Any, v: Any, e: Any) -> None:
    """Set the cavity of U for one component, 1 − u v, and the product with it (in place of z̄)."""
    for y in range(u.shape[0]):
        u[y] = e / (e + ratio[y])
        others[y] = max(ONE - u[y] * v[y], SURE)
    for y in range(u.shape[0]):
        bare[y] = max(bare[y] * others[y], SMALLEST_PRODUCT)


@compiled(error_model="numpy")
def _log_product(ratio: Any, count: int) -> float:
    """Return Σ log of the first `count` numbers; one logarithm serves many."""
    total = 0.0
    for first in range(0, count, FACTORS):
        total += np.log(_product(ratio[first : min(first + FACTORS, count)]))
    return total


@compiled(error_model="numpy", fastmath={"reassoc"})
def _product(x: Any) -> float:
    product = 1.0
    for y in range(x.shape[0]):
        product *= np.float64(x[y])
    return product


@compiled(error_model="numpy", fastmath={"reassoc"})
def _sum(x: Any) -> float:
    total = 0.0
    for y in range(x.shape[0]):
        total += np.float64(x[y])
    return total


@compiled(error_model="numpy")
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


@compiled(error_model="numpy")
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


@compiled(error_model="numpy")
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


@compiled(error_model="numpy")
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
