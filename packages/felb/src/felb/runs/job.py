"""A job: one method on one data set, as plain data that can be stored and run again."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # a stored job is read by its types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from felb.data.files import check_named, read_data
from felb.data.partition import PARTITIONS, dealt
from felb.errors import InputError
from felb.federated.algorithms.registry import METHODS, check_known, check_of_the_method, make_method
from felb.privacy.disclosure import Disclosure
from felb.records import check_fields, check_storable
from felb.tables.schema import Schema
from felb.tables.sources import check_no_password

if TYPE_CHECKING:
    from felb.centralized.base import Method
    from felb.data import Table
    from felb.privacy.spec import Privacy


@dataclass(frozen=True, slots=True)
class Job:
    """A job: what to run on which data.

    Parameters
    ----------
    data : path of a data file, URL of a database (without a password), or the name of a shipped data set
    method : the name of a method, as at the command line
    n_components, seed : as in the estimators; "mdl" where the method finds the number
    parameters : further parameters of the method
    centralized : one owner holds all rows; more computations are possible than in a federation
    clients, split : number of clients, and how the rows are split among them (see `PARTITIONS`)
    client_column : column with the client of each row, instead of `clients`
    header, binarize_threshold, missing, unknown : how the data is read, see `felb.data.read`
    schema : path of the schema by which raw data is read
    participation : keywords of `felb.Participation`
    secure : add up by secure aggregation
    workers : number of clients that compute in parallel, or of threads that share the rows of one owner; see `run`
    dask, block_rows : address of a Dask scheduler, or "local", on whose workers blocks of rows are the clients; `data`
        may then be a pattern of several files. Maximum number of rows of a block of a ``.felb`` file
    privacy : keywords of `felb.privacy.Privacy`, the privacy specification; None for no noise
    disclosure : disclosure rules for a run without noise, a preset or a table, see `felb.privacy.disclosure`; None for
        no rules
    record_column : column with the names of the records, under which assignments are also stored as CSV files
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
    centralized: bool = False
    clients: int | None = None
    split: str = "even"
    client_column: str | None = None
    header: bool | None = None
    binarize_threshold: float | None = None
    missing: str = "error"
    unknown: str | None = None
    schema: str | None = None
    participation: Mapping[str, Any] = field(default_factory=dict)
    secure: bool = False
    workers: int | None = None
    dask: str | None = None
    block_rows: int | None = None
    privacy: Mapping[str, Any] | None = None
    disclosure: str | Mapping[str, Any] | None = None
    record_column: str | None = None
    fingerprint: str | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.split not in PARTITIONS:
            *others, last = PARTITIONS
            raise InputError(f"unknown split {self.split!r}; use {', '.join(others)} or {last}")
        if self.clients is not None and self.client_column is not None:
            raise InputError("give either a number of clients or a client column, not both")
        for text in (self.data, self.unknown, self.schema, self.client_column, self.record_column, self.dask):
            if isinstance(text, str):
                check_storable(text)
        check_no_password(self.data)
        if self.dask is not None and self.unknown is not None:
            raise InputError("a file of unknown cells does not go with Dask; mark them in the data, missing='unknown'")
        if self.dask is not None and self.record_column is not None:
            raise InputError("names of records are not read on Dask; leave them out", parameter="record_column")
        if self.secure and (self.dask is not None or self.centralized):
            raise InputError(
                "secure aggregation is for several clients; one owner of all rows needs none", parameter="secure"
            )
        if self.block_rows is not None and self.dask is None:
            raise InputError("block_rows is the size of blocks on Dask; give dask, or leave it out")
        _ = self.spec, self.rules  # refuse what cannot be agreed on
        if self.privacy is not None and self.disclosure is not None:
            raise InputError("disclosure rules are for runs without noise; give either epsilon or disclosure, not both")

    @property
    def spec(self) -> Privacy | None:
        """The privacy specification, if there is one."""
        if self.privacy is None:
            return None
        from felb.privacy.spec import read_privacy  # compiled code, not needed to refuse wrong names

        return read_privacy(self.privacy)

    @property
    def rules(self) -> Disclosure | None:
        """The disclosure rules, if there are any."""
        return None if self.disclosure is None else Disclosure.of(self.disclosure)

    def check_names(self) -> None:
        """Raise if there is no such method or data; quick, as neither is imported or read."""
        check_known(self.method)
        if self.dask is None:  # which may name a pattern of files
            check_named(self.data)

    def make_method(self) -> Method:
        """Return the method with its parameters, or say why it cannot have them."""
        check_of_the_method(self.parameters)
        check_known(self.method)
        of_run: dict[str, Any] = {}
        if METHODS[self.method].federated:
            from felb.federated.protocol import Participation  # not needed to refuse wrong names

            # A method does without comparing rounds where only a sample of the clients plays them.
            of_run["participation"] = Participation(**self.participation)
        if self.spec is not None:
            able = [method.name for method in METHODS.values() if "privacy" in method.parameters()]
            if self.method not in able:
                raise InputError(
                    f"method {self.method!r} adds no noise and can guarantee no privacy; use {' or '.join(able)}"
                )
            of_run["privacy"] = self.spec
        return make_method(self.method, **{"n_components": self.n_components, **self.parameters, **of_run})

    def read(self) -> Table:
        """Read the data."""
        return read_data(
            self.data,
            client_column=self.client_column,
            record_column=self.record_column,
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
