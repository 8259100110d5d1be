"""A job: one method on one data set, as plain data that can be stored and run again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.datasets import Table, partition, read
from felb.datasets.registry import SHIPPED, load
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

PARTITIONS: Mapping[str, Callable[[int, int, int], NDArray[np.int64]]] = {
    "even": lambda n, clients, seed: partition.even(n, clients, seed=seed),
    "uneven": lambda n, clients, seed: partition.uneven(n, clients, seed=seed),
    "consecutive": lambda n, clients, _: partition.consecutive(n, clients),
}
"""Ways to deal rows out to clients, from the numbers of rows and clients and a seed."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to run.

    Parameters
    ----------
    data : path of a data file, or the name of a shipped data set
    method : a word of `felb.estimators.methods.METHODS`
    n_components, seed : as in the estimators; "mdl" where the method finds the number
    parameters : further parameters of the estimator
    clients, split : deal the rows out to this many clients in one of the ways of `PARTITIONS`
    client_column : or take the client of each row from this column
    participation : keywords of `felb.Participation`
    workers : clients that work at the same time
    fingerprint, version : of the data and of felb when the job was started; a resumed job must find the same

    Examples
    --------
    >>> Job("zoo", "asso+vote", 6, clients=10, parameters={"tau": 0.9}).read().matrix.shape
    (101, 17)
    """

    data: str
    method: str
    n_components: int | str
    seed: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    clients: int | None = None
    split: str = "even"
    client_column: str | None = None
    header: bool | None = None
    binarize_threshold: float | None = None
    participation: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 1
    fingerprint: str | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        if self.split not in PARTITIONS:
            *others, last = PARTITIONS
            raise InputError(f"unknown split {self.split!r}; use {', '.join(others)} or {last}")
        if self.clients is not None and self.client_column is not None:
            raise InputError("give either a number of clients or a client column, not both")

    def read(self) -> Table:
        """Read the data."""
        return read_data(
            self.data,
            client_column=self.client_column,
            header=self.header,
            binarize_threshold=self.binarize_threshold,
        )

    def labels(self, table: Table) -> Any:
        """Return the client of each row."""
        if table.clients is not None:
            return table.clients
        count = 1 if self.clients is None else self.clients
        width = max(2, len(str(count)))
        names = np.array([f"client-{number:0{width}}" for number in range(1, count + 1)])
        return names[PARTITIONS[self.split](table.matrix.shape[0], count, self.seed)]


def read_data(name: str, **options: Any) -> Table:
    """Read a data file, or a shipped data set if there is no file of that name."""
    if Path(name).is_file() or (Path(name).exists() and name not in SHIPPED):
        return read(name, **options)
    if name not in SHIPPED:
        raise InputError(f"there is no file {name!r}; check the path, or use a data set of felb: {', '.join(SHIPPED)}")
    if options.get("client_column") is not None:
        raise InputError(f"the shipped data set {name!r} has no client column; use a number of clients")
    return Table(load(name))
