"""Branch and bound: the best U for a given V row by row, and the best factorization of a small matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.kernels.assign import assign_rows, cell_gain, check_assignment
from felb.kernels.bits import component_masks, group_masks, lowest_bit, popcount, unpack
from felb.kernels.boolean import check_factors, unknown_arrays
from felb.kernels.compiler import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


ITEMS_OF_NODE = 64
"""Distinct column masks of a row up to which all nodes of the node cap are visited: the work in a row is bounded."""


def assign_rows_exact(
    A: BinaryMatrix,
    V: Any,
    *,
    weight_one: float = 1.0,
    weight_zero: float = -1.0,
    start: Any = None,
    node_cap: int = 1_000,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Assign the best set of components to every row, by branch and bound.

    Columns with the same mask are covered together, so a row is a weighted cover problem over the distinct column
    masks. A component is switched off for good where its gain cannot be positive whatever the open ones do, and on
    where it cannot be anything else; branches that cannot beat the best set found are cut.

    Parameters
    ----------
    A, V, weight_one, weight_zero : as in `assign_rows`
    start : Boolean array, n × k, with the sets to improve on; the result of `assign_rows` if None
    node_cap : nodes after which the search in a row gives up and returns the best set it has seen. In a row with more
        than `ITEMS_OF_NODE` distinct column masks, nodes take longer and are fewer in proportion

    Returns
    -------
    U : Boolean array, n × k; a row differs from its start only if it is better
    proven : Boolean array of length n, true where the row is known to be optimal
    """
    V = check_assignment(A, V, weight_one, weight_zero)
    if start is None:
        start = assign_rows(A, V, weight_one=weight_one, weight_zero=weight_zero)
    else:
        start, V = check_factors(start, V, shape=A.shape)
    best = component_masks(start)
    proven = np.zeros(A.shape[0], dtype=bool)
    classes, column_class, class_sizes = group_masks(component_masks(V.T))
    # Weights of at most 1 give the tolerance of the search one meaning.
    scale = max(float(weight_one), -float(weight_zero)) or 1.0
    search_rows_into(
        best,
        proven,
        A.indptr,
        A.indices,
        *unknown_arrays(A),
        classes,
        column_class,
        class_sizes,
        V.shape[0],
        weight_one / scale,
        weight_zero / scale,
        int(node_cap),
    )
    return unpack(best, V.shape[0]), proven


@kernel
def search_rows_into(
    best: Any,
    proven: Any,
    indptr: Any,
    indices: Any,
    unknown_indptr: Any,
    unknown_indices: Any,
    classes: Any,
    column_class: Any,
    class_sizes: Any,
    k: int,
    weight_one: float,
    weight_zero: float,
    node_cap: int,
) -> None:
    """Replace the masks in `best` by the best ones for their rows and tell for which rows they are proven."""
    n_classes, n_words = classes.shape
    ones = np.empty(n_classes, dtype=np.int64)
    known = np.empty(n_classes, dtype=np.int64)
    items = np.empty((n_classes, n_words), dtype=np.uint64)
    weights = np.empty(n_classes)
    gains = np.empty((3, k))
    # A node takes one place of the stack and leaves at most two, one level deeper.
    stack = np.empty((k + 2, 2, n_words), dtype=np.uint64)
    for r in range(indptr.shape[0] - 1):
        ones[:] = 0
        for p in range(indptr[r], indptr[r + 1]):
            ones[column_class[indices[p]]] += 1
        sizes = class_sizes
        if unknown_indptr.shape[0] > 1 and unknown_indptr[r] < unknown_indptr[r + 1]:
            known[:] = class_sizes
            for p in range(unknown_indptr[r], unknown_indptr[r + 1]):
                known[column_class[unknown_indices[p]]] -= 1
            sizes = known
        _candidates_into(stack[0, OPEN], ones, classes)
        value, length = _load_items(
            items, weights, stack[0, OPEN], best[r], ones, classes, sizes, weight_one, weight_zero
        )
        most_nodes = max(1, node_cap * ITEMS_OF_NODE // max(length, ITEMS_OF_NODE))
        proven[r] = _search(best[r], value, stack, items, weights, length, gains, most_nodes)


@kernel
def _candidates_into(candidates: Any, ones: Any, classes: Any) -> None:
    """Collect the components with at least one of the row's ones; no other component can gain anything."""
    candidates[:] = np.uint64(0)
    for i in range(ones.shape[0]):
        if ones[i] > 0:
            for w in range(candidates.shape[0]):
                candidates[w] |= classes[i, w]


@kernel
def _load_items(
    items: Any,
    weights: Any,
    candidates: Any,
    start: Any,
    ones: Any,
    classes: Any,
    class_sizes: Any,
    weight_one: float,
    weight_zero: float,
) -> tuple[float, int]:
    """List the column masks that matter with their weights; return the value of `start` and the length of the list."""
    length = 0
    value = 0.0
    for i in range(classes.shape[0]):
        weight = cell_gain(ones[i], class_sizes[i], weight_one, weight_zero)
        used = np.uint64(0)
        covered = np.uint64(0)
        for w in range(classes.shape[1]):
            items[length, w] = classes[i, w] & candidates[w]
            used |= items[length, w]
            covered |= classes[i, w] & start[w]
        weights[length] = weight
        length += int(used != np.uint64(0))
        if covered != np.uint64(0):
            value += weight
    return value, length


OPEN, ON = 0, 1
AT_MOST, AT_LEAST, PROFIT = 0, 1, 2
TOLERANCE = 1e-9
"""Sums of weights that differ by less are equal; far above rounding, far below the smallest weight."""


@kernel
def _search(
    best: Any, value: float, stack: Any, items: Any, weights: Any, length: int, gains: Any, node_cap: int
) -> bool:
    """Search depth first from the open components in ``stack[0]``; return whether the search was completed."""
    stack[0, ON] = np.uint64(0)
    depth = 0
    nodes = 0
    while depth >= 0:
        if nodes == node_cap:
            return False
        nodes += 1
        node = stack[depth]
        depth -= 1
        reduced = True
        while reduced:
            covered, bound = _weigh_into(gains, node, items, weights, length)
            reduced = _decide_into(node, gains)
        if covered > value + TOLERANCE:
            value = covered
            best[:] = node[ON]
        if bound > value + TOLERANCE:
            bound = covered + _bound_additions(gains, node, items, weights, length)
        if bound > value + TOLERANCE:
            # A bound above the value means that some component is open.
            c = _least_certain(node, gains)
            node[OPEN, c >> 6] ^= np.uint64(1) << np.uint64(c & 63)
            stack[depth + 2] = node
            stack[depth + 2, ON, c >> 6] |= np.uint64(1) << np.uint64(c & 63)
            depth += 2
    return True


@kernel
def _weigh_into(gains: Any, node: Any, items: Any, weights: Any, length: int) -> tuple[float, float]:
    """Bound the gain of each open component c over all choices of the other open ones; return value and bound.

    With the items (column masks) not covered yet, c gains at most the positive weights of its items plus the
    negative weights of those that no other open component has, and at least the same with the signs exchanged. The
    node's value is the weight covered already. To it, open components can add at most the positive weights they
    reach, and at most the sum of what each could gain.
    """
    gains[:] = 0.0
    value = 0.0
    reach = 0.0
    for i in range(length):
        weight = weights[i]
        covered = np.uint64(0)
        sharing = 0
        for w in range(items.shape[1]):
            covered |= items[i, w] & node[ON, w]
            sharing += popcount(items[i, w] & node[OPEN, w])
        if covered != np.uint64(0):
            value += weight
        elif sharing > 0:
            reach += max(weight, 0.0)
            for w in range(items.shape[1]):
                left = items[i, w] & node[OPEN, w]
                while left != np.uint64(0):
                    c = (w << 6) + lowest_bit(left)
                    left &= left - np.uint64(1)
                    if weight > 0.0 or sharing == 1:
                        gains[AT_MOST, c] += weight
                    if weight < 0.0 or sharing == 1:
                        gains[AT_LEAST, c] += weight
    total = 0.0
    for c in range(gains.shape[1]):
        total += max(gains[AT_MOST, c], 0.0)
    return value, value + min(reach, total)


@kernel
def _bound_additions(gains: Any, node: Any, items: Any, weights: Any, length: int) -> float:
    """Bound what the open components can add, by a feasible solution of the dual of the linear relaxation.

    Let x_c be the share to which c is switched on. An uncovered item i of weight w > 0 brings w·min(1, Σ_{c ∋ i} x_c),
    one of weight w < 0 costs |w|·max_{c ∋ i} x_c. For any 0 <= b_i <= w and any split Σ_c y_ic <= |w| of the costs,

        Σ_i (w_i − b_i) + Σ_c max(0, P_c),    P_c = Σ_{i ∋ c} b_i − Σ_{i ∋ c} y_ic,

    is an upper bound. Costs go to the most profitable component first. Then each b_i is set to its best value given
    the others: raising it costs as soon as two of its components are profitable.
    """
    gains[PROFIT] = gains[AT_MOST]
    for i in range(length):
        cost = -weights[i]
        if cost > 0.0 and _is_shared(node, items, i):
            while cost > 0.0:
                first, _ = _two_largest(gains, node, items, i)
                part = min(cost, gains[PROFIT, first])
                if part <= 0.0:
                    break
                gains[PROFIT, first] -= part
                cost -= part
    bound = 0.0
    for i in range(length):
        weight = weights[i]
        if weight > 0.0 and _is_shared(node, items, i):
            _, second = _two_largest(gains, node, items, i)
            if second >= 0:
                kept = min(max(weight - gains[PROFIT, second], 0.0), weight)
                if kept < weight:
                    bound += weight - kept
                    for w in range(items.shape[1]):
                        left = items[i, w] & node[OPEN, w]
                        while left != np.uint64(0):
                            gains[PROFIT, (w << 6) + lowest_bit(left)] -= weight - kept
                            left &= left - np.uint64(1)
    for c in range(gains.shape[1]):
        bound += max(gains[PROFIT, c], 0.0)
    return bound


@kernel
def _is_shared(node: Any, items: Any, i: int) -> Any:
    """Tell whether item i is uncovered and shared by several open components."""
    covered = np.uint64(0)
    sharing = 0
    for w in range(items.shape[1]):
        covered |= items[i, w] & node[ON, w]
        sharing += popcount(items[i, w] & node[OPEN, w])
    return covered == np.uint64(0) and sharing > 1


@kernel
def _two_largest(gains: Any, node: Any, items: Any, i: int) -> tuple[int, int]:
    """Return the most profitable and the second most profitable open component of item i."""
    first = -1
    second = -1
    for w in range(items.shape[1]):
        left = items[i, w] & node[OPEN, w]
        while left != np.uint64(0):
            c = (w << 6) + lowest_bit(left)
            left &= left - np.uint64(1)
            if first < 0 or gains[PROFIT, c] > gains[PROFIT, first]:
                first, second = c, first
            elif second < 0 or gains[PROFIT, c] > gains[PROFIT, second]:
                second = c
    return first, second


@kernel
def _decide_into(node: Any, gains: Any) -> bool:
    """Close the open components whose gain has a certain sign; return whether there were any."""
    reduced = False
    for w in range(node.shape[1]):
        left = node[OPEN, w]
        while left != np.uint64(0):
            c = (w << 6) + lowest_bit(left)
            bit = left & ~(left - np.uint64(1))
            left ^= bit
            if gains[AT_LEAST, c] > 0.0:
                node[ON, w] |= bit
            if gains[AT_LEAST, c] > 0.0 or gains[AT_MOST, c] <= 0.0:
                node[OPEN, w] ^= bit
                reduced = True
    return reduced


@kernel
def _least_certain(node: Any, gains: Any) -> int:
    """Return the open component with the widest range of possible gains; the first of equals."""
    choice = -1
    widest = -1.0
    for w in range(node.shape[1]):
        left = node[OPEN, w]
        while left != np.uint64(0):
            c = (w << 6) + lowest_bit(left)
            left &= left - np.uint64(1)
            width = gains[AT_MOST, c] - gains[AT_LEAST, c]
            if width > widest:
                choice = c
                widest = width
    return choice


# -- The best Boolean factorization of a small matrix, proven by branch and bound over its columns (Russian dolls) ---
#
# In a product U∘V of rank k, column j is described by the set T_j ⊆ {1..k} of components that it is in, row r by the
# set S_r of those that it has, and the cell is one iff S_r and T_j meet. Given the sets of some columns, the best set
# of each row is a minimum over 2^k, so
#
#     bound = Σ_r min_S (errors of row r in these columns) + OPT(the other columns)
#
# is a lower bound on every completion. OPT of the last column is zero; OPT of the last two is found by a search that
# uses it, and so on (Verfaillie, Lemaître and Schiex: Russian doll search). Equal rows and equal columns are merged and
# weigh as many. Components are interchangeable: one is used for the first time only after those with smaller numbers.

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
        found = _search_columns(
            cells[:, first:], row_weights, column_weights[first:], meets, optima[first:], best, stop
        )
        if found is None:
            break
        optima[first] = found
    return optima


def _search_columns(
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
    while not search_columns_into(
        state, sets, used, costs, cells, row_weights, column_weights, meets, optima, NODES_BETWEEN_LOOKS
    ):
        if stop():
            return None
    return int(state[1])


@kernel
def search_columns_into(
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
