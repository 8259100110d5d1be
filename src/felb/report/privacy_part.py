"""The privacy guarantee of a result and its outbound logs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from felb.report import parts
from felb.report.page import Html, section, tag
from felb.report.parts import Cell, Column, counted, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from felb.report.evidence import Evidence
    from felb.report.page import Section

NOT_PRIVATE = (
    "This run was not differentially private, and no noise was added. Rows stayed at their clients, but sums, "
    "components and counts are computed from them and may reveal records with rare features. If the records are "
    "personal data, treat this page as derived from personal data."
)
CENTRALIZED = "All records were at one place, and nothing was sent."
UNFOLDED = 12
"""Kinds of arrays that are shown at once."""

UNKNOWN = "The outbound logs are not stored with this result; every client keeps its own."


def privacy_section(evidence: Evidence) -> Section:
    """Tell the guarantee, or that there is none, and sum up the logs."""
    content: list[Any] = []
    if evidence.statement is not None:
        content.append(tag("pre", evidence.statement))
    elif evidence.private:
        agreed = evidence.result.provenance.parameters["privacy"]
        told = {str(name): value for name, value in agreed.items()} if isinstance(agreed, Mapping) else {"": agreed}
        content += [
            parts.note("This run was private. Its privacy specification was:", kind="important"),
            parts.facts(told),
        ]
    else:
        content.append(parts.note(NOT_PRIVATE, kind="important"))
    content.append(_left(evidence))
    return section("Privacy", *content)


def _left(evidence: Evidence) -> Html:
    if not evidence.outbound:
        return parts.paragraph(
            CENTRALIZED if set(evidence.result.clients) in ({"centralized"}, {"pooled"}) else UNKNOWN  # the former name
        )
    kinds = summed(evidence.outbound)
    clients = {str(line.get("client")) for line in evidence.outbound}
    size = sum(kind["bytes"] for kind in kinds)
    unprotected = sum(kind["arrays"] for kind in kinds if kind["mechanism"] == "none")
    arrays = sum(kind["arrays"] for kind in kinds)
    told = (
        f"According to the outbound logs, {number(arrays)} arrays of {_size(size)} in total left "
        f"{counted(len(clients), 'client')}; "
    )
    told += "none had noise." if unprotected == arrays else f"{number(unprotected)} of them had no noise."
    words, numbers = ("Task", "Array", "Type", "Mechanism"), ("Largest shape", "Rounds", "Arrays", "Bytes")
    columns = [*(Column(name, "words") for name in words), *(Column(name) for name in numbers)]
    rows = [
        (
            kind["task"],
            kind["what"],
            kind["dtype"],
            "none" if kind["mechanism"] == "none" else f"{kind['mechanism']}{kind['total']}",
            Cell(" × ".join(map(number, kind["largest"])) or "1", order=math.prod(kind["largest"])),
            *(Cell(number(kind[name]), order=kind[name]) for name in ("rounds", "arrays", "bytes")),
        )
        for kind in kinds
    ]
    caption = "Arrays that left the clients, summed over rounds and clients"
    table = parts.table(columns, rows, caption=caption, sortable=True)
    folded = table if len(kinds) <= UNFOLDED else parts.details(f"All {number(len(kinds))} kinds", table)
    return Html(parts.paragraph(told) + folded)


def summed(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put lines together that differ in client, round and shape only, in the order in which each kind first left."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        key = tuple(str(line.get(name, "")) for name in ("task", "what", "dtype", "mechanism"))
        groups.setdefault(key, []).append(line)
    return [
        {
            "task": task,
            "what": what,
            "largest": max((_shape(line.get("shape")) for line in same), key=math.prod),
            "dtype": dtype,
            "mechanism": mechanism,
            "rounds": len({line.get("round") for line in same}),
            "arrays": len(same),
            "bytes": sum(int(line.get("bytes") or 0) for line in same),
            "total": _total(same),
        }
        for (task, what, dtype, mechanism), same in groups.items()
    ]


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(int(side) for side in shape) if isinstance(shape, list) else ()


def _total(lines: list[Mapping[str, Any]]) -> str:
    """Return the largest running total of a client after these lines, if accountants were kept."""
    spent = [line["total"].get("epsilon") for line in lines if isinstance(line.get("total"), Mapping)]
    known = [float(epsilon) for epsilon in spent if epsilon is not None]
    return f", total ε up to {max(known):.3g}" if known else ""


def _size(n: int) -> str:
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= one:
            return f"{n / one:.3g} {unit}"
    return f"{n} bytes"
