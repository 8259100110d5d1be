"""A result and its provenance as a folder of plain files.

result.json          parameters, seed, versions, scores, history, names of clients and columns
private.json         what tells the data from other data, for its owner: fingerprint, number of ones, sizes of clients
components.npz       V as a SciPy sparse matrix, components × features
components.csv       the same for people: support and feature names of each component
assignments/*.npz    U_i of each client as a SciPy sparse matrix, rows × components
outbound/*.jsonl     what left each client
privacy.txt          what was guaranteed to whom, if anything was
schema.toml          by which raw data was read, if it was
belief.safetensors   the model of the noise under which rows are assigned, if there is one

A model file holds the same but for private.json, assignments and outbound logs, see `felb.runs.model_file`.
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
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import scipy.sparse as sp

from felb._version import __version__
from felb.data.npz import read_sparse
from felb.data.schema_words import conflicts
from felb.errors import InputError
from felb.runs.result_places import RESULT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.centralized.base import BooleanFactorization
    from felb.data.binary import BinaryMatrix
    from felb.data.schema import Schema
    from felb.metrics.counts import Counts
    from felb.metrics.features import FeatureCounts
    from felb.metrics.history import History
    from felb.optim.belief import Belief
    from felb.privacy.disclosure import Disclosure

FORMATS = ("felb-result-1", "felb-result-2")
"""The format is the last one; the first has no `weights`, `n_iter` and no model of the noise."""
COMPONENTS, ASSIGNMENTS = "components.npz", "assignments"
STATEMENT, SCHEMA, PRIVATE, BELIEF = "privacy.txt", "schema.toml", "private.json", "belief.safetensors"
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
    weights : what covering a one and covering a zero is worth when rows are assigned; None if it is not known
    belief : the model of the noise under which rows are inferred; None if they are assigned by `weights`
    n_iter : rounds or iterations of the fit; None if it is not known
    features : how the records of the fit are explained, feature by feature; None if it is not kept

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
    weights: tuple[float, float] | None = None
    belief: Belief | None = None
    n_iter: int | None = None
    features: FeatureCounts | None = None

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
            belief=None,  # it tells how frequent each component is, also those that are withheld
            features=None,
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
        return [] if self.schema is None else conflicts(self.schema, self.components)

    def rounds(self) -> dict[str, int]:
        """Return the number of rounds of each task; centralized methods have iterations."""
        return dict(Counter(str(row.get("task", ITERATION)) for row in self.history))

    @property
    def counts(self) -> Counts | None:
        """The counts behind the scores; None where not all that is needed is kept."""
        scores, data = self.scores, self.provenance.data
        rows, columns, ones = (data.get(name) for name in ("rows", "columns", "ones"))
        if ones is None and self.privacy is None and scores.get("errors") and "coverage" in scores:
            ones = round(scores["errors"] / (1 - scores["coverage"]))  # coverage = 1 - errors / ones
        if rows is None or columns is None or ones is None or not {"recall", "errors"} <= set(scores):
            return None
        tp = round(scores["recall"] * ones) if ones else 0
        fn = ones - tp
        errors, rmsd = round(scores["errors"]), scores.get("rmsd")
        # Unknown cells are not counted, so the number of cells follows from RMSD² = errors / cells if there are errors.
        cells = round(errors / rmsd**2) if errors and rmsd else rows * columns
        from felb.metrics.counts import Counts

        return Counts(tp, errors - fn, fn, cells)

    def to_json(self) -> dict[str, Any]:
        """Everything but the components as plain data."""
        return {
            "format": FORMATS[-1],
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
            "weights": None if self.weights is None else list(self.weights),
            "n_iter": self.n_iter,
            "belief": self.belief is not None,
            **({} if self.schema is None else {"schema": self.schema.digest}),
        }

    def write(self, folder: Path, assignments: Mapping[str, NDArray[np.bool_]]) -> None:
        """Write all files into an existing folder; `felb.safe_files.replace_folder` then puts it in its place."""
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
        if self.belief is not None:
            from felb.federated.wire import pack

            (folder / BELIEF).write_bytes(pack(self.belief.to_values()))
        whole = finite(self.to_json())
        made, data = whole["provenance"], whole["provenance"]["data"]
        owned = {
            "clients": whole["clients"],
            "data": {name: data[name] for name in NOT_SHARED if name in data},
            "features": None if self.features is None else self.features.to_json(),
        }
        shared = {**made, "data": {**data, **dict.fromkeys(owned["data"])}}
        told = {**whole, "clients": dict.fromkeys(whole["clients"]), "provenance": shared}
        content = json.dumps(told, indent=1, allow_nan=False).encode()
        if any(value is not None for value in (*owned["clients"].values(), *owned["data"].values(), self.features)):
            path = folder / PRIVATE
            owned["result"] = fingerprint_of(content)
            path.write_text(json.dumps(owned, indent=1, allow_nan=False), encoding="utf-8")
            path.chmod(0o600)
        (folder / RESULT).write_bytes(content)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Result:
        """Read a result folder or a model file back; damage is an `InputError` that names the file and the place."""
        from felb.runs.result_files import read_result

        return read_result(Path(folder))

    # -- the model ---------------------------------------------------------------------------------------------

    def model(self) -> BooleanFactorization:
        """Return the fitted estimator, which assigns new records as those of the run were assigned."""
        from felb.runs.models import model_of

        return model_of(self)

    def assign(self, rows: BinaryMatrix) -> NDArray[np.bool_]:
        """Return which components rows with the features of the result have, assigned as those of the run were."""
        return self.model()._assign(rows)

    @classmethod
    def from_model(cls, model: BooleanFactorization, data: Any = None, *, source: str = "data in memory") -> Result:
        """Return the result of a fitted estimator.

        Parameters
        ----------
        model : fitted
        data : the records it was fitted on, if their number, scores and counts of each feature are to be kept
        source : name of the data
        """
        from felb.runs.models import result_from

        return result_from(model, data, source=source)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the result to one file, ``NAME.felbmodel``, without assignments and without what its owner keeps."""
        from felb.runs.model_file import write_model_file

        write_model_file(self, Path(path), force=force)


def read_assignment(folder: str | os.PathLike[str], client: str) -> NDArray[np.bool_]:
    """Read U of one client from a result folder.

    Examples
    --------
    >>> from felb import Job, fit
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> read_assignment("zoo-run", "centralized").shape
    (101, 4)
    """
    path = Path(folder) / ASSIGNMENTS / f"{file_stem(client)}.npz"
    if not path.is_file():
        raise InputError(f"no assignment of {client!r} at {path}; result.json lists the clients")
    return read_boolean(path)


def read_boolean(path: Path, shape: tuple[int, int] | None = None) -> NDArray[np.bool_]:
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


def fingerprint_of(content: bytes) -> str:
    """Return by what private.json knows the result.json that it belongs to."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


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
