"""Sets as bits: Boolean rows packed into 64-bit words, and counts over many of them in vector code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from felb.errors import InputError
from felb.kernels.compiler import kernel
from felb.kernels.vector import data_of, emit_splat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


# Bit ``j % 64`` of word ``j // 64`` stands for entry j. Two packings are used throughout:
#
# - *packed rows*: a k × m Boolean matrix as k × ⌈m/64⌉ words, one row per component, for counting cells;
# - *masks*: a row or column described by the components it belongs to, ⌈k/64⌉ words each. Cell (r, j) of U∘V is one
#   iff the mask of row r and the mask of column j intersect.

WORD = 64
"""Bits in a word."""

_I1, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 16, 32, 64))


# -- single words, usable in kernels and in plain Python -------------------------------------------------------------


def popcount(word: Any) -> int:
    """Return the number of one bits of a 64-bit word; one machine instruction inside kernels."""
    return int(word).bit_count()


def lowest_bit(word: Any) -> int:
    """Return the position of the lowest one bit of a word that is not zero."""
    return (int(word) & -int(word)).bit_length() - 1


@intrinsic
def _ctpop(typingctx: Any, word: Any) -> Any:
    return types.int64(types.uint64), lambda _context, b, _sig, args: b.ctpop(args[0])


@intrinsic
def _cttz(typingctx: Any, word: Any) -> Any:
    # The flag tells the compiler that the word is not zero, which saves a branch.
    return types.int64(types.uint64), lambda _context, b, _sig, args: b.cttz(args[0], ir.Constant(_I1, True))


@overload(popcount)
def _compiled_popcount(word: Any) -> Any:
    def compiled(word: Any) -> Any:
        return _ctpop(word)

    return compiled


@overload(lowest_bit)
def _compiled_lowest_bit(word: Any) -> Any:
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


@kernel
def masks_into(masks: Any, sets: Any) -> None:
    """Set bit c of ``masks[j]`` (zero on entry) for every column j of set c."""
    for c in range(sets.shape[0]):
        for j in range(sets.shape[1]):
            masks[j] |= np.uint64(sets[c, j]) << np.uint64(c)


@kernel
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


@kernel
def order_by_group_into(order: Any, starts: Any, group: Any) -> None:
    """Write each place to where the next member of its group belongs; `starts` is used up."""
    for i in range(group.shape[0]):
        order[starts[group[i]]] = i
        starts[group[i]] += 1


@kernel
def pack_binary_into(words: Any, indptr: Any, indices: Any) -> None:
    """Set bit j of row r in `words` (zero on entry) for every one (r, j)."""
    for r in range(indptr.shape[0] - 1):
        pack_row_into(words[r], indices[indptr[r] : indptr[r + 1]])


@kernel
def pack_row_into(words: Any, row: Any) -> None:
    """Set bit j of `words` (zero on entry) for every column j of a row."""
    for column in row:
        j = np.int64(column)
        words[j >> 6] |= np.uint64(1) << np.uint64(j & 63)


@kernel
def pack_binary_columns_into(words: Any, indptr: Any, indices: Any) -> None:
    """Set bit r of row j in `words` (zero on entry) for every one (r, j)."""
    for r in range(indptr.shape[0] - 1):
        bit = np.uint64(1) << np.uint64(r & 63)
        for p in range(indptr[r], indptr[r + 1]):
            words[indices[p], r >> 6] |= bit


@kernel
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


# -- Counts over many bit sets at once, in vector code: eight 64-bit words, or thirty-two 16-bit counters, at a time -
#
# Each function is written in plain Python, for use without a compiler, and as LLVM's vector instructions for use within
# kernels. LLVM maps a vector to one AVX-512 register or to several smaller ones, so the same code runs everywhere.
#
# Numba notices changes of a cached function only in the file of that function. After an edit here, remove the compiled
# kernels (``make clean``).

GROUP = 8
"""Sets whose words are counted side by side."""

COUNTERS = 32
"""Counters that are changed side by side."""

MOST_COUNTED = (1 << 16) - 1
"""A counter of 16 bits holds no more."""

_WORDS, _GAINS, _LANES = (
    ir.VectorType(_I64, GROUP),
    ir.VectorType(ir.DoubleType(), GROUP),
    ir.VectorType(_I16, COUNTERS),
)


def grouped_words(sets: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Pack k sets of columns for `add_overlaps`: ⌈k/8⌉ × words × 8, the same word of eight sets side by side."""
    packed = pack(sets)
    groups = -(-len(packed) // GROUP)
    padded = np.zeros((groups * GROUP, packed.shape[1]), dtype=np.uint64)
    padded[: len(packed)] = packed
    return np.ascontiguousarray(padded.reshape(groups, GROUP, packed.shape[1]).transpose(0, 2, 1))


def places_among(used: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Number the used columns one after the other, for `words_of_row`: twice the number, plus one for a used column.

    A column that is not used has the number of the last used one before it, so that numbers never fall.
    """
    number = np.maximum(np.cumsum(used) - 1, 0)
    return np.asarray(2 * number + used, dtype=np.int32)


@kernel
def words_of_row(which: Any, words: Any, row: Any, places: Any) -> int:
    """Write the words of a row that have used columns, and their numbers; return how many there are.

    `row` holds ascending columns, `places` comes from `places_among`. Some of the words may be zero.
    """
    last = np.int64(-1)
    length = -1
    word = np.uint64(0)
    for j in row:
        place = np.int64(places[j])
        bit = np.uint64(place & 1) << np.uint64((place >> 1) & 63)
        at = place >> 7
        new = at != last
        word = bit if new else word | bit
        length += int(new)
        last = at
        which[length] = at
        words[length] = word
    return length + 1


# -- |S ∩ W| for eight sets at a time ----------------------------------------------------------------------------------


def add_overlaps(counts: Any, table: Any, which: Any, words: Any, length: int, sign: int) -> None:
    """Add ``sign`` · |S ∩ W| to ``counts[s]`` for every set S of a table of `grouped_words`.

    W is given by the first `length` of `words`, of which `which` tells the numbers.
    """
    for s in range(counts.shape[0]):
        for i in range(length):
            counts[s] += sign * popcount(table[s // GROUP, which[i], s % GROUP] & words[i])


@overload(add_overlaps)
def _compiled_add_overlaps(counts: Any, table: Any, which: Any, words: Any, length: Any, sign: Any) -> Any:
    def compiled(counts: Any, table: Any, which: Any, words: Any, length: Any, sign: Any) -> None:
        for group in range(table.shape[0]):
            _add_overlaps(counts, table, group * table.shape[1], which, words, length, sign, group * GROUP)

    return compiled


@intrinsic
def _add_overlaps(
    typingctx: Any, counts: Any, table: Any, first: Any, which: Any, words: Any, length: Any, sign: Any, at: Any
) -> Any:
    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        counts_at, table_at, which_at, words_at = (data_of(context, b, sig, args, i) for i in (0, 1, 3, 4))
        total = cgutils.alloca_once_value(b, ir.Constant(_WORDS, [0] * GROUP))
        ctpop = cgutils.get_or_insert_function(b.module, ir.FunctionType(_WORDS, [_WORDS]), f"llvm.ctpop.v{GROUP}i64")
        with cgutils.for_range_slice(b, _int(0), args[5], _int(1), _I64) as (i, _):
            line = b.mul(b.add(args[2], b.load(b.gep(which_at, [i]))), _int(GROUP))
            common = b.and_(_load(b, table_at, line, _WORDS, 8), _splat(b, b.load(b.gep(words_at, [i]))))
            b.store(b.add(b.load(total), b.call(ctpop, [common])), total)
        old = _load(b, counts_at, args[7], _WORDS, 8)
        new = b.add(old, b.mul(_splat(b, args[6]), b.load(total)))
        b.store(new, b.bitcast(b.gep(counts_at, [args[7]]), _WORDS.as_pointer()), align=8)
        return context.get_dummy_value()

    number = types.int64
    return types.void(counts, table, number, which, words, number, number, number), codegen


# -- gains of eight sets at a time -------------------------------------------------------------------------------------


def best_gain(ones: Any, cells: Any, weight_one: float, weight_zero: float) -> int:
    """Return the first place with the largest gain w₁·ones + w₀·(cells − ones), or −1 if none is positive."""
    best, most = -1, 0.0
    for c in range(ones.shape[0]):
        gain = weight_one * ones[c] + weight_zero * (cells[c] - ones[c])
        if gain > most:
            best, most = c, gain
    return best


@overload(best_gain)
def _compiled_best_gain(ones: Any, cells: Any, weight_one: Any, weight_zero: Any) -> Any:
    def compiled(ones: Any, cells: Any, weight_one: Any, weight_zero: Any) -> Any:
        return _best_gain(ones, cells, ones.shape[0], weight_one, weight_zero)

    return compiled


@intrinsic
def _best_gain(typingctx: Any, ones: Any, cells: Any, size: Any, weight_one: Any, weight_zero: Any) -> Any:
    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        ones_at, cells_at = data_of(context, b, sig, args, 0), data_of(context, b, sig, args, 1)
        weights = _splat(b, args[3]), _splat(b, args[4])
        gains = cgutils.alloca_once_value(b, ir.Constant(_GAINS, [0.0] * GROUP))
        places = cgutils.alloca_once_value(b, ir.Constant(_WORDS, [-1] * GROUP))
        with cgutils.for_range_slice(b, _int(0), args[2], _int(GROUP), _I64) as (at, _):
            _, _, gain = _gains(b, ones_at, cells_at, at, weights)
            here = b.add(_splat(b, at), ir.Constant(_WORDS, list(range(GROUP))))
            larger = b.fcmp_ordered(">", gain, b.load(gains))
            b.store(b.select(larger, gain, b.load(gains)), gains)
            b.store(b.select(larger, here, b.load(places)), places)
        # Each lane has the first of its largest gains; of these, the first of the largest.
        most, best = b.load(gains), b.load(places)
        gain, place = (b.extract_element(x, _int(0)) for x in (most, best))
        for lane in range(1, GROUP):
            other, there = (b.extract_element(x, _int(lane)) for x in (most, best))
            before = b.icmp_unsigned("<", there, place)  # "none" is larger than any place
            wins = b.or_(b.fcmp_ordered(">", other, gain), b.and_(b.fcmp_ordered("==", other, gain), before))
            gain, place = b.select(wins, other, gain), b.select(wins, there, place)
        return place

    return types.int64(ones, cells, types.int64, types.float64, types.float64), codegen


def add_paying(added: Any, ones: Any, cells: Any, weight_one: float, weight_zero: float) -> None:
    """Add ones to ``added[0]`` and zeros, cells − ones, to ``added[1]`` in the places with a positive gain."""
    for c in range(ones.shape[0]):
        if weight_one * ones[c] + weight_zero * (cells[c] - ones[c]) > 0.0:
            added[0, c] += ones[c]
            added[1, c] += cells[c] - ones[c]


@overload(add_paying)
def _compiled_add_paying(added: Any, ones: Any, cells: Any, weight_one: Any, weight_zero: Any) -> Any:
    def compiled(added: Any, ones: Any, cells: Any, weight_one: Any, weight_zero: Any) -> None:
        _add_paying(added, ones, cells, ones.shape[0], weight_one, weight_zero)

    return compiled


@intrinsic
def _add_paying(typingctx: Any, added: Any, ones: Any, cells: Any, size: Any, weight_one: Any, weight_zero: Any) -> Any:
    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        added_at, ones_at, cells_at = (data_of(context, b, sig, args, i) for i in range(3))
        weights, nothing = (_splat(b, args[4]), _splat(b, args[5])), ir.Constant(_WORDS, [0] * GROUP)
        with cgutils.for_range_slice(b, _int(0), args[3], _int(GROUP), _I64) as (at, _):
            covered, zeros, gain = _gains(b, ones_at, cells_at, at, weights)
            pays = b.fcmp_ordered(">", gain, ir.Constant(_GAINS, [0.0] * GROUP))
            for place, more in ((at, covered), (b.add(at, args[3]), zeros)):
                total = b.add(_load(b, added_at, place, _WORDS, 8), b.select(pays, more, nothing))
                b.store(total, b.bitcast(b.gep(added_at, [place]), _WORDS.as_pointer()), align=8)
        return context.get_dummy_value()

    number = types.float64
    return types.void(added, ones, cells, types.int64, number, number), codegen


# -- counters of components --------------------------------------------------------------------------------------------


def add_bits(counters: Any, row: int, mask: Any) -> None:
    """Add 1 to ``counters[row, l]`` for every component l of a mask; rows have 32 or 64 counters of 16 bits."""
    for c in range(counters.shape[1]):
        counters[row, c] += (int(mask) >> c) & 1


@overload(add_bits)
def _compiled_add_bits(counters: Any, row: Any, mask: Any) -> Any:
    def compiled(counters: Any, row: Any, mask: Any) -> None:
        at = np.int64(row) * counters.shape[1]
        _add_bits(counters, at, mask)
        if counters.shape[1] > COUNTERS:
            _add_bits(counters, at + COUNTERS, mask >> np.uint64(COUNTERS))

    return compiled


@intrinsic
def _add_bits(typingctx: Any, counters: Any, at: Any, mask: Any) -> Any:
    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        place = b.bitcast(b.gep(data_of(context, b, sig, args, 0), [args[1]]), _LANES.as_pointer())
        bits = b.bitcast(b.trunc(args[2], _I32), ir.VectorType(_I1, COUNTERS))
        b.store(b.add(b.load(place, align=2), b.zext(bits, _LANES)), place, align=2)
        return context.get_dummy_value()

    return types.void(counters, types.int64, types.uint64), codegen


# -- how the code above is generated -----------------------------------------------------------------------------------


def _gains(b: Any, ones_at: Any, cells_at: Any, at: Any, weights: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    """Return eight numbers of ones and of zeros, and their gains w₁·ones + w₀·zeros."""
    ones = _load(b, ones_at, at, _WORDS, 8)
    zeros = b.sub(_load(b, cells_at, at, _WORDS, 8), ones)
    parts = (b.fmul(weight, b.sitofp(x, _GAINS)) for weight, x in zip(weights, (ones, zeros), strict=True))
    return ones, zeros, b.fadd(*parts)


def _int(x: int) -> Any:
    return ir.Constant(_I64, x)


def _load(b: Any, base: Any, at: Any, kind: Any, align: int) -> Any:
    return b.load(b.bitcast(b.gep(base, [at]), kind.as_pointer()), align=align)


def _splat(b: Any, x: Any) -> Any:
    return emit_splat(b, x, GROUP)
