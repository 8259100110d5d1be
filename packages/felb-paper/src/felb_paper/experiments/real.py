"""Experiments on real data: the paper's tables beside what is measured here, synchronisation, numbers of clients."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from felb_paper.cells import (
    ELBMF,
    F1,
    FELB,
    FELB_MU,
    POST_HOC,
    QUICK_ITERATIONS,
    RMSD,
    SECONDS,
    SEVEN,
    ZHANG,
    Cell,
    MethodUse,
    SourceData,
    Study,
    aligned_methods,
    all_methods,
    competitors,
    federated_methods,
    labels,
)
from felb_paper.data import Source, at_hand
from felb_paper.experiments.planted import BOTH
from felb_paper.measuring import COLUMNS, ROWS
from felb_paper.study import AS_THE_TABLE, MISSING, Metric, View, claim, holds_if_any, missing_text, said

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from felb_paper.cells import Split
    from felb_paper.study import Claim, Place, StudyRecord


# -- The paper's tables of real data: F1, and RMSD as 50·√(share of wrong cells); None where a run did not end -------

METHODS = ("Asso", "MEBF", "GreConD", "Zhang", "ELBMF", "FELB-MU", "FELB")
"""Columns of the tables."""


@dataclass(frozen=True, slots=True)
class PublishedData:
    """A data set of the tables: what the paper says about it, and what it found, in the order of `METHODS`."""

    name: str
    title: str
    shape: tuple[int, int]
    components: int
    f1: tuple[float | None, ...]
    rmsd: tuple[float | None, ...]

    @property
    def back_computed_density(self) -> float:
        """The density that follows from the RMSD of a method with an F1 of 0, which reconstructs nothing."""
        empty = next(rmsd for f1, rmsd in zip(self.f1, self.rmsd, strict=True) if f1 == 0 and rmsd is not None)
        return (empty / 50) ** 2

    @property
    def ones(self) -> int:
        """Ones of the matrix, as many as that density says."""
        return round(self.back_computed_density * self.shape[0] * self.shape[1])

    def table(self, metric: str) -> dict[str, float | None]:
        """One row of a table by method."""
        return dict(zip(METHODS, self.f1 if metric == "f1" else self.rmsd, strict=True))


TABLE = (
    PublishedData("acs-income", "ACS Income", (1_630_167, 998), 20,
        (0.388, 0.108, 0.690, 0.0, 0.0, 0.585, 0.328), (4.583, 4.929, 3.485, 5.005, 5.005, 3.962, 4.560)),
    PublishedData("acs-poverty", "ACS Poverty", (3_271_346, 836), 20,
        (0.692, None, 0.797, 0.0, 0.217, 0.638, 0.517), (5.822, None, 4.785, 7.734, 7.190, 7.576, 7.588)),
    PublishedData("cs.LG", "cs.LG", (145_981, 14_570), 50,
        (None, 0.0, 0.068, 0.0, 0.0, 0.057, 0.006), (None, 3.398, 3.350, 3.398, 3.398, 3.372, 3.396)),
    PublishedData("goodreads", "Goodreads", (350_332, 9374), 50,
        (None, 0.0, 0.017, None, 0.0, 0.125, 0.059), (None, 1.669, 1.668, None, 1.669, 1.641, 1.660)),
    PublishedData("hpa-brain", "HPA Brain", (76_533, 20_082), 100,
        (None, 0.642, None, 0.0, 0.0, 0.007, 0.0), (None, 19.537, None, 24.434, 24.434, 24.409, 24.433)),
    PublishedData("movielens", "Movielens", (162_541, 62_423), 20,
        (None, 0.017, None, None, 0.0, 0.193, 0.163), (None, 1.956, None, None, 1.962, 1.914, 1.925)),
    PublishedData("netflix", "Netflix", (480_189, 17_770), 20,
        (None, 0.010, None, None, 0.0, 0.197, 0.144), (None, 4.075, None, None, 4.084, 3.982, 4.009)),
    PublishedData("tcga", "TCGA", (10_459, 20_530), 33,
        (0.039, 0.055, 0.007, 0.0, 0.0, 0.414, 0.402), (6.858, 6.834, 6.871, 6.872, 6.872, 6.346, 6.420)),
)  # fmt: skip

SHIPPED_COMPONENTS = {"zoo": 5, "soybean": 10, "sc_10x_brain_10k": 20}
"""Data that comes with felb, which the paper does not have, and the number of components it is run with."""

ROWS_A_CLIENT = 10
"""Fewer clients than asked for where each would have fewer rows than this."""

COMPONENTS = 20
"""Of data for which neither the paper nor felb says how many."""

LARGE = 10**6
"""Ones beyond which a data set has a single trial."""

NEAR = 0.1
"""Relative difference up to which a measured F1 or RMSD agrees with the published one."""

RMSD_TABLE = Metric("rmsd_table", "RMSD (table unit)", "low")


@dataclass(frozen=True, slots=True)
class RealworldStudy(Study):
    """Fifty clients, ten local steps, on all data that is at hand: what comes with felb, and the data folder.

    Parameters
    ----------
    clients : at most; data with few rows has fewer
    sources : names of data sets; None for all that are at hand
    rows, columns : take that many rows of each, drawn by the seed, and the columns with the most ones; None for all
    """

    name = "realworld"
    title = "Real data"
    question = "How well do the methods reconstruct real data over fifty clients?"
    reads_data = True

    time_limit: float = 600.0
    clients: int = 50
    sources: tuple[str, ...] | None = None
    rows: int | None = None
    columns: int | None = None
    methods: tuple[MethodUse, ...] = field(default_factory=lambda: (*all_methods(), *aligned_methods(), *competitors()))

    def at_hand(self) -> list[Source]:
        """Return the data sets to run, those with few ones first."""
        found = {source.name: source for source in at_hand(None if self.data is None else Path(self.data))}
        if self.sources is not None:
            known = {each.name: Source(each.name, each.shape, each.ones) for each in TABLE}
            found = {name: found.get(name) or known[name] for name in self.sources}
        return sorted(found.values(), key=lambda source: source.ones)

    def cells(self) -> tuple[Cell, ...]:
        """One for each data set, trial and method, those first that cost little; large data has a single trial."""
        return tuple(
            Cell(
                use,
                SourceData(source.name, components_of(source), self.rows, source.contents, self.columns),
                self.clients_of(source),
                source.name,
                trial,
            )
            for source in self.at_hand()
            for trial in range(self.trials if self.rows is not None or source.ones <= LARGE else 1)
            for use in self.methods
        )

    def clients_of(self, source: Source) -> int:
        """Return over how many clients a data set is dealt out."""
        rows = source.shape[0]
        rows = rows if self.rows is None else min(rows, self.rows)
        return max(2, min(self.clients, rows // ROWS_A_CLIENT))

    def view(self) -> View:
        """Both tables, published figures beside measured ones of the same data."""
        note = (
            f"At most {self.clients} clients, and no more than one for ten rows; ten local steps per round. "
            "Post-hoc methods aggregate by majority vote, entry by entry or, if stated, after alignment of components. "
            "RMSD is in the unit of the paper's table, 50·√(share of wrong matrix cells). Ranks are among the seven "
            "methods of the paper; a method without a value is ranked last."
            + (
                " Data with more than a million ones has one trial."
                if self.rows is None
                else f" At most {self.rows} rows of each data set, drawn at random, and {self.columns} columns with "
                "the most ones."
            )
            + " Data of the paper that is not at hand is not run: `felb data info NAME` says where to get it. "
            "Published values are shown beside measured ones only if the data has the published shape."
        )
        published = {
            metric: {row.name: row.table(key) for row in TABLE}
            for metric, key in (("f1", "f1"), ("rmsd_table", "rmsd"))
        }
        return View(
            "points",
            "data",
            (F1, RMSD_TABLE, SECONDS),
            labels(self.methods),
            scale="names",
            note=note,
            published=published,
            published_shapes={row.name: row.shape for row in TABLE},
            ranked=SEVEN,
        )

    def claims_so_far(self, record: StudyRecord) -> list[Claim]:
        """Return the claims; each says which cells are missing, and which data has not the shape of the paper's."""
        odd = self.of_another_shape(record)
        kept = replace(record, planned=tuple(cell for cell in record.planned if cell.place not in odd))
        left_out = f"not judged, as of another shape than the paper's: {', '.join(odd.values())}" if odd else ""
        missing = missing_text(record)
        return [
            replace(each, numbers=said(each.numbers, "" if MISSING in each.numbers else missing, left_out))
            for each in self.claims(kept)
        ]

    def of_another_shape(self, record: StudyRecord) -> dict[Place, str]:
        """Return the data that is called like a data set of the paper and is another, with both shapes.

        In a form that draws rows and columns, it has as many of them as the paper's data would have.
        """
        found: dict[Place, str] = {}
        for place in record.places():
            published, shape = record.view.published_shapes.get(str(place)), record.shape(place)
            if published is None or shape is None:
                continue
            limits = (self.rows, self.columns)
            expected = tuple(n if most is None else min(n, most) for n, most in zip(published, limits, strict=True))
            if shape != expected:
                found[place] = f"{place} ({shape[0]} x {shape[1]}, expected {expected[0]} x {expected[1]})"
        return found

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Rank the methods on each data set; compare with the published figures where there are any."""
        return [_both_near_the_top(record), _one_near_the_top(record), _above_votes(record), *_other_claims(record)]


def components_of(source: Source) -> int:
    """Return how many components to look for."""
    known = {**SHIPPED_COMPONENTS, **{published.name: published.components for published in TABLE}}
    return min(known.get(source.name, COMPONENTS), *source.shape)


# -- claims ------------------------------------------------------------------------------------------------------------


def _complete(record: StudyRecord, place: Place) -> bool:
    """Whether every trial of the seven methods is done."""
    return all(set(record.statuses(method, place)) == {"done"} for method in SEVEN if method in record.methods())


def _ranks(record: StudyRecord) -> dict[Place, dict[str, int]]:
    """Return the ranks by F1 where FELB and FELB-MU have figures."""
    return {
        place: ranks
        for place in record.places()
        if (ranks := record.ranks(F1, place)) and all(record.mean("f1", method, place) is not None for method in BOTH)
    }


def _on_every(record: StudyRecord, says: str, good: dict[Place, bool], numbers: str, *, paper: Sequence[str]) -> Claim:
    """Judge a claim about every data set: it fails by one of them, and holds only if no cell of the seven is missing.

    `good` tells where it holds among the methods that have figures; a method that comes later can only push back.
    `paper` names the data sets of the paper's own table on which it holds. Where these are not all, a measurement that
    differs from the text agrees with the table.
    """
    missing = missing_text(record, SEVEN)
    if len(paper) < len(TABLE):
        numbers = said(numbers, f"in the paper's own table on {len(paper)} of {len(TABLE)}")
    if not all(good.values()):
        differs = claim(says, False, said(numbers, missing))
        return replace(differs, verdict=AS_THE_TABLE) if len(paper) < len(TABLE) else differs
    return claim(says, None if missing or not good else True, said(numbers, missing))


def _told(record: StudyRecord, ranks: dict[Place, dict[str, int]]) -> str:
    parts = [
        f"{place}: FELB {found[FELB]}, FELB-MU {found[FELB_MU]} of {len(found)}"
        + ("" if _complete(record, place) else " (incomplete)")
        for place, found in ranks.items()
    ]
    return f"Ranks: {', '.join(parts)}" if parts else ""


def _both_near_the_top(record: StudyRecord) -> Claim:
    ranks = _ranks(record)
    good = {place: max(found[FELB], found[FELB_MU]) <= 2 for place, found in ranks.items()}
    first = [place for place, found in ranks.items() if min(found[FELB], found[FELB_MU]) == 1]
    numbers = f"both on {sum(good.values())}, one of them first on {len(first)} of {len(ranks)} data sets. "
    says = "FELB and FELB-MU are the best or second best of the seven methods (F1) on every data set"
    told = (numbers + _told(record, ranks)) if ranks else ""
    return _on_every(record, says, good, told, paper=near_the_top_in_the_paper(both=True))


def _one_near_the_top(record: StudyRecord) -> Claim:
    ranks = _ranks(record)
    good = {place: min(found[FELB], found[FELB_MU]) <= 2 for place, found in ranks.items()}
    not_on = [str(place) for place, fine in good.items() if not fine]
    numbers = f"on {sum(good.values())} of {len(good)} data sets" + (f", not on {', '.join(not_on)}" if not_on else "")
    says = "FELB or FELB-MU is the best or second best of the seven methods (F1) on every data set"
    return _on_every(record, says, good, numbers if ranks else "", paper=near_the_top_in_the_paper(both=False))


def _above_votes(record: StudyRecord) -> Claim:
    """Hold FELB and FELB-MU against the votes."""
    rivals = [method for method in POST_HOC if method in record.methods()]
    good = {
        place: min(record.mean("f1", method, place) or 0.0 for method in BOTH)
        > max((record.mean("f1", rival, place) or 0.0 for rival in rivals), default=-1.0)
        for place in _ranks(record)
    }
    not_on = [str(place) for place, fine in good.items() if not fine]
    numbers = f"on {sum(good.values())} of {len(good)} data sets" + (f", not on {', '.join(not_on)}" if not_on else "")
    says = "FELB and FELB-MU are both better (F1) than every post-hoc method by vote on every data set"
    return _on_every(record, says, good, numbers if good else "", paper=above_votes_in_the_paper())


def above_votes_in_the_paper() -> list[str]:
    """Return the data sets of the paper's table on which both are above every vote."""
    return [
        row.name
        for row in TABLE
        if min(row.table("f1")[method] or 0.0 for method in BOTH)
        > max(row.table("f1")[method] or 0.0 for method in POST_HOC)
    ]


def near_the_top_in_the_paper(both: bool) -> list[str]:
    """Return the data sets of the paper's table on which both, or at least one, are among the best two by F1."""
    found = []
    for row in TABLE:
        scores = {method: score for method, score in row.table("f1").items() if score is not None}
        ranks = {method: 1 + sum(other > score for other in scores.values()) for method, score in scores.items()}
        if (max if both else min)(ranks[method] for method in BOTH) <= 2:
            found.append(row.name)
    return found


def _other_claims(record: StudyRecord) -> list[Claim]:
    empty = {
        (str(place), method): mean
        for place in record.places()
        for method in (ZHANG, ELBMF)
        if (mean := record.mean("f1", method, place)) is not None
    }
    told = ", ".join(f"{method} on {place} {value:.3f}" for (place, method), value in empty.items())
    missing = missing_text(record, (ZHANG, ELBMF))
    near_zero = all(value < 0.05 for value in empty.values())
    near, compared = _near_published(record)
    agree = near == compared
    lacking = missing_text(record, SEVEN) if compared else ""
    return [
        claim(
            "ELBMF and Zhang by vote end in components without consensus: F1 near 0 (below 0.05)",
            None if not empty or (near_zero and missing) else near_zero,
            said(told, missing),
        ),
        claim(
            "Measured F1 and RMSD agree with the published tables (within a tenth)",
            None if not compared or (agree and lacking) else agree,
            said(f"{near} of {compared} figures", lacking)
            if compared
            else "none of the paper's data is at hand in its published shape",
        ),
    ]


def _near_published(record: StudyRecord) -> tuple[int, int]:
    """Return how many measured figures agree with published ones, of how many."""
    pairs = [
        (published, record.mean(metric, method, place))
        for metric, place in product(record.view.published, record.places())
        for method, published in record.published(metric, place).items()
    ]
    compared = [(paper, mean) for paper, mean in pairs if paper is not None and mean is not None]
    return sum(abs(mean - paper) <= NEAR * max(paper, NEAR) for paper, mean in compared), len(compared)


# -- how often clients synchronise -------------------------------------------------------------------------------------

REGIMES = {1: "every step", 10: "every 10 steps", 50: "every 50 steps"}


@dataclass(frozen=True, slots=True)
class SyncStudy(Study):
    """1, 10 or 50 local steps between synchronisations, on the data of the study of real data."""

    name = "sync"
    title = "Frequency of synchronisation"
    question = "Is FELB-MU better than FELB when clients rarely synchronise?"
    reads_data = True

    clients: int = 50
    sources: tuple[str, ...] | None = None
    rows: int | None = None

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, regime, data set and method."""
        # The cells of that study say which data there is, and over how many clients.
        data = {
            cell.place: (cell.data, cell.clients)
            for cell in RealworldStudy(
                trials=1, clients=self.clients, sources=self.sources, rows=self.rows, data=self.data
            ).cells()
        }
        return tuple(
            Cell(use, source, clients, place, trial, panel=REGIMES[steps])
            for trial, steps, (place, (source, clients)) in product(range(self.trials), REGIMES, data.items())
            if isinstance(source, SourceData)
            for use in federated_methods(local_steps=steps)
        )

    def view(self) -> View:
        """RMSD and F1 of both methods on each data set, a panel for each regime."""
        note = (
            f"At most {self.clients} clients, and no more than one for ten rows."
            + ("" if self.rows is None else f" At most {self.rows} rows of each data set, drawn at random.")
            + " The relative RMSD of a data set is RMSD(FELB) / RMSD(FELB-MU): above 1, FELB-MU is better."
        )
        panels, ratio = tuple(REGIMES.values()), ("rmsd", FELB, FELB_MU)
        return View(
            "points",
            "data",
            (RMSD, F1),
            labels(federated_methods()),
            panels=panels,
            scale="names",
            note=note,
            ratio=ratio,
        )

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare relative RMSDs over the regimes."""
        ratios = {panel: _relate_rmsd(record, panel) for panel in REGIMES.values()}
        means = {panel: sum(found.values()) / len(found) for panel, found in ratios.items() if found}
        often, sometimes, rarely = REGIMES.values()
        told = "mean RMSD(FELB)/RMSD(FELB-MU): " + ", ".join(f"{panel} {mean:.4f}" for panel, mean in means.items())
        whole = len(means) == len(REGIMES)
        better = [name for name, ratio in ratios[rarely].items() if ratio > 1]
        return [
            claim(
                "With rare synchronisation FELB-MU has the lower RMSD",
                holds_if_any(ratios[rarely], 2 * len(better) > len(ratios[rarely]) and means.get(rarely, 0) > 1),
                f"on {len(better)} of {len(ratios[rarely])} data sets; {told}",
            ),
            claim(
                "The more often clients synchronise, the smaller the difference",
                None if not whole else abs(means[often] - 1) <= abs(means[sometimes] - 1) <= abs(means[rarely] - 1),
                told,
            ),
            claim(
                "With frequent and occasional synchronisation both perform alike (within 2%)",
                None if not whole else max(abs(means[often] - 1), abs(means[sometimes] - 1)) <= 0.02,
                told,
            ),
        ]


def _relate_rmsd(record: StudyRecord, panel: str) -> dict[str, float]:
    """Return RMSD(FELB) / RMSD(FELB-MU) of each data set."""
    found = {}
    for place in record.places(panel):
        felb, mu = (record.mean("rmsd", method, place, panel) for method in BOTH)
        if felb is not None and mu:
            found[str(place)] = felb / mu
    return found


# -- the same rows over more and more clients --------------------------------------------------------------------------

NEAR_ONE, NEAR_MANY = 0.03, 0.06
"""Differences of F1 that are small: between one client and the reference, and between the reference and others."""

SPLITS: tuple[Split, ...] = ("even", "uneven", "by component")


def _label(method: str, clients: int, split: Split = "even") -> str:
    """Return what the rows of the tables are called."""
    return f"{method} · {clients} client{'' if clients == 1 else 's'}{'' if split == 'even' else f', {split}'}"


@dataclass(frozen=True, slots=True)
class ClientsStudy(Study):
    """One to 200 clients on a part of each data set that is at hand; at `reference` clients, also in other splits.

    Parameters
    ----------
    clients : numbers of clients; those with fewer than ten rows a client are left out
    reference : the number that others are compared with
    rows, columns : random rows and heaviest columns of each data set, see `felb_paper.measuring`
    sources : names of data sets; None for all that are at hand
    """

    name = "clients"
    title = "The same rows over more clients"
    question = "Do FELB and FELB-MU depend on how the rows are split, and among how many clients?"
    reads_data = True

    trials: int = 5
    time_limit: float = 600.0
    clients: tuple[int, ...] = (1, 10, 50, 200)
    reference: int = 50
    rows: int = ROWS
    columns: int = COLUMNS
    sources: tuple[str, ...] | None = None

    def cells(self) -> tuple[Cell, ...]:
        """One for each data set, trial, split and method, those first that cost little."""
        found = RealworldStudy(sources=self.sources, data=self.data).at_hand()
        return tuple(cell for source in found for trial in range(self.trials) for cell in self._cells_of(source, trial))

    def _cells_of(self, source: Source, trial: int) -> Iterator[Cell]:
        data = SourceData(source.name, components_of(source), self.rows, source.contents, self.columns)
        most = max(1, min(self.rows, source.shape[0]) // ROWS_A_CLIENT)
        splits: list[tuple[int, Split]] = [(count, "even") for count in self.clients if count <= most]
        if self.reference <= most:
            splits += [(self.reference, "uneven"), (self.reference, "by component")]
        for count, split in splits:
            for use in federated_methods():
                shown = replace(use, label=_label(use.label, count, split))
                yield Cell(shown, data, count, source.name, trial, split=split)

    def view(self) -> View:
        """F1 and time of both methods for each split."""
        note = (
            f"At most {self.rows} random rows of each data set and of these the {self.columns} columns with the most "
            "ones; splits with fewer than ten rows per client are omitted. Uneven: client sizes follow a Dirichlet "
            "distribution. By component: rows that share the first of the concepts that GreConD finds are at the same "
            "clients."
        )
        methods = tuple(
            _label(method, count, split)
            for method in labels(federated_methods())
            for split in SPLITS
            for count in (self.clients if split == "even" else (self.reference,))
        )
        return View("points", "data", (F1, SECONDS), methods, scale="names", note=note)

    def claims_so_far(self, record: StudyRecord) -> list[Claim]:
        """Return the claims, which say themselves what is missing."""
        return self.claims(record)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare F1 of the reference with that of one client, of the most clients, and of other splits."""
        few, many, mid = min(self.clients), max(self.clients), self.reference
        found = []
        for method in BOTH:
            others = {
                _label(method, few): (NEAR_ONE, f"{mid} clients are as good as {few}"),
                _label(method, many): (NEAR_MANY, f"{many} clients are as good as {mid}"),
            }
            for split in SPLITS[1:]:
                says = f"{mid} clients with rows split {split} are as good as even ones"
                others[_label(method, mid, split)] = NEAR_MANY, says
            found += [
                _judge_closeness(record, _label(method, mid), other, bar, f"{method}: {says}")
                for other, (bar, says) in others.items()
            ]
        return found


def _judge_closeness(record: StudyRecord, one: str, other: str, bar: float, says: str) -> Claim:
    """Judge whether F1 of two rows of the table differs by `bar` at most on every data set that has both."""
    planned = {(cell.method, cell.place) for cell in record.planned}
    places: list[Place] = [place for place in record.places() if {(one, place), (other, place)} <= planned]
    gaps = {
        place: a - b
        for place in places
        if (a := record.mean("f1", one, place)) is not None and (b := record.mean("f1", other, place)) is not None
    }
    missing = missing_text(record, (one, other))
    far = {place: gap for place, gap in gaps.items() if abs(gap) > bar}
    holds = False if far else None if missing or not gaps else True
    told = ", ".join(f"{place} {gap:+.3f}" for place, gap in (far or gaps).items())
    numbers = f"on {len(gaps) - len(far)} of {len(gaps)} data sets; {'not on' if far else 'differences'}: {told}"
    return claim(f"{says} (F1 within {bar:g})", holds, said(numbers if gaps else "", missing))


REALWORLD = (
    RealworldStudy(),
    RealworldStudy(
        form="quick",
        trials=5,
        time_limit=60.0,
        clients=10,
        rows=400,
        columns=200,
        methods=all_methods(iterations=QUICK_ITERATIONS),
    ),
)
SYNC = (
    SyncStudy(),
    SyncStudy(form="quick", trials=5, time_limit=90.0, clients=20, rows=300, sources=tuple(SHIPPED_COMPONENTS)),
)
CLIENTS = (
    ClientsStudy(),
    ClientsStudy(form="quick", time_limit=90.0, clients=(1, 15, 30), reference=15, rows=400, columns=200),
)
