"""Loads data by its name and splits its rows among clients, reproducibly from a stored job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data import partition
from felb.data.database_url import is_url
from felb.data.files import read
from felb.data.registry import SHIPPED, load
from felb.data.table import Table, marked
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

PARTITIONS: Mapping[str, Callable[[int, int, int], NDArray[np.int64]]] = {
    "even": lambda n, clients, seed: partition.even(n, clients, seed=seed),
    "uneven": lambda n, clients, seed: partition.uneven(n, clients, seed=seed),
    "consecutive": lambda n, clients, _: partition.consecutive(n, clients),
}
"""Functions that split rows among clients, given the numbers of rows and clients and a seed."""


def dealt(n: int, clients: int, *, split: str, seed: int) -> NDArray[np.str_]:
    """Return the client of each of n rows: client-01, client-02, …, by one of the `PARTITIONS`."""
    width = max(2, len(str(clients)))
    names = np.array([f"client-{number:0{width}}" for number in range(1, clients + 1)])
    return names[PARTITIONS[split](n, clients, seed)]


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
