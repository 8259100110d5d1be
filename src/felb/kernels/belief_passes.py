"""Belief propagation for A ≈ U∘V under noise: what the rows infer, and the sums by which V learns from them.

Cells are independent given the factors: P(A_rj = 1) is a where U∘V covers the cell and b < a where it does not. The
shared knowledge about V are log-odds Θ (k × m), the private knowledge about a row of U are log-odds L_r (k). All
messages of a row are made anew in every round from Θ and the row's L of the round before, so L is all that is kept.
With D = a − b and

    t_rj = a/D where A_rj = 1, −(1−a)/D where A_rj = 0,     q = z̄/(t − z̄),     z̄ = Π_{l' != l} (1 − u_l'j v_l'j),

1 + q is the likelihood ratio of covering the cell by component l against not doing so, given the others; q = 0 for an
unknown cell (t = ∞). In it u and v are *cavities*: what is believed of U_rl and V_lj without what this very cell said
of them,

    u = e^L/(e^L + Ru),   v = e^Θ/(e^Θ + Rv),   Ru = 1 + v q,   Rv = 1 + u q,   L_l = logit π_l + Σ_j log Ru,

and two sweeps over the components, there and back, update them one component after the other. Then each row adds

    log(1 + u q) to the evidence for each V_lj,   σ(L_l) to the members of l,   P(covered | A_rj) to counts for a, b.

Every addend is rounded to a multiple of 2^-24 and sums are kept as integers, which makes them exact: rows may be split
among clients and threads in any way.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.errors import InputError
from felb.kernels.boolean import unknown_arrays
from felb.kernels.schedule import available_cpus, plain_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from felb.data.binary import BinaryMatrix

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


# -- the public functions ----------------------------------------------------------------------------------------------


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
    from felb.kernels.belief_kernels import infer_rows_into  # brings Numba, half a second, so not before it is needed

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
    from felb.kernels.belief_kernels import count_cover_into

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
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads}; give at least one, or None for a number that suits the work")
    if threads is None:
        threads = 1 if work < SERIAL_CELLS else available_cpus()
    cuts = [n * part // threads for part in range(threads + 1)]
    spans = [span for span in pairwise(cuts) if span[0] < span[1]] or [(0, 0)]
    if len(spans) == 1:
        return list(run(spans[0]))
    with ThreadPoolExecutor(len(spans)) as pool:
        parts = list(pool.map(run, spans))
    return [np.asarray(sum(sums[1:], start=sums[0])) for sums in zip(*parts, strict=True)]
