"""Sets as bits: Boolean rows packed into 64-bit words, and the counts that packing makes cheap.

Bit ``j % 64`` of word ``j // 64`` stands for entry j. Two packings are used throughout:

- *packed rows*: a k × m Boolean matrix as k × ⌈m/64⌉ words, one row per component, for counting cells;
- *masks*: a row or column described by the components it belongs to, ⌈k/64⌉ words each. Cell (r, j) of U∘V is one
  iff the mask of row r and the mask of column j intersect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

WORD = 64
"""Bits in a word."""


# -- single words, usable in kernels and in plain Python -------------------------------------------------------------


def popcount(word: Any) -> int:
    """Return the number of one bits of a 64-bit word; one machine instruction inside kernels."""
    return int(word).bit_count()


def lowest_bit(word: Any) -> int:
    """Return the position of the lowest one bit of a word that is not zero."""
    return (int(word) & -int(word)).bit_length() - 1


def _population(_typing: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


def _trailing_zeros(_typing: Any, _word: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        # The flag tells the compiler that the word is not zero, which saves a branch.
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.int64(types.uint64), generate


_ctpop: Any = intrinsic(_population)
_cttz: Any = intrinsic(_trailing_zeros)


@overload(popcount)
def _compiled_popcount(word: Any) -> Any:  # noqa: ARG001  (Numba passes the type under this name)
    def compiled(word: Any) -> Any:
        return _ctpop(word)

    return compiled


@overload(lowest_bit)
def _compiled_lowest_bit(word: Any) -> Any:  # noqa: ARG001
    def compiled(word: Any) -> Any:
        return _cttz(word)

    return compiled


# -- packing ---------------------------------------------------------------------------------------------------------


def words_for(n_bits: int) -> int:
    """Return how many words hold `n_bits` bits."""
    return (n_bits + WORD - 1) // WORD


def as_boolean(matrix: Any, name: str = "matrix") -> NDArray[np.bool_]:
    """Return `matrix` as a two-dimensional Boolean array, or say what is wrong with it."""
    array = np.asarray(matrix)
    if array.dtype != np.bool_:
        raise InputError(f"{name} must be a Boolean array, got {array.dtype}; threshold it first, as in {name} > 0.5")
    if array.ndim != 2:
        raise InputError(f"{name} must have two dimensions, got {array.ndim}")
    return array


def pack(matrix: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Pack the rows of a k × m Boolean matrix into k × ⌈m/64⌉ words; bits beyond column m are zero."""
    rows, columns = matrix.shape
    packed = np.zeros((rows, 8 * words_for(columns)), dtype=np.uint8)
    if rows and columns:
        packed[:, : (columns + 7) // 8] = np.packbits(matrix, axis=1, bitorder="little")
    # Bytes are laid out low to high; reading them as little-endian keeps bit j in place on every machine.
    return packed.view("<u8").astype(np.uint64, copy=False)


def unpack(words: NDArray[np.uint64], n_columns: int) -> NDArray[np.bool_]:
    """Undo `pack`: k × ⌈m/64⌉ words to a k × m Boolean matrix."""
    if not n_columns:
        return np.zeros((words.shape[0], 0), dtype=bool)
    packed = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(packed, axis=1, count=n_columns, bitorder="little").view(np.bool_)


def component_masks(members: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Describe each row of an n × k Boolean matrix by the components it belongs to, n × max(1, ⌈k/64⌉) words.

    Row masks are ``component_masks(U)``, column masks ``component_masks(V.T)``. There is always at least one word, so
    no kernel has to treat "no components" on its own.
    """
    if members.shape[1] <= WORD and members.flags.f_contiguous:  # the transpose of V, which `pack` would walk in jumps
        masks = np.zeros(members.shape[0], dtype=np.uint64)
        masks_into(masks, members.T)
        return masks[:, None]
    if not members.shape[1]:
        return np.zeros((members.shape[0], 1), dtype=np.uint64)
    return pack(members)


def group_masks(
    masks: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Group equal masks: the distinct ones (sorted), the group of each mask, and how many masks each group has.

    Whatever depends on a row only through its mask needs to be computed once per group.
    """
    if masks.shape[1] == 1:
        return _group_words(np.ascontiguousarray(masks[:, 0]))
    distinct, group, sizes = np.unique(masks, axis=0, return_inverse=True, return_counts=True)
    return distinct, group.reshape(-1).astype(np.int64, copy=False), sizes.astype(np.int64, copy=False)


def _group_words(words: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Do `group_masks` for masks of one word: hashing finds the groups, and only distinct words are sorted."""
    group, distinct = np.empty(words.size, dtype=np.int64), np.empty_like(words)
    slots = np.full(1 << max(1, (2 * words.size).bit_length()), -1, dtype=np.int64)
    distinct = distinct[: int(group_words_into(group, distinct, slots, words))]
    order = np.argsort(distinct)
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    group = rank[group]
    return distinct[order][:, None], group, np.bincount(group, minlength=order.size)


def order_by_group(group: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of all members group after group, ascending within a group, for groups of these sizes."""
    order = np.empty(group.size, dtype=np.int64)
    order_by_group_into(order, np.cumsum(sizes) - sizes, group)
    return order


def count_bits(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the number of one bits in each row of words."""
    counts: NDArray[np.int64] = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    return counts


def intersection_sizes(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return |S_a ∩ S_b| for all pairs of packed rows, k × k; the diagonal holds the sizes |S_a|."""
    sizes = np.empty((words.shape[0], words.shape[0]), dtype=np.int64)
    for a in range(words.shape[0]):
        sizes[a] = count_bits(words & words[a])
    return sizes


def pack_binary(A: BinaryMatrix) -> NDArray[np.uint64]:
    """Pack a sparse binary matrix row by row: n × ⌈m/64⌉ words."""
    words = np.zeros((A.shape[0], words_for(A.shape[1])), dtype=np.uint64)
    pack_binary_into(words, A.indptr, A.indices)
    return words


def pack_binary_columns(A: BinaryMatrix) -> NDArray[np.uint64]:
    """Pack a sparse binary matrix column by column: m × ⌈n/64⌉ words."""
    words = np.zeros((A.shape[1], words_for(A.shape[0])), dtype=np.uint64)
    pack_binary_columns_into(words, A.indptr, A.indices)
    return words


# -- kernels ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def masks_into(masks: Any, sets: Any) -> None:
    """Set bit c of ``masks[j]`` (zero on entry) for every column j of set c."""
    for c in range(sets.shape[0]):
        for j in range(sets.shape[1]):
            masks[j] |= np.uint64(sets[c, j]) << np.uint64(c)


@njit(cache=True, nogil=True)
def group_words_into(group: Any, distinct: Any, slots: Any, words: Any) -> int:
    """Number the distinct words as they come, and tell the number of each word; return how many there are.

    `slots` is a hash table with linear probing, of a power of two of places, filled with −1.
    """
    mask = np.uint64(slots.shape[0] - 1)
    count = 0
    for i in range(words.shape[0]):
        word = words[i]
        mixed = (word ^ (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
        place = ((mixed * np.uint64(0x9E3779B1)) >> np.uint64(7)) & mask
        while slots[place] >= 0 and distinct[slots[place]] != word:
            place = (place + np.uint64(1)) & mask
        if slots[place] < 0:
            slots[place] = count
            distinct[count] = word
            count += 1
        group[i] = slots[place]
    return count


@njit(cache=True, nogil=True)
def order_by_group_into(order: Any, starts: Any, group: Any) -> None:
    """Write each place to where the next member of its group belongs; `starts` is used up."""
    for i in range(group.shape[0]):
        order[starts[group[i]]] = i
        starts[group[i]] += 1


@njit(cache=True, nogil=True)
def pack_binary_into(words: Any, indptr: Any, indices: Any) -> None:
    """Set bit j of row r in `words` (zero on entry) for every one (r, j)."""
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            j = np.int64(indices[p])
            words[r, j >> 6] |= np.uint64(1) << np.uint64(j & 63)


@njit(cache=True, nogil=True)
def pack_binary_columns_into(words: Any, indptr: Any, indices: Any) -> None:
    """Set bit r of row j in `words` (zero on entry) for every one (r, j)."""
    for r in range(indptr.shape[0] - 1):
        bit = np.uint64(1) << np.uint64(r & 63)
        for p in range(indptr[r], indptr[r + 1]):
            words[indices[p], r >> 6] |= bit


@njit(cache=True, nogil=True)
def union_into(union: Any, mask: Any, packed: Any) -> None:
    """Write the OR of the packed rows that `mask` names into `union`."""
    union[:] = np.uint64(0)
    for word in range(mask.shape[0]):
        bits = mask[word]
        while bits != np.uint64(0):
            row = packed[(word << 6) + lowest_bit(bits)]
            bits &= bits - np.uint64(1)
            for w in range(union.shape[0]):
                union[w] |= row[w]
