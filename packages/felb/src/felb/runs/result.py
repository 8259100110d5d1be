"""A result and its provenance as a folder of plain files, or as one model file."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Mapping  # noqa: TC003 - records are read by it
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import numpy as np
import scipy.sparse as sp

from felb._version import __version__
from felb.data.binary import check_column_names
from felb.data.readers import Limits, read_sparse
from felb.errors import FelbError, InputError, shortened
from felb.federated.algorithms.registry import MDL
from felb.federated.journal import pack, unpack
from felb.federated.protocol import Outcome
from felb.metrics.counts import Counts, FeatureCounts, History
from felb.optim.belief import Belief
from felb.records import (
    Natural,
    open_regular,
    parse_record,
    read_bounded,
    read_record,
    replace_nonfinite,
    replacing,
    write_csv,
)
from felb.runs import MODEL_SUFFIX, RESULT, UNVERIFIED, check_result_folder, is_model_file
from felb.tables.schema import Schema, conflicts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.privacy.disclosure import Disclosure
    from felb.sklearn.base import BooleanFactorization


AGREED = "agreed_records"
"""Of the facts about the data: the number of records that was agreed on, from which the noise was calibrated."""
RESAMPLED = "resampled"
"""Of the facts about the data: every site took part with a random half of its rows, for a refit."""
DEFAULT_MOST = 30
"""`max_components` of runs that do not say it."""


def records_in_words(result: Result) -> str:
    """Say how many records there are, as far as that is known; a number that was only agreed on is told as such.

    Examples
    --------
    >>> import felb
    >>> records_in_words(felb.fit(felb.Job("zoo", "grecond", 4), "zoo-run"))
    '101 records'
    """
    rows, agreed = (result.provenance.data.get(name) for name in ("rows", AGREED))
    if rows is not None:
        return f"{rows} record{'' if rows == 1 else 's'}"
    if agreed is None:
        return "an unknown number of records"
    return f"an unknown number of records (agreed for the noise: {agreed})"


def remarks(result: Result) -> list[str]:
    """Return what a reader should know before trusting the result, a sentence or two each."""
    found = []
    data, parameters = result.provenance.data, result.provenance.parameters
    if data.get(AGREED) is not None and data.get("rows") is None:
        sites = ", ".join(result.clients) or "none"
        found.append(
            f"The number of {data[AGREED]} records is an assumption: it was agreed on before the run, to calibrate the "
            f"noise. How many records the sites that took part ({sites}) hold is not known to the coordinator."
        )
    most = parameters.get("max_components", DEFAULT_MOST)
    if parameters.get("n_components") == MDL and len(result.components) == most:
        found.append(
            f"Rank selection ended at max_components = {most}, the most components it may take; the shortest "
            "description may need more. Run it again with a larger max_components."
        )
    if result.scores.get("coverage", 0.0) < 0:
        found.append(f"There are more wrong cells than ones in the data. {_why(result)}")
    return found


def _why(result: Result) -> str:
    """Say why a result with so many wrong cells was chosen."""
    from felb.federated.steps.belief import ASSIGN_BY_BELIEF  # compiled code, which most results do not need

    if not any(row.get("task") == ASSIGN_BY_BELIEF.name for row in result.history):
        return "Empty components would have fewer; take fewer components, or another method."
    asked = result.provenance.parameters.get("objective", "auto")
    chosen = 'as objective = "recover" asks' if asked == "recover" else f'and objective = "{asked}" preferred them'
    return (
        f"The components are those that are likeliest behind heavy noise, {chosen}: noise makes wrong cells of what is "
        'right. objective = "hamming" gives the fewest wrong cells.'
    )


# -- A result and its provenance as a folder of plain files ----------------------------------------------------------
#
# result.json          parameters, seed, versions, scores, history, names of clients and columns
# private.json         what tells the data from other data, for its owner: fingerprint, number of ones, sizes of clients
# components.npz       V as a SciPy sparse matrix, components × features
# components.csv       the same for people: support and feature names of each component
# assignments/*.npz    U_i of each client as a SciPy sparse matrix, rows × components
# outbound/*.jsonl     what left each client
# privacy.txt          what was guaranteed to whom, if anything was
# schema.toml          by which raw data was read, if it was
# belief.safetensors   the model of the noise under which rows are assigned, if there is one
#
# result.json is written last and holds the SHA-256 of every other file, and one of itself in canonical form. A reader
# compares them and names the file that differs. What is stored later (stability.json, report.html) is not among them.
#
# A model file holds the same but for private.json, assignments and outbound logs, see `felb.runs.result`.

FORMAT = "felb-result-3"
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
    outcome : what the run found; its supports are rounded, and its components empty, where rules ask for that
    columns : feature names, if the data had any
    clients : number of rows of each client; None where only their sum is kept
    scores : by name; empty if clients do not release counts
    history : metrics of the rounds or iterations
    provenance : where the result comes from
    privacy : what was guaranteed to whom, as plain values and, as ``text``, in words; None if nothing was
    disclosure : rules by which the result was made, as plain values; None if there were none
    withheld : numbers of the components that these rules do not let be published; their rows in `components` are empty
    schema : by which raw data was read; None if the data was binary
    features : how the records of the fit are explained, feature by feature; None if it is not kept

    Examples
    --------
    >>> from felb import Job, fit
    >>> found = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> again = Result.read("zoo-run")
    >>> again.scores == found.scores, again.described()[0].features[:2]
    (True, ('predator', 'backbone'))
    """

    outcome: Outcome
    columns: tuple[str, ...] | None
    clients: Mapping[str, int | None]
    scores: Mapping[str, float]
    history: History
    provenance: Provenance
    privacy: Mapping[str, Any] | None = None
    disclosure: Mapping[str, Any] | None = None
    withheld: tuple[int, ...] = ()
    schema: Schema | None = None
    features: FeatureCounts | None = None

    @classmethod
    def of(cls, outcome: Outcome, **others: Any) -> Result:
        """Return the result of an outcome, with the scores that follow from its counts; `others` are fields."""
        return cls(outcome=outcome, scores={} if outcome.counts is None else outcome.counts.scores(), **others)

    @property
    def components(self) -> NDArray[np.bool_]:
        """Boolean V, components × features."""
        return self.outcome.components

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; x0, x1, … if the data had none."""
        return self.columns or tuple(f"x{i}" for i in range(self.components.shape[1]))

    @property
    def supports(self) -> tuple[int | None, ...]:
        """Records of all clients that were assigned each component; None if that is not released."""
        if self.outcome.supports is None:
            return (None,) * len(self.components)
        return tuple(None if i in self.withheld else int(n) for i, n in enumerate(self.outcome.supports))

    @property
    def integrality_gap(self) -> float:
        """How far the components were from Boolean before the cut."""
        return self.outcome.integrality_gap

    @property
    def complete(self) -> bool:
        """False if a time limit ended the search; the result is the best until then."""
        return self.outcome.complete

    @property
    def converged(self) -> bool:
        """Whether the components were Boolean, or near enough for the cut to be unambiguous."""
        return self.outcome.converged

    def disclosed(self, rules: Disclosure) -> Result:
        """Return the result as disclosure rules let it be published: without small components and client sizes."""
        withheld = rules.withheld(self.supports)
        components = self.components.copy()
        components[list(withheld)] = False
        rows = self.provenance.data.get("rows")
        data = {**self.provenance.data, "rows": None if rows is None else rules.rounded(rows), **NOT_SHARED}
        supports = self.outcome.supports
        return replace(
            self,
            outcome=replace(
                self.outcome,
                components=components,
                relaxed=None,  # it holds what is withheld
                supports=None if supports is None else np.array([rules.rounded(int(support)) for support in supports]),
                counts=None,  # they follow from the scores and the rounded number of rows
                belief=None,  # it tells how frequent each component is, also those that are withheld
            ),
            clients=dict.fromkeys(self.clients),
            provenance=replace(self.provenance, data=data),
            disclosure=rules.to_json(),
            withheld=withheld,
            features=None,
        )

    def described(self, supports: Sequence[int | None] | None = None) -> list[Component]:
        """The components by name, most supported first, also by other supports; without those that are withheld."""
        names, supports = self.feature_names, self.supports if supports is None else supports
        found = [
            Component(i, tuple(names[j] for j in np.flatnonzero(row)), support)
            for i, (row, support) in enumerate(zip(self.components, supports, strict=True))
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
        if self.outcome.counts is not None:
            return self.outcome.counts
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
        return Counts(tp, errors - fn, fn, cells)

    def to_json(self) -> dict[str, Any]:
        """Everything but the components as plain data."""
        return {
            "format": FORMAT,
            "scores": dict(self.scores),
            "converged": self.converged,
            "complete": self.complete,
            "integrality_gap": self.outcome.integrality_gap,
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
            "weights": list(self.outcome.weights),
            "n_iter": self.outcome.n_iter,
            "belief": self.outcome.belief is not None,
            **({} if self.schema is None else {"schema": self.schema.digest}),
        }

    def write(self, folder: Path, assignments: Mapping[str, NDArray[np.bool_]], *, own: bool = True) -> None:
        """Write all files into an existing folder; `felb.records.replace_folder` then puts it in its place.

        Files that are there already, such as outbound logs, are sealed with the others. Without `own`, what only the
        owner of the data may know is left out.
        """
        sp.save_npz(folder / COMPONENTS, sp.csr_array(self.components))
        with (folder / "components.csv").open("w", newline="", encoding="utf-8") as file:
            described = ([c.number, c.support, len(c.features), join_names(c.features)] for c in self.described())
            withheld = ([number, "", "", WITHHELD] for number in self.withheld)
            write_csv(file, [["component", "support", "size", "features"], *described, *withheld])
        (folder / ASSIGNMENTS).mkdir(exist_ok=True)
        for client, U in assignments.items():
            sp.save_npz(folder / ASSIGNMENTS / f"{file_stem(client)}.npz", sp.csr_array(U))
        if self.privacy is not None:
            (folder / STATEMENT).write_text(f"{self.privacy['text']}\n", encoding="utf-8")
        if self.schema is not None:
            self.schema.write(folder / SCHEMA, force=True)
        if self.outcome.belief is not None:
            (folder / BELIEF).write_bytes(pack(self.outcome.belief.to_values()))
        whole = replace_nonfinite(self.to_json())
        made, data = whole["provenance"], whole["provenance"]["data"]
        owned = {
            "clients": whole["clients"],
            "data": {name: data[name] for name in NOT_SHARED if name in data},
            "features": None if self.features is None else self.features.to_json(),
        }
        shared = {**made, "data": {**data, **dict.fromkeys(owned["data"])}}
        told = {**whole, "clients": dict.fromkeys(whole["clients"]), "provenance": shared}
        known = (*owned["clients"].values(), *owned["data"].values(), self.features)
        if own and any(value is not None for value in known):
            path = folder / PRIVATE
            path.write_text(json.dumps(owned, indent=1, allow_nan=False), encoding="utf-8")
            path.chmod(0o600)
        seal(folder, told)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Result:
        """Read a result folder or a model file back; damage is an `InputError` that names the file and the place.

        Every file must be the one that was written with the result, unless the block is within `reading_unverified`. A
        folder that was passed on without private.json is read with a warning.
        """
        path = Path(folder)
        if is_model_file(path):
            with unpacked(path) as files:
                return _read_folder(files)
        check_result_folder(path)
        return _read_folder(path)

    def model(self) -> BooleanFactorization:
        """Return the fitted estimator, which assigns new records as those of the run were assigned."""
        from felb.runs.model import model_of  # estimators

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
        from felb.runs.model import result_from

        return result_from(model, data, source=source)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the result to one file, ``NAME.felbmodel``, without assignments and without what its owner keeps."""
        target = Path(path)
        if target.suffix != MODEL_SUFFIX:
            raise InputError(f"{target} does not end in {MODEL_SUFFIX}, by which a model file is known; name it so")
        if target.exists() and not force:
            raise InputError(f"{target} exists; choose another name, or replace it by force", parameter="force")
        with tempfile.TemporaryDirectory(prefix="felb-model-") as scratch, replacing(target) as partial:
            self.write(Path(scratch), {}, own=False)
            with zipfile.ZipFile(partial, "w") as archive:
                for file in (Path(scratch) / name for name in MEMBERS):
                    if file.is_file():
                        archive.writestr(zipfile.ZipInfo(file.name, WRITTEN), file.read_bytes(), zipfile.ZIP_DEFLATED)


def join_names(names: Sequence[str]) -> str:
    """Return names separated by "; "; a name that holds a semicolon or a quotation mark is quoted as in CSV files.

    Examples
    --------
    >>> join_names(["fever", "cough; dry"])
    'fever; "cough; dry"'
    """
    quoted = (
        '"' + name.replace('"', '""') + '"' if {";", '"'} & set(name) or name != name.strip() else name
        for name in names
    )
    return "; ".join(quoted)


def write_long_table(result: Result, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write the components as a CSV file with a line for each component and feature."""
    target = Path(path)
    if target.exists() and not force:
        raise InputError(f"{target} exists; choose another name, or replace it by force", parameter="force")
    with replacing(target) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        lines = ([c.number, c.support, name] for c in result.described() for name in c.features)
        write_csv(file, [["component", "support", "feature"], *lines])


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
        if matrix.dtype.kind not in "biuf" or not np.isin(matrix.data, (0, 1)).all():
            raise InputError(f"its cells are {matrix.dtype}, and not all of them 0 or 1")
    except (InputError, OSError) as error:
        raise InputError(f"{path} is damaged or missing ({error}); {AGAIN}") from error
    return np.asarray(matrix.astype(bool).toarray(), dtype=bool)


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


# -- The seal of a result: the SHA-256 of every file, and of result.json itself --------------------------------------

BRING_BACK = "bring back the file, make the result again, or read it as it is (option --unverified)"


def seal(folder: Path, told: Mapping[str, Any]) -> None:
    """Write result.json with the digests of all files of a folder and of itself."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / RESULT)
    content = {**told, "files": {path.relative_to(folder).as_posix(): digest_file(path) for path in files}}
    content["digest"] = digest_record(content)
    (folder / RESULT).write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a regular file."""
    with open_regular(path) as file:
        found = hashlib.sha256()
        while piece := file.read(PIECE):
            found.update(piece)
    return found.hexdigest()


def digest_record(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain data in canonical form, without its own digest: sorted keys, no blanks, ASCII."""
    plain = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_seal(folder: Path, content: bytes) -> None:
    """Raise unless result.json and the files that it lists are those that were written."""
    try:
        stored = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{folder / RESULT} is damaged ({shortened(error)}); {AGAIN}") from error
    if stored.get("digest") != digest_record(stored):
        _refuse_changed(f"{folder / RESULT} was changed after it was written")
    files = stored.get("files", {})
    if (folder / PRIVATE).is_file() and PRIVATE not in files:
        _refuse_changed(f"{folder / PRIVATE} was not written with the result")
    absent = []
    for name, digest in files.items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise InputError(f"{folder / RESULT} names the file {name!r}, which is not in its folder; {AGAIN}")
        try:
            differs = digest_file(path) != digest
        except (OSError, ValueError):
            absent.append(name)
            continue
        if differs:
            _refuse_changed(f"{path} is not the file that was written with the result: its SHA-256 differs")
    kept = _kept_by_owner(files, absent)
    for name in absent:
        if name not in kept:
            _refuse_changed(f"{folder / name} is missing, which was written with the result")
    if kept:
        shown = ", ".join(sorted({Path(name).parts[0] for name in kept}))
        warnings.warn(f"{folder} was passed on without {shown}, which its owner has", stacklevel=2)


def _kept_by_owner(files: Collection[str], absent: list[str]) -> set[str]:
    """Return which of the absent files whoever passes a result on leaves out: private.json, and all assignments."""
    assigned = {name for name in files if Path(name).parts[0] == ASSIGNMENTS}
    gone = set(absent)
    return (gone & {PRIVATE}) | (assigned if assigned <= gone else set())


def _refuse_changed(what: str) -> None:
    if not UNVERIFIED.get():
        raise InputError(f"{what}; {BRING_BACK}")
    warnings.warn(f"unverified: {what}", stacklevel=3)


# -- A model as one file, ``NAME.felbmodel``: the files of a result folder that may be passed on, in a ZIP archive ---
#
# It holds no pickled objects. Reading it takes no other members than those of a result, and no more bytes than a file
# of its size may unpack to.

MEMBERS = (RESULT, COMPONENTS, "components.csv", BELIEF, SCHEMA, STATEMENT)
WRITTEN = (1980, 1, 1, 0, 0, 0)
"""In place of the time at which a member was written, so that equal models are equal files."""
PACK_AGAIN = "save the model again"
PIECE = 1 << 20


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack a model file into a folder that is there for the block; what is wrong in it is told of the file."""
    with tempfile.TemporaryDirectory(prefix="felb-model-") as scratch:
        try:
            with open_regular(path) as file, zipfile.ZipFile(file) as archive:
                _unpack_members(archive, Limits().of(path.stat().st_size).bytes, Path(scratch))
        except InputError as error:
            raise InputError(f"{path}: {error}; {PACK_AGAIN}") from error
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); check the path") from error
        except Exception as error:  # what the reader of ZIP raises on damage is nearly anything
            raise InputError(f"{path} is damaged ({shortened(error)}); {PACK_AGAIN}") from error
        try:
            yield Path(scratch)
        except InputError as error:
            raise InputError(str(error).replace(f"{scratch}{os.sep}", f"{path}: ")) from error


def _unpack_members(archive: zipfile.ZipFile, limit: int, folder: Path) -> None:
    names, left = [info.filename for info in archive.infolist()], limit
    strange = sorted(set(names) - set(MEMBERS))
    if strange or len(set(names)) < len(names) or RESULT not in names:
        what = f"it holds {strange[0][:60]!r}" if strange else f"its members are {', '.join(names[:8]) or 'none'}"
        raise InputError(f"this is no model file: {what}")
    for info in archive.infolist():
        with archive.open(info) as packed, (folder / info.filename).open("wb") as plain:
            while piece := packed.read(PIECE):
                left -= len(piece)
                if left < 0:
                    raise InputError(f"it unpacks to more than {limit} bytes")
                plain.write(piece)


def _read_folder(path: Path) -> Result:
    content = read_bounded(path / RESULT, advice=AGAIN)
    stored = parse_record(content, _Stored, source=str(path / RESULT), advice=AGAIN)
    check_seal(path, content)
    shape, features = (stored.n_components, stored.n_features), None
    if (path / PRIVATE).is_file():  # whoever has passed the result on has kept it
        owned = read_record(path / PRIVATE, _Owned, advice=AGAIN)
        stored.clients = {**stored.clients, **owned.clients}
        stored.provenance = replace(stored.provenance, data={**stored.provenance.data, **owned.data})
        if owned.features is not None:
            features = FeatureCounts.of_json(owned.features, stored.n_features, source=str(path / PRIVATE))
    found = Result(
        outcome=Outcome(
            read_boolean(path / COMPONENTS, shape),
            n_iter=stored.n_iter,
            integrality_gap=math.nan if stored.integrality_gap is None else stored.integrality_gap,
            converged=stored.converged,
            supports=None if None in stored.released else np.array(stored.released, dtype=np.int64),
            weights=stored.weights,
            complete=stored.complete,
            belief=_read_belief(path / BELIEF, shape) if stored.belief else None,
        ),
        columns=None if stored.columns is None else tuple(stored.columns),
        clients=stored.clients,
        scores={name: math.nan if score is None else score for name, score in stored.scores.items()},
        history=History(stored.history),
        provenance=stored.provenance,
        privacy=stored.privacy,
        disclosure=stored.disclosure,
        withheld=tuple(stored.withheld),
        schema=_read_schema(path, stored.schema),
        features=features,
    )
    k, m = shape
    if len(stored.supports) != k or (found.columns is not None and len(found.columns) != m):
        raise InputError(f"{path / COMPONENTS} does not belong to {RESULT} beside it; {AGAIN}")
    if found.columns is not None:
        check_column_names(found.columns, m)
    return found


def _read_belief(path: Path, shape: tuple[int, int]) -> Belief:
    """Read the model of the noise, whose numbers must be such as can be computed with."""
    try:
        found = Belief.from_values(unpack(read_bounded(path, advice=AGAIN)))
        rates = np.concatenate([found.row_rates, [found.column_rate, found.threshold or 0.0]])
        if found.theta.shape != shape or not np.isfinite(found.theta).all() or not ((rates > 0) & (rates < 1)).all():
            raise InputError("its numbers do not fit the components")
    except (FelbError, OSError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is damaged or missing ({error}); {AGAIN}") from error
    return found


def _read_schema(folder: Path, digest: str | None) -> Schema | None:
    """Return the schema of a result; another one than it was made with is an error."""
    if digest is None:
        return None
    found = Schema.read(folder / SCHEMA)
    if found.digest != digest:
        raise InputError(f"{folder / SCHEMA} is not the schema of the result beside it; make the result again")
    return found


class _Owned(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in private.json: what would tell the data of a client from other data."""

    clients: dict[str, Natural | None]
    data: dict[str, Any]
    features: dict[str, Any] | None


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in result.json."""

    format: str
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
    weights: tuple[float, float]
    n_iter: Natural
    belief: bool
    schema: str | None = None
    files: dict[str, str] = {}
    digest: str = ""

    @property
    def released(self) -> list[Natural | None]:
        """The supports, with 0 for components that are withheld."""
        return [0 if i in self.withheld else support for i, support in enumerate(self.supports)]

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"the format {self.format!r} is not known; an older or newer felb may have written it")
        if 0 < self.released.count(None) < len(self.supports):
            raise ValueError("`supports` are missing of components that are not withheld")
        for number, row in enumerate(self.history):
            if type(row.get("round", 0)) is not int or not isinstance(row.get("task", ""), str):
                raise ValueError(f"row {number} of the history has no round or task")
        data = self.provenance.data
        numbers = dict.fromkeys(("rows", "columns", "ones", AGREED), int)
        for name, kind in {"source": str, "fingerprint": str, **numbers}.items():
            if not isinstance(data.get(name), kind | None):
                raise ValueError(f"`provenance.data.{name}` is {type(data[name]).__name__}, not {kind.__name__}")
        if not isinstance((self.privacy or {"text": ""}).get("text"), str):
            raise ValueError("`privacy.text` does not say what was guaranteed")
