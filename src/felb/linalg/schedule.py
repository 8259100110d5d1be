"""Who does which rows of a pass, in which blocks and tiles, and in what memory; no arithmetic, nothing compiled."""

from __future__ import annotations

import os
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from felb.linalg.binary import BinaryMatrix

LANES = 16
"""Numbers in a vector; rows of tables are padded to a multiple of it."""

BLOCK = 64
"""Rows that are handled together; their scratch space stays in the first-level cache. Larger blocks are multiples."""

ALIGNMENT = 64
"""Bytes in a cache line."""

ROW_COST = 4
"""What a row costs besides its ones, in ones."""

SERIAL_WORK = 1 << 21
"""Passes over fewer ones and rows than this (counted in vectors) run in one thread unless told otherwise."""

CHUNK_ROWS, CHUNK_ONES_PER_COLUMN = 1 << 15, 256
"""Float32 sums in AᵀU start afresh after this many rows (to keep digits) and ones (to keep speed)."""

TILE_BLOCK, TILE_BYTES = 512, 1 << 18
"""Rows of a block and size of its piece of Vᵀ or AᵀU when columns go in tiles: both fit the second-level cache."""

TILE_ONES = 16
"""Ones that a row must have in a tile, on average, for tiles to pay."""


class Schedule:
    """The plan of one pass over A with factors of k columns."""

    def __init__(self, A: BinaryMatrix, k: int, threads: int | None) -> None:
        self.ones = plain_view(A.indptr), plain_view(A.indices)
        self.width = width_of(k)
        self.block, self.columns = choose_tiles(A, k)
        self._A, self._k = A, k
        self._parts = split_rows(A, count_threads(A, k, threads))

    def scratch(self) -> tuple[NDArray[Any], ...]:
        """Return the scratch space of one thread."""
        return scratch_space(self._k, self.block)

    def each(self, run: Callable[[tuple[int, int]], Any]) -> list[Any]:
        """Run ``run(span)`` for every part of the rows, each in a thread of its own."""
        if len(self._parts) == 1:
            return [run(self._parts[0])]
        # A pool of our own for each pass: passes may run in several threads at once, which Numba's may not.
        with ThreadPoolExecutor(len(self._parts)) as pool:
            return list(pool.map(run, self._parts))

    def accumulate(self, run: Callable[..., None], AtU: NDArray[Any], UtU: NDArray[Any]) -> None:
        """Run ``run(span, totals, scratch)``, with totals of its own for each thread, and add these up."""
        m, k = AtU.shape

        def part(span: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
            total, gram = np.zeros_like(AtU), np.zeros((k, k))
            table, scratch = aligned((m, LANES * len(self.width))), self.scratch()
            for chunk in chunks(self._A, *span):
                table[:] = 0
                run(chunk, (table, gram), scratch)
                total += table[:, :k]
            return total, gram

        parts = self.each(part)
        # In the order of the rows, so that a run can be repeated to the last bit.
        AtU[:] = sum(total for total, _ in parts)
        UtU[:] = sum(gram for _, gram in parts)


def count_threads(A: BinaryMatrix, k: int, threads: int | None) -> int:
    """Return `threads`, or a number that suits the work."""
    if threads is None:
        work = (A.nnz + ROW_COST * A.shape[0]) * len(width_of(k))
        return 1 if work < SERIAL_WORK else available_cpus()
    if threads < 1:
        raise InputError(f"threads={threads}; give at least one, or None for a number that suits the work")
    return threads


def available_cpus() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def split_rows(A: BinaryMatrix, parts: int) -> list[tuple[int, int]]:
    """Split the rows into at most `parts` ranges of about equal work, ones + 4 · rows; none is empty unless A is."""
    n, indptr = A.shape[0], A.indptr
    total = A.nnz + ROW_COST * n

    def work_before(row: int) -> int:
        return int(indptr[row] - indptr[0]) + ROW_COST * row

    cuts = [bisect_left(range(n), total * part // parts, key=work_before) for part in range(parts)] + [n]
    return [(start, stop) for start, stop in pairwise(cuts) if start < stop] or [(0, 0)]


def chunks(A: BinaryMatrix, start: int, stop: int) -> list[tuple[int, int]]:
    """Split a range of rows into chunks that are long enough not to cost time and short enough to keep digits."""
    ones = int(A.indptr[stop] - A.indptr[start])
    by_ones = -(-ones // (CHUNK_ONES_PER_COLUMN * max(1, A.shape[1])))
    count = max(1, min(by_ones, -(-(stop - start) // CHUNK_ROWS)))
    cuts = [start + (stop - start) * i // count for i in range(count + 1)]
    return list(pairwise(cuts))


def choose_tiles(A: BinaryMatrix, k: int) -> tuple[int, int]:
    """Return the rows of a block and the columns of a tile.

    Vᵀ and AᵀU of wide data do not fit into the second-level cache. If rows have many ones, going through 512 rows one
    tile of columns after another finds them there; if they have few, it only adds work.
    """
    n, m = A.shape
    columns = TILE_BYTES // (4 * LANES * len(width_of(k)))
    if m <= 2 * columns or A.nnz * columns < TILE_ONES * n * m:
        return BLOCK, max(1, m)
    return TILE_BLOCK, columns


# -- memory ------------------------------------------------------------------------------------------------------------


def width_of(k: int) -> tuple[int, ...]:
    """Return the tuple whose length tells kernels the number of vectors in a row of k numbers."""
    return (0,) * -(-k // LANES)


def aligned(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an uninitialised float32 array that starts at a cache line."""
    size = 4 * int(np.prod(shape))
    memory = np.empty(size + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + size].view(np.float32).reshape(shape)


def padded(X: NDArray[Any]) -> NDArray[np.float32]:
    """Return an aligned float32 copy of X with rows padded with zeros to a multiple of 16 numbers."""
    n, k = X.shape
    copy = aligned((n, LANES * len(width_of(k))))
    copy[:, :k] = X
    copy[:, k:] = 0
    return copy


def scratch_space(k: int, block: int) -> tuple[NDArray[Any], ...]:
    """Return what one thread needs: three blocks of rows, sums of UᵀU, a block with rows in lanes, cursors."""
    stride = LANES * len(width_of(k))
    spaces = aligned((3, block, stride)), aligned((stride, stride)), aligned((2, stride, BLOCK))
    for space in spaces:
        space[:] = 0
    return *spaces, np.zeros(block, np.int64)


class _Memory:
    """The memory of an array, without its type and flags."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.owner = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def plain_view(array: NDArray[Any]) -> NDArray[Any]:
    """Return an ordinary array on the same memory.

    Numba compiles anew for read-only arrays, and memory maps are a class of their own; kernels only read these.
    """
    if type(array) is np.ndarray and array.flags.writeable:
        return array
    return np.asarray(_Memory(array))
