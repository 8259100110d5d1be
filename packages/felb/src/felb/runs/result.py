"""A result and its provenance as a folder of plain files, or as one model file."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import platform
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from felb._version import __version__
from felb.centralized.base import check_parameters
from felb.centralized.elbmf import ELBMF
from felb.choices import MDL
from felb.data.binary import check_column_names
from felb.data.readers import Limits, read_sparse
from felb.errors import FelbError, InputError, shortened
from felb.federated.algorithms.bmf import Effort
from felb.federated.algorithms.felb import Setting
from felb.federated.steps.belief import ASSIGN_BY_BELIEF
from felb.metrics import confusion
from felb.metrics.counts import History, feature_counts
from felb.optim.prox import check_weights
from felb.privacy import Privacy
from felb.records import Natural, as_record, open_regular, read_bounded, read_record, replacing
from felb.runs.job import SAID_BY_THE_JOB, plain_parameters
from felb.sklearn.base import FederatedEstimator
from felb.sklearn.bmf import FederatedBMF, chosen_objective, rank_curve
from felb.sklearn.federated import PostHoc
from felb.sklearn.methods import JOIN, METHODS, make
from felb.tables.schema import Schema, conflicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from felb.centralized.base import BooleanFactorization
    from felb.data.binary import BinaryMatrix
    from felb.metrics.counts import Counts, FeatureCounts
    from felb.optim.belief import Belief
    from felb.privacy.disclosure import Disclosure


# -- What a result says about itself in sentences: what is known, what is an assumption, and what to look at ---------

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
    from felb.federated.steps.belief import ASSIGN_BY_BELIEF  # compiled code, not needed for errors

    if not any(row.get("task") == ASSIGN_BY_BELIEF for row in result.history):
        return "Empty components would have fewer; take fewer components, or another method."
    asked = result.provenance.parameters.get("objective", "auto")
    chosen = 'as objective = "recover" asks' if asked == "recover" else f'and objective = "{asked}" preferred them'
    return (
        f"The components are those that are likeliest behind heavy noise, {chosen}: noise makes wrong cells of what is "
        'right. objective = "hamming" gives the fewest wrong cells.'
    )


# -- Where a result may be: a folder with ``result.json``, or a model file -------------------------------------------
#
# Nothing that takes time is imported here, so that a command can refuse a wrong path at once.

RESULT, OUTBOUND, MODEL_SUFFIX = "result.json", "outbound", ".felbmodel"


def is_model_file(path: Path) -> bool:
    """Tell a model file, also a missing one, by its name; a folder is none."""
    return path.suffix == MODEL_SUFFIX and not path.is_dir()


def result_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a result, of which the file ``result.json`` may be named, too."""
    named = Path(path)
    return named.parent if named.name == RESULT and named.is_file() else named


def check_result_folder(folder: str | os.PathLike[str]) -> None:
    """Raise if a folder holds no result."""
    path = Path(folder)
    if not path.exists():
        raise InputError(f"there is no folder {str(path)!r}; give the folder of a finished run, or a model file")
    if not (path / RESULT).is_file():
        raise InputError(
            f"{path} is not a result folder: it has no {RESULT}; give the folder of a finished run, or a model file"
        )


def check_folder_of_result(place: str | os.PathLike[str]) -> None:
    """Raise if there is no folder of a result to store something in; a model file has none."""
    if is_model_file(Path(place)):
        raise InputError(f"{place} is a model file, which stores nothing else; give the folder of the result")
    check_result_folder(place)


def check_result(place: str | os.PathLike[str]) -> None:
    """Raise if there is neither a model file nor the folder of a result."""
    path = Path(place)
    if not is_model_file(path):
        check_result_folder(result_folder(path))
    elif not path.is_file():
        raise InputError(f"there is no model file {path}; check the path")


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
# A model file holds the same but for private.json, assignments and outbound logs, see `felb.runs.result`.

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
        """Write all files into an existing folder; `felb.records.replace_folder` then puts it in its place."""
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
            from felb.federated.journal import pack

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
        return read_result(Path(folder))

    # -- the model ---------------------------------------------------------------------------------------------

    def model(self) -> BooleanFactorization:
        """Return the fitted estimator, which assigns new records as those of the run were assigned."""
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
        return result_from(model, data, source=source)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the result to one file, ``NAME.felbmodel``, without assignments and without what its owner keeps."""
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


# -- A model as one file, ``NAME.felbmodel``: the files of a result folder that may be passed on, in a ZIP archive ---
#
# It holds no pickled objects. Reading it takes no other members than those of a result, and no more bytes than a file
# of its size may unpack to.

MEMBERS = (RESULT, COMPONENTS, "components.csv", BELIEF, SCHEMA, STATEMENT)
WRITTEN = (1980, 1, 1, 0, 0, 0)
"""In place of the time at which a member was written, so that equal models are equal files."""
PACK_AGAIN = "save the model again"
PIECE = 1 << 20


def save(model: BooleanFactorization, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a fitted estimator to a file; `felb.load` reads it back.

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 40, 3, noise=0.02, seed=0)
    >>> model = felb.FederatedBMF(3, random_state=0).fit(data.A)
    >>> felb.save(model, "model.felbmodel", force=True)
    >>> bool((felb.load("model.felbmodel").transform(data.A) == model.transform(data.A)).all())
    True
    """
    Result.from_model(model).save(path, force=force)


def load(path: str | os.PathLike[str]) -> BooleanFactorization:
    """Read a fitted estimator from a model file or from the folder of a result.

    Examples
    --------
    >>> import felb
    >>> _ = felb.fit(felb.Job("zoo", "grecond", 4), "zoo-run")
    >>> felb.load("zoo-run").component_features()[0][:2]
    ('hair', 'milk')
    """
    return Result.read(path).model()


def write_model_file(result: Result, path: Path, *, force: bool) -> None:
    """Write the members that may be passed on to an archive, which appears complete or not at all."""
    if path.suffix != MODEL_SUFFIX:
        raise InputError(f"{path} does not end in {MODEL_SUFFIX}, by which a model file is known; name it so")
    if path.exists() and not force:
        raise InputError(f"{path} exists; choose another name, or replace it with force=True")
    with tempfile.TemporaryDirectory(prefix="felb-model-") as scratch, replacing(path) as partial:
        folder = Path(scratch)
        result.write(folder, {})
        with zipfile.ZipFile(partial, "w") as archive:
            for name in MEMBERS:
                if (folder / name).is_file():
                    info = zipfile.ZipInfo(name, WRITTEN)
                    archive.writestr(info, (folder / name).read_bytes(), zipfile.ZIP_DEFLATED)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack a model file into a folder that is there for the block; what is wrong in it is told of the file."""
    with tempfile.TemporaryDirectory(prefix="felb-model-") as scratch:
        _unpack(path, Path(scratch))
        try:
            yield Path(scratch)
        except InputError as error:
            raise InputError(str(error).replace(f"{scratch}{os.sep}", f"{path}: ")) from error


def _unpack(path: Path, folder: Path) -> None:
    try:
        with open_regular(path) as file:
            _unpack_members(file, path.stat().st_size, folder)
    except InputError as error:
        raise InputError(f"{path}: {error}; {PACK_AGAIN}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path") from error
    except Exception as error:  # what the reader of ZIP raises on damage is nearly anything
        raise InputError(f"{path} is damaged ({shortened(error)}); {PACK_AGAIN}") from error


def _unpack_members(file: IO[bytes], size: int, folder: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        bounds, members = Limits().of(size), archive.infolist()
        names = [info.filename for info in members]
        strange = sorted(set(names) - set(MEMBERS))
        if strange or len(set(names)) < len(names) or RESULT not in names:
            what = f"it holds {strange[0][:60]!r}" if strange else f"its members are {', '.join(names[:8]) or 'none'}"
            raise InputError(f"this is no model file: {what}")
        left = bounds.bytes
        for info in members:
            with archive.open(info) as packed, (folder / info.filename).open("wb") as plain:
                while piece := packed.read(PIECE):
                    left -= len(piece)
                    if left < 0:
                        raise InputError(f"it unpacks to more than {bounds.bytes} bytes")
                    plain.write(piece)


# -- Reads a result back: a folder, or a model file, in this format and the ones before it ---------------------------


def read_result(path: Path) -> Result:
    """Read a result folder or a model file; damage is an `InputError` that names the file and what is wrong in it."""
    if is_model_file(path):
        with unpacked(path) as folder:
            return _read_folder(folder)
    check_result_folder(path)
    return _read_folder(path)


def _read_folder(path: Path) -> Result:
    stored = read_record(path / RESULT, _Stored, advice=AGAIN)
    shape, features = (stored.n_components, stored.n_features), None
    if (path / PRIVATE).is_file():  # whoever has passed the result on has kept it
        owned = read_record(path / PRIVATE, _Owned, advice=AGAIN)
        if owned.result not in (None, fingerprint_of(read_bounded(path / RESULT, advice=AGAIN))):
            raise InputError(f"{path / PRIVATE} is not of the {RESULT} beside it; bring back its own, or remove it")
        stored.clients = {**stored.clients, **owned.clients}
        stored.provenance = replace(stored.provenance, data={**stored.provenance.data, **owned.data})
        if owned.features is not None:
            from felb.metrics.counts import FeatureCounts

            features = FeatureCounts.of_json(owned.features, stored.n_features, source=str(path / PRIVATE))
    if stored.format == FORMATS[0] and stored.privacy is not None and stored.provenance.data.get("rows") is not None:
        # The first format told the agreed number of records of a private run as if it were the number of records.
        data = {**stored.provenance.data, "rows": None, AGREED: stored.provenance.data["rows"]}
        stored.provenance = replace(stored.provenance, data=data)
    found = Result(
        components=read_boolean(path / COMPONENTS, shape),
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
        weights=stored.weights or None,
        n_iter=None if stored.n_iter is msgspec.UNSET else stored.n_iter,
        belief=_read_belief(path / BELIEF, shape) if stored.belief else None,
        features=features,
    )
    k, m = shape
    if len(found.supports) != k or (found.columns is not None and len(found.columns) != m):
        raise InputError(f"{path / COMPONENTS} does not belong to {RESULT} beside it; {AGAIN}")
    if found.columns is not None:
        check_column_names(found.columns, m)
    return found


def _read_belief(path: Path, shape: tuple[int, int]) -> Belief:
    """Read the model of the noise, whose numbers must be such as can be computed with."""
    from felb.federated.journal import unpack
    from felb.optim.belief import Belief

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
    features: dict[str, Any] | None = None
    result: str | None = None  # earlier versions did not say what it belongs to


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
    schema: str | None = None
    weights: tuple[float, float] | msgspec.UnsetType | None = msgspec.UNSET
    n_iter: Natural | msgspec.UnsetType | None = msgspec.UNSET
    belief: bool | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"the format {self.format!r} is not known; a newer felb may have written it")
        for name in ("weights", "n_iter", "belief"):  # the first format did not have them
            if getattr(self, name) is msgspec.UNSET:
                if self.format != FORMATS[0]:
                    raise ValueError(f"Object missing required field `{name}`")
                setattr(self, name, None)
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


# -- Fitted estimators from results, and results from fitted estimators ----------------------------------------------

RECORDS: dict[str, type[Any]] = {"privacy": Privacy, "effort": Effort, "setting": Setting}
"""Parameters that are records of their own."""


def method_of(model: BooleanFactorization) -> str:
    """Return the name of the method of an estimator."""
    if isinstance(model, PostHoc):
        return f"{method_of(ELBMF() if model.model is None else model.model)}{JOIN}{model.aggregation}"
    for method in METHODS.values():
        if method.estimator is type(model):
            return method.name
    raise InputError(
        f"{type(model).__name__} is none of the methods of felb, so felb could not make it again; keep components_ "
        "and your own settings instead"
    )


def result_from(model: BooleanFactorization, data: Any, *, source: str) -> Result:
    """Return the result of a fitted estimator; with the data it was fitted on, also what is counted on it."""
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    counts, supports, features = getattr(model, "counts_", None), model.supports_, None
    facts: dict[str, Any] = {"rows": None, "columns": model.n_features_in_, "ones": None, "fingerprint": None}
    if getattr(model, "privacy", None) is None:  # one record would show in these
        facts |= {"rows": model.n_records_, "ones": None if counts is None else counts.tp + counts.fn}
    if data is not None:
        rows, _ = model.new_rows(data)
        U = model._assign(rows)
        counts, supports = confusion(rows, U, model.components_), np.count_nonzero(U, axis=0)
        features = feature_counts(rows, U, model.components_)
        unknown = 0 if rows.unknown is None else rows.unknown.nnz
        facts |= {"rows": len(rows), "ones": rows.nnz, "unknown": unknown, "fingerprint": rows.fingerprint()}
    return Result(
        components=model.components_,
        columns=None if names is None else tuple(map(str, names)),
        supports=(None,) * len(model.components_) if supports is None else tuple(int(s) for s in supports),
        clients={},
        scores={} if counts is None else counts.scores(),
        converged=bool(model.converged_),
        integrality_gap=float(model.integrality_gap_),
        history=model.history_,
        provenance=Provenance(
            method_of(model),
            plain_parameters(model) | {"binarize_threshold": model.binarize_threshold},
            _seed_of(model),
            {"source": source, **facts},
        ),
        complete=bool(model.complete_),
        privacy=getattr(model, "privacy_guarantee_", None),
        weights=getattr(model, "weights_", None),
        belief=getattr(model, "belief_", None),
        n_iter=int(model.n_iter_),
        features=features,
    )


def model_of(result: Result) -> BooleanFactorization:
    """Return the fitted estimator of a result."""
    made = result.provenance
    if made.method not in METHODS:
        raise InputError(f"the result is of the method {made.method!r}, which this felb does not have")
    model = make(made.method, **_parameters(made))
    check_parameters(model)
    model.components_ = result.components
    model.n_features_in_ = result.components.shape[1]
    if result.columns is not None:
        model.feature_names_in_ = np.array(result.columns, dtype=object)
    model.n_records_ = made.data.get("rows")
    model.supports_ = None if None in result.supports else np.array(result.supports, dtype=np.int64)
    model.history_, model.complete_ = result.history, result.complete
    model.converged_, model.integrality_gap_ = result.converged, result.integrality_gap
    model.n_iter_ = len(result.history) if result.n_iter is None else result.n_iter
    if isinstance(model, FederatedEstimator):
        model.relaxed_components_, model.counts_ = None, result.counts
        model.privacy_guarantee_ = result.privacy
        model.privacy_statement_ = None if result.privacy is None else str(result.privacy["text"])
    if isinstance(model, FederatedBMF):
        check_weights(node_cap=(model.node_cap, 1))
        _warn_of_lost_belief(result)
        model.weights_ = _weights(model, result)
        model.belief_ = result.belief
        model.objective_ = chosen_objective(model.objective, result.belief)
        if model.n_components == MDL:
            model.rank_curve_ = rank_curve(result.history)
    return model


def _warn_of_lost_belief(result: Result) -> None:
    """Warn if rows were inferred under a model of the noise that is not kept."""
    tasks = [row.get("task") for row in result.history]
    if result.belief is None and ASSIGN_BY_BELIEF in tasks[-1:]:
        warnings.warn(
            "the records of this run were assigned under a model of the noise, which results of earlier versions and "
            "under disclosure rules do not keep; new records are assigned for the fewest wrong cells instead",
            UserWarning,
            stacklevel=4,
        )


def _weights(model: FederatedBMF, result: Result) -> tuple[float, float]:
    """Return the weights of the assignment; a result of the first format does not tell them, but its costs do."""
    costs = model.false_positive_cost, model.false_negative_cost
    one, zero = (float(costs[1]), -float(costs[0])) if result.weights is None else result.weights
    if not (one >= 0 >= zero and math.isfinite(one - zero)):
        raise InputError(f"the weights {one} and {zero} of the result are damaged; make the result again")
    return one, zero


def _parameters(made: Provenance) -> dict[str, Any]:
    """Return the keywords that make the estimator of a result again."""
    known = METHODS[made.method].parameters()
    found: dict[str, Any] = {}
    for name, value in made.parameters.items():
        short = name.removeprefix("model__")
        if short in known and short not in SAID_BY_THE_JOB - {"binarize_threshold"}:
            found[short] = _value(short, value)
    return {**found, "random_state": made.seed}


def _value(name: str, value: Any) -> Any:
    if name not in RECORDS or not isinstance(value, dict):
        return value
    return as_record(value, RECORDS[name], source=f"the parameter {name} of the result", advice="make it again")


def _seed_of(model: BooleanFactorization) -> int:
    """Return the seed, if the estimator was given one; a generator cannot be kept."""
    state = model.random_state
    return int(state) if isinstance(state, int | np.integer) else 0
