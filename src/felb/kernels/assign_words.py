"""Boolean U for a given Boolean V of at most 64 components, where the components of a row or a column are one word.

The result is that of `felb.kernels.assign` without unknown cells. There, counts are made anew after every change of a
row; here they are kept up to date, for eight components at a time (`felb.kernels.bit_vectors`), and a change touches
only the words of the changed component. Columns that no component has are left out of all words; of wide data these
are most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.kernels.bit_vectors import GROUP, add_overlaps, best_gain, grouped_words, places_among, words_of_row
from felb.kernels.bits import lowest_bit, pack, popcount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

MOST_COMPONENTS = 64


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
    used = np.asarray(V.any(axis=0))
    if not used.any():
        used[:1] = True  # there must be a word for what rows have
    components = V[:, used]
    packed = pack(components)
    parts = np.flatnonzero(packed)
    starts = np.searchsorted(parts, packed.shape[1] * np.arange(len(packed) + 1))
    words = starts, parts % max(1, packed.shape[1])
    cover_words_into(
        U, A.indptr, A.indices, places_among(used), packed, words, grouped_words(components), *weights, *limits
    )


# -- kernels ---------------------------------------------------------------------------------------------------------
#
# `words` are the numbers of the words that each component has columns in, with the place where those of each component
# start. Of the row that is being assigned:
#   active     its active components
#   bits       its ones, packed
#   cover      packed columns covered by at least one [0] and at least two [1] active components
#   counts     for each component, the ones [0] and the cells [1] of the row in it that no active component covers


@njit(cache=True, nogil=True)
def cover_words_into(
    U: Any,
    indptr: Any,
    indices: Any,
    places: Any,
    packed: Any,
    words: Any,
    grouped: Any,
    weight_one: float,
    weight_zero: float,
    additions: int,
    sweeps: int,
) -> None:
    """Extend the rows of U by up to so many components by greedy cover, and improve them by coordinate descent."""
    k, n_words = packed.shape
    row = np.empty(n_words + 1, dtype=np.int64), np.empty(n_words + 1, dtype=np.uint64)
    which = np.empty(n_words + 1, dtype=np.int64)
    held = np.empty((2, n_words + 1), dtype=np.uint64)
    bits = np.zeros(n_words + 1, dtype=np.uint64)
    cover = np.zeros((2, n_words), dtype=np.uint64)
    counts = np.zeros((2, GROUP * grouped.shape[0]), dtype=np.int64)
    sizes = np.zeros(counts.shape[1], dtype=np.int64)
    for c in range(k):
        for w in range(n_words):
            sizes[c] += popcount(packed[c, w])
    for r in range(U.shape[0]):
        length = words_of_row(row[0], row[1], indices[indptr[r] : indptr[r + 1]], places)
        held_ones = np.uint64(0)
        for i in range(length):
            bits[row[0][i]] = row[1][i]
            held_ones |= row[1][i]
        if held_ones == np.uint64(0):  # no component can pay
            if sweeps > 0:
                U[r] = False
            continue
        counts[0] = 0
        counts[1] = sizes
        add_overlaps(counts[0], grouped, row[0], row[1], length, 1)
        active = np.uint64(0)
        for c in range(k):
            if U[r, c]:
                active = _switched_on(counts, cover, bits, active, c, packed, words, grouped, which, held)
        complete = False
        for _ in range(additions):
            best = best_gain(counts[0], counts[1], weight_one, weight_zero)
            complete = best < 0
            if complete:
                break
            active = _switched_on(counts, cover, bits, active, best, packed, words, grouped, which, held)
        paying = np.uint64(0) if complete else _paying(counts, weight_one, weight_zero)
        for _ in range(sweeps):
            before = active
            candidates = active | paying
            while candidates != np.uint64(0):
                c = lowest_bit(candidates)
                bit = np.uint64(1) << np.uint64(c)
                if active & bit == np.uint64(0):
                    active = _switched_on(counts, cover, bits, active, c, packed, words, grouped, which, held)
                else:
                    ones, cells = _own(cover[1], bits, packed[c], words[1][words[0][c] : words[0][c + 1]])
                    if _gain(ones, cells, weight_one, weight_zero) > 0.0:
                        candidates ^= bit
                        continue
                    active = _switched_off(counts, cover, bits, active, c, packed, words, grouped, which, held)
                paying = _paying(counts, weight_one, weight_zero)
                candidates = (active | paying) & ~(bit | (bit - np.uint64(1)))
            if active == before:
                break
        for c in range(k):
            U[r, c] = (active >> np.uint64(c)) & np.uint64(1) != np.uint64(0)
        for i in range(length):
            bits[row[0][i]] = np.uint64(0)
        if active != np.uint64(0):
            cover[:] = np.uint64(0)


@njit(cache=True, nogil=True)
def _switched_on(
    counts: Any,
    cover: Any,
    bits: Any,
    active: Any,
    c: int,
    packed: Any,
    words: Any,
    grouped: Any,
    which: Any,
    held: Any,
) -> Any:
    """Switch component c on; what it covers first is taken out of all counts. Return the active components."""
    length = 0
    for i in range(words[0][c], words[0][c + 1]):
        w = words[1][i]
        new = packed[c, w] & ~cover[0, w]
        cover[1, w] |= packed[c, w] ^ new
        cover[0, w] |= new
        which[length] = w
        held[0, length] = new & bits[w]
        held[1, length] = new
        length += int(new != np.uint64(0))
    add_overlaps(counts[0], grouped, which, held[0], length, -1)
    add_overlaps(counts[1], grouped, which, held[1], length, -1)
    return active | (np.uint64(1) << np.uint64(c))


@njit(cache=True, nogil=True)
def _switched_off(
    counts: Any,
    cover: Any,
    bits: Any,
    active: Any,
    c: int,
    packed: Any,
    words: Any,
    grouped: Any,
    which: Any,
    held: Any,
) -> Any:
    """Switch component c off; what it alone covers comes back into all counts. Return the active components."""
    others = active ^ (np.uint64(1) << np.uint64(c))
    length = 0
    for i in range(words[0][c], words[0][c + 1]):
        w = words[1][i]
        once = np.uint64(0)
        twice = np.uint64(0)
        left = others
        while left != np.uint64(0):
            other = packed[lowest_bit(left), w]
            left &= left - np.uint64(1)
            twice |= once & other
            once |= other
        free = cover[0, w] & ~once
        cover[0, w] = once
        cover[1, w] = twice
        which[length] = w
        held[0, length] = free & bits[w]
        held[1, length] = free
        length += int(free != np.uint64(0))
    add_overlaps(counts[0], grouped, which, held[0], length, 1)
    add_overlaps(counts[1], grouped, which, held[1], length, 1)
    return others


@njit(cache=True, nogil=True)
def _own(shared: Any, bits: Any, component: Any, words: Any) -> Any:
    """Return the ones and the cells of an active component that no other one covers."""
    ones = 0
    cells = 0
    for w in words:
        own = component[w] & ~shared[w]
        ones += popcount(own & bits[w])
        cells += popcount(own)
    return ones, cells


@njit(cache=True, nogil=True)
def _paying(counts: Any, weight_one: float, weight_zero: float) -> Any:
    """Return the components with a positive gain; an active one has nothing left to gain."""
    paying = np.uint64(0)
    for c in range(counts.shape[1]):
        if _gain(counts[0, c], counts[1, c], weight_one, weight_zero) > 0.0:
            paying |= np.uint64(1) << np.uint64(c)
    return paying


@njit(cache=True, nogil=True)
def _gain(ones: int, cells: int, weight_one: float, weight_zero: float) -> float:
    return weight_one * ones + weight_zero * (cells - ones)
