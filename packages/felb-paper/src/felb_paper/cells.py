"""An experiment: its cells (one method on one data set with one seed), how they are shown, and how they are run."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
import numpy as np

from felb.data import partition, planted
from felb.errors import FelbError, InputError
from felb.federated.algorithms.registry import METHODS
from felb.runs.cells import Cells, claim_folder, measure_cells, missing_cells, provenance
from felb.sklearn.methods import is_path, source_digest
from felb_paper.data import keep_source
from felb_paper.study import (
    MANIFEST,
    Metric,
    Place,
    Planned,
    StudyRecord,
    judge_by_trials,
    judged_with_missing,
    name_of,
    read_codes,
    write_claims,
    write_codes,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from felb.runs.cells import Progress
    from felb_paper.study import Claim, View


# -- A cell of an experiment: one method on one data set with one seed, as plain data that decides its figures -------

FINGERPRINT, MOST_ITERATIONS = 8, 1000
"""Characters of the fingerprint of a method; iterations that it takes for it at most."""

MEASURE = 1
"""Goes up when the same parameters would be measured differently, so that older cells are run again."""

Watch = Literal["scores", "rounds", "pictures"]
Split = Literal["even", "uneven", "by component"]


@dataclass(frozen=True, slots=True)
class PlantedData:
    """Planted tiles, as in `felb.data.planted`; the seed of the cell fixes them."""

    rows: int
    columns: int
    components: int
    noise: float = 0.0
    heights: tuple[float, float] = (0.05, 0.25)
    widths: tuple[float, float] = (0.05, 0.25)


@dataclass(frozen=True, slots=True)
class SourceData:
    """A data set by its name: of `felb_paper.data`, or a matrix in the data folder.

    Parameters
    ----------
    name : in the catalogue, or of the file without its suffix
    components : to look for
    rows : take that many, drawn by the seed of the cell; None for all
    contents : start of the fingerprint of a matrix in the data folder: another file of this name is another cell
    columns : take that many with the most ones, see `felb_paper.measuring`; None for all
    """

    name: str
    components: int
    rows: int | None = None
    contents: str | None = None
    columns: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain data; those that came later are left out where they say nothing."""
        later = ("contents", "columns")
        return {key: value for key, value in asdict(self).items() if key not in later or value is not None}


@dataclass(frozen=True, slots=True)
class InvaderData:
    """A picture that every client holds under additive noise of its own; `scale` pixels for each of the sprite's."""

    scale: int
    components: int
    noise: float


Data = PlantedData | SourceData | InvaderData
KINDS: Mapping[str, type[Data]] = {"planted": PlantedData, "source": SourceData, "invader": InvaderData}

Mechanism = Literal["gaussian", "laplace", "xor", "record"]


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise on what clients send.

    Parameters
    ----------
    mechanism : of the paper, on each upload; or ``record``, the specification of `felb.privacy.Privacy` on records
    level : standard deviation σ, scale b, probability p of a flip, or total ε of ``record``
    theta : bound ‖V_i‖ <= θ by scaling down before the noise is added; None for none
    """

    mechanism: Mechanism
    level: float
    theta: float | None = None


@dataclass(frozen=True, slots=True)
class MethodUse:
    """A method as an experiment runs it: what it is called there, its word, its parameters."""

    label: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement.

    Parameters
    ----------
    use : the method
    data, clients : what it runs on, and over how many clients
    place, panel : where the cell is shown; not part of what is measured
    trial : number of the repetition; also the seed of data, split and method
    watch : scores of the end, figures of every round, or pictures
    noise : on what clients send
    split : how rows are dealt out to clients, for data by name
    """

    use: MethodUse
    data: Data
    clients: int
    place: Place
    trial: int
    panel: str = ""
    watch: Watch = "scores"
    noise: Noise | None = None
    split: Split = "even"

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that decides the figures, as plain data; an even split goes without saying."""
        kind = next(name for name, of in KINDS.items() if isinstance(self.data, of))
        return {
            "measure": MEASURE,
            "method": self.use.method,
            "method_parameters": dict(self.use.parameters),
            "data": {"kind": kind, **(self.data.plain() if isinstance(self.data, SourceData) else asdict(self.data))},
            "clients": self.clients,
            "seed": self.trial,
            "watch": self.watch,
            "noise": None if self.noise is None else asdict(self.noise),
            **({} if self.split == "even" else {"split": self.split}),
            # An edited method of one's own is another method.
            **({"source": source_digest(self.use.method)} if is_path(self.use.method) else {}),
        }

    @property
    def key(self) -> str:
        """Name of the cell's file: readable, and different for different parameters."""
        text = json.dumps(self.parameters, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        word = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{self.use.method}.{self.panel}.{self.place}".replace("..", "."))
        return f"{word}.{self.trial}.{digest}"

    def planned(self) -> Planned:
        """Return the cell as the manifest lists it."""
        return Planned(self.key, self.use.label, self.place, self.panel, self.trial)


def cell_of(parameters: Mapping[str, Any]) -> Cell:
    """Make a cell of its parameters again; where it is shown is not among them."""
    data = {name: value for name, value in parameters["data"].items() if name != "kind"}
    return Cell(
        use=MethodUse(parameters["method"], parameters["method"], parameters["method_parameters"]),
        data=msgspec.convert(data, KINDS[parameters["data"]["kind"]]),
        clients=parameters["clients"],
        place="",
        trial=parameters["seed"],
        watch=parameters["watch"],
        noise=msgspec.convert(parameters["noise"], Noise | None),
        split=parameters.get("split", "even"),
    )


def fingerprint_method(use: MethodUse) -> str:
    """Return a digest of what a method finds on a small problem: another one means that its results have changed."""
    return _fingerprint(use.method, json.dumps(dict(use.parameters), sort_keys=True))


@cache
def _fingerprint(method: str, parameters: str) -> str:
    from felb_paper.measuring import make_any_federated

    if is_path(method):
        return source_digest(method)[:FINGERPRINT]
    toy = planted(90, 24, 4, noise=0.2, heights=(0.2, 0.4), widths=(0.2, 0.4), seed=0)  # hard enough to tell methods
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = json.loads(parameters)
            if "max_iter" in given:
                given["max_iter"] = min(given["max_iter"], MOST_ITERATIONS)
            model = make_any_federated(method, n_components=4, random_state=0, **given)
            U = model.fit_transform(toy.A, groups=partition.even(90, 3, seed=0))
        except FelbError:
            return ""  # what is wrong is told by the cells
    found = np.packbits(U).tobytes() + np.packbits(model.components_).tobytes()
    return hashlib.blake2b(found, digest_size=FINGERPRINT // 2).hexdigest()


# -- What an experiment is: cells to measure, how to show them, and what the paper says they should show -------------

FELB, FELB_MU, OURS = "FELB", "FELB-MU", "FederatedBMF"
ASSO, GRECOND, MEBF, ZHANG, ELBMF = "Asso", "GreConD", "MEBF", "Zhang", "ELBMF"
POST_HOC = (ASSO, GRECOND, MEBF, ZHANG, ELBMF)
SEVEN = (*POST_HOC, FELB, FELB_MU)
"""The methods that the paper compares."""

PUBLISHED = {"FELB literal": FELB, "FELB-MU literal": FELB_MU, "ELBMF published": ELBMF}
"""Methods as the papers print them, which stand beside those of felb's own settings in every experiment."""
LOCAL_STEPS = {"local_steps": 10}
"""Of the evaluation; the other parameters of FELB and FELB-MU are those of their setting."""
PUBLISHED_ELBMF = {"l1": 0.01, "l2": 0.01, "l2_rate": 1.02, "inertia": 0.01}


def post_hoc_methods(aggregation: str = "vote", *, iterations: int = 1000) -> tuple[MethodUse, ...]:
    """Return the methods that clients run alone, with the parameters of the evaluation; ELBMF in both settings."""
    elbmf = {**PUBLISHED_ELBMF, "max_iter": iterations}
    return (
        MethodUse(ASSO, f"asso+{aggregation}", {"tau": 1.0, "bonus": 1.0, "penalty": 1.0}),
        MethodUse(GRECOND, f"grecond+{aggregation}"),
        MethodUse(MEBF, f"mebf+{aggregation}", {"threshold": 0.5, "uncovered": 0.05}),
        MethodUse(ZHANG, f"zhang+{aggregation}", {"max_iter": iterations}),
        MethodUse(ELBMF, f"elbmf+{aggregation}", elbmf),
        MethodUse("ELBMF published", f"elbmf+{aggregation}", {**elbmf, "setting": "published"}),
    )


def federated_methods(setting: str = "recommended", **changes: Any) -> tuple[MethodUse, ...]:
    """Return FELB and FELB-MU in a setting of felb and in the literal one, with ten local steps."""
    parameters = {**LOCAL_STEPS, **changes}
    ours = parameters if setting == "recommended" else {**parameters, "setting": setting}
    literal = {**parameters, "setting": "literal"}
    return (
        MethodUse(FELB, "felb", ours),
        MethodUse(FELB_MU, "felb-mu", ours),
        MethodUse("FELB literal", "felb", literal),
        MethodUse("FELB-MU literal", "felb-mu", literal),
    )


def aligned_methods() -> tuple[MethodUse, ...]:
    """Return the post-hoc methods with components that are matched across clients before the vote."""
    return tuple(replace(use, label=f"{use.label} aligned") for use in post_hoc_methods("aligned-vote"))


def competitors() -> tuple[MethodUse, ...]:
    """Return federated non-negative factorization and other federated optimisers, with ten local steps if any."""
    names = {"FedNMF": "fednmf", "FedProx": "fedprox", "SCAFFOLD": "scaffold", "ProxSkip": "proxskip"}
    return tuple(
        MethodUse(label, method, LOCAL_STEPS if "local_steps" in METHODS[method].parameters() else {})
        for label, method in names.items()
    )


def all_methods(*, iterations: int = 1000) -> tuple[MethodUse, ...]:
    """Return the seven methods of the evaluation, three of them in two settings, and the default method of felb."""
    return (*post_hoc_methods(iterations=iterations), *federated_methods(), MethodUse(OURS, "bmf"))


QUICK_ITERATIONS = 300
"""Of ELBMF and Zhang in quick forms; their λ grows by then as far as they need."""

RMSD = Metric("rmsd", "RMSD", "low")
F1 = Metric("f1", "F1", "high")
F1_STAR = Metric("f1_star", "F1*", "high")
SECONDS = Metric("seconds_per_client", "seconds per client", "low", log=True)


@dataclass(frozen=True, slots=True)
class Study(ABC):
    """A form, quick or full, of an experiment; a subclass adds its own settings.

    Parameters
    ----------
    form : "quick" or "full"
    trials : repetitions of each cell, with seeds 0, 1, …
    time_limit : seconds that a cell may take
    data : folder with data that does not come with felb; None for ``$FELB_DATA``
    """

    reads_data: ClassVar[bool] = False
    """Whether it runs on data of the data folder."""

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]

    form: str = "full"
    trials: int = 10
    time_limit: float = 12 * 3600.0
    data: str | None = None

    @abstractmethod
    def cells(self) -> tuple[Cell, ...]:
        """Return all cells, those first that give the first picture of the whole: trial by trial."""

    @abstractmethod
    def view(self) -> View:
        """Return how to show the cells."""

    @abstractmethod
    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold what the paper says against stored cells."""

    def judge(self, record: StudyRecord) -> list[Claim]:
        """Return the claims for the methods as published and as felb recommends them, as far as the trials decide."""
        return [
            replace(each, variants=variants)
            for variants, kept in variants_of(record).items()
            for each in judge_by_trials(kept, self.claims_so_far)
        ]

    def claims_so_far(self, record: StudyRecord) -> list[Claim]:
        """Return the claims by means; while cells are missing, each says so and none counts as reproduced."""
        return judged_with_missing(record, self.claims(record))

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain data, for the manifest."""
        hidden = ("form",) if self.reads_data else ("form", "data")
        return {key: value for key, value in asdict(self).items() if key not in hidden}


def variants_of(record: StudyRecord) -> dict[str, StudyRecord]:
    """Return the record with the methods as published, if it has them, and with those of felb's own settings.

    In both they have the plain names, FELB, FELB-MU and ELBMF; methods without variants are in both.
    """
    own = record.of_variants({}, PUBLISHED)
    if own.planned == record.planned:
        return {"": record}
    return {"as published": record.of_variants(PUBLISHED, set(PUBLISHED.values())), "as felb recommends": own}


def labels(methods: Sequence[MethodUse]) -> tuple[str, ...]:
    """Return what the methods are called, each once."""
    return tuple(dict.fromkeys(use.label for use in methods))


# -- Run an experiment into a folder, cell by cell; what is there already is not run again ---------------------------

DATA = "data"


def run_study(
    study: Study,
    out: str | os.PathLike[str],
    *,
    jobs: int = 1,
    time_limit: float | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> StudyRecord:
    """Measure the cells of an experiment that are not in the folder `out` yet; return all of them.

    Every cell is written as soon as it is measured, so an interruption costs the cells under way and nothing else.
    Cells that failed are tried again, and those that ran out of time if they have more of it now.

    Parameters
    ----------
    study : what to measure
    out : folder of the experiment; made if it is not there
    jobs : cells at the same time
    time_limit : seconds for each cell, in place of the experiment's own
    on_progress : called at the start and after each cell
    """
    limit = study.time_limit if time_limit is None else time_limit
    folder, planned = Path(out), {cell.key: cell for cell in study.cells()}
    cells = Cells(
        "felb_paper.measuring",
        {key: cell.parameters for key, cell in planned.items()},
        {key: f"{cell.use.label} {cell.place}" for key, cell in planned.items()},
        {"cache": folder.resolve() / DATA, **({} if study.data is None else {"folder": Path(study.data).resolve()})},
    )
    if (folder / MANIFEST).is_file() and (other := name_of(folder)) not in (study.name, None):
        raise InputError(f"{folder} holds the experiment {other!r}, not {study.name!r}; choose another folder")
    with claim_folder(folder, manifest=MANIFEST, what="experiment"):
        _manifest(study).write_manifest(folder)
        # Matrices are made of raw files once, before the time of any cell begins; what fails is told by the cells.
        missing = missing_cells(cells, folder, limit=limit)
        write_codes(folder, {**read_codes(folder), **{key: fingerprint_method(planned[key].use) for key in missing}})
        data = (planned[key].data for key in missing)
        for name in dict.fromkeys(each.name for each in data if isinstance(each, SourceData)):
            with suppress(FelbError, OSError):
                keep_source(name, **cells.folders)
        measure_cells(cells, folder, limit=limit, jobs=jobs, on_progress=on_progress)
        finished = StudyRecord.read(folder)
        write_claims(folder, study.judge(finished))
    return finished


def _manifest(study: Study) -> StudyRecord:
    return StudyRecord(
        name=study.name,
        title=study.title,
        question=study.question,
        form=study.form,
        view=study.view(),
        planned=tuple(cell.planned() for cell in study.cells()),
        settings=study.settings(),
        provenance=provenance(),
    )
