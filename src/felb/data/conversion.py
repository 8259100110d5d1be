"""Converts data files of any size to the .felb format, which is memory-mapped."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from felb.data.binary import BinaryMatrix
from felb.data.files import Table, table_stream
from felb.data.storage import MatrixWriter
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from felb.data.apply_schema import Applied
    from felb.data.limits import Limits
    from felb.data.schema import Schema

SUFFIX = ".felb"


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

    The source is read in blocks, and its ones go straight to disk. Item lists are read twice, first for their items;
    the entries of ``.mtx``, which come in any order, are sorted by way of temporary files. Loaded as a whole are only
    sparse matrices in ``.npz`` and ``.h5ad`` files that are not in CSR form; save ``matrix.tocsr()`` there instead.

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
    blocks = table_stream(
        source,
        client_column=client_column,
        header=header,
        binarize_threshold=binarize_threshold,
        missing=missing,
        unknown=unknown,
        schema=schema,
        spill=path.parent,
        limits=limits,
    )
    with MatrixWriter(path) as writer, closing(blocks):
        for table in blocks:
            writer.append(table.matrix)
            labels += table.clients or ()
            applied = table.applied
            on_rows(writer.shape[0])
    return Table(BinaryMatrix.open(path), None if client_column is None else tuple(labels), applied=applied)
