"""Counts over many bit sets at once, in vector code: eight 64-bit words, or thirty-two 16-bit counters, at a time.

Each function is written in plain Python, for use without a compiler, and as LLVM's vector instructions for use within
kernels. LLVM maps a vector to one AVX-512 register or to several smaller ones, so the same code runs everywhere.

Numba notices changes of a cached function only in the file of that function. After an edit here, remove the compiled
kernels (``make clean``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from felb.kernels.bits import pack, popcount
from felb.kernels.vector import data_of, emit_splat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

GROUP = 8
"""Sets whose words are counted side by side."""

COUNTERS = 32
"""Counters that are changed side by side."""

MOST_COUNTED = (1 << 16) - 1
"""A counter of 16 bits holds no more."""

_I1, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 16, 32, 64))
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


@njit(cache=True, nogil=True)
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
