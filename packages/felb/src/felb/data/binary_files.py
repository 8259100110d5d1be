"""Binary formats: SciPy (.npz), MATLAB (.mat), Parquet, AnnData (.h5ad)."""

from __future__ import annotations

import atexit
import math
import os
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.data.binary import (
    BinaryMatrix,
    LocateCell,
    check_column_names,
    check_coordinates,
    check_indptr,
    check_parts,
    where_known_one,
)
from felb.data.coercion import (
    SPARSE_BLOCK_ENTRIES,
    anndata_blocks,
    check_sparse,
    checked_csr,
    dense_blocks,
    from_columns,
    sparse_rows,
)
from felb.data.hdf5_walk import BYTES_A_SECOND
from felb.data.tabular import Limits, Table, client_labels, find_client_column, split_columns
from felb.errors import InputError, missing_extra, shortened
from felb.records import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from numpy.typing import NDArray

    from felb.data.tabular import Bounds

    Names = Callable[[int], tuple[str, ...] | None]


# -- Sparse matrices in files of `scipy.sparse.save_npz`, a block of rows at a time ----------------------------------
#
# SciPy's own loader makes room for whatever an archive announces and looks at nothing; this one does both in order.

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


# -- The matrix in a MATLAB file (``.mat`` of level 5, as ``save -v6`` and ``-v7`` and `scipy.io.savemat` write it) --
#
# A file is a header and elements, packed or not; an element has a tag with its type and its length. Nothing is made
# room for before the bytes are there, and at most as many bytes are unpacked as the file may have. Text, cells,
# structures and objects are passed over without being looked into.

HEADER, TAG = 128, 8
HDF5 = b"\x89HDF"
VERSION = 0x0100
MATRIX, COMPRESSED = 14, 15
SPARSE = 5
NUMBERS = range(6, 16)
"""Classes of dense numbers: double, single, and integers of 8 to 64 bits."""
COMPLEX = 0x0800
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
PIECE_BYTES = 1 << 20
SHOWN = 10
DAMAGED = "the file is damaged or incomplete"


class _Element(NamedTuple):
    kind: int
    content: bytes


@dataclass(frozen=True, slots=True)
class _Variable:
    """A numeric variable: what its head says, and the elements that follow, not looked at yet."""

    name: str
    shape: tuple[int, ...]
    sparse: bool
    complex: bool
    parts: Iterator[_Element]


def mat_blocks(
    path: Path,
    names: Callable[[int], tuple[str, ...] | None],
    *,
    bounds: Bounds,
    binarize_threshold: float | None = None,
    missing: str = "error",
) -> Iterator[BinaryMatrix]:
    """Yield the rows of the only matrix in the file, dense or sparse; vectors and single numbers do not count as such.

    `names` gives the column names for a number of columns.
    """
    with open_regular(path) as file:
        order = _byte_order(file)
        found: list[_Variable] = []
        for content in _top_elements(file, order, bounds):
            variable = _variable(content, order)
            if variable is not None and len(variable.shape) == 2 and min(variable.shape) > 1:
                found.append(variable)
    if len(found) != 1:
        shown = ", ".join(f"{variable.name} ({'x'.join(map(str, variable.shape))})" for variable in found[:SHOWN])
        held = f"several matrices: {shown}" if found else "no matrix of numbers"
        raise InputError(f"the file holds {held}; save the one that is meant: save('data.mat', 'X', '-v7')")
    [chosen] = found
    if chosen.complex:
        raise InputError(f"{chosen.name} holds complex numbers; save 0 and 1")
    n, m = chosen.shape
    bounds.check_shape(n, m)
    if not chosen.sparse:
        values = _numbers(chosen.parts, order)
        if values.size != n * m:
            raise InputError(f"{DAMAGED}: {chosen.name} has {values.size} numbers for {n} x {m}; write it again")
        rows = values.reshape((m, n)).T  # stored column by column
        for block in dense_blocks(rows, binarize_threshold=binarize_threshold, missing=missing):
            yield block.with_columns(names(m))
        return
    matrix = _sparse(chosen.parts, (n, m), order)
    check_sparse(binarize_threshold, matrix.dtype, 2)
    yield sparse_rows(checked_csr(matrix), columns=names(m), binarize_threshold=binarize_threshold)


def _byte_order(file: IO[bytes]) -> str:
    head = file.read(HEADER)
    if head.startswith(HDF5) or b"MATLAB 7.3" in head[:20]:
        raise InputError("the file is of version 7.3 (HDF5), which is not read; save it with save('data.mat', '-v7')")
    order = {b"IM": "<", b"MI": ">"}.get(head[126:128])
    if len(head) < HEADER or order is None or struct.unpack(f"{order}H", head[124:126])[0] != VERSION:
        raise InputError("the file is no MATLAB file of level 5; save it with save('data.mat', '-v7')")
    return order


def _top_elements(file: IO[bytes], order: str, bounds: Bounds) -> Iterator[bytes]:
    """Yield the content of each matrix element, unpacked; all together no more bytes than the file may have."""
    total = 0
    while tag := file.read(TAG):
        if len(tag) < TAG:
            raise InputError(f"{DAMAGED}: it ends within a tag; write it again")
        kind, length = struct.unpack(f"{order}II", tag)
        content = _taken(file, length)
        if kind == COMPRESSED:
            content = _unpacked(content, bounds.bytes - total)
            total += len(content)
            bounds.check_bytes(total)
            kind, content = next(_elements(content, order), _Element(0, b""))
        if kind == MATRIX:
            yield content


def _taken(file: IO[bytes], length: int) -> bytes:
    """Return the next bytes, in small reads, so that room is made only for what is there."""
    pieces = bytearray()
    while len(pieces) < length:
        piece = file.read(min(length - len(pieces), PIECE_BYTES))
        if not piece:
            raise InputError(f"{DAMAGED}: an element ends early; write it again")
        pieces += piece
    return bytes(pieces)


def _unpacked(content: bytes, most: int) -> bytes:
    """Return what was packed, and at most a byte more than `most`."""
    unpack = zlib.decompressobj()
    try:
        return unpack.decompress(content, max(most, 0) + 1)
    except zlib.error as error:
        raise InputError(f"{DAMAGED} ({error}); write it again") from error


def _elements(content: bytes, order: str) -> Iterator[_Element]:
    """Yield the elements one after the other; a small one has its content in its tag."""
    at = 0
    while at < len(content):
        if at + TAG > len(content):
            raise InputError(f"{DAMAGED}: it ends within a tag; write it again")
        kind, length = struct.unpack_from(f"{order}II", content, at)
        start = at + TAG
        if kind >> 16:
            kind, length, start = kind & 0xFFFF, kind >> 16, at + 4
            if length > 4:
                raise InputError(f"{DAMAGED}: a small element has {length} bytes; write it again")
        if start + length > len(content):
            raise InputError(f"{DAMAGED}: an element is longer than what holds it; write it again")
        yield _Element(kind, content[start : start + length])
        at = at + TAG if start == at + 4 else start + length + -length % 8


def _variable(content: bytes, order: str) -> _Variable | None:
    """Return what the head of a matrix element says: class, shape and name; None if it holds no numbers."""
    parts = _elements(content, order)
    flags, shape, name = (next(parts, _Element(0, b"")) for _ in range(3))
    if len(flags.content) != 8 or len(shape.content) % 4 or not shape.content:
        return None  # such as an element of functions, which MATLAB adds without a name
    word = struct.unpack_from(f"{order}I", flags.content)[0]
    if word & 0xFF not in (SPARSE, *NUMBERS):
        return None
    sizes = np.frombuffer(shape.content, f"{order}i4").tolist()
    if min(sizes) < 0:
        raise InputError(f"{DAMAGED}: a matrix has a shape of {sizes[:5]}; write it again")
    text = name.content.decode("ascii", "replace")[:40]
    return _Variable(text, tuple(sizes), word & 0xFF == SPARSE, bool(word & COMPLEX), parts)


def _numbers(parts: Iterator[_Element], order: str) -> NDArray[Any]:
    """Return the numbers of the next element in the byte order of this machine."""
    kind, content = next(parts, _Element(0, b""))
    if kind not in TYPES:
        raise InputError(f"{DAMAGED}: numbers are missing; write it again")
    dtype = np.dtype(f"{order}{TYPES[kind]}")
    if len(content) % dtype.itemsize:
        raise InputError(f"{DAMAGED}: numbers end early; write it again")
    return np.frombuffer(content, dtype).astype(dtype.newbyteorder("="), copy=False)


def _sparse(parts: Iterator[_Element], shape: tuple[int, int], order: str) -> Any:
    """Return a matrix by its columns; numbers beyond what the columns say are room that MATLAB has kept."""
    import scipy.sparse as sp

    indices, indptr, values = (_numbers(parts, order) for _ in range(3))
    if "f" in (indices.dtype.kind, indptr.dtype.kind) or not indptr.size:
        raise InputError(f"{DAMAGED}: its indices are no whole numbers; write it again")
    count = max(0, int(indptr[-1]))
    indices, values = indices[:count], values[:count]
    check_parts(indptr, indices, values.size, shape, by_column=True)
    return sp.csc_array((values, indices, indptr), shape=shape)


# -- Parquet files, a batch of rows at a time ------------------------------------------------------------------------

BATCH_CELLS = 1 << 22
"""Cells that are decoded at once."""

MOST_NAMES = 1 << 20
"""Different client labels, or spellings of cells, in one part of a file."""


def parquet_blocks(
    path: Path,
    *,
    bounds: Bounds,
    client_column: str | None,
    binarize_threshold: float | None,
    missing: str,
    columns: Collection[str] | None = None,
) -> Iterator[Table]:
    """Yield blocks of rows and, if asked for, the client of each row; with `columns`, of these columns only.

    What the file announces is compared with `bounds` before anything is decoded. Text stays coded by its dictionary, so
    that a long text that stands in every row is held once.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        missing_extra("reading .parquet files", "parquet", error)
    facts = pq.read_metadata(path)
    bounds.check_shape(facts.num_rows, facts.num_columns)
    bounds.check_bytes(sum(max(0, facts.row_group(i).total_byte_size) for i in range(facts.num_row_groups)))
    texts = [field.name for field in facts.schema.to_arrow_schema() if _is_text(pa, field.type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        schema = file.schema_arrow
        client = None if client_column is None else find_client_column(client_column, schema.names)
        # pandas stores the row labels of a frame among its columns.
        index = {name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)}
        kept, ignored = split_columns(schema.names, columns, without=client)
        kept = [i for i in kept if schema.names[i] not in index]
        names = check_column_names([schema.names[i] for i in kept], len(kept))
        for i in kept:
            if pa.types.is_nested(schema.field(i).type):
                raise InputError(f"column {schema.names[i][:60]!r} holds lists or tables, not 0/1 cells")
        nothing = from_columns([np.zeros(0, np.int64)] * len(kept), 0, columns=names)
        yield Table(nothing, ignored=tuple(name for name in ignored if name not in index))  # perhaps no rows at all
        first_row = 0
        wanted = [schema.names[i] for i in sorted([*kept, *([] if client is None else [client])])]
        size = max(1, BATCH_CELLS // max(1, len(schema.names)))
        for batch in file.iter_batches(batch_size=size, columns=wanted):
            clients = None
            if client is not None:
                clients = tuple(client_labels(_values(batch.column(schema.names[client])), first_row))
            matrix = _rows(batch, [schema.names[i] for i in kept], names, first_row, binarize_threshold, missing)
            yield Table(matrix, clients, ignored=tuple(name for name in ignored if name not in index))
            first_row += batch.num_rows


def _rows(
    batch: Any, kept: list[str], names: Any, first_row: int, threshold: float | None, missing: str
) -> BinaryMatrix:
    ones, unknown = [], []
    for position, name in enumerate(kept):
        locate = LocateCell(names, first_row, position)
        found, absent = where_known_one(_values(batch.column(name)), threshold, missing=missing, locate=locate)
        ones.append(np.flatnonzero(found))
        unknown.append(np.zeros(0, np.int64) if absent is None else np.flatnonzero(absent))
    matrix = from_columns(ones, batch.num_rows, columns=names)
    if any(rows.size for rows in unknown):
        return matrix.with_unknown(from_columns(unknown, batch.num_rows))
    return matrix


def _values(column: Any) -> NDArray[Any]:
    """Return a column as an array; one that is coded by a dictionary refers to its entries without copying them."""
    if not hasattr(column, "dictionary"):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if len(column.dictionary) > MOST_NAMES:
        raise InputError(f"a column of text holds more than {MOST_NAMES} different texts; felb wants 0/1 data")
    entries = np.array([*column.dictionary.to_pylist(), None], dtype=object)
    return entries[
        np.asarray(column.indices.fill_null(len(entries) - 1).to_numpy(zero_copy_only=False), dtype=np.int64)
    ]


def _is_text(pa: Any, kind: Any) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


# -- Whether an HDF5 file can be read without harm: another process reads it first -----------------------------------

PROGRAM = Path(__file__).with_name("hdf5_walk.py")
PATIENCE = 60.0
"""Seconds by the clock that the walk of a file may take, beside those that its size adds. Where the system can limit
the processor time of the walk, it ends earlier."""


class Probe:
    """A process that walks through HDF5 files; it is started when it is needed, and again when a file has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def check(self, path: Path) -> None:
        """Raise if reading a file ends a process, takes far more memory than the file is large, or does not end."""
        with self._lock:
            answer = self._ask(path.absolute())
        if answer is None:
            raise InputError(f"{path}: the file is damaged: the HDF5 library cannot get through it; write it again")
        if answer:
            raise InputError(f"{path}: the file is damaged, incomplete or no AnnData file ({answer}); write it again")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, path: Path) -> str | None:
        """Return the answer about a file, None if there was none."""
        if "\n" in str(path):
            raise InputError(f"{str(path)!r}: a path with a line break cannot be read; rename the file")
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = _started()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(PATIENCE + path.stat().st_size / BYTES_A_SECOND, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer.endswith("\n"):
            self.close()
            return None
        return answer[:-1]


def _started() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env={**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"},
    )


_probe = Probe()
atexit.register(_probe.close)


def check_hdf5(path: Path) -> None:
    """Raise an `InputError` unless another process could read the file."""
    _probe.check(path)


# -- AnnData files, a block of rows at a time ------------------------------------------------------------------------


def h5ad_blocks(
    path: Path,
    *,
    bounds: Bounds,
    client_column: str | None,
    binarize_threshold: float | None,
    missing: str,
    columns: Collection[str] | None = None,
) -> Iterator[Table]:
    """Yield blocks of rows of X with their names and, if asked for, the client of each row, from a column of obs.

    With `columns`, variables of other names are left out; X is then read as a whole.
    """
    try:
        import anndata
    except ImportError as error:
        missing_extra("reading .h5ad files", "anndata", error)
    check_hdf5(path)
    _check_announced(path, bounds)
    data = anndata.read_h5ad(path, backed="r")
    try:
        clients: tuple[str, ...] | None = None
        if client_column is not None:
            find_client_column(client_column, [str(name) for name in data.obs.columns])
            labels = data.obs[client_column]
            clients = tuple(client_labels(labels.astype(object).where(labels.notna(), None), 0))
        first, names = 0, tuple(map(str, data.obs_names))
        kept, ignored = split_columns([str(name) for name in data.var_names], columns)
        for matrix in anndata_blocks(
            data[:, kept] if ignored else data, binarize_threshold=binarize_threshold, missing=missing
        ):
            at = slice(first, first + len(matrix))
            yield Table(matrix, None if clients is None else clients[at], names[at], ignored=ignored)
            first += len(matrix)
    finally:
        data.file.close()


def _check_announced(path: Path, bounds: Bounds) -> None:
    """Raise if the arrays of the file, written or not, are larger than the file may unpack to, or lie elsewhere."""
    import h5py

    announced = 0

    def visit(name: str, item: Any) -> None:
        nonlocal announced
        if isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                raise InputError(f"{name[:60]} is stored in another file; copy it into this one")
            announced += item.size * item.dtype.itemsize if item.shape is not None else 0

    with h5py.File(os.fspath(path), "r") as file:
        file.visititems(visit)
        X = file.get("X")
        if isinstance(X, h5py.Dataset) and X.ndim == 2:
            bounds.check_shape(*X.shape)
        elif isinstance(X, h5py.Group) and "shape" in X.attrs and len(X.attrs["shape"]) == 2:
            bounds.check_shape(*(int(size) for size in X.attrs["shape"]))
    bounds.check_bytes(announced)
