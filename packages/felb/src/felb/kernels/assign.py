"""Boolean U for a given Boolean V: which components describe each row.

Every row is a problem of its own. With a gain of w₁ >= 0 for each covered one and w₀ <= 0 for each covered zero, row r
wants the set S of components that maximises

    Σ_{j ∈ ⋃_{l ∈ S} V_l} (w₁ if A_rj else w₀),

where unknown cells are left out of the sum. The default w₁ = 1, w₀ = −1 minimises the Hamming loss |A ⊕ (U∘V)|.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.kernels.bits import (
    GROUP,
    add_overlaps,
    as_boolean,
    best_gain,
    grouped_words,
    pack,
    places_among,
    popcount,
    words_of_row,
)
from felb.kernels.boolean import check_factors, unknown_arrays
from felb.kernels.compiler import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


def assign_rows(
    A: BinaryMatrix, V: Any, *, weight_one: float = 1.0, weight_zero: float = -1.0, sweeps: int = 3
) -> NDArray[np.bool_]:
    """Assign components to rows by greedy cover, then improve by coordinate descent.

    Each row starts empty and takes the component with the largest gain, the first one of equals, while that gain is
    positive. Then at most `sweeps` sweeps of `descend_rows` follow, which never make a row worse.

    Parameters
    ----------
    A : data, n × m
    V : Boolean array, k × m
    weight_one, weight_zero : gain of covering a one (w₁ >= 0) and of covering a zero (w₀ <= 0)
    sweeps : upper limit on the sweeps of coordinate descent; 0 leaves the greedy cover

    Returns
    -------
    Boolean array U, n × k
    """
    V = check_assignment(A, V, weight_one, weight_zero)
    U: NDArray[np.bool_] = np.zeros((A.shape[0], V.shape[0]), dtype=bool)
    _cover_into(U, A, V, weights=(float(weight_one), float(weight_zero)), limits=(V.shape[0], int(sweeps)))
    return U


def descend_rows(
    A: BinaryMatrix, V: Any, U: Any, *, weight_one: float = 1.0, weight_zero: float = -1.0, sweeps: int = 3
) -> NDArray[np.bool_]:
    """Improve U by coordinate descent on its rows and return the improved copy.

    A sweep visits the components of a row in order and switches component l on iff

        Σ_{j ∈ V_l, j not covered by the other active components} (w₁ if A_rj else w₀) > 0,

    so the gain of the row never falls. A row is done when a sweep changes nothing.
    """
    V = check_assignment(A, V, weight_one, weight_zero)
    U, V = check_factors(U, V, shape=A.shape)
    improved: NDArray[np.bool_] = U.copy(order="C")
    _cover_into(improved, A, V, weights=(float(weight_one), float(weight_zero)), limits=(0, int(sweeps)))
    return improved


def _cover_into(
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
    # Columns that no component has are left out of all words; of wide data these are most.
    used = np.asarray(V.any(axis=0))
    if not used.any():
        used[:1] = True  # there must be a word for what rows have
    components = V[:, used]
    packed = pack(components)
    parts = np.flatnonzero(packed)
    starts = np.searchsorted(parts, packed.shape[1] * np.arange(len(packed) + 1))
    table = packed, starts, parts % max(1, packed.shape[1]), grouped_words(components)
    cover_rows_into(U, A.indptr, A.indices, *unknown_arrays(A), places_among(used), table, *weights, *limits)


def check_assignment(A: BinaryMatrix, V: Any, weight_one: float, weight_zero: float) -> NDArray[np.bool_]:
    """Return V as a Boolean array, or say which argument cannot be used."""
    V_checked = as_boolean(V, "V")
    if V_checked.shape[1] != A.shape[1]:
        raise InputError(f"V has {V_checked.shape[1]} columns, but the data has {A.shape[1]}")
    if not (weight_one >= 0 >= weight_zero):
        raise InputError(
            f"weight_one={weight_one} and weight_zero={weight_zero}: covering a one must not cost (>= 0) and "
            "covering a zero must not pay (<= 0)"
        )
    return V_checked


# -- kernels ---------------------------------------------------------------------------------------------------------
#
# Counts are kept up to date for eight components at a time (`felb.kernels.bits`), and a change touches only the words
# of the changed component. The table holds the packed components, where the numbers of the words that each has columns
# in start, these numbers, and the grouped words of all. Of the row that is being assigned:
#   active     its active components, a row of U
#   bits       its ones, packed
#   hidden     its unknown cells, packed; they count as covered twice, so that no component gains or loses by them
#   cover      packed columns covered by at least one [0] and at least two [1] active components
#   counts     for each component, the ones [0] and the cells [1] of the row in it that no active component covers


@kernel
def cover_rows_into(
    U: Any,
    indptr: Any,
    indices: Any,
    unknown_indptr: Any,
    unknown_indices: Any,
    places: Any,
    table: Any,
    weight_one: float,
    weight_zero: float,
    additions: int,
    sweeps: int,
) -> None:
    """Extend the rows of U by up to so many components by greedy cover, and improve them by coordinate descent."""
    packed, starts, words, grouped = table
    k, n_words = packed.shape
    row = np.empty(n_words + 1, dtype=np.int64), np.empty(n_words + 1, dtype=np.uint64)
    changed = np.empty(n_words + 1, dtype=np.int64), np.empty((2, n_words + 1), dtype=np.uint64)
    bits = np.zeros(n_words + 1, dtype=np.uint64)
    hidden = np.zeros(n_words + 1, dtype=np.uint64)
    cover = np.zeros((2, n_words), dtype=np.uint64)
    counts = np.zeros((2, GROUP * grouped.shape[0]), dtype=np.int64)
    sizes = np.zeros(counts.shape[1], dtype=np.int64)
    for c in range(k):
        for w in range(n_words):
            sizes[c] += popcount(packed[c, w])
    for r in range(U.shape[0]):
        active = U[r]
        length = words_of_row(row[0], row[1], indices[indptr[r] : indptr[r + 1]], places)
        held_ones = np.uint64(0)
        for i in range(length):
            bits[row[0][i]] = row[1][i]
            held_ones |= row[1][i]
        if held_ones == np.uint64(0):  # no component can pay
            if sweeps > 0:
                active[:] = False
            continue
        counts[0] = 0
        counts[1] = sizes
        add_overlaps(counts[0], grouped, row[0], row[1], length, 1)
        state = active, bits, hidden, cover, counts
        has_unknown = unknown_indptr.shape[0] > 1 and unknown_indptr[r] < unknown_indptr[r + 1]
        if has_unknown:
            _hide(state, table, changed, unknown_indices[unknown_indptr[r] : unknown_indptr[r + 1]], places)
        for c in range(k):
            if active[c]:
                _switch(state, c, table, changed, True)
        # Whether no component that is off can pay: so it is where greedy cover ends by itself, until something changes.
        closed = False
        for _ in range(additions):
            best = best_gain(counts[0], counts[1], weight_one, weight_zero)
            closed = best < 0
            if closed:
                break
            _switch(state, best, table, changed, True)
        for _ in range(sweeps):
            improved = False
            for c in range(k):
                if active[c]:
                    ones, cells = _own(cover[1], bits, packed[c], words[starts[c] : starts[c + 1]])
                    if cell_gain(ones, cells, weight_one, weight_zero) > 0.0:
                        continue
                    _switch(state, c, table, changed, False)
                elif closed or not cell_gain(counts[0, c], counts[1, c], weight_one, weight_zero) > 0.0:
                    continue
                else:
                    _switch(state, c, table, changed, True)
                improved = True
                closed = False
            if not improved:
                break
        for i in range(length):
            bits[row[0][i]] = np.uint64(0)
        cover[:] = np.uint64(0)
        if has_unknown:
            hidden[:] = np.uint64(0)


@kernel
def _hide(state: Any, table: Any, changed: Any, unknown: Any, places: Any) -> None:
    """Take the unknown cells of a row out of all counts."""
    _active, _bits, hidden, cover, counts = state
    which, held = changed
    length = words_of_row(which, held[0], unknown, places)
    for i in range(length):
        hidden[which[i]] = held[0, i]
        cover[:, which[i]] = held[0, i]
    add_overlaps(counts[1], table[3], which, held[0], length, -1)


@kernel
def _switch(state: Any, c: int, table: Any, changed: Any, on: bool) -> None:
    """Switch component c on, which takes what it covers first out of all counts, or off, which brings it back."""
    active, bits, hidden, cover, counts = state
    packed, starts, words, grouped = table
    which, held = changed
    active[c] = on
    length = 0
    for i in range(starts[c], starts[c + 1]):
        w = words[i]
        if on:
            change = packed[c, w] & ~cover[0, w]
            cover[1, w] |= packed[c, w] ^ change
            cover[0, w] |= change
        else:
            once = hidden[w]
            twice = hidden[w]
            for other in range(packed.shape[0]):
                if active[other]:
                    twice |= once & packed[other, w]
                    once |= packed[other, w]
            change = cover[0, w] & ~once
            cover[0, w] = once
            cover[1, w] = twice
        which[length] = w
        held[0, length] = change & bits[w]
        held[1, length] = change
        length += int(change != np.uint64(0))
    sign = -1 if on else 1
    add_overlaps(counts[0], grouped, which, held[0], length, sign)
    add_overlaps(counts[1], grouped, which, held[1], length, sign)


@kernel
def _own(shared: Any, bits: Any, component: Any, words: Any) -> Any:
    """Return the ones and the cells of an active component that no other one covers."""
    ones = 0
    cells = 0
    for w in words:
        own = component[w] & ~shared[w]
        ones += popcount(own & bits[w])
        cells += popcount(own)
    return ones, cells


@kernel
def cell_gain(ones: int, cells: int, weight_one: float, weight_zero: float) -> float:
    """Return the gain of covering `cells` cells with that many `ones`."""
    return weight_one * ones + weight_zero * (cells - ones)
