"""Data by its name: small real data sets that are included in felb, files and databases."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.data.database_url import is_url
from felb.data.files import read
from felb.data.table import Table, marked
from felb.errors import InputError

if TYPE_CHECKING:
    from felb.data.binary import BinaryMatrix


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
    table, unknown = Table(load(name)), options.get("unknown")
    if unknown is not None:
        [table] = marked([table], read(unknown).matrix, str(unknown))
    return table
