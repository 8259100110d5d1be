"""A result and its provenance as a folder of plain files.

result.json          parameters, seed, versions, scores, history, names of clients and columns
private.json         what tells the data from other data, for its owner: fingerprint, number of ones, sizes of clients
components.npz       V as a SciPy sparse matrix, components × features
components.csv       the same for people: support and feature names of each component
assignments/*.npz    U_i of each client as a SciPy sparse matrix, rows × components
outbound/*.jsonl     what left each client
privacy.txt          what was guaranteed to whom, if anything was
schema.toml          by which raw data was read, if it was
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import msgspec
import numpy as np
import scipy.sparse as sp

from felb._version import __version__
from felb.data.binary import check_column_names
from felb.data.npz import read_sparse
from felb.data.schema import Schema
from felb.data.schema_words import conflicts
from felb.errors import InputError
from felb.metrics.history import History
from felb.records import Natural, read_record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.privacy.disclosure import Disclosure

FORMAT = "felb-result-1"
RESULT, COMPONENTS, ASSIGNMENTS, OUTBOUND = "result.json", "components.npz", "assignments", "outbound"
STATEMENT, SCHEMA, PRIVATE = "privacy.txt", "schema.toml", "private.json"
ITERATION = "iterate"
"""In place of a task in the history of a centralized method."""
WITHHELD = "(withheld: fewer records than the disclosure rules ask for)"
NOT_SHARED = {"ones": None, "fingerprint": None}
"""Of the facts about the data, what tells its owner's data from other data."""
AGAIN = "make the result again"
MAX_CELLS = 1 << 33
"""Of components or of an assignment, which are held with a byte for each cell."""
LONGEST_STEM = 120
"""Of a file name without its suffix; file systems allow 255 bytes, and temporary names are longer."""


def machine_facts() -> dict[str, Any]:
    """What a measurement depends on, without naming the machine."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }


@dataclass(frozen=True, slots=True)
class Component:
    """One component in words: which features, and how many records have it."""

    number: int
    features: tuple[str, ...]
    support: int | None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a result comes from; enough to make it again."""

    method: str
    parameters: Mapping[str, Any]
    seed: int
    data: Mapping[str, Any]
    felb: str = __version__
    machine: Mapping[str, Any] = field(default_factory=machine_facts)


@dataclass(frozen=True, slots=True)
class Result:
    """Components with their provenance, scores and history; the assignments stay with their clients.

    Parameters
    ----------
    components : Boolean V, components × features
    columns : feature names, if the data had any
    supports : records of all clients that were assigned each component; None if clients do not release them
    clients : number of rows of each client; None where only their sum is kept
    scores : by name; empty if clients do not release counts
    complete : False if a time limit ended the search; the result is the best until then
    privacy : what was guaranteed to whom, as plain values and, as ``text``, in words; None if nothing was
    disclosure : rules by which the result was made, as plain values; None if there were none
    withheld : numbers of the components that these rules do not let be published; their rows in `components` are empty
    schema : by which raw data was read; None if the data was binary

    Examples
    --------
    >>> from felb import Job, fit
    >>> found = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> again = Result.read("zoo-run")
    >>> again.scores == found.scores, again.described()[0].features[:2]
    (True, ('predator', 'backbone'))
    """

    components: NDArray[np.bool_]
    columns: tuple[str, ...] | None
    supports: tuple[int | None, ...]
    clients: Mapping[str, int | None]
    scores: Mapping[str, float]
    converged: bool
    integrality_gap: float
    history: History
    provenance: Provenance
    complete: bool = True
    privacy: Mapping[str, Any] | None = None
    disclosure: Mapping[str, Any] | None = None
    withheld: tuple[int, ...] = ()
    schema: Schema | None = None

    def disclosed(self, rules: Disclosure) -> Result:
        """Return the result as disclosure rules let it be published: without small components and client sizes."""
        withheld = rules.withheld(self.supports)
        components = self.components.copy()
        components[list(withheld)] = False
        rows = self.provenance.data.get("rows")
        data = {**self.provenance.data, "rows": None if rows is None else rules.rounded(rows), **NOT_SHARED}
        return replace(
            self,
            components=components,
            supports=tuple(
                None if i in withheld or support is None else rules.rounded(support)
                for i, support in enumerate(self.supports)
            ),
            clients=dict.fromkeys(self.clients),
            provenance=replace(self.provenance, data=data),
            disclosure=rules.to_json(),
            withheld=withheld,
        )

    def described(self) -> list[Component]:
        """The components by name, most supported first; without those that are withheld."""
        names = self.columns or tuple(f"x{i}" for i in range(self.components.shape[1]))
        found = [
            Component(i, tuple(names[j] for j in np.flatnonzero(row)), support)
            for i, (row, support) in enumerate(zip(self.components, self.supports, strict=True))
            if i not in self.withheld
        ]
        return sorted(found, key=lambda c: (-(c.support or 0), c.number))

    def conflicts(self) -> list[str]:
        """Components that hold categories of one column that exclude each other, a sentence each."""
        return conflicts(self.schema, self.components)

    def rounds(self) -> dict[str, int]:
        """Return the number of rounds of each task; centralized methods have iterations."""
        return dict(Counter(str(row.get("task", ITERATION)) for row in self.history))

    def to_json(self) -> dict[str, Any]:
        """Everything but the components as plain data."""
        return {
            "format": FORMAT,
            "scores": dict(self.scores),
            "converged": self.converged,
            "complete": self.complete,
            "integrality_gap": self.integrality_gap,
            "n_components": self.components.shape[0],
            "n_features": self.components.shape[1],
            "supports": list(self.supports),
            "clients": dict(self.clients),
            "provenance": asdict(self.provenance),
            "history": [dict(row) for row in self.history],
            "columns": None if self.columns is None else list(self.columns),
            "privacy": None if self.privacy is None else dict(self.privacy),
            "disclosure": None if self.disclosure is None else dict(self.disclosure),
            "withheld": list(self.withheld),
            **({} if self.schema is None else {"schema": self.schema.digest}),
        }

    def write(self, folder: Path, assignments: Mapping[str, NDArray[np.bool_]]) -> None:
        """Write all files into an existing folder; `felb.atomic.replace_folder` then puts it in its place."""
        sp.save_npz(folder / COMPONENTS, sp.csr_array(self.components))
        with (folder / "components.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["component", "support", "size", "features"])
            for c in self.described():
                writer.writerow([c.number, c.support, len(c.features), "; ".join(c.features)])
            for number in self.withheld:
                writer.writerow([number, "", "", WITHHELD])
        (folder / ASSIGNMENTS).mkdir(exist_ok=True)
        for client, U in assignments.items():
            sp.save_npz(folder / ASSIGNMENTS / f"{file_stem(client)}.npz", sp.csr_array(U))
        if self.privacy is not None:
            (folder / STATEMENT).write_text(f"{self.privacy['text']}\n", encoding="utf-8")
        if self.schema is not None:
            self.schema.write(folder / SCHEMA, force=True)
        whole = finite(self.to_json())
        made, data = whole["provenance"], whole["provenance"]["data"]
        owned = {"clients": whole["clients"], "data": {name: data[name] for name in NOT_SHARED if name in data}}
        shared = {**made, "data": {**data, **dict.fromkeys(owned["data"])}}
        text = json.dumps(
            {**whole, "clients": dict.fromkeys(whole["clients"]), "provenance": shared}, indent=1, allow_nan=False
        )
        if any(value is not None for value in (*owned["clients"].values(), *owned["data"].values())):
            path = folder / PRIVATE
            path.write_text(json.dumps(owned, indent=1, allow_nan=False), encoding="utf-8")
            path.chmod(0o600)
        (folder / RESULT).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Result:
        """Read a result folder back; a damaged file is an `InputError` that names it and what is wrong in it."""
        path = Path(folder)
        check_result_folder(path)
        stored = read_record(path / RESULT, _Stored, advice=AGAIN)
        if (path / PRIVATE).is_file():  # whoever has passed the result on has kept it
            owned = read_record(path / PRIVATE, _Owned, advice=AGAIN)
            stored.clients = {**stored.clients, **owned.clients}
            stored.provenance = replace(stored.provenance, data={**stored.provenance.data, **owned.data})
        found = cls(
            components=_read_boolean(path / COMPONENTS, (stored.n_components, stored.n_features)),
            columns=None if stored.columns is None else tuple(stored.columns),
            supports=tuple(stored.supports),
            clients=stored.clients,
            scores={name: math.nan if score is None else score for name, score in stored.scores.items()},
            converged=stored.converged,
            integrality_gap=math.nan if stored.integrality_gap is None else stored.integrality_gap,
            history=History(stored.history),
            provenance=stored.provenance,
            complete=stored.complete,
            privacy=stored.privacy,
            disclosure=stored.disclosure,
            withheld=tuple(stored.withheld),
            schema=_read_schema(path, stored.schema),
        )
        k, m = found.components.shape
        if len(found.supports) != k or (found.columns is not None and len(found.columns) != m):
            raise InputError(f"{path / COMPONENTS} does not belong to {RESULT} beside it; {AGAIN}")
        if found.columns is not None:
            check_column_names(found.columns, m)
        return found


class _Owned(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in private.json: what would tell the data of a client from other data."""

    clients: dict[str, Natural | None]
    data: dict[str, Any]


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in result.json."""

    format: Literal["felb-result-1"]
    scores: dict[str, int | float | None]
    converged: bool
    complete: bool
    integrality_gap: int | float | None
    n_components: Natural
    n_features: Natural
    supports: list[Natural | None]
    clients: dict[str, Natural | None]
    provenance: Provenance
    history: list[dict[str, Any]]
    columns: list[str] | None
    privacy: dict[str, Any] | None
    disclosure: dict[str, Any] | None
    withheld: list[Natural]
    schema: str | None = None

    def __post_init__(self) -> None:
        for number, row in enumerate(self.history):
            if type(row.get("round", 0)) is not int or not isinstance(row.get("task", ""), str):
                raise ValueError(f"row {number} of the history has no round or task")
        data = self.provenance.data
        for name, kind in (("source", str), ("rows", int), ("columns", int), ("ones", int), ("fingerprint", str)):
            if not isinstance(data.get(name), kind | None):
                raise ValueError(f"`provenance.data.{name}` is {type(data[name]).__name__}, not {kind.__name__}")
        if not isinstance((self.privacy or {"text": ""}).get("text"), str):
            raise ValueError("`privacy.text` does not say what was guaranteed")


def check_result_folder(folder: str | os.PathLike[str]) -> None:
    """Raise if a folder holds no result."""
    path = Path(folder)
    if not (path / RESULT).is_file():
        raise InputError(f"{path} is not a result folder: it has no {RESULT}; give the folder of a finished run")


def read_assignment(folder: str | os.PathLike[str], client: str) -> NDArray[np.bool_]:
    """Read U of one client from a result folder.

    Examples
    --------
    >>> from felb import Job, fit
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> read_assignment("zoo-run", "pooled").shape
    (101, 4)
    """
    path = Path(folder) / ASSIGNMENTS / f"{file_stem(client)}.npz"
    if not path.is_file():
        raise InputError(f"no assignment of {client!r} at {path}; result.json lists the clients")
    return _read_boolean(path)


def _read_schema(folder: Path, digest: str | None) -> Schema | None:
    """Return the schema of a result; another one than it was made with is an error."""
    if digest is None:
        return None
    found = Schema.read(folder / SCHEMA)
    if found.digest != digest:
        raise InputError(f"{folder / SCHEMA} is not the schema of the result beside it; make the result again")
    return found


def _read_boolean(path: Path, shape: tuple[int, int] | None = None) -> NDArray[np.bool_]:
    """Read a Boolean matrix of at most `MAX_CELLS` cells, of the given shape."""
    try:
        matrix = read_sparse(path)
        if matrix.shape[0] * matrix.shape[1] > MAX_CELLS or (shape is not None and matrix.shape != shape):
            raise InputError(f"a matrix of {matrix.shape[0]} x {matrix.shape[1]} cells does not belong to {RESULT}")
    except (InputError, OSError) as error:
        raise InputError(f"{path} is damaged or missing ({error}); {AGAIN}") from error
    return np.asarray(matrix.toarray(), dtype=bool)


def file_stem(client: str) -> str:
    """Return a file name for a client, whatever its label holds; distinct labels stay distinct.

    Examples
    --------
    >>> file_stem("St. Mary/7"), file_stem("..")
    ('St.%20Mary%2F7', '%2E.')
    """
    # Percent signs are quoted too, so that quoting can be undone; a file that begins with a dot would be hidden.
    stem = quote(client.encode("utf-8", "surrogatepass"), safe="").replace("~", "%7E")
    stem = f"%2E{stem[1:]}" if stem.startswith(".") else stem
    if len(stem) > LONGEST_STEM:
        digest = hashlib.blake2b(stem.encode(), digest_size=12).hexdigest()
        return f"{stem[: LONGEST_STEM - 25]}~{digest}"
    return stem or "~"


def finite(value: Any) -> Any:
    """Replace NaN and infinities by None, which JSON can say."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
