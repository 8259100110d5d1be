"""Data in many files, or in one that is read piece by piece: blocks of rows that are read where they are used.

A block is a name of a file and perhaps a range of rows. It travels to another process in a few bytes, and a ``.felb``
file is mapped there, not read.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from felb.data.binary import BinaryMatrix
from felb.data.files import read
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAPPED = ".felb"
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
        return self.path.lower().endswith(MAPPED)

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


def is_dask(data: Any) -> bool:
    """Tell a Dask collection by what it can do, so that Dask need not be there."""
    return callable(getattr(type(data), "__dask_graph__", None))


def is_distributed(data: Any) -> bool:
    """Tell data in blocks that need not be in this process: a Dask collection, AnnData on one, or `Blocks`."""
    if isinstance(data, Blocks) or is_dask(data):
        return True
    return hasattr(data, "var_names") and hasattr(data, "obs_names") and is_dask(data.X)
