"""Boolean U for a given Boolean V: which components describe each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.errors import InputError
from felb.kernels.bits import (
    GROUP,
    add_overlaps,
    as_boolean,
    best_gain,
    component_masks,
    grouped_words,
    intersection_sizes,
    lowest_bit,
    pack,
    places_among,
    popcount,
    words_of_row,
)
from felb.kernels.boolean import check_factors, unknown_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


# -- Boolean U for a given Boolean V and data without unknown cells, counted in packed words -------------------------
#
# The result is that of `felb.kernels.assign`. There, counts are made anew after every change of a row; here they are
# kept up to date, for eight components at a time (`felb.kernels.bits`), and a change touches only the words of the
# changed component. Columns that no component has are left out of all words; of wide data these are most.

MOST_COMPONENTS = 1 << 12
"""With more, the counts of a row would leave the first-level cache."""


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
#   active     its active components, a row of U
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
        for c in range(k):
            if active[c]:
                _switch_on(counts, cover, bits, active, c, packed, words, grouped, which, held)
        # Whether no component that is off can pay: so it is where greedy cover ends by itself, until something changes.
        closed = False
        for _ in range(additions):
            best = best_gain(counts[0], counts[1], weight_one, weight_zero)
            closed = best < 0
            if closed:
                break
            _switch_on(counts, cover, bits, active, best, packed, words, grouped, which, held)
        for _ in range(sweeps):
            changed = False
            for c in range(k):
                if active[c]:
                    ones, cells = _own(cover[1], bits, packed[c], words[1][words[0][c] : words[0][c + 1]])
                    if _gain(ones, cells, weight_one, weight_zero) > 0.0:
                        continue
                    _switch_off(counts, cover, bits, active, c, packed, words, grouped, which, held)
                elif closed or not _gain(counts[0, c], counts[1, c], weight_one, weight_zero) > 0.0:
                    continue
                else:
                    _switch_on(counts, cover, bits, active, c, packed, words, grouped, which, held)
                changed = True
                closed = False
            if not changed:
                break
        for i in range(length):
            bits[row[0][i]] = np.uint64(0)
        cover[:] = np.uint64(0)


@njit(cache=True, nogil=True)
def _switch_on(
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
) -> None:
    """Switch component c on; what it covers first is taken out of all counts."""
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
    active[c] = True


@njit(cache=True, nogil=True)
def _switch_off(
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
) -> None:
    """Switch component c off; what it alone covers comes back into all counts."""
    active[c] = False
    length = 0
    for i in range(words[0][c], words[0][c + 1]):
        w = words[1][i]
        once = np.uint64(0)
        twice = np.uint64(0)
        for other in range(packed.shape[0]):
            if active[other]:
                twice |= once & packed[other, w]
                once |= packed[other, w]
        free = cover[0, w] & ~once
        cover[0, w] = once
        cover[1, w] = twice
        which[length] = w
        held[0, length] = free & bits[w]
        held[1, length] = free
        length += int(free != np.uint64(0))
    add_overlaps(counts[0], grouped, which, held[0], length, 1)
    add_overlaps(counts[1], grouped, which, held[1], length, 1)


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
def _gain(ones: int, cells: int, weight_one: float, weight_zero: float) -> float:
    return weight_one * ones + weight_zero * (cells - ones)


# -- Boolean U for a given Boolean V: which components describe each row ---------------------------------------------
#
# Every row is a problem of its own. With a gain of w₁ >= 0 for each covered one and w₀ <= 0 for each covered zero, row
# r wants the set S of components that maximises
#
#     Σ_{j ∈ ⋃_{l ∈ S} V_l} (w₁ if A_rj else w₀),
#
# where unknown cells are left out of the sum.
#
# The default w₁ = 1, w₀ = −1 minimises the Hamming loss |A ⊕ (U∘V)|.

PACKED_ADVANTAGE = 8.0
"""How many packed words are counted in the time that one component of one column takes in a sparse row."""


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
    _cover(U, A, V, weights=(float(weight_one), float(weight_zero)), limits=(V.shape[0], int(sweeps)))
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
    _cover(improved, A, V, weights=(float(weight_one), float(weight_zero)), limits=(0, int(sweeps)))
    return improved


def _cover(
    U: NDArray[np.bool_],
    A: BinaryMatrix,
    V: NDArray[np.bool_],
    *,
    weights: tuple[float, float],
    limits: tuple[int, int],
) -> None:
    """Extend and improve the rows of U in place; `weights` and `limits` as in `cover_in_words_into`."""
    if V.shape[0] <= MOST_COMPONENTS and A.unknown is None:
        cover_in_words_into(U, A, V, weights=weights, limits=limits)
        return
    additions, sweeps = limits
    tables = *unknown_arrays(A), *component_tables(V)
    cover_rows_into(U, A.indptr, A.indices, *tables, *weights, sweeps, additions)


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


def component_tables(V: NDArray[np.bool_]) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
    """Return V in the forms the kernels ask for: column masks, packed rows and pairwise overlaps |V_a ∩ V_b|."""
    packed = pack(V)
    return component_masks(V.T), packed, intersection_sizes(packed)


# -- kernels ---------------------------------------------------------------------------------------------------------
#
# All work on one row at a time, in buffers that serve all rows:
#   active          mask of the row's active components
#   columns, bits   the row itself: the masks of its ones, or, if it has so many that words are cheaper, packed
#   cover           packed columns covered by at least one [0] and at least two [1] active components
#   counts          for each component, of its columns that no *other* active component covers:
#                   how many are ones of the row, and a lower and an upper bound on how many there are
#   known           components without the columns that are unknown in the row, in place of all; then it is packed
# The bounds come from pairwise overlaps. They are tight with up to one other component and decide most cases
# beyond; only the rest needs the wide packed words.

ONES, FEWEST, MOST = 0, 1, 2
IS_PACKED = -1


@njit(cache=True, nogil=True)
def cover_rows_into(
    U: Any,
    indptr: Any,
    indices: Any,
    unknown_indptr: Any,
    unknown_indices: Any,
    masks: Any,
    packed: Any,
    pairs: Any,
    weight_one: float,
    weight_zero: float,
    sweeps: int,
    additions: int,
) -> None:
    """Extend the rows of U by up to so many components by greedy cover, and improve them by coordinate descent."""
    columns, bits, active, cover, counts, limit = _buffers(masks, packed, pairs)
    known = np.empty_like(packed)
    for r in range(U.shape[0]):
        part, most = _known_part(known, packed, limit, r, unknown_indptr, unknown_indices)
        length = _load_row(columns, bits, active, U, r, indptr, indices, masks, most)
        _recount(counts, cover, active, columns, length, bits, part, pairs)
        for _ in range(additions):
            best = _best_addition(counts, cover, active, part, weight_one, weight_zero)
            if best < 0:
                break
            active[best >> 6] |= np.uint64(1) << np.uint64(best & 63)
            _recount(counts, cover, active, columns, length, bits, part, pairs)
        _descend(counts, cover, active, columns, length, bits, part, pairs, weight_one, weight_zero, sweeps)
        _store_row(U, r, active)


@njit(cache=True, nogil=True)
def _buffers(masks: Any, packed: Any, pairs: Any) -> Any:
    """Return the buffers, and the number of ones from which a row is packed."""
    k, n_words = packed.shape
    memberships = 0
    for c in range(k):
        memberships += pairs[c, c]
    work_per_one = PACKED_ADVANTAGE * (1.0 + memberships / max(1, masks.shape[0]))
    limit = min(np.int64(k * n_words / work_per_one) + 1, masks.shape[0])
    columns = np.empty((limit + 1, masks.shape[1]), dtype=np.uint64)
    bits = np.empty(n_words, dtype=np.uint64)
    active = np.empty(masks.shape[1], dtype=np.uint64)
    cover = np.empty((2, n_words), dtype=np.uint64)
    counts = np.empty((3, k), dtype=np.int64)
    return columns, bits, active, cover, counts, limit


@njit(cache=True, nogil=True)
def _known_part(known: Any, packed: Any, limit: int, r: int, unknown_indptr: Any, unknown_indices: Any) -> Any:
    """Return the components in the known columns of row r, and the number of ones from which the row is packed."""
    if unknown_indptr.shape[0] == 1 or unknown_indptr[r] == unknown_indptr[r + 1]:
        return packed, limit
    known[:] = packed
    for p in range(unknown_indptr[r], unknown_indptr[r + 1]):
        j = np.int64(unknown_indices[p])
        for c in range(packed.shape[0]):
            known[c, j >> 6] &= ~(np.uint64(1) << np.uint64(j & 63))
    return known, -1


@njit(cache=True, nogil=True)
def _load_row(
    columns: Any, bits: Any, active: Any, U: Any, r: int, indptr: Any, indices: Any, masks: Any, limit: int
) -> Any:
    """Bring row r into the buffers; return how many column masks it has, or IS_PACKED."""
    active[:] = np.uint64(0)
    for c in range(U.shape[1]):
        if U[r, c]:
            active[c >> 6] |= np.uint64(1) << np.uint64(c & 63)
    if indptr[r + 1] - indptr[r] > limit:
        bits[:] = np.uint64(0)
        for p in range(indptr[r], indptr[r + 1]):
            j = np.int64(indices[p])
            bits[j >> 6] |= np.uint64(1) << np.uint64(j & 63)
        return IS_PACKED
    length = 0
    for p in range(indptr[r], indptr[r + 1]):
        j = np.int64(indices[p])
        used = np.uint64(0)
        for w in range(masks.shape[1]):
            columns[length, w] = masks[j, w]
            used |= masks[j, w]
        # Columns of no component are overwritten by the next one.
        length += int(used != np.uint64(0))
    return length


@njit(cache=True, nogil=True)
def _store_row(U: Any, r: int, active: Any) -> None:
    for c in range(U.shape[1]):
        U[r, c] = _is_active(active, c)


@njit(cache=True, nogil=True)
def _is_active(active: Any, c: int) -> Any:
    return (active[c >> 6] >> np.uint64(c & 63)) & np.uint64(1) != np.uint64(0)


@njit(cache=True, nogil=True)
def _recount(
    counts: Any, cover: Any, active: Any, columns: Any, length: int, bits: Any, packed: Any, pairs: Any
) -> None:
    """Bring cover and counts up to date with the active components."""
    if length == IS_PACKED:
        _cover_into(cover, active, packed)
        _count_words_into(counts, cover, active, bits, packed)
    else:
        _count_columns_into(counts, active, columns, length)
        if _bound_cells_into(counts, active, pairs) > 1:
            _cover_into(cover, active, packed)


@njit(cache=True, nogil=True)
def _cover_into(cover: Any, active: Any, packed: Any) -> None:
    cover[:] = np.uint64(0)
    for word in range(active.shape[0]):
        left = active[word]
        while left != np.uint64(0):
            c = (word << 6) + lowest_bit(left)
            left &= left - np.uint64(1)
            for w in range(packed.shape[1]):
                cover[1, w] |= cover[0, w] & packed[c, w]
                cover[0, w] |= packed[c, w]


@njit(cache=True, nogil=True)
def _count_words_into(counts: Any, cover: Any, active: Any, bits: Any, packed: Any) -> None:
    """Count ones and cells of each component from packed words; the bounds coincide."""
    for c in range(packed.shape[0]):
        # What another component covers, an active one covers for the second time.
        others = int(_is_active(active, c))
        ones = 0
        cells = 0
        for w in range(packed.shape[1]):
            left = packed[c, w] & ~cover[others, w]
            ones += popcount(left & bits[w])
            cells += popcount(left)
        counts[ONES, c] = ones
        counts[FEWEST, c] = cells
        counts[MOST, c] = cells


@njit(cache=True, nogil=True)
def _count_columns_into(counts: Any, active: Any, columns: Any, length: int) -> None:
    """Count the ones of each component from the masks of the row's ones."""
    for c in range(counts.shape[1]):
        counts[ONES, c] = 0
    for i in range(length):
        covers = 0
        for w in range(active.shape[0]):
            covers += popcount(columns[i, w] & active[w])
        if covers > 1:
            continue
        for w in range(active.shape[0]):
            # Uncovered: every component of the column could claim it. Covered once: it belongs to that component.
            left = columns[i, w] if covers == 0 else columns[i, w] & active[w]
            while left != np.uint64(0):
                counts[ONES, (w << 6) + lowest_bit(left)] += 1
                left &= left - np.uint64(1)


@njit(cache=True, nogil=True)
def _bound_cells_into(counts: Any, active: Any, pairs: Any) -> int:
    """Bound the cells of each component c by its overlaps with the active components a; return how many these are.

    |V_c| − Σ_{a != c} |V_c ∩ V_a| <= cells <= |V_c| − max_{a != c} |V_c ∩ V_a|, and ones <= cells.
    """
    k = pairs.shape[0]
    for c in range(k):
        counts[FEWEST, c] = pairs[c, c]
        counts[MOST, c] = pairs[c, c]
    members = 0
    for word in range(active.shape[0]):
        left = active[word]
        while left != np.uint64(0):
            a = (word << 6) + lowest_bit(left)
            left &= left - np.uint64(1)
            members += 1
            for c in range(k):
                if c != a:
                    counts[FEWEST, c] -= pairs[a, c]
                    counts[MOST, c] = min(counts[MOST, c], pairs[c, c] - pairs[a, c])
    if members > 1:
        for c in range(k):
            counts[FEWEST, c] = max(counts[FEWEST, c], counts[ONES, c])
    return members


@njit(cache=True, nogil=True)
def _settle_cells(counts: Any, cover: Any, active: Any, packed: Any, c: int) -> None:
    """Replace the bounds on the cells of component c by their number."""
    if counts[FEWEST, c] != counts[MOST, c]:
        others = int(_is_active(active, c))
        cells = 0
        for w in range(packed.shape[1]):
            cells += popcount(packed[c, w] & ~cover[others, w])
        counts[FEWEST, c] = cells
        counts[MOST, c] = cells


@njit(cache=True, nogil=True)
def cell_gain(ones: int, cells: int, weight_one: float, weight_zero: float) -> float:
    """Return the gain of covering `cells` cells with that many `ones`; it never rises with `cells`."""
    return weight_one * ones + weight_zero * (cells - ones)


@njit(cache=True, nogil=True)
def _best_addition(counts: Any, cover: Any, active: Any, packed: Any, weight_one: float, weight_zero: float) -> int:
    """Return the inactive component with the largest positive gain, the first of equals, or −1."""
    best = -1
    best_gain = 0.0
    for c in range(counts.shape[1]):
        if cell_gain(counts[ONES, c], counts[FEWEST, c], weight_one, weight_zero) > best_gain and not _is_active(
            active, c
        ):
            _settle_cells(counts, cover, active, packed, c)
            gain = cell_gain(counts[ONES, c], counts[MOST, c], weight_one, weight_zero)
            if gain > best_gain:
                best = c
                best_gain = gain
    return best


@njit(cache=True, nogil=True)
def _pays(counts: Any, cover: Any, active: Any, packed: Any, c: int, weight_one: float, weight_zero: float) -> bool:
    """Tell whether component c has a positive gain given the other active components."""
    if cell_gain(counts[ONES, c], counts[FEWEST, c], weight_one, weight_zero) <= 0.0:
        return False
    if cell_gain(counts[ONES, c], counts[MOST, c], weight_one, weight_zero) > 0.0:
        return True
    _settle_cells(counts, cover, active, packed, c)
    return bool(cell_gain(counts[ONES, c], counts[MOST, c], weight_one, weight_zero) > 0.0)


@njit(cache=True, nogil=True)
def _descend(
    counts: Any,
    cover: Any,
    active: Any,
    columns: Any,
    length: int,
    bits: Any,
    packed: Any,
    pairs: Any,
    weight_one: float,
    weight_zero: float,
    sweeps: int,
) -> None:
    for _ in range(sweeps):
        changed = False
        for c in range(counts.shape[1]):
            if _pays(counts, cover, active, packed, c, weight_one, weight_zero) != _is_active(active, c):
                active[c >> 6] ^= np.uint64(1) << np.uint64(c & 63)
                _recount(counts, cover, active, columns, length, bits, packed, pairs)
                changed = True
        if not changed:
            break
