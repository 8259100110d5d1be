"""Small parts of claims: verdicts with their numbers, comparisons of means that know about missing cells."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from felb.paper.study import Claim

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from felb.paper.study import Place, StudyRecord

MISSING = "runs are missing"


def claim(says: str, holds: bool | None, numbers: str) -> Claim:
    """Return a claim with its verdict; `holds` is None where cells to decide it are missing."""
    if holds is None:
        return Claim(says, "undecided", numbers or MISSING)
    return Claim(says, "reproduced" if holds else "not reproduced", numbers)


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
        Claim(each.says, "undecided" if each.verdict == "reproduced" else each.verdict, said(each.numbers, told))
        for each in claims
    ]


def said(*parts: str) -> str:
    """Join the parts of what a claim says."""
    return "; ".join(part for part in parts if part)


def holds_if_any(seen: Collection[object], holds: bool) -> bool | None:
    """Return the verdict, or None where nothing could be compared."""
    return holds if seen else None
