"""What the two studies of many clients share: cells over the number of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.paper.claims import claim
from felb.paper.experiment_cells import Cell, MethodUse, PlantedData
from felb.paper.experiment_spec import FELB, FELB_MU, OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from felb.paper.study import Claim, StudyRecord


def cells_over_clients(
    clients: Sequence[int],
    methods: Sequence[MethodUse],
    *,
    trials: int,
    data: Callable[[int], PlantedData],
) -> tuple[Cell, ...]:
    """Return a cell for each trial, number of clients and method; `data` gives what that many clients share."""
    return tuple(
        Cell(use, data(count), count, float(count), trial)
        for trial in range(trials)
        for count in clients
        for use in methods
    )


def rivals(record: StudyRecord) -> list[str]:
    """Return the post-hoc methods of a record."""
    return [method for method in record.methods() if method not in (FELB, FELB_MU, OURS)]


def counts(record: StudyRecord) -> list[float]:
    """Return the numbers of clients where FELB and FELB-MU both have figures."""
    return [
        float(place)
        for place in record.places()
        if all(record.mean("rmsd", method, place) is not None for method in (FELB, FELB_MU))
    ]


def pairwise(record: StudyRecord, metric: str, places: Sequence[float]) -> str:
    """Say FELB / FELB-MU at each number of clients."""
    parts = []
    for place in places:
        felb, mu = (record.mean(metric, method, place) for method in (FELB, FELB_MU))
        if felb is not None and mu is not None:
            parts.append(f"{place:.0f} clients {felb:.3g} / {mu:.3g}")
    return "FELB / FELB-MU: " + ", ".join(parts)


def cheaper(record: StudyRecord, places: Sequence[float]) -> Claim:
    """Hold the time of post-hoc methods against that of FELB and FELB-MU."""
    pairs = [
        (place, rival, other, min(ours))
        for place in places
        for rival in rivals(record)
        if (other := record.mean("seconds_per_client", rival, place)) is not None
        and (ours := [x for m in (FELB, FELB_MU) if (x := record.mean("seconds_per_client", m, place)) is not None])
    ]
    won = [pair for pair in pairs if pair[2] < pair[3]]
    slow = sorted({pair[1] for pair in pairs if pair not in won})
    numbers = f"in {len(won)} of {len(pairs)} comparisons" + (f"; slower somewhere: {', '.join(slow)}" if slow else "")
    holds = None if not pairs else len(won) == len(pairs)
    return claim("Post-hoc methods take less time per client, as clients work only once", holds, numbers)
