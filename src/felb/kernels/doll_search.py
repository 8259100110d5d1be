"""The best Boolean factorization of a small matrix, proven by branch and bound over its columns (Russian dolls).

In a product U∘V of rank k, column j is described by the set T_j ⊆ {1..k} of components that it is in, row r by the set
S_r of those that it has, and the cell is one iff S_r and T_j meet. Given the sets of some columns, the best set of each
row is a minimum over 2^k, so

    bound = Σ_r min_S (errors of row r in these columns) + OPT(the other columns)

is a lower bound on every completion. OPT of the last column is zero; OPT of the last two is found by a search that uses
it, and so on (Verfaillie, Lemaître and Schiex: Russian doll search). Equal rows and equal columns are merged and weigh
as many. Components are interchangeable: one is used for the first time only after those with smaller numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NODES_BETWEEN_LOOKS = 200_000
"""Nodes of the search between two looks at the clock."""


def optimal_suffixes(
    cells: NDArray[np.bool_],
    weights: tuple[NDArray[np.int64], NDArray[np.int64]],
    n_components: int,
    *,
    upper: int,
    stop: Callable[[], bool],
) -> NDArray[np.int64]:
    """Return OPT of the columns from j on, for as many j as there is time, from the last column to the first.

    Parameters
    ----------
    cells : distinct rows × distinct columns
    weights : how often each row and each column occurs
    upper : errors of a factorization of the whole matrix that is known; the search of the whole starts below it
    stop : asked between parts of the search whether the time is up

    Returns
    -------
    Array of m + 1 values of which the last is 0, with −1 where OPT is not known.
    """
    m = cells.shape[1]
    optima = np.full(m + 1, -1, dtype=np.int64)
    optima[m] = 0
    # Errors of row r, of the set S, in a column of the set T: cells[r] xor [S meets T].
    meets = (np.arange(1 << n_components)[:, None] & np.arange(1 << n_components)) != 0
    row_weights, column_weights = weights
    for first in range(m - 1, -1, -1):
        # One more column adds at most what leaving it empty costs.
        ones = int(row_weights[cells[:, first]].sum()) * int(column_weights[first])
        best = int(optima[first + 1]) + ones
        if first == 0:
            best = min(best, upper)
        found = _searched(cells[:, first:], row_weights, column_weights[first:], meets, optima[first:], best, stop)
        if found is None:
            break
        optima[first] = found
    return optima


def _searched(
    cells: NDArray[np.bool_],
    row_weights: NDArray[np.int64],
    column_weights: NDArray[np.int64],
    meets: NDArray[np.bool_],
    optima: NDArray[np.int64],
    best: int,
    stop: Callable[[], bool],
) -> int | None:
    """Return OPT of these columns, given that of each of its suffixes; None if the time is up."""
    n, m = cells.shape
    n_sets = len(meets)
    costs = np.zeros((m + 1, n, n_sets), dtype=np.int64)
    sets = np.zeros(m + 1, dtype=np.int64)
    used = np.zeros(m + 1, dtype=np.int64)
    state = np.array([0, best], dtype=np.int64)
    while not doll_search_into(
        state, sets, used, costs, cells, row_weights, column_weights, meets, optima, NODES_BETWEEN_LOOKS
    ):
        if stop():
            return None
    return int(state[1])


@njit(cache=True, nogil=True)
def doll_search_into(
    state: Any,
    sets: Any,
    used: Any,
    costs: Any,
    cells: Any,
    row_weights: Any,
    column_weights: Any,
    meets: Any,
    optima: Any,
    nodes: int,
) -> bool:
    """Go on with a depth-first search for some nodes; return whether it is over.

    ``state`` holds the depth and the smallest errors so far; ``sets[d]`` is the set to be tried next for column d,
    ``used[d]`` the number of components used before it, ``costs[d]`` the errors of each row and set before it.
    """
    n, m = cells.shape
    n_sets = meets.shape[0]
    depth, best = state[0], state[1]
    for _ in range(nodes):
        if depth < 0:
            break
        T = sets[depth]
        if n_sets == T:
            depth -= 1
            continue
        sets[depth] = T + 1
        new = T >> used[depth]
        if new & (new + 1):
            continue
        weight = column_weights[depth]
        total = optima[depth + 1]
        for r in range(n):
            least = np.int64(1) << 62
            for S in range(n_sets):
                cost = costs[depth, r, S]
                if meets[S, T] != cells[r, depth]:
                    cost += weight
                costs[depth + 1, r, S] = cost
                least = min(least, cost)
            total += row_weights[r] * least
            if total >= best:
                break
        if total >= best:
            continue
        if depth + 1 == m:
            best = total
            continue
        more = used[depth]
        while new:
            more += 1
            new >>= 1
        depth += 1
        sets[depth] = 0
        used[depth] = more
    state[0], state[1] = depth, best
    return bool(depth < 0)
