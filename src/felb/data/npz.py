"""Sparse matrices in files of `scipy.sparse.save_npz`, a block of rows at a time.

SciPy's own loader makes room for whatever an archive announces and looks at nothing; this one does both in order.
"""

from __future__ import annotations

import math
import zipfile
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from felb.data.coercion import SPARSE_BLOCK_ENTRIES, check_sparse, checked_csr, sparse_rows
from felb.data.limits import Limits
from felb.data.validation import check_coordinates, check_indptr, check_parts
from felb.errors import InputError, shortened
from felb.safe_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.data.limits import Bounds

    Names = Callable[[int], tuple[str, ...] | None]

PIECE_BYTES = 1 << 20
LONGEST_HEADER = 10_000
"""Of an array; that of a plain one has about a hundred bytes."""
FORMATS = ("csr", "csc", "coo", "bsr", "dia")
DAMAGED = "the file is damaged or incomplete"


def npz_blocks(
    path: Path, names: Names, *, bounds: Bounds, binarize_threshold: float | None = None
) -> Iterator[BinaryMatrix]:
    """Yield the rows of a SciPy matrix; one in CSR form is streamed, another is loaded to turn it round.

    `names` gives the column names for a number of columns.
    """
    with ExitStack() as stack:
        archive = _Archive(stack.enter_context(open_regular(path)), bounds)
        if archive.format == "csr":
            yield from _csr_blocks(archive, names, binarize_threshold)
        else:
            matrix = archive.matrix()
            check_sparse(binarize_threshold, matrix.dtype, matrix.ndim)
            yield sparse_rows(
                checked_csr(matrix), columns=names(matrix.shape[-1]), binarize_threshold=binarize_threshold
            )


def read_sparse(path: Path) -> Any:
    """Read a small sparse matrix as a whole, in CSR form; damage is an `InputError` that does not name the file."""
    try:
        with open_regular(path) as file:
            size = path.stat().st_size
            return checked_csr(_Archive(file, Limits(max_expansion=1100).of(size)).matrix())
    except InputError:
        raise
    except Exception as error:  # what the readers of ZIP and NumPy raise on damage is nearly anything
        raise InputError(f"{DAMAGED} ({shortened(error)})") from error


class _Archive:
    """The arrays of a sparse matrix in a ZIP file; none is larger than the file may unpack to."""

    def __init__(self, file: IO[bytes], bounds: Bounds) -> None:
        if not zipfile.is_zipfile(file):
            raise InputError("the file is incomplete or no NumPy archive; write it again with scipy.sparse.save_npz")
        file.seek(0)
        self._archive, self.bounds = zipfile.ZipFile(file), bounds
        held = [name.removesuffix(".npy") for name in self._archive.namelist()]
        if "format" not in held:
            raise InputError(
                f"the file holds {', '.join(held[:10]) or 'nothing'}, but no SciPy sparse matrix; write it with "
                "scipy.sparse.save_npz, or one array with numpy.save to .npy"
            )
        bounds.check_bytes(sum(info.file_size for info in self._archive.infolist()))
        word = self.array("format", 0).item()
        self.format = word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)
        if self.format not in FORMATS:
            raise InputError(f"{DAMAGED}: there is no sparse format {self.format[:20]!r}; write it again")
        shape = self.array("shape", 1)
        if shape.shape != (2,) or shape.dtype.kind not in "ui" or shape.min() < 0:
            raise InputError(f"expected 2D data (records x features), got a shape of {shape.tolist()[:5]}")
        self.shape = int(shape[0]), int(shape[1])
        bounds.check_shape(*self.shape)

    def member(self, name: str) -> _Member:
        """Open an array to read it piece by piece."""
        return _Member(self._archive, name, self.bounds)

    def array(self, name: str, ndim: int) -> NDArray[Any]:
        """Read an array as a whole."""
        with self.member(name) as member:
            if len(member.shape) != ndim or (ndim > 1 and member.fortran):
                raise InputError(f"{DAMAGED}: {name} is {len(member.shape)}D; write it again")
            content = member.take(member.size).reshape(member.shape)
            member.finish()
            return content

    def matrix(self) -> Any:
        """Read the matrix as one of SciPy, whose parts fit its shape."""
        import scipy.sparse as sp

        if self.format in ("csr", "csc", "bsr"):
            data = self.array("data", 3 if self.format == "bsr" else 1)
            indices, indptr = self.array("indices", 1), self.array("indptr", 1)
            if self.format == "bsr":
                return sp.bsr_array((data, *self._checked_blocks(data, indices, indptr)), shape=self.shape)
            check_parts(indptr, indices, data.size, self.shape, by_column=self.format == "csc")
            return (sp.csr_array if self.format == "csr" else sp.csc_array)((data, indices, indptr), shape=self.shape)
        if self.format == "coo":
            data, rows, columns = self.array("data", 1), self.array("row", 1), self.array("col", 1)
            check_coordinates(rows, columns, data.size, self.shape)
            return sp.coo_array((data, (rows, columns)), shape=self.shape)
        return sp.dia_array((self.array("data", 2), self.array("offsets", 1)), shape=self.shape)

    def _checked_blocks(
        self, data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        (n, m), (_, height, width) = self.shape, data.shape
        if min(height, width) < 1 or n % height or m % width:
            raise InputError(f"{DAMAGED}: its blocks do not fit its shape; write it again")
        check_parts(indptr, indices, len(data), (n // height, m // width))
        return indices, indptr


def _csr_blocks(archive: _Archive, names: Names, threshold: float | None) -> Iterator[BinaryMatrix]:
    import scipy.sparse as sp

    n, m = archive.shape
    indptr = archive.array("indptr", 1)
    with archive.member("indices") as indices, archive.member("data") as data:
        check_sparse(threshold, data.dtype, 2)
        try:
            check_indptr(indptr, n, min(indices.size, data.size))
        except InputError as error:
            raise InputError(f"{DAMAGED} ({error}); write it again") from error
        if indptr[0] != 0 or len(indices.shape) != 1 or len(data.shape) != 1:
            raise InputError(f"{DAMAGED}: its arrays are not those of a matrix in CSR form; write it again")
        columns = names(m)
        start = 0
        while start < max(1, n):
            stop = max(start + 1, int(np.searchsorted(indptr, indptr[start] + SPARSE_BLOCK_ENTRIES, side="right")) - 1)
            stop = min(stop, n)
            ends = indptr[start : stop + 1].astype(np.int64) - int(indptr[start])
            ones, values = indices.take(int(ends[-1])), data.take(int(ends[-1]))
            check_parts(ends, ones, values.size, (stop - start, m))
            block = sp.csr_array((values, ones, ends), shape=(stop - start, m))
            yield sparse_rows(block, columns=columns, binarize_threshold=threshold, first_row=start)
            start = max(stop, 1)
        indices.finish()
        data.finish()


class _Member:
    """An array in an archive, taken piece by piece."""

    def __init__(self, archive: zipfile.ZipFile, name: str, bounds: Bounds) -> None:
        try:
            self._file: IO[bytes] = archive.open(f"{name}.npy")
        except KeyError as error:
            raise InputError(f"{DAMAGED}: it holds no array {name!r}; write it again") from error
        header = np.lib.format
        version = header.read_magic(self._file)
        read_header = header.read_array_header_1_0 if version == (1, 0) else header.read_array_header_2_0
        self.shape, self.fortran, self.dtype = read_header(self._file, max_header_size=LONGEST_HEADER)
        if self.dtype.hasobject:
            raise InputError("the file holds pickled objects, which felb does not load; save plain numbers")
        if self.dtype.kind not in "biufcSU" or self.dtype.itemsize == 0:
            raise InputError(f"{DAMAGED}: {name} holds no numbers; write it again")
        self.size = math.prod(self.shape)
        bounds.check_bytes(self.size * self.dtype.itemsize)

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def take(self, count: int) -> NDArray[Any]:
        """Return the next `count` numbers."""
        wanted = count * self.dtype.itemsize
        pieces = bytearray()
        while len(pieces) < wanted:  # in small reads, so that room is made only for what is there
            piece = self._file.read(min(wanted - len(pieces), PIECE_BYTES))
            if not piece:
                raise InputError(f"{DAMAGED}: an array ends early; write it again")
            pieces += piece
        return np.frombuffer(pieces, self.dtype, count).astype(self.dtype.newbyteorder("="), copy=False)

    def finish(self) -> None:
        """Read what is left, at whose end the archive compares its checksum; there is nothing but one array."""
        if self._file.read(1):
            raise InputError(f"{DAMAGED}: an array is longer than it says; write it again")
