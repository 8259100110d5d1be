"""Data by name: files of many formats, included data sets and databases, as a `BinaryMatrix`, in blocks or whole."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from felb.data.binary import MISSING_MEANS, BinaryMatrix, check_threshold
from felb.data.coercion import is_dask
from felb.data.readers import (
    TEXT_COLUMNS,
    Bounds,
    Limits,
    ReadOptions,
    mark_blocks,
    open_anndata,
    read_h5ad,
    read_isolated,
    read_items,
    read_npy,
    read_npz,
    read_parquet,
    read_table,
    split_suffix,
    to_objects,
)
from felb.data.readers import Table as Table
from felb.data.storage import MatrixWriter
from felb.errors import FelbError, InputError, SchemaWarning, shortened
from felb.records import file_size, is_url, read_text
from felb.tables.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator

    from felb.tables.apply import Applied


class _Format(NamedTuple):
    name: str
    blocks: Callable[[Path, Bounds, ReadOptions], Generator[Table]]
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
    record_column: str | None = None,
    label_column: str | None = None,
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
    record_column : str, optional
        Column (of ``.h5ad``: key of ``obs``) with the names of the records, which become `Table.rows`; not a column of
        the matrix.
    label_column : str, optional
        Column (of ``.h5ad``: key of ``obs``) with a label for each record, which become `Table.labels`; not a column of
        the matrix unless it is among `columns`. A label may be missing.

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
    options = ReadOptions(client_column, header, binarize_threshold, missing, columns, record_column, label_column)
    with closing(read_blocks(path, options, unknown=unknown, limits=limits, schema=schema)) as blocks:
        return Table.join(list(blocks))


def read_blocks(
    source: str | PathLike[str],
    options: ReadOptions,
    *,
    unknown: str | PathLike[str] | None,
    limits: Limits | None,
    schema: Schema | str | PathLike[str] | None,
) -> Generator[Table]:
    """Yield the file as `read` returns it, but block of rows after block of rows, at least one.

    Unless all of the content may be held, no format but those that `felb.data.convert` names holds more than about a
    block in memory.
    """
    if schema is not None:
        said = (options.header, options.binarize_threshold, options.missing, unknown)
        if said != (None, None, "error", None):
            raise InputError(
                "a schema says how values are read; leave header, binarize_threshold, missing, unknown out"
            )
        yield from _by_schema(source, schema, options)
        return
    if is_url(source):
        raise InputError(f"{str(source).partition('?')[0]} is a database; give the schema by which it is read")
    source, n, m, ones = Path(source), 0, 0, 0
    limits = Limits() if limits is None else limits
    marks = None if unknown is None else read(unknown, limits=limits).matrix
    try:
        bounds = limits.of(file_size(source))
        suffix, form = _format_of(source)
        _check_options(options, suffix, form)
        with _reading(form.name), closing(form.blocks(source, bounds, options)) as blocks:
            for table in blocks if marks is None else mark_blocks(blocks, marks, str(unknown)):
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


def _check_options(options: ReadOptions, suffix: str, form: _Format) -> None:
    """Raise for an option that is not valid, or that files of this format have no use for."""

    def able(ability: str) -> str:
        return ", ".join(name for name, other in _FORMATS.items() if getattr(other, ability))

    missing = options.missing
    for option in TEXT_COLUMNS.values():
        if getattr(options, option) is not None and not form.clients:
            raise InputError(
                f"{option} needs a {able('clients')} file; {suffix} files have no such column", parameter=option
            )
    if options.header is not None and not form.header:
        raise InputError(f"header needs a {able('header')} file, got a {suffix} file", parameter="header")
    if missing not in MISSING_MEANS:
        raise InputError(f"missing must be one of {', '.join(MISSING_MEANS)}, got {missing!r}", parameter="missing")
    if missing != "error" and not form.missing:
        raise InputError(
            f"missing needs a {able('missing')} file; {suffix} files store no missing cells, so give a missing mask "
            "instead",
            parameter="unknown",
        )
    check_threshold(options.binarize_threshold)


def _by_schema(data: Any, schema: Schema | str | PathLike[str], options: ReadOptions) -> Generator[Table]:
    from felb.tables.apply import apply_schema

    agreed = schema if isinstance(schema, Schema) else Schema.read(schema)
    texts = {part: getattr(options, option) for part, option in TEXT_COLUMNS.items()}
    with closing(apply_schema(data, agreed, texts)) as blocks:
        for number, (matrix, found, applied) in enumerate(blocks):
            for note in applied.notes() if number == 0 else ():
                warnings.warn(note, SchemaWarning, stacklevel=2)
            yield Table(matrix, applied=applied, **found)


def _format_of(source: Path) -> tuple[str, _Format]:
    suffix, packed = split_suffix(source)
    form = _FORMATS.get(suffix)
    if form is None or (packed and not form.gz):
        known = ", ".join([*_FORMATS, *(f"{name}.gz" for name, form in _FORMATS.items() if form.gz)])
        raise InputError(f"unknown file type {suffix + '.gz' * packed!r}; felb reads {known}")
    return suffix, form


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


def _read_felb(source: Path, _: Bounds, options: ReadOptions) -> Generator[Table]:
    matrix = BinaryMatrix.of(BinaryMatrix.open(source), binarize_threshold=options.binarize_threshold)
    yield Table(matrix.with_unknown(None) if options.missing == "zero" else matrix)


_FORMATS = {
    ".csv": _Format("text file", partial(read_table, delimiter=","), gz=True, clients=True, header=True, missing=True),
    ".tsv": _Format("text file", partial(read_table, delimiter="\t"), gz=True, clients=True, header=True, missing=True),
    ".dat": _Format("text file", read_items, gz=True),
    ".fimi": _Format("text file", read_items, gz=True),
    ".npz": _Format("NumPy archive", read_npz),
    ".npy": _Format("NumPy array", read_npy, missing=True),
    ".mat": _Format("MATLAB file", partial(read_isolated, file_format="mat"), missing=True),
    ".mtx": _Format("MatrixMarket file", partial(read_isolated, file_format="mtx"), gz=True),
    ".parquet": _Format("Parquet file", read_parquet, clients=True, missing=True),
    ".h5ad": _Format("AnnData file", read_h5ad, clients=True, missing=True),
    ".felb": _Format("felb matrix", _read_felb, missing=True),
}


# A block is a name of a file and perhaps a range of rows. It travels to another process in a few bytes, and a ``.felb``
# file is mapped there, not read.

SUFFIX = ".felb"
"""Files of which a range of rows can be used without reading the others."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a data file.

    Parameters
    ----------
    path : the file
    start, stop : the rows of a ``.felb`` file, up to but without `stop`; None for all
    options : how the file is read, as in `felb.data.read`
    """

    path: str
    start: int = 0
    stop: int | None = None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def mapped(self) -> bool:
        """Whether the rows stay in their file until they are used."""
        return self.path.lower().endswith(SUFFIX)

    def read(self) -> BinaryMatrix:
        """Return the rows; of a ``.felb`` file a view."""
        if not self.mapped:
            return read(self.path, **dict(self.options)).matrix
        matrix = _mapped(self.path, Path(self.path).stat().st_mtime_ns if Path(self.path).is_file() else 0)
        if ("missing", "zero") in self.options:
            matrix = matrix.with_unknown(None)
        return matrix if self.stop is None else matrix.rows(self.start, self.stop)

    def __str__(self) -> str:
        return self.path if self.stop is None else f"{self.path}, rows {self.start} to {self.stop - 1}"


@lru_cache(maxsize=32)
def _mapped(path: str, _changed: int) -> BinaryMatrix:
    return BinaryMatrix.open(path)


@dataclass(frozen=True)
class Blocks(Sequence[Block]):
    """Blocks of rows in files, in the order of the rows.

    `felb.data.open_blocks` makes it, and ``fit``, ``transform`` and ``score`` of the federated estimators take it: on
    the workers of the current Dask client if there is one, otherwise in this process.

    Parameters
    ----------
    blocks : the blocks

    Examples
    --------
    >>> import felb
    >>> felb.data.planted(600, 60, 4, noise=0.05, seed=0).A.save("whole.felb")
    >>> blocks = felb.data.open_blocks("whole.felb", rows=250)
    >>> [len(matrix) for matrix in blocks.read()]
    [250, 250, 100]
    """

    blocks: tuple[Block, ...]

    @overload
    def __getitem__(self, at: int) -> Block: ...
    @overload
    def __getitem__(self, at: slice) -> Blocks: ...
    def __getitem__(self, at: int | slice) -> Block | Blocks:
        return Blocks(self.blocks[at]) if isinstance(at, slice) else self.blocks[at]

    def __len__(self) -> int:
        return len(self.blocks)

    def read(self) -> list[BinaryMatrix]:
        """Return the rows of all blocks, those of ``.felb`` files mapped."""
        return [block.read() for block in self.blocks]


def open_blocks(
    files: str | PathLike[str] | Iterable[str | PathLike[str]], *, rows: int | None = None, **options: Any
) -> Blocks:
    """Name the files that make up a data set too large for one of them, or for memory.

    Parameters
    ----------
    files : a pattern such as ``"parts/*.felb"``, a path, or several of these; files of a pattern are taken in the order
        of their names. Any format of `felb.data.read` will do; ``.felb`` and ``.parquet`` suit large data
    rows : cut ``.felb`` files into blocks of at most this many rows; without it, a file is a block
    options : how files are read: `header`, `binarize_threshold`, `missing` and `client_column` of `felb.data.read`

    Examples
    --------
    >>> import felb
    >>> felb.data.planted(600, 60, 4, noise=0.05, seed=0).A.save("part-1.felb")
    >>> felb.data.planted(300, 60, 4, noise=0.05, seed=1).A.save("part-2.felb")
    >>> blocks = open_blocks("part-*.felb", rows=200)
    >>> len(blocks), str(blocks[1])[-15:]
    (5, 'rows 200 to 399')
    """
    if rows is not None and rows < 1:
        raise InputError(f"a block needs at least one row, got rows={rows}")
    unusable = sorted(set(options) - {"header", "binarize_threshold", "missing", "client_column"})
    if unusable:
        raise InputError(f"blocks cannot be read with {unusable[0]}=; use header, binarize_threshold or missing")
    given = tuple(sorted((name, value) for name, value in options.items() if value is not None))
    found: list[Block] = []
    for path in _paths([files] if isinstance(files, str | PathLike) else files):
        whole = Block(path, options=given)
        if rows is None or not whole.mapped:
            found.append(whole)
            continue
        n = len(whole.read())
        found += [Block(path, start, min(start + rows, n), given) for start in range(0, n, rows)]
    return Blocks(tuple(found))


def _paths(files: Iterable[str | PathLike[str]]) -> list[str]:
    paths: list[str] = []
    for name in files:
        text = str(name)
        pattern = glob.has_magic(text) and not Path(text).is_file()
        matching = sorted(glob.glob(text)) if pattern else [text] * Path(text).is_file()  # noqa: PTH207  # any folder
        if not matching:
            raise InputError(f"there is no file {text!r}; check the path or the pattern")
        paths += [str(Path(path).absolute()) for path in matching]
    if not paths:
        raise InputError("no files were given; name at least one, or a pattern such as 'parts/*.felb'")
    return paths


def is_distributed(data: Any) -> bool:
    """Tell data in blocks that need not be in this process: a Dask collection, AnnData on one, or `Blocks`."""
    if isinstance(data, Blocks) or is_dask(data):
        return True
    return hasattr(data, "var_names") and hasattr(data, "obs_names") and is_dask(data.X)


@dataclass(frozen=True, slots=True)
class Shipped:
    """A data set in the package: what it is and under which licence."""

    name: str
    what: str
    licence: str


SHIPPED = {
    entry.name: entry
    for entry in (
        Shipped("zoo", "101 animals x 17 properties (UCI Zoo)", "CC BY 4.0"),
        Shipped("soybean", "683 diseased plants x 99 symptoms (UCI Soybean)", "CC BY 4.0"),
        Shipped("sc_10x_brain_10k", "10000 mouse brain cells x 1000 genes, count > 0 (10x Genomics)", "CC BY 4.0"),
    )
}


def load(name: str) -> BinaryMatrix:
    """Load a shipped data set with its column names.

    Examples
    --------
    >>> load("zoo")
    BinaryMatrix(101 x 17 named, 761 ones, 0.4432 dense)
    """
    _check(name)
    with as_file(files("felb.data") / "shipped") as folder:
        return read(folder / f"{name}.npz").matrix


def row_names(name: str) -> tuple[str, ...] | None:
    """Names of the records of a shipped data set, if they have any."""
    _check(name)
    file = files("felb.data") / "shipped" / f"{name}.rows.txt"
    return tuple(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else None


def _check(name: str) -> None:
    if name not in SHIPPED:
        raise InputError(f"no data set {name!r} comes with felb; there is {', '.join(SHIPPED)}")


def check_named(name: str) -> None:
    """Raise if there is neither a file nor a shipped data set of that name."""
    if not is_url(name) and not Path(name).exists() and name not in SHIPPED:
        raise InputError(f"there is no file {name!r}; check the path, or use a data set of felb: {', '.join(SHIPPED)}")


def read_data(name: str, **options: Any) -> Table:
    """Read a data file, a database by its URL, or a shipped data set if there is no file of that name."""
    check_named(name)
    if is_url(name) or Path(name).is_file() or (Path(name).exists() and name not in SHIPPED):
        return read(name, **options)
    if options.get("schema") is not None:
        raise InputError(f"the shipped data set {name!r} is binary already; leave the schema out")
    if options.get("client_column") is not None:
        raise InputError(f"the shipped data set {name!r} has no client column; use a number of clients")
    for option in ("record_column", "label_column"):
        if options.get(option) is not None:
            raise InputError(f"the shipped data set {name!r} has no column {options[option]!r}", parameter=option)
    table, unknown = Table(load(name), rows=row_names(name)), options.get("unknown")
    if unknown is not None:
        [table] = mark_blocks([table], read(unknown).matrix, str(unknown))
    return table


def convert(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    client_column: str | None = None,
    header: bool | None = None,
    binarize_threshold: float | None = None,
    missing: str = "error",
    unknown: str | PathLike[str] | None = None,
    limits: Limits | None = None,
    schema: Schema | str | PathLike[str] | None = None,
    force: bool = False,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Table:
    r"""Write a data file as ``.felb``, which felb works on from disk; neither file need fit into memory.

    The source is read in blocks, and its ones go straight to disk. Item lists are read twice, first for their items.
    Loaded as a whole are only ``.mat`` and ``.mtx`` files (by another process) and sparse matrices in ``.npz`` and
    ``.h5ad`` files that are not in CSR form; save ``matrix.tocsr()`` there instead.

    Parameters
    ----------
    source : file in any format of `read`, or with a schema also the URL of a database
    target : file to write, its name ending in ``.felb``; complete or not there at all. While it is written, its folder
        needs room for it twice.
    client_column, header, binarize_threshold, missing, unknown, limits, schema : as in `read`; unknown cells are stored
        too
    force : bool
        Replace the target if it exists.
    on_rows : callable, optional
        Called after each block with the number of completed rows.

    Returns
    -------
    Table
        The target, memory-mapped, and the client of each row if there is a `client_column`; the target does not hold
        the clients.

    Raises
    ------
    InputError
        If the source is not usable, as in `read`, or the target exists or cannot be written.
    MissingExtraError
        If the format of the source needs a package that is not installed.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("large.csv").write_text("fever,cough\n1,0\n1,1\n")
    >>> convert("large.csv", "large.felb").matrix
    BinaryMatrix(2 x 2 named, 3 ones, 0.75 dense)
    """
    path = Path(target)
    if path.suffix.lower() != SUFFIX:
        raise InputError(f"{path} does not end in {SUFFIX}; use {path.with_suffix(SUFFIX)}")
    if path.exists() and not force:
        raise InputError(f"{path} exists; choose another name, or set force to replace it", parameter="force")
    labels: list[str] = []
    applied: Applied | None = None
    options = ReadOptions(client_column, header, binarize_threshold, missing, hold=False)
    blocks = read_blocks(source, options, unknown=unknown, limits=limits, schema=schema)
    with MatrixWriter(path) as writer, closing(blocks):
        for table in blocks:
            writer.append(table.matrix)
            labels += table.clients or ()
            applied = table.applied
            on_rows(writer.shape[0])
    return Table(BinaryMatrix.open(path), None if client_column is None else tuple(labels), applied=applied)


OBS = "obs:"
"""Before the name of a column of ``obs``."""
MAX_LABEL_BYTES = 1 << 28


def names_column(labels: str) -> bool:
    """Tell whether labels are a column of the data, rather than a file or an annotation of an ``.h5ad`` file."""
    return not labels.startswith(OBS) and not Path(labels).is_file()


def read_labels(source: str, data: str, n_records: int) -> np.ndarray[Any, Any]:
    r"""Return the label of each record; None where a record has none.

    Parameters
    ----------
    source : ``obs:NAME`` for a column of ``obs`` of an ``.h5ad`` file, or a text file with one label per line, in the
        order of the records, under a heading or not; a column of the data is read by ``felb.data.read`` with
        `label_column`
    data : the data file; not needed for a file of labels
    n_records : number of records

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("kinds.txt").write_text("kind\ncat\ndog\n")
    >>> read_labels("kinds.txt", "pets.csv", 2).tolist()
    ['cat', 'dog']
    """
    if source.startswith(OBS) and not Path(source).is_file():
        found = _annotation(Path(data), source.removeprefix(OBS))
    else:
        lines = read_text(source, advice="give one label per line", limit=MAX_LABEL_BYTES).splitlines()
        lines = lines[1:] if len(lines) == n_records + 1 else lines
        found = np.array([line.strip() or None for line in lines], dtype=object)
    return check_labels(found, source, n_records)


def check_labels(
    labels: Sequence[str | None] | np.ndarray[Any, Any], source: str, n_records: int
) -> np.ndarray[Any, Any]:
    """Return labels as an array; raise unless there is one for each record."""
    if len(labels) != n_records:
        raise InputError(f"{source} has {len(labels)} labels for {n_records} records", parameter="labels")
    return np.asarray(labels, dtype=object)


def _annotation(path: Path, name: str) -> np.ndarray[Any, Any]:
    if path.suffix != ".h5ad" or not path.is_file():
        raise InputError(f"{path} is no .h5ad file, so it has no annotations; give a column or a file of labels")
    table = open_anndata(path)
    try:
        if name not in table.obs.columns:
            there = ", ".join(map(str, table.obs.columns[:10])) or "none"
            raise InputError(f"obs of {path} has no column {name!r}; it has {there}", parameter="labels")
        return to_objects(table.obs[name])
    finally:
        table.file.close()
