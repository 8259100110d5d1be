"""A job: one method on one data set, as plain data that can be stored and run again."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from felb.data.database_url import check_no_password
from felb.data.schema import Schema
from felb.data.sharding import PARTITIONS as PARTITIONS
from felb.data.sharding import dealt
from felb.data.sharding import read_data as read_data
from felb.errors import InputError
from felb.privacy import Privacy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.data import Table


@dataclass(frozen=True, slots=True)
class Job:
    """What to run.

    Parameters
    ----------
    data : path of a data file, URL of a database (without a password), or the name of a shipped data set
    method : a word of `felb.estimators.methods.METHODS`
    n_components, seed : as in the estimators; "mdl" where the method finds the number
    parameters : further parameters of the estimator
    pooled : all rows are one owner's, who may do more than a client
    clients, split : deal the rows out to this many clients in one of the ways of `PARTITIONS`
    client_column : or take the client of each row from this column
    header, binarize_threshold, missing, unknown : how the data is read, see `felb.data.read`
    schema : path of the schema by which raw data is read
    participation : keywords of `felb.Participation`
    workers : clients that work at the same time
    privacy : keywords of `felb.privacy.Privacy`, the specification on how much the run may reveal; None for no noise
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
    pooled: bool = False
    clients: int | None = None
    split: str = "even"
    client_column: str | None = None
    header: bool | None = None
    binarize_threshold: float | None = None
    missing: str = "error"
    unknown: str | None = None
    schema: str | None = None
    participation: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 1
    privacy: Mapping[str, Any] | None = None
    fingerprint: str | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        if self.split not in PARTITIONS:
            *others, last = PARTITIONS
            raise InputError(f"unknown split {self.split!r}; use {', '.join(others)} or {last}")
        if self.clients is not None and self.client_column is not None:
            raise InputError("give either a number of clients or a client column, not both")
        check_no_password(self.data)
        _ = self.spec  # refuses what cannot be agreed on

    @property
    def spec(self) -> Privacy | None:
        """The privacy specification, if there is one."""
        return None if self.privacy is None else agreed(self.privacy)

    def read(self) -> Table:
        """Read the data."""
        return read_data(
            self.data,
            client_column=self.client_column,
            header=self.header,
            binarize_threshold=self.binarize_threshold,
            missing=self.missing,
            unknown=self.unknown,
            **({} if self.schema is None else {"schema": self.schema}),
        )

    def read_schema(self) -> Schema | None:
        """Read the schema, if there is one."""
        return None if self.schema is None else Schema.read(self.schema)

    def labels(self, table: Table) -> Any:
        """Return the client of each row."""
        if table.clients is not None:
            return table.clients
        count = 1 if self.clients is None else self.clients
        return dealt(table.matrix.shape[0], count, split=self.split, seed=self.seed)


def agreed(terms: Mapping[str, Any]) -> Privacy:
    """Make a specification of its terms by name, or raise an error that names what is wrong."""
    known = [entry.name for entry in fields(Privacy)]
    unknown = sorted(set(terms) - set(known))
    if unknown:
        raise InputError(f"a privacy specification has no {unknown[0]!r}; it has {', '.join(known)}")
    if "epsilon" not in terms:
        raise InputError("a privacy specification needs epsilon, how much a run may reveal in all; 1 is a good start")
    try:
        return Privacy(**terms)
    except TypeError as error:  # a word where a number belongs
        raise InputError(f"the privacy specification is not understood ({error}); check its values") from error
