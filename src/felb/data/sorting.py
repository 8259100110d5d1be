"""Sorts unordered entries into the order of rows, in memory or with temporary files."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from felb.data.binary import BinaryMatrix

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

ENTRIES_AT_A_TIME = 1 << 21
"""Ones that are sorted at once, if the rows have about the same number of them."""

MOST_FILES = 64
"""Some systems let a process have few files open."""


class RowSorter:
    """Takes (row, column) pairs of ones in any order and gives them back as blocks of rows; repeated ones count once.

    Each part of the rows has its own nameless file, so that a part can be sorted in memory when all pairs are there.

    Parameters
    ----------
    shape : of the whole matrix
    n_entries : how many pairs will come at most
    spill : folder for the files; without it, or if the pairs are few, they stay in memory
    """

    def __init__(self, shape: tuple[int, int], n_entries: int, *, spill: Path | None) -> None:
        self._shape, self._spill = shape, spill
        wanted = 1 if spill is None else min(MOST_FILES, -(-n_entries // ENTRIES_AT_A_TIME))
        self._rows_per_part = max(1, -(-shape[0] // max(1, wanted)))
        self._n_parts = max(1, -(-shape[0] // self._rows_per_part))
        self._held: list[NDArray[Any]] = []
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()
        self._dtype = np.dtype(np.int32 if max(shape) <= np.iinfo(np.int32).max else np.int64)

    def __enter__(self) -> Self:
        if self._n_parts > 1:
            with ExitStack() as stack:
                for _ in range(self._n_parts):
                    self._files.append(stack.enter_context(tempfile.TemporaryFile(dir=self._spill)))
                self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, rows: NDArray[Any], columns: NDArray[Any]) -> None:
        """Take the ones at these places."""
        pairs = np.stack([rows, columns], axis=1).astype(self._dtype)
        if not self._files:
            self._held.append(pairs)
            return
        parts = rows // self._rows_per_part
        order = np.argsort(parts, kind="stable")
        ends = np.cumsum(np.bincount(parts, minlength=self._n_parts))
        for file, part in zip(self._files, np.split(pairs[order], ends[:-1]), strict=True):
            file.write(part.tobytes())

    def blocks(self) -> Iterator[BinaryMatrix]:
        """Yield the rows of the matrix in order, at least one block."""
        for part in range(self._n_parts):
            first = part * self._rows_per_part
            yield self._sorted(self._pairs(part), first, min(self._rows_per_part, self._shape[0] - first))

    def _pairs(self, part: int) -> NDArray[Any]:
        if not self._files:
            return np.concatenate([np.zeros((0, 2), self._dtype), *self._held])
        self._files[part].seek(0)
        return np.frombuffer(self._files[part].read(), dtype=self._dtype).reshape(-1, 2)

    def _sorted(self, pairs: NDArray[Any], first_row: int, n_rows: int) -> BinaryMatrix:
        import scipy.sparse as sp

        m = self._shape[1]
        places = (pairs[:, 0] - first_row, pairs[:, 1])
        # Through Booleans, whose sum is or: any number of repetitions is a one.
        csr = sp.coo_array((np.ones(len(pairs), bool), places), shape=(n_rows, m)).tocsr()
        csr.sum_duplicates()
        return BinaryMatrix(csr.indptr.astype(np.int64), csr.indices, m)
