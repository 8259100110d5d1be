"""Sparse matrices in files of `scipy.sparse.save_npz`, a block of rows at a time."""

from __future__ import annotations

import zipfile
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.data.coercion import DAMAGED, SPARSE_BLOCK_ENTRIES, check_sparse, sparse_rows
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Names = Callable[[int], tuple[str, ...] | None]

PIECE_BYTES = 1 << 20


def npz_blocks(path: Path, names: Names, *, binarize_threshold: float | None = None) -> Iterator[BinaryMatrix]:
    """Yield the rows of a SciPy matrix; one in CSR form is streamed, another is loaded to turn it round.

    `names` gives the column names for a number of columns.
    """
    import scipy.sparse as sp

    with ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        if not zipfile.is_zipfile(file):
            raise InputError("the file is incomplete or no NumPy archive; write it again with scipy.sparse.save_npz")
        file.seek(0)
        arrays = stack.enter_context(np.load(file, allow_pickle=False))
        if "format" not in arrays.files:
            held = ", ".join(arrays.files[:10]) or "nothing"
            raise InputError(
                f"the file holds {held}, but no SciPy sparse matrix; write it with scipy.sparse.save_npz, "
                "or one array with numpy.save to .npy"
            )
        if arrays["format"].item() in (b"csr", "csr"):
            yield from _csr_blocks(arrays, names, binarize_threshold)
        else:
            file.seek(0)
            matrix = sp.load_npz(file)  # which never unpickles either
            yield BinaryMatrix.of(matrix, columns=names(matrix.shape[-1]), binarize_threshold=binarize_threshold)


def _csr_blocks(arrays: Any, names: Names, threshold: float | None) -> Iterator[BinaryMatrix]:
    import scipy.sparse as sp

    shape = tuple(int(size) for size in arrays["shape"])
    indptr = np.asarray(arrays["indptr"])
    with _Member(arrays.zip, "indices") as indices, _Member(arrays.zip, "data") as data:
        check_sparse(threshold, data.dtype, len(shape))
        n, m = shape
        sound = min(shape) >= 0 and indptr.shape == (n + 1,) and indptr.dtype.kind in "ui" and indptr[0] == 0
        if not sound or indptr[-1] > min(indices.size, data.size) or np.any(indptr[1:] < indptr[:-1]):
            raise InputError(DAMAGED)
        columns = names(m)
        start = 0
        while start < max(1, n):
            stop = max(start + 1, int(np.searchsorted(indptr, indptr[start] + SPARSE_BLOCK_ENTRIES, side="right")) - 1)
            stop = min(stop, n)
            ends = indptr[start : stop + 1].astype(np.int64) - int(indptr[start])
            ones, values = indices.take(int(ends[-1])), data.take(int(ends[-1]))
            if ones.dtype.kind not in "ui" or (ones.size and (ones.min() < 0 or ones.max() >= m)):
                raise InputError(DAMAGED)
            block = sp.csr_array((values, ones, ends), shape=(stop - start, m))
            yield sparse_rows(block, columns=columns, binarize_threshold=threshold, first_row=start)
            start = max(stop, 1)
        indices.finish()
        data.finish()


class _Member:
    """A one-dimensional array in an archive, taken piece by piece."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._file: IO[bytes] = archive.open(f"{name}.npy")
        header = np.lib.format
        version = header.read_magic(self._file)
        read_header = header.read_array_header_1_0 if version == (1, 0) else header.read_array_header_2_0
        shape, _, self.dtype = read_header(self._file)
        if self.dtype.hasobject:
            raise InputError("the file holds pickled objects, which felb does not load; save plain numbers")
        if len(shape) != 1:
            raise InputError(DAMAGED)
        self.size = int(shape[0])

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def take(self, count: int) -> np.ndarray[Any, Any]:
        """Return the next `count` numbers."""
        numbers = np.empty(count, self.dtype)
        content = numbers.view(np.uint8)
        while content.size:  # in small reads, since unpacking takes the memory of a read twice
            piece = self._file.read(min(content.size, PIECE_BYTES))
            if not piece:
                raise InputError("the file is damaged or incomplete: an array ends early; write it again")
            content[: len(piece)] = np.frombuffer(piece, np.uint8)
            content = content[len(piece) :]
        return numbers.astype(self.dtype.newbyteorder("="), copy=False)

    def finish(self) -> None:
        """Read what is left, at whose end the archive compares its checksum."""
        while self._file.read(PIECE_BYTES):
            pass
