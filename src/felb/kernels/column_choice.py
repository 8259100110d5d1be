r"""Choose k columns of the data whose unions represent all columns best, from co-occurrence alone.

With the chosen columns as U, column j is represented by a set S_j of chosen columns that occur in no row together, so
that what S_j is worth is a sum of pairwise counts:

    Σ_{i ∈ S_j} g_ij,    g_ij = w₁·|A_i ∩ A_j| + w₀·|A_i \ A_j|,

where w₁ >= 0 is the gain of a covered one and w₀ <= 0 that of a covered zero. S_j is found greedily. All columns are
chosen first; then the column whose loss costs least is given up, until k are left. Where columns are few, a chosen one
is then exchanged for another one as long as that gains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray


MOST_EXCHANGED, PASSES = 256, 8
"""Columns up to which chosen ones are exchanged, and how often all of them are tried; more take seconds."""


def columns_as_components(
    pairs: NDArray[np.int64], n_components: int, *, weight_one: float = 1.0, weight_zero: float = -1.0
) -> NDArray[np.bool_]:
    """Return V, k × m: V_lj = 1 where the l-th chosen column takes part in the representation of column j.

    Parameters
    ----------
    pairs : AᵀA, m × m
    n_components : k; where fewer columns have ones, the other components are empty
    weight_one, weight_zero : gain of covering a one and of covering a zero
    """
    sizes = np.diagonal(pairs)
    gains = weight_one * pairs + weight_zero * (sizes[:, None] - pairs)
    chosen = sizes > 0
    member = np.zeros(pairs.shape, dtype=bool)
    counts = np.asarray(gains, dtype=np.float64), np.ascontiguousarray(pairs)
    give_up_into(chosen, member, *counts, n_components)
    if len(sizes) <= MOST_EXCHANGED:
        exchange_into(chosen, member, *counts, PASSES)
    V = np.zeros((n_components, len(sizes)), dtype=bool)
    V[: np.count_nonzero(chosen)] = member[chosen]
    return V


@njit(cache=True, nogil=True)
def give_up_into(chosen: Any, member: Any, gains: Any, pairs: Any, n_components: int) -> None:
    """Unset `chosen` until at most so many columns are left, and set ``member[i, j]`` where column j uses column i."""
    m = chosen.shape[0]
    # What column j would lose without column i, and whether i matters to it, now or as a substitute.
    losses = np.zeros((m, m))
    used = np.zeros((m, m), dtype=np.bool_)
    open_gains = np.empty(m)
    found = np.empty((2, m), dtype=np.int64)
    totals = np.zeros(m)
    left = 0
    for j in range(m):
        left += chosen[j]
        _represent_into(member, losses, used, open_gains, found, j, chosen, gains, pairs)
    for i in range(m):
        totals[i] = losses[i].sum()
    while left > n_components:
        least = -1
        for i in range(m):
            if chosen[i] and (least < 0 or totals[i] < totals[least]):
                least = i
        chosen[least] = False
        left -= 1
        for j in range(m):
            if used[least, j]:
                for i in range(m):
                    totals[i] -= losses[i, j]
                _represent_into(member, losses, used, open_gains, found, j, chosen, gains, pairs)
                for i in range(m):
                    totals[i] += losses[i, j]


@njit(cache=True, nogil=True)
def exchange_into(chosen: Any, member: Any, gains: Any, pairs: Any, passes: int) -> None:
    """Exchange each chosen column in turn for the column that gains most, if any does."""
    m = chosen.shape[0]
    values = np.zeros(m)
    open_gains = np.empty(m)
    found = np.empty(m, dtype=np.int64)
    for j in range(m):
        values[j] = _union_into(found, open_gains, j, chosen, -1, gains, pairs)[1]
    for _ in range(passes):
        exchanged = False
        for out in range(m):
            if not chosen[out]:
                continue
            chosen[out] = False
            best, most = out, 0.0
            for new in range(m):
                if chosen[new] or new == out or pairs[new, new] == 0:
                    continue
                chosen[new] = True
                more = 0.0
                for j in range(m):
                    if member[out, j] or gains[new, j] > 0.0:
                        more += _union_into(found, open_gains, j, chosen, -1, gains, pairs)[1] - values[j]
                chosen[new] = False
                if more > most:
                    best, most = new, more
            chosen[best] = True
            if best != out:
                exchanged = True
                for j in range(m):
                    if member[out, j] or gains[best, j] > 0.0:
                        length, values[j] = _union_into(found, open_gains, j, chosen, -1, gains, pairs)
                        member[:, j] = False
                        for a in range(length):
                            member[found[a], j] = True
        if not exchanged:
            return


@njit(cache=True, nogil=True)
def _represent_into(
    member: Any,
    losses: Any,
    used: Any,
    open_gains: Any,
    found: Any,
    j: int,
    chosen: Any,
    gains: Any,
    pairs: Any,
) -> None:
    """Represent column j by chosen columns, and find what it would lose without each of these."""
    for i in range(chosen.shape[0]):
        member[i, j] = False
        losses[i, j] = 0.0
        used[i, j] = False
    length, value = _union_into(found[0], open_gains, j, chosen, -1, gains, pairs)
    for a in range(length):
        i = found[0, a]
        member[i, j] = True
        used[i, j] = True
    for a in range(length):
        i = found[0, a]
        substitutes, without = _union_into(found[1], open_gains, j, chosen, i, gains, pairs)
        losses[i, j] = value - without
        for b in range(substitutes):
            used[found[1, b], j] = True


@njit(cache=True, nogil=True)
def _union_into(
    found: Any, open_gains: Any, j: int, chosen: Any, left_out: int, gains: Any, pairs: Any
) -> tuple[int, float]:
    """Collect chosen columns of positive gain, the best first, that share no row; return their number and gain."""
    m = chosen.shape[0]
    for i in range(m):
        open_gains[i] = gains[i, j] if chosen[i] and i != left_out else 0.0
    length = 0
    value = 0.0
    while True:
        best = 0
        for i in range(1, m):
            if open_gains[i] > open_gains[best]:
                best = i
        if open_gains[best] <= 0.0:
            return length, value
        value += open_gains[best]
        found[length] = best
        length += 1
        for i in range(m):
            if pairs[best, i] > 0:
                open_gains[i] = 0.0
