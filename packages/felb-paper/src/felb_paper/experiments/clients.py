"""The same rows over more and more clients: FELB and FELB-MU on real data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from felb_paper.cells import F1, FELB, FELB_MU, SECONDS, Cell, SourceData, Study, federated_methods
from felb_paper.experiments.realworld import ROWS_A_CLIENT, RealworldStudy, components_of
from felb_paper.measuring import COLUMNS, ROWS
from felb_paper.study import View, claim, missing_text, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from felb_paper.cells import Split
    from felb_paper.data import Source
    from felb_paper.study import Claim, Place, StudyRecord

NEAR_ONE, NEAR_MANY = 0.03, 0.06
"""Differences of F1 that are small: between one client and the reference, and between the reference and others."""

SPLITS: dict[Split, str] = {"even": "", "uneven": ", uneven", "by component": ", by component"}


def label(method: str, clients: int, split: Split = "even") -> str:
    """Return what the rows of the tables are called."""
    return f"{method} · {clients} client{'' if clients == 1 else 's'}{SPLITS[split]}"


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

    trials: int = 1
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
                shown = replace(use, label=label(use.label, count, split))
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
            label(method, count, split)
            for method in (FELB, FELB_MU)
            for split in SPLITS
            for count in (self.clients if split == "even" else (self.reference,))
        )
        return View("points", "data", (F1, SECONDS), methods, scale="names", note=note)

    def judge(self, record: StudyRecord) -> list[Claim]:
        """Return the claims, which say themselves what is missing."""
        return self.claims(record)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare F1 of the reference with that of one client, of the most clients, and of other splits."""
        few, many, mid = min(self.clients), max(self.clients), self.reference
        found = []
        for method in (FELB, FELB_MU):
            at_mid = label(method, mid)
            found += [
                _close(record, at_mid, label(method, few), NEAR_ONE, f"{method}: {mid} clients are as good as {few}"),
                _close(
                    record, at_mid, label(method, many), NEAR_MANY, f"{method}: {many} clients are as good as {mid}"
                ),
            ]
            found += [
                _close(
                    record,
                    at_mid,
                    label(method, mid, split),
                    NEAR_MANY,
                    f"{method}: {mid} clients with rows split{SPLITS[split].replace(',', '')} are as good as even ones",
                )
                for split in SPLITS
                if split != "even"
            ]
        return found


def _close(record: StudyRecord, one: str, other: str, bar: float, says: str) -> Claim:
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


FULL = ClientsStudy()
QUICK = ClientsStudy(form="quick", time_limit=90.0, clients=(1, 15, 30), reference=15, rows=400, columns=200)
