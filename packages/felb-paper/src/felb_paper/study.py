"""What an experiment leaves behind: a manifest, one record for each cell, and verdicts on claims."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping  # noqa: TC003
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
import numpy as np

from felb.errors import InputError
from felb.metrics.comparison import Interval, mean_interval
from felb.records import as_record, read_record, replace_nonfinite, replacing
from felb.runs.cells import CELLS, CellRecord

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from felb.runs.cells import Status


# experiment.json      name, form, cells that were planned, how to show them, published figures, date and machine
# cells/*.json         one cell each: method, place on the axis, trial, figures, parameters, provenance
# code.json            fingerprint of the method of each cell, when it was measured
# claims.json          which claims of the paper the cells bear out, with the numbers

FORMAT = "felb-experiment-1"
MANIFEST, CLAIMS, CODE = "experiment.json", "claims.json", "code.json"

Place = float | str
"""Where a cell stands on the axis: a number, or the name of a data set."""

Kind = Literal["lines", "rounds", "points", "pictures"]
Verdict = Literal["reproduced", "contradicted", "undecided", "as the paper's table, not as its text"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
AS_THE_TABLE = VERDICTS[-1]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of the cells: its key, what to call it, which direction is good, how to show it."""

    key: str
    label: str
    better: Literal["high", "low", ""] = ""
    digits: int = 3
    log: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """How an experiment is shown.

    Parameters
    ----------
    kind : ``lines`` over the axis, figures over ``rounds``, ``points`` per data set, or ``pictures`` of matrices
    axis : what the axis is
    metrics : figures to show, in order
    methods : in the order of tables and legends
    panels : groups of cells that are drawn side by side; "" if there is one
    scale : of the axis
    percent : show places as percentages
    axes : label of the axis of a panel where it differs
    note : what a reader must know
    published : figures of the paper, by metric, place and method; None where it reports none
    published_shapes : rows and columns of the paper's data by place; its figures are not compared with other shapes
    ranked : methods that are ranked against each other at every place
    ratio : draw this instead of the metrics: a metric and two methods, the first over the second
    """

    kind: Kind
    axis: str
    metrics: tuple[Metric, ...]
    methods: tuple[str, ...]
    panels: tuple[str, ...] = ("",)
    scale: Literal["linear", "log2", "log", "names"] = "linear"
    percent: bool = False
    axes: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    published: Mapping[str, Mapping[str, Mapping[str, float | None]]] = field(default_factory=dict)
    ratio: tuple[str, str, str] | None = None
    published_shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ranked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell that belongs to an experiment, whether it was run or not."""

    key: str
    method: str
    place: Place
    panel: str
    trial: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Something the paper says, what the cells say about it, the numbers, and in which variants methods were taken."""

    says: str
    verdict: Verdict
    numbers: str
    variants: str = ""


@dataclass(frozen=True)
class StudyRecord:
    """A stored experiment: what was planned, and the cells that are there."""

    name: str
    title: str
    question: str
    form: str
    view: View
    planned: tuple[Planned, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    cells: Mapping[str, CellRecord] = field(default_factory=dict)
    codes: Mapping[str, str] = field(default_factory=dict)

    def places(self, panel: str = "") -> list[Place]:
        """Places on the axis of a panel, each once, in the order they were planned."""
        return list(dict.fromkeys(cell.place for cell in self.planned if cell.panel == panel))

    def methods(self, panel: str = "") -> list[str]:
        """Methods of a panel in the order of the view."""
        used = {cell.method for cell in self.planned if cell.panel == panel}
        return [method for method in self.view.methods if method in used]

    def _trials(
        self, method: str, place: Place | None = None, panel: str = ""
    ) -> Iterator[tuple[int, CellRecord | None]]:
        """Yield the planned trials of a method, at a place or anywhere, each with what came of it."""
        for cell in self._by_method.get((method, panel), ()):
            if place is None or place == cell.place:
                yield cell.trial, self.cells.get(cell.key)

    @cached_property
    def _by_method(self) -> dict[tuple[str, str], list[Planned]]:
        found: dict[tuple[str, str], list[Planned]] = {}
        for cell in self.planned:
            found.setdefault((cell.method, cell.panel), []).append(cell)
        return found

    def of_variants(self, names: Mapping[str, str], without: Collection[str]) -> StudyRecord:
        """Return the record with some methods under other names, and without those that would have the same.

        A name with something after it, such as "FELB literal · 10 clients", is changed at its beginning.
        """
        view = replace(self.view, methods=tuple(_renamed(self.view.methods, names, without)))
        planned = tuple(
            replace(cell, method=new) for cell in self.planned for new in _renamed((cell.method,), names, without)
        )
        return replace(self, view=view, planned=planned)

    def resample(self, trials: Sequence[int]) -> StudyRecord:
        """Return the record as if these had been its trials; a trial may be drawn more than once, or not at all."""
        at: dict[int, list[int]] = {}
        for new, old in enumerate(trials):
            at.setdefault(old, []).append(new)
        planned = tuple(replace(cell, trial=new) for cell in self.planned for new in at.get(cell.trial, ()))
        return replace(self, planned=planned)

    def done(self, method: str, place: Place | None = None, panel: str = "") -> list[CellRecord]:
        """Finished cells of a method in the order of their trials."""
        return [
            found for _, found in self._trials(method, place, panel) if found is not None and found.status == "done"
        ]

    def by_trial(self, metric: str, method: str, place: Place, panel: str = "") -> dict[int, float]:
        """One figure by the number of the trial, for trials that have it."""
        return {
            trial: value
            for trial, found in self._trials(method, place, panel)
            if found is not None and found.status == "done" and (value := found.figures.get(metric)) is not None
        }

    def interval(self, metric: str, method: str, place: Place, panel: str = "") -> Interval | None:
        """Mean and 95% interval over the trials; None where no trial was finished."""
        return mean_interval(list(self.by_trial(metric, method, place, panel).values()))

    def mean(self, metric: str, method: str, place: Place, panel: str = "") -> float | None:
        """Mean over the trials; None where no trial was finished."""
        found = self.interval(metric, method, place, panel)
        return None if found is None else found.mean

    def statuses(self, method: str, place: Place, panel: str = "") -> list[Status | None]:
        """How the planned cells of a method at a place ended, in the order of their trials; None: not run yet."""
        return [None if found is None else found.status for _, found in self._trials(method, place, panel)]

    def shape(self, place: Place) -> tuple[int, int] | None:
        """Rows and columns of the data at a place, from the cells that are done; None if they do not tell."""
        for cell in self.planned:
            figures = self.cells[cell.key].figures if cell.key in self.cells else {}
            rows, columns = figures.get("rows"), figures.get("columns")
            if cell.place == place and rows is not None and columns is not None:
                return int(rows), int(columns)
        return None

    def published(self, metric: str, place: Place) -> Mapping[str, float | None]:
        """Published figures of a place by method; none if the data there has another shape than the paper's."""
        expected = self.view.published_shapes.get(str(place))
        if expected is not None and self.shape(place) != expected:
            return {}
        return self.view.published.get(metric, {}).get(str(place), {})

    def ranks(self, metric: Metric, place: Place, panel: str = "") -> dict[str, int]:
        """Rank the methods that the view ranks by their means: 1 is the best, equal means share a rank.

        A method without a figure is ranked after all that have one. Empty if none has one.
        """
        methods = [method for method in self.methods(panel) if method in self.view.ranked]
        means = {
            method: mean if metric.better == "high" else -mean
            for method in methods
            if (mean := self.mean(metric.key, method, place, panel)) is not None
        }
        if not means:
            return {}
        return {
            method: 1 + (sum(other > means[method] for other in means.values()) if method in means else len(means))
            for method in methods
        }

    def count(self, status: Status) -> int:
        """Planned cells that ended in this way."""
        return sum(cell.key in self.cells and self.cells[cell.key].status == status for cell in self.planned)

    @property
    def missing(self) -> int:
        """Planned cells that were not run yet."""
        return sum(cell.key not in self.cells for cell in self.planned)

    @property
    def trials(self) -> int:
        """Trials of each cell."""
        return 1 + max((cell.trial for cell in self.planned), default=-1)

    def write_manifest(self, folder: Path) -> None:
        """Write everything but the cells."""
        raw = {"format": FORMAT, **{key: value for key, value in asdict(self).items() if key not in ("cells", "codes")}}
        with replacing(folder / MANIFEST) as partial:
            partial.write_text(json.dumps(replace_nonfinite(raw), indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> StudyRecord:
        """Read an experiment's folder; cells that are damaged count as not run."""
        path, advice = Path(folder), "run the experiment again"
        try:
            raw = read_record(path / MANIFEST, dict[str, Any], advice=advice)
        except FileNotFoundError:
            raise InputError(
                f"{folder} is not the folder of an experiment: it has no {MANIFEST}; run one with `felb experiment run`"
            ) from None
        if raw.pop("format", None) != FORMAT:
            raise InputError(f"{path / MANIFEST} is of another version of felb; {advice}")
        found = as_record(raw, cls, source=str(path / MANIFEST), advice=advice)
        stored = {cell.key: CellRecord.read(path / CELLS / f"{cell.key}.json") for cell in found.planned}
        cells = {key: record for key, record in stored.items() if record is not None}
        return replace(found, cells=cells, codes=read_codes(path))


def _renamed(methods: Iterable[str], names: Mapping[str, str], without: Collection[str]) -> Iterator[str]:
    """Yield the methods that are kept, under their new names."""
    for method in methods:
        of = max((word for word in (*names, *without) if _is_called(method, word)), key=len, default=None)
        if of is None or of in names:
            yield method if of is None else names[of] + method[len(of) :]


def _is_called(method: str, name: str) -> bool:
    return method == name or method.startswith((f"{name} ·", f"{name} aligned"))


def name_of(folder: Path) -> str | None:
    """Return which experiment a folder holds, also if its manifest is of another version; None if it is damaged."""
    try:
        return str(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_codes(folder: Path) -> dict[str, str]:
    """Return the fingerprints of the methods of a folder's cells; none if the file is missing or damaged."""
    try:
        return {str(key): str(code) for key, code in json.loads((folder / CODE).read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def write_codes(folder: Path, codes: Mapping[str, str]) -> None:
    """Keep the fingerprints of methods beside the cells that they made."""
    with replacing(folder / CODE) as partial:
        partial.write_text(json.dumps(codes, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def write_claims(folder: Path, claims: Sequence[Claim]) -> None:
    """Keep what the cells say about the paper beside them."""
    with replacing(folder / CLAIMS) as partial:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(list(claims)), indent=1))


# -- Small parts of claims: verdicts with their numbers, comparisons of means that know about missing cells ----------

MISSING = "runs are missing"

RESAMPLES, CERTAIN, FEWEST = 200, 0.975, 5
"""Resamples of the trials; share of them in which a verdict must be the same; trials below which nothing is decided."""


def judge_by_trials(record: StudyRecord, judge: Callable[[StudyRecord], list[Claim]]) -> list[Claim]:
    """Return claims with verdicts that hold for a bootstrap of the trials, and are undecided otherwise.

    All methods of a trial have the same data and the same split, so a resample of the trials keeps methods paired.
    `judge` compares means. A verdict stands if it is the same on nearly all resamples. Below five trials none stands:
    five is the smallest number for which equal chances give the same sign to all differences in less than 5% of cases.
    """
    found, trials = judge(record), record.trials
    if trials < FEWEST or all(each.verdict == "undecided" for each in found):
        few = f"{trials} trial{'' if trials == 1 else 's'}, of which {FEWEST} are needed"
        return [
            each
            if each.verdict == "undecided"
            else replace(each, verdict="undecided", numbers=said(each.numbers, f"by the means {each.verdict}", few))
            for each in found
        ]
    rng, same = np.random.default_rng(0), Counter[int]()
    for _ in range(RESAMPLES):
        again = judge(record.resample(rng.integers(trials, size=trials).tolist()))
        same.update(
            number for number, (one, other) in enumerate(zip(found, again, strict=True)) if one.verdict == other.verdict
        )
    judged = []
    for number, each in enumerate(found):
        share = same[number] / RESAMPLES
        if each.verdict == "undecided":
            judged.append(each)
            continue
        told = said(
            each.numbers, f"{'' if share >= CERTAIN else 'by the means '}{each.verdict} in {share:.0%} of the resamples"
        )
        judged.append(replace(each, numbers=told, verdict=each.verdict if share >= CERTAIN else "undecided"))
    return judged


def claim(says: str, holds: bool | None, numbers: str) -> Claim:
    """Return a claim with its verdict; `holds` is None where cells to decide it are missing."""
    if holds is None:
        return Claim(says, "undecided", numbers or MISSING)
    return Claim(says, "reproduced" if holds else "contradicted", numbers)


def best(
    record: StudyRecord, metric: str, methods: Sequence[str], place: Place, *, high: bool, panel: str = ""
) -> tuple[str, float] | None:
    """Return the method with the best mean, and that mean; None if none has any."""
    means = [(method, mean) for method in methods if (mean := record.mean(metric, method, place, panel)) is not None]
    if not means:
        return None
    return (max if high else min)(means, key=lambda item: item[1])


def beats_at(
    record: StudyRecord, metric: str, ours: Sequence[str], others: Sequence[str], *, high: bool, places: Iterable[Place]
) -> tuple[list[Place], list[Place]]:
    """Return the places where every one of `ours` is better than the best of `others`, and all that can be compared."""
    won, seen = [], []
    for place in places:
        rival = best(record, metric, others, place, high=high)
        means = [record.mean(metric, method, place) for method in ours]
        if rival is None or any(mean is None for mean in means):
            continue
        seen.append(place)
        if all((mean > rival[1]) if high else (mean < rival[1]) for mean in means if mean is not None):
            won.append(place)
    return won, seen


def shares(won: Sequence[Place], seen: Sequence[Place], unit: str, *, percent: bool = False) -> str:
    """Say where something holds: "at 3 of 5 noise levels (0%, 10%, 20%)"."""
    words = [f"{place:.0%}" if percent else f"{place:g}" if isinstance(place, float) else place for place in won]
    named = ", ".join(words)
    return f"at {len(won)} of {len(seen)} {unit}" + (f" ({named})" if won and len(won) < len(seen) else "")


def listed(record: StudyRecord, metric: str, methods: Sequence[str], place: Place, panel: str = "") -> str:
    """Say the means of some methods at a place: "FELB 0.912, Asso 0.020"."""
    means = [(method, record.mean(metric, method, place, panel)) for method in methods]
    return ", ".join(f"{method} {'–' if mean is None else format(mean, '.3g')}" for method, mean in means)


def average(values: Collection[float]) -> float:
    """Return the mean of some numbers; 0 without any."""
    return sum(values) / len(values) if values else 0.0


def missing_text(record: StudyRecord, methods: Collection[str] | None = None) -> str:
    """Say how many cells of some methods (all if None) have no figures, and why; empty if all are done."""
    planned = [cell for cell in record.planned if methods is None or cell.method in methods]
    found = Counter(record.cells[cell.key].status if cell.key in record.cells else "missing" for cell in planned)
    words = {"timeout": "out of time", "failed": "failed", "missing": "not run yet"}
    told = ", ".join(f"{found[status]} {word}" for status, word in words.items() if found[status])
    return f"{len(planned) - found['done']} of {len(planned)} {MISSING} ({told})" if told else ""


def judged_with_missing(record: StudyRecord, claims: Iterable[Claim]) -> list[Claim]:
    """Return claims as they may stand while cells are missing: each says so, and none counts as reproduced."""
    told = missing_text(record)
    if not told:
        return list(claims)
    return [
        replace(
            each,
            verdict="undecided" if each.verdict == "reproduced" else each.verdict,
            numbers=said(each.numbers, told),
        )
        for each in claims
    ]


def said(*parts: str) -> str:
    """Join the parts of what a claim says."""
    return "; ".join(part for part in parts if part)


def holds_if_any(seen: Collection[object], holds: bool) -> bool | None:
    """Return the verdict, or None where nothing could be compared."""
    return holds if seen else None
