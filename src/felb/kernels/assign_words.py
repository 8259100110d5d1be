"""Boolean U for a given Boolean V of at most 64 components, where the components of a row or a column are one word.

The result is that of `felb.kernels.assign` without unknown cells. There, counts are made anew after every change of a
row; here they are kept up to date, and a change touches only the ones of the row that the changed component covers. A
component without a one in the row can never pay and is not looked at. Cells are counted in the columns that some
component has; of wide data these are few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.kernels.bits import component_masks, intersection_sizes, lowest_bit, pack, popcount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

MOST_COMPONENTS = 64

NARROW = 8
"""Up to this many packed words, cells are counted at once; beyond, bounds on their number are tried before."""


def cover_in_words_into(
    U: NDArray[np.bool_],
    A: BinaryMatrix,
    V: NDArray[np.bool_],
    *,
    weights: tuple[float, float],
    limits: tuple[int, int],
) -> None:
    """Extend the rows of U by greedy cover and improve them by coordinate descent, in place.

    Parameters
    ----------
    weights : gain of covering a one and of covering a zero
    limits : components that are added to a row at most, and sweeps of coordinate descent at most
    """
    packed = pack(V[:, V.any(axis=0)])
    masks = component_masks(V.T)[:, 0]
    cover_words_into(U, A.indptr, A.indices, masks, packed, intersection_sizes(packed), *weights, *limits)


# -- kernels ---------------------------------------------------------------------------------------------------------
#
# Of the row that is being assigned:
#   active     its active components
#   columns    the masks of its ones that some component has
#   present    the components that have a one of the row
#   ones       for each component, the ones of the row in it that no other active component covers
#   cover      packed columns covered by at least one [0] and at least two [1] active components, if `covers` says so


@njit(cache=True, nogil=True)
def cover_words_into(
    U: Any,
    indptr: Any,
    indices: Any,
    masks: Any,
    packed: Any,
    pairs: Any,
    weight_one: float,
    weight_zero: float,
    additions: int,
    sweeps: int,
) -> None:
    """Extend the rows of U by up to so many components by greedy cover, and improve them by coordinate descent."""
    k = U.shape[1]
    columns = np.empty(masks.shape[0] + 1, dtype=np.uint64)
    ones = np.empty(k, dtype=np.int64)
    cover = np.empty((2, packed.shape[1]), dtype=np.uint64)
    for r in range(U.shape[0]):
        active = np.uint64(0)
        for c in range(k):
            if U[r, c]:
                active |= np.uint64(1) << np.uint64(c)
        length, present = _load_into(columns, ones, indices[indptr[r] : indptr[r + 1]], masks, active)
        covers = _cover_if_narrow(cover, active, packed)
        for _ in range(additions):
            best = -1
            best_gain = 0.0
            left = present & ~active
            while left != np.uint64(0):
                c = lowest_bit(left)
                left &= left - np.uint64(1)
                if weight_one * ones[c] <= best_gain:
                    continue
                fewest, most = _bounds(active, c, pairs, cover, packed)
                if _gain(ones[c], fewest, weight_one, weight_zero) <= best_gain:
                    continue
                if fewest != most:
                    if not covers:
                        _cover_into(cover, active, packed)
                        covers = True
                    most = _cells(cover[0], packed[c])
                gain = _gain(ones[c], most, weight_one, weight_zero)
                if gain > best_gain:
                    best = c
                    best_gain = gain
            if best < 0:
                break
            active = _switched(ones, active, best, columns, length)
            covers = _cover_if_narrow(cover, active, packed)
        for _ in range(sweeps):
            before = active
            left = present | active
            while left != np.uint64(0):
                c = lowest_bit(left)
                left &= left - np.uint64(1)
                is_active = (active >> np.uint64(c)) & np.uint64(1) != np.uint64(0)
                fewest, most = _bounds(active, c, pairs, cover, packed)
                pays = _gain(ones[c], fewest, weight_one, weight_zero) > 0.0
                if pays and fewest != most and not _gain(ones[c], most, weight_one, weight_zero) > 0.0:
                    if not covers:
                        _cover_into(cover, active, packed)
                        covers = True
                    cells = _cells(cover[1 if is_active else 0], packed[c])
                    pays = _gain(ones[c], cells, weight_one, weight_zero) > 0.0
                if pays != is_active:
                    active = _switched(ones, active, c, columns, length)
                    covers = _cover_if_narrow(cover, active, packed)
            if active == before:
                break
        for c in range(k):
            U[r, c] = (active >> np.uint64(c)) & np.uint64(1) != np.uint64(0)


@njit(cache=True, nogil=True)
def _load_into(columns: Any, ones: Any, row: Any, masks: Any, active: Any) -> Any:
    """Bring a row into the buffers; return how many column masks it has, and the components with a one in it."""
    ones[:] = 0
    length = 0
    present = np.uint64(0)
    for j in row:
        mask = masks[j]
        if mask == np.uint64(0):
            continue
        columns[length] = mask
        length += 1
        present |= mask
        left = mask & active
        if left == np.uint64(0):
            left = mask
        elif left & (left - np.uint64(1)) != np.uint64(0):
            continue
        while left != np.uint64(0):
            ones[lowest_bit(left)] += 1
            left &= left - np.uint64(1)
    return length, present


@njit(cache=True, nogil=True)
def _switched(ones: Any, active: Any, c: int, columns: Any, length: int) -> Any:
    """Switch component c on or off and bring the counts up to date; return the active components.

    A one of c that no other component covers is left to all components of its column while c is off, and to c alone
    while c is on. One that a single other component covers is left to that one only while c is off.
    """
    bit = np.uint64(1) << np.uint64(c)
    others = active & ~bit
    change = 1 if active & bit != np.uint64(0) else -1
    for i in range(length):
        mask = columns[i]
        if mask & bit == np.uint64(0):
            continue
        left = mask & others
        if left == np.uint64(0):
            left = mask ^ bit
        elif left & (left - np.uint64(1)) != np.uint64(0):
            continue
        while left != np.uint64(0):
            ones[lowest_bit(left)] += change
            left &= left - np.uint64(1)
    return active ^ bit


@njit(cache=True, nogil=True)
def _bounds(active: Any, c: int, pairs: Any, cover: Any, packed: Any) -> Any:
    """Bound the cells of component c that no other active component covers, by its overlaps with each of them."""
    if packed.shape[1] <= NARROW:
        # What another component covers, an active one covers for the second time.
        cells = _cells(cover[np.int64((active >> np.uint64(c)) & np.uint64(1))], packed[c])
        return cells, cells
    fewest = pairs[c, c]
    largest = 0
    left = active & ~(np.uint64(1) << np.uint64(c))
    while left != np.uint64(0):
        common = pairs[c, lowest_bit(left)]
        left &= left - np.uint64(1)
        fewest -= common
        largest = max(largest, common)
    return max(fewest, 0), pairs[c, c] - largest


@njit(cache=True, nogil=True)
def _cover_if_narrow(cover: Any, active: Any, packed: Any) -> bool:
    if packed.shape[1] > NARROW:
        return False
    _cover_into(cover, active, packed)
    return True


@njit(cache=True, nogil=True)
def _cover_into(cover: Any, active: Any, packed: Any) -> None:
    cover[:] = np.uint64(0)
    left = active
    while left != np.uint64(0):
        c = lowest_bit(left)
        left &= left - np.uint64(1)
        for w in range(packed.shape[1]):
            cover[1, w] |= cover[0, w] & packed[c, w]
            cover[0, w] |= packed[c, w]


@njit(cache=True, nogil=True)
def _cells(covered: Any, component: Any) -> int:
    """Return how many columns of a component are not covered."""
    cells = 0
    for w in range(component.shape[0]):
        cells += popcount(component[w] & ~covered[w])
    return cells


@njit(cache=True, nogil=True)
def _gain(ones: int, cells: int, weight_one: float, weight_zero: float) -> float:
    return weight_one * ones + weight_zero * (cells - ones)
