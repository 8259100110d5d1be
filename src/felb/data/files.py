"""Data files of many formats into a `BinaryMatrix`, without densifying what is sparse or pickling anything in."""

from __future__ import annotations

import warnings
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.data.cells import MISSING_MEANS, check_threshold
from felb.data.coercion import dense_blocks
from felb.data.database_url import is_url
from felb.data.h5ad import h5ad_blocks
from felb.data.limits import Bounds, Limits
from felb.data.mat import mat_blocks
from felb.data.matrixmarket import matrix_market_blocks
from felb.data.npz import npz_blocks
from felb.data.parquet import parquet_blocks
from felb.data.schema import Schema
from felb.data.table import Table as Table
from felb.data.table import marked, names_beside
from felb.data.text import item_blocks, table_blocks
from felb.errors import FelbError, InputError, SchemaWarning, shortened
from felb.safe_files import file_size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator
    from os import PathLike


@dataclass(frozen=True)
class _Options:
    client_column: str | None
    header: bool | None
    binarize_threshold: float | None
    bounds: Bounds
    missing: str = "error"
    columns: Collection[str] | None = None
    spill: Path | None = None
    """Folder for what would take more memory than a block; without it, everything may be held."""

    @property
    def of_cells(self) -> dict[str, Any]:
        """What the readers of tables take."""
        names = ("bounds", "client_column", "binarize_threshold", "missing", "columns")
        return {name: getattr(self, name) for name in names}


class _Format(NamedTuple):
    blocks: Callable[[Path, _Options], Generator[Table]]
    gz: bool = False
    clients: bool = False
    header: bool = False
    missing: bool = False


def read(
    path: str | PathLike[str],
    *,
    client_column: str | None = None,
    header: bool | None = None,
    binarize_threshold: float | None = None,
    missing: str = "error",
    unknown: str | PathLike[str] | None = None,
    limits: Limits | None = None,
    schema: Schema | str | PathLike[str] | None = None,
    columns: Collection[str] | None = None,
) -> Table:
    r"""Read a data file; the suffix of its name determines the format.

    | name ends in | holds |
    |---|---|
    | ``.csv``, ``.tsv`` | one record a line, cells 0/1 or true/false; the first line may hold column names |
    | ``.dat``, ``.fimi`` | one record a line: its items, integers separated by blanks |
    | ``.npz`` | SciPy sparse matrix; column names from ``NAME.columns.txt`` beside it, one a line |
    | ``.npy`` | NumPy array |
    | ``.mat`` | MATLAB, versions 6 and 7: its only matrix, dense or sparse; names as for ``.npz`` |
    | ``.mtx`` | MatrixMarket |
    | ``.parquet`` | needs ``felb[parquet]`` |
    | ``.h5ad`` | AnnData, its ``X``; needs ``felb[anndata]`` |
    | ``.felb`` | written by `BinaryMatrix.save`; memory-mapped |

    Text formats and ``.mtx`` may be packed (``.gz``). What does not fit into memory goes through `convert` first.

    Parameters
    ----------
    path : file to read
    client_column : str, optional
        Column (of ``.h5ad``: key of ``obs``) that says to which client a row belongs; not a column of the matrix.
    header : bool, optional
        Whether the first line of a ``.csv`` or ``.tsv`` file holds column names. By default it does if any of its
        cells is not a number.
    binarize_threshold : float, optional
        Make a one of every value above it. Without it, any value but 0 and 1 is an error.
    missing : "error", "unknown" or "zero"
        What a missing cell is (empty, ``NA``, ``NaN``, ``?`` and the like in text, a null of ``.parquet``, a NaN of
        ``.npy``, dense ``.mat`` and ``.h5ad``): an error, a cell that counts neither as one nor as zero
        (`BinaryMatrix.unknown`; `felb.FederatedBMF` takes them), or a zero. Cells that a ``.felb`` file stores as
        unknown stay so, unless this is "zero". Sparse files have none: what they do not store is 0.
    unknown : path, optional
        Another file, in any of the formats, of the same shape, with ones for cells that are unknown; the data has zeros
        there. They add to those that are missing.
    limits : Limits, optional
        How much the file may ask for. By default at most 10 million rows and 1 million columns, or as many as it has
        bytes; lines of 16 MiB; and 64 bytes after unpacking for each of its bytes, beside 128 MiB. A ``.felb`` file has
        no limits. Only regular files are read, neither pipes nor devices.
    schema : Schema or path, optional
        Read raw values, categories, numbers or events, by this schema (`felb.data.Schema`). Then `path` is a ``.csv``,
        ``.tsv``, ``.parquet``, ``.arrow``, ``.dat`` or ``.h5ad`` file, or the URL of a database (``duckdb://``,
        ``sqlite://``, ``postgresql://``, ``omop://``), and the other options but `client_column` do not apply.
    columns : collection of str, optional
        Names of the columns to read, of ``.csv``, ``.tsv``, ``.parquet`` and ``.h5ad`` files. Others are left out,
        whatever they hold, and listed in `Table.ignored`; names that the file does not have make no difference.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        If the file cannot be read, is damaged, or holds anything but 0 and 1; the message says where.
    MissingExtraError
        If the format needs a package that is not installed.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("records.csv").write_text("site,fever,cough\nnorth,1,0\nsouth,1,1\n")
    >>> table = read("records.csv", client_column="site")
    >>> table.clients, table.matrix.columns
    (('north', 'south'), ('fever', 'cough'))
    >>> _ = Path("partly.csv").write_text("fever,cough\n1,0\n1,NA\n")
    >>> read("partly.csv", missing="unknown").matrix
    BinaryMatrix(2 x 2 named, 2 ones, 1 unknown, 0.6667 dense)
    """
    blocks = table_stream(
        path,
        client_column=client_column,
        header=header,
        binarize_threshold=binarize_threshold,
        missing=missing,
        unknown=unknown,
        limits=limits,
        schema=schema,
        columns=columns,
    )
    with closing(blocks):
        tables = list(blocks)
    matrix = BinaryMatrix.vstack([table.matrix for table in tables])
    clients = None if client_column is None else tuple(label for table in tables for label in table.clients or ())
    rows = None if tables[0].rows is None else tuple(name for table in tables for name in table.rows or ())
    return Table(matrix, clients, rows, tables[0].applied, tables[-1].ignored)


def table_stream(
    source: str | PathLike[str],
    *,
    client_column: str | None = None,
    header: bool | None = None,
    binarize_threshold: float | None = None,
    missing: str = "error",
    unknown: str | PathLike[str] | None = None,
    schema: Schema | str | PathLike[str] | None = None,
    columns: Collection[str] | None = None,
    spill: Path | None = None,
    limits: Limits | None = None,
) -> Generator[Table]:
    """Yield the file as `read` returns it, but block of rows after block of rows, at least one.

    With `spill`, a folder for temporary files, no format but those that `felb.data.convert` names holds more than
    about a block in memory.
    """
    if schema is not None:
        if (header, binarize_threshold, missing, unknown) != (None, None, "error", None):
            raise InputError(
                "a schema says how values are read; leave header, binarize_threshold, missing, unknown out"
            )
        yield from _by_schema(source, schema, client_column)
        return
    if is_url(source):
        raise InputError(f"{str(source).partition('?')[0]} is a database; give the schema by which it is read")
    source, n, m, ones = Path(source), 0, 0, 0
    limits = Limits() if limits is None else limits
    marks = None if unknown is None else read(unknown, limits=limits).matrix
    try:
        bounds = limits.of(file_size(source))
        suffix, form = _format_of(source)
        if client_column is not None and not form.clients:
            raise InputError(
                f"client_column needs a {_listed('clients')} file; {suffix} files have no such column",
                parameter="client_column",
            )
        if header is not None and not form.header:
            raise InputError(f"header needs a {_listed('header')} file, got a {suffix} file", parameter="header")
        if missing not in MISSING_MEANS:
            raise InputError(f"missing must be one of {', '.join(MISSING_MEANS)}, got {missing!r}", parameter="missing")
        if missing != "error" and not form.missing:
            raise InputError(
                f"missing needs a {_listed('missing')} file; {suffix} files store no missing cells, so give a missing "
                "mask instead",
                parameter="unknown",
            )
        check_threshold(binarize_threshold)
        options = _Options(client_column, header, binarize_threshold, bounds, missing, columns, spill)
        with closing(form.blocks(source, options)) as blocks:
            for table in blocks if marks is None else marked(blocks, marks, str(unknown)):
                n, m = n + table.matrix.shape[0], table.matrix.shape[1]
                ones += table.matrix.indices.nbytes
                if suffix != ".felb":
                    bounds.check_shape(n, m)
                    bounds.check_bytes(ones)
                yield table
        if n == 0 or m == 0:
            raise InputError(f"the file holds no data: {n} rows and {m} columns; it needs at least one of each")
    except InputError as error:
        message = str(error)
        text = message if message.startswith(str(source)) else f"{source}: {message}"
        raise InputError(text, parameter=error.parameter) from error


def _by_schema(data: Any, schema: Schema | str | PathLike[str], client_column: str | None) -> Generator[Table]:
    from felb.data.apply_schema import applied_blocks

    agreed = schema if isinstance(schema, Schema) else Schema.read(schema)
    with closing(applied_blocks(data, agreed, client_column=client_column)) as blocks:
        for number, (matrix, clients, rows, applied) in enumerate(blocks):
            for note in applied.notes() if number == 0 else ():
                warnings.warn(note, SchemaWarning, stacklevel=2)
            yield Table(matrix, clients, rows, applied)


def _format_of(source: Path) -> tuple[str, _Format]:
    suffixes = [suffix.lower() for suffix in source.suffixes[-2:]]
    packed = suffixes[-1:] == [".gz"]
    suffix = "".join(suffixes[-2:-1] if packed else suffixes[-1:])
    form = _FORMATS.get(suffix)
    if form is None or (packed and not form.gz):
        known = ", ".join([*_FORMATS, *(f"{name}.gz" for name, form in _FORMATS.items() if form.gz)])
        raise InputError(f"unknown file type {''.join(suffixes[-1 - packed :])!r}; felb reads {known}")
    return suffix, form


def _listed(ability: str) -> str:
    return ", ".join(suffix for suffix, form in _FORMATS.items() if getattr(form, ability))


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    """Turn whatever a reader of another package raises on a bad file into an `InputError`."""
    try:
        yield
    except FelbError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"the file is not UTF-8 text (byte {error.start}); save it in the encoding UTF-8") from error
    except MemoryError as error:
        raise InputError("the file asks for more memory than there is; it is damaged, or too large") from error
    except Exception as error:  # such readers raise nearly anything, and what they raise changes between versions
        if isinstance(error, OSError) and error.errno and error.strerror:
            raise InputError(f"cannot be read: {error.strerror}") from error
        reason = shortened(error)
        if "pickle" in reason or "Python objects" in reason or "Object arrays" in reason:
            raise InputError("the file holds pickled objects, which felb does not load; save plain numbers") from error
        raise InputError(f"the file is damaged, incomplete or no {kind} ({reason}); write it again") from error


# -- formats ---------------------------------------------------------------------------------------------------


def _csv(source: Path, options: _Options) -> Generator[Table]:
    return _separated(source, options, ",")


def _tsv(source: Path, options: _Options) -> Generator[Table]:
    return _separated(source, options, "\t")


def _separated(source: Path, options: _Options, delimiter: str) -> Generator[Table]:
    with _reading("text file"):
        yield from table_blocks(source, delimiter, header=options.header, **options.of_cells)


def _fimi(source: Path, options: _Options) -> Generator[Table]:
    with _reading("text file"):
        for matrix in item_blocks(source, bounds=options.bounds, hold=options.spill is None):
            yield Table(BinaryMatrix.of(matrix, binarize_threshold=options.binarize_threshold))


def _npz(source: Path, options: _Options) -> Generator[Table]:
    names, threshold = partial(names_beside, source), options.binarize_threshold
    with _reading("NumPy archive"):
        for matrix in npz_blocks(source, names, bounds=options.bounds, binarize_threshold=threshold):
            yield Table(matrix)


def _mat(source: Path, options: _Options) -> Generator[Table]:
    names, threshold = partial(names_beside, source), options.binarize_threshold
    given: dict[str, Any] = {"bounds": options.bounds, "binarize_threshold": threshold, "missing": options.missing}
    with _reading("MATLAB file"):
        for matrix in mat_blocks(source, names, **given):
            yield Table(matrix)


def _npy(source: Path, options: _Options) -> Generator[Table]:
    with _reading("NumPy array"):
        with source.open("rb") as file:
            if file.read(6) != b"\x93NUMPY":
                raise InputError("the file is no NumPy array; write it again with numpy.save")
        # Mapped, so that only the block of rows that is being looked at takes memory.
        values = np.load(source, mmap_mode="r", allow_pickle=False)
        if values.ndim == 2:
            options.bounds.check_shape(*values.shape)
    for matrix in dense_blocks(values, binarize_threshold=options.binarize_threshold, missing=options.missing):
        yield Table(matrix)


def _mtx(source: Path, options: _Options) -> Generator[Table]:
    threshold = options.binarize_threshold
    with _reading("MatrixMarket file"):
        for matrix in matrix_market_blocks(
            source, bounds=options.bounds, binarize_threshold=threshold, spill=options.spill
        ):
            yield Table(matrix)


def _parquet(source: Path, options: _Options) -> Generator[Table]:
    with _reading("Parquet file"):
        yield from parquet_blocks(source, **options.of_cells)


def _h5ad(source: Path, options: _Options) -> Generator[Table]:
    with _reading("AnnData file"):
        yield from h5ad_blocks(source, **options.of_cells)


def _felb(source: Path, options: _Options) -> Generator[Table]:
    matrix = BinaryMatrix.of(BinaryMatrix.open(source), binarize_threshold=options.binarize_threshold)
    yield Table(matrix.with_unknown(None) if options.missing == "zero" else matrix)


_FORMATS = {
    ".csv": _Format(_csv, gz=True, clients=True, header=True, missing=True),
    ".tsv": _Format(_tsv, gz=True, clients=True, header=True, missing=True),
    ".dat": _Format(_fimi, gz=True),
    ".fimi": _Format(_fimi, gz=True),
    ".npz": _Format(_npz),
    ".npy": _Format(_npy, missing=True),
    ".mat": _Format(_mat, missing=True),
    ".mtx": _Format(_mtx, gz=True),
    ".parquet": _Format(_parquet, clients=True, missing=True),
    ".h5ad": _Format(_h5ad, clients=True, missing=True),
    ".felb": _Format(_felb, missing=True),
}
