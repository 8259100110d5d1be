"""Scheduling of a pass: rows per thread, blocks, tiles and memory; BLAS threads; samples of rows."""

from __future__ import annotations

import os
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.kernels.compiler import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


LANES = 16
"""Numbers in a vector; rows of tables are padded to a multiple of it."""

BLOCK = 512
"""Rows that are handled together; what is kept for them fits the second-level cache."""

SIDE_BY_SIDE = 64
"""Rows whose HALS sweeps go side by side, four vectors of lanes; it divides a block."""

ALIGNMENT = 64
"""Bytes in a cache line."""

ROW_COST = 4
"""What a row costs besides its ones, in ones."""

SERIAL_WORK = 1 << 25
"""Passes with less work than this, (ones + 4 · rows) · k, run in one thread unless told otherwise."""

CHUNK_ROWS, CHUNK_ONES_PER_COLUMN = 1 << 15, 256
"""Float32 sums in AᵀU start afresh after this many rows (to keep digits) and ones (to keep speed)."""

TILE_BYTES = 1 << 18
"""Size of a piece of Vᵀ or AᵀU that fits the second-level cache together with a block of rows."""

TILE_ONES = 64
"""Ones that a row must have in a tile, on average, for tiles to pay.

Measured: at 150 ones (76533 × 20082, 24% dense, k = 100) tiles are 1.9 times as fast, at 90 (10000 × 20000, 7%, k = 50)
1.15 times, at 35 (10459 × 20530, 1.9%, k = 33) 0.85 times.
"""


class Schedule:
    """The plan of one pass over A with factors of k columns."""

    def __init__(self, A: BinaryMatrix, k: int, threads: int | None) -> None:
        self.ones = plain_view(A.indptr), plain_view(A.indices)
        self.width = width_of(k)
        self.columns = A.shape[1], tile_columns(A, k)
        self._A, self._k = A, k
        work = (A.nnz + ROW_COST * A.shape[0]) * k
        self._parts = split_rows(A, count_threads(work, threads, serial=SERIAL_WORK))

    def scratch(self) -> tuple[NDArray[Any], ...]:
        """Return the scratch space of one thread."""
        return scratch_space(self._A.shape[0], self._k)

    def each(self, run: Callable[[tuple[int, int]], Any]) -> list[Any]:
        """Run ``run(span)`` for every part of the rows, each in a thread of its own."""
        return run_spans(run, self._parts)

    def accumulate(
        self, run: Callable[..., None], collect: Callable[..., None], AtU: NDArray[Any], UtU: NDArray[Any]
    ) -> None:
        """Run ``run(span, totals, scratch)``, with totals of its own for each thread, and add these up.

        The first of the totals is a table; ``collect(table, AtU, keep)`` adds it to AᵀU, or overwrites what is there.
        """
        m, k = AtU.shape
        first_part = self._parts[0]

        def part(span: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
            total, gram = AtU if span == first_part else np.empty_like(AtU), np.zeros((k, k))
            table, scratch = table_of(m, k), self.scratch()
            for i, chunk in enumerate(chunks(self._A, *span)):
                if i > 0:
                    table[:] = 0
                run(chunk, (table, gram), scratch)
                collect(table, total, i > 0)
            return total, gram

        parts = self.each(part)
        # In the order of the rows, so that a run can be repeated to the last bit.
        for total, _ in parts[1:]:
            AtU += total
        lower = sum(gram for _, gram in parts)
        UtU[:] = lower + np.tril(lower, -1).T


def run_spans(run: Callable[[tuple[int, int]], Any], spans: Sequence[tuple[int, int]]) -> list[Any]:
    """Run ``run(span)`` for every span of rows, each in a thread of its own."""
    if len(spans) == 1:
        return [run(spans[0])]
    # A pool of our own for each pass: passes may run in several threads at once, which Numba's may not.
    with ThreadPoolExecutor(len(spans)) as pool:
        return list(pool.map(run, spans))


def count_threads(work: int, threads: int | None, *, serial: int) -> int:
    """Return `threads`; if not given, one for less work than `serial`, otherwise all that the process may use."""
    if threads is None:
        return 1 if work < serial else available_cpus()
    if threads < 1:
        raise InputError(f"threads={threads}; give at least one, or None for a number that suits the work")
    return threads


def available_cpus() -> int:
    """Return how many processors this process may use, or fewer inside `threads_at_most`.

    OMP_NUM_THREADS counts too: joblib's processes and batch systems share the processors of a machine by it.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get("OMP_NUM_THREADS", "")
    limit = int(given) if given.isdecimal() and int(given) else cpus
    return min(cpus, limit, _most_threads.get() or cpus)


@contextmanager
def threads_at_most(number: int) -> Iterator[None]:
    """Let passes start at most so many threads inside a with-block, where others share the processors."""
    token = _most_threads.set(number)
    try:
        yield
    finally:
        _most_threads.reset(token)


_most_threads: ContextVar[int | None] = ContextVar("most threads of a pass", default=None)


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


def tile_columns(A: BinaryMatrix, k: int) -> int:
    """Return the number of columns of a tile.

    Vᵀ and AᵀU of wide data do not fit into the second-level cache. If rows have many ones, going through a block of
    rows one tile of columns after another finds them there; if they have few, it only adds work.
    """
    n, m = A.shape
    columns = TILE_BYTES // (16 * len(width_of(k)))
    if m <= 2 * columns or A.nnz * columns < TILE_ONES * n * m:
        return max(1, m)
    return columns


# -- memory ------------------------------------------------------------------------------------------------------------


def width_of(k: int) -> tuple[int, ...]:
    """Return the tuple whose length tells kernels how rows of k numbers are held: in fours, the last of them padded.

    Sixteen and what is left over in 4, 8 or 16; twelve left over are cheaper to handle as sixteen.
    """
    quads = -(-k // 4)
    return (0,) * (quads + (quads % 4 == 3))


def aligned(size: int) -> NDArray[np.float32]:
    """Return `size` float32 zeros that start at a cache line."""
    memory = np.zeros(4 * size + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + 4 * size].view(np.float32)


def block_of(n_rows: int, k: int) -> NDArray[np.float32]:
    """Return zeros for a block of rows (see `felb.kernels.vector`); vectors may reach beyond the last row."""
    stride = 4 * len(width_of(k))
    return aligned(n_rows * stride + LANES)[: n_rows * stride].reshape(n_rows, stride)


def table_of(n_rows: int, k: int) -> NDArray[np.float32]:
    """Return zeros for rows of k numbers that are looked up in random order, a table (see `felb.kernels.vector`)."""
    return aligned(n_rows * 4 * len(width_of(k)))


def scratch_space(n_rows: int, k: int) -> tuple[NDArray[Any], ...]:
    """Return what one thread needs: blocks of points, sums, products, targets, pulls, steps; UᵀU, lanes, cursors.

    All floats are cut from one piece of memory, since small clients spend much of their time on getting it.
    """
    block = min(BLOCK, -(-max(1, n_rows) // SIDE_BY_SIDE) * SIDE_BY_SIDE)
    stride, lanes = 4 * len(width_of(k)), 2 * k * SIDE_BY_SIDE
    heights = (*6 * (block,), stride)
    memory, at, blocks = aligned(sum(stride * height + LANES for height in heights) + lanes), 0, []
    for height in heights:
        blocks.append(memory[at : at + stride * height].reshape(height, stride))
        at += stride * height + LANES  # a cache line further; vectors may reach beyond the last row
    return *blocks, memory[at:].reshape(2, k, SIDE_BY_SIDE), np.zeros(block, np.int64)


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


def one_blas_thread() -> AbstractContextManager[object]:
    """Hold BLAS to one thread inside a with-block.

    The products here are thin (k columns), so its threads gain little; with several clients at a time, or on a busy
    machine, they spin waiting for each other and cost a multiple. It also makes sums the same on any number of cores.
    """
    return _controller().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


@cache
def _controller() -> Any:
    """Look for the libraries once a process, since a step of a small client takes a few milliseconds."""
    import scipy.linalg  # noqa: F401  # brings its own BLAS, which must be there to be found
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController()


# -- A sample of rows that does not depend on who holds them: a row is in it or not by a hash of its own ones --------

HASH_BITS = 53
"""Of a hash, so that a share of all hashes is exact in float64."""


def sample_rows(A: BinaryMatrix, share: float) -> NDArray[np.int64]:
    """Return the numbers of the rows whose hash lies within a share of all hashes, ascending.

    Equal rows are sampled together, so the sample of some rows and that of others add up to the sample of all.
    """
    hashes = np.empty(len(A), dtype=np.uint64)
    hash_rows_into(hashes, A.indptr, A.indices)
    return np.flatnonzero(hashes < np.uint64(share * 2.0**HASH_BITS))


@kernel
def hash_rows_into(hashes: Any, indptr: Any, indices: Any) -> None:
    """Write a hash of the ones of each row, whatever their order."""
    for r in range(hashes.shape[0]):
        total = np.uint64(indptr[r + 1] - indptr[r])
        for p in range(indptr[r], indptr[r + 1]):
            total += _mixed(np.uint64(indices[p]) + np.uint64(1))
        hashes[r] = _mixed(total) >> np.uint64(64 - HASH_BITS)


@kernel
def _mixed(word: Any) -> Any:
    """Return the word after one step of SplitMix64 (Steele, Lea, Flood), all of whose bits depend on all."""
    word += np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
