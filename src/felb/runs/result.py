"""A result: what was found, how, on what; a folder of plain files that anyone can read.

result.json          parameters, seed, versions, scores, history, names of clients and columns
private.json         what tells the data from other data, for its owner: fingerprint, number of ones, sizes of clients
components.npz       V as a SciPy sparse matrix, components × features
components.csv       the same for people: support and feature names of each component
assignments/*.npz    U_i of each client as a SciPy sparse matrix, rows × components
outbound/*.jsonl     what left each client
privacy.txt          what was guaranteed to whom, if anything was
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
from felb.errors import InputError
from felb.metrics.history import History

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.privacy.disclosure import Disclosure

FORMAT = "felb-result-1"
RESULT, COMPONENTS, ASSIGNMENTS, OUTBOUND = "result.json", "components.npz", "assignments", "outbound"
STATEMENT, PRIVATE = "privacy.txt", "private.json"
WITHHELD = "(withheld: fewer records than the disclosure rules ask for)"
NOT_SHARED = {"ones": None, "fingerprint": None}
"""Of the facts about the data, what tells its owner's data from other data."""
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
    supports : records of all clients that were assigned each component; None where clients do not tell
    clients : number of rows of each client; None where only their sum is kept
    scores : by name; empty where clients do not tell
    complete : False if a time limit ended the search; the result is the best until then
    privacy : what was guaranteed to whom, as plain values and, as ``text``, in words; None if nothing was
    disclosure : rules by which the result was made, as plain values; None if there were none
    withheld : numbers of the components that these rules do not let be published; their rows in `components` are empty

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

    def rounds(self) -> dict[str, int]:
        """How many rounds had which task; pooled methods have iterations."""
        return dict(Counter(str(row.get("task", "iterate")) for row in self.history))

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
        """Read a result folder back."""
        path = Path(folder)
        if not (path / RESULT).is_file():
            raise InputError(f"{path} is not a result folder: it has no {RESULT}; give the folder of a finished run")
        try:
            raw = json.loads((path / RESULT).read_text(encoding="utf-8"))
            if raw["format"] != FORMAT:
                raise InputError(f"{path / RESULT} has format {raw['format']!r}; this felb reads {FORMAT!r}")
            if (path / PRIVATE).is_file():  # whoever has passed the result on has kept it
                owned = json.loads((path / PRIVATE).read_text(encoding="utf-8"))
                raw["clients"] = {**raw["clients"], **owned["clients"]}
                raw["provenance"]["data"] = {**raw["provenance"]["data"], **owned["data"]}
            found = cls(
                components=_read_boolean(path / COMPONENTS),
                columns=None if raw["columns"] is None else tuple(raw["columns"]),
                supports=tuple(raw["supports"]),
                clients=dict(raw["clients"]),
                scores=dict(raw["scores"]),
                converged=raw["converged"],
                integrality_gap=raw["integrality_gap"],
                history=History(raw["history"]),
                provenance=Provenance(**raw["provenance"]),
                complete=raw["complete"],
                privacy=raw["privacy"],
                disclosure=raw["disclosure"],
                withheld=tuple(int(number) for number in raw["withheld"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            reason = f"no {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{path / RESULT} is damaged ({reason}); make the result again") from error
        k, m = found.components.shape
        if len(found.supports) != k or (found.columns is not None and len(found.columns) != m):
            raise InputError(f"{path / COMPONENTS} does not belong to {RESULT} beside it; make the result again")
        return found


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


def _read_boolean(path: Path) -> NDArray[np.bool_]:
    try:
        with path.open("rb") as file:
            return np.asarray(sp.load_npz(file).toarray(), dtype=bool)
    except Exception as error:  # what the readers of ZIP, NumPy and SciPy raise on damage is nearly anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{path} is damaged or missing ({reason}); make the result again") from error


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
