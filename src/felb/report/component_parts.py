"""The components of a result: their names, their overlap, and their clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.schema_words import grouped
from felb.report import parts
from felb.report.measures import BLOCK, jaccard
from felb.report.page import Html, section, tag
from felb.report.parts import Cell, Column, counted, number, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.metrics import Counts
    from felb.report.evidence import Evidence, Measured
    from felb.report.page import Section
    from felb.runs.result import Component

SHOWN_FEATURES = 12
"""Of a component; the others are shown on demand."""

MOST_IN_A_MAP = 40
"""Rows or columns of a heat map at most; the tables as CSV have all."""

HALF_A_PAGE = 20
"""Columns of a heat map for which half the width of a page is enough."""

ALIKE = 5
"""Pairs of components that are shown with what they share."""

CLIENT_SCORES = {"f1": "F1", "precision": "Precision", "recall": "Recall"}


def described(evidence: Evidence) -> list[Component]:
    """Return the components by name, with supports, most supported first; features by lift where there is data."""
    found = replace(evidence.result, supports=evidence.supports).described()
    if evidence.measured is None:
        return found
    names, profile = evidence.feature_names, evidence.measured.profile
    return [replace(c, features=tuple(names[j] for j in profile.order(c.number).tolist())) for c in found]


def purity(measured: Measured) -> NDArray[np.float64]:
    """Return of each component the share of ones among the cells of its records and features; NaN for empty tiles."""
    ones, cells = _in_tiles(measured.matrix, measured), np.sum(measured.U, axis=0) * np.sum(measured.V, axis=1)
    if measured.matrix.unknown is not None:
        cells = cells - _in_tiles(measured.matrix.unknown, measured)
    found: NDArray[np.float64] = np.divide(ones, cells, out=np.full(len(cells), np.nan), where=cells > 0)
    return found


def _in_tiles(matrix: BinaryMatrix, measured: Measured) -> NDArray[np.float64]:
    """Return how many ones of a matrix lie in the tile of each component."""
    ones = np.zeros(len(measured.V))
    for start in range(0, len(matrix), BLOCK):
        rows = matrix.rows(start, min(start + BLOCK, len(matrix)))
        hits = rows.to_scipy(np.float32) @ measured.V.T.astype(np.float32)
        ones += (hits * measured.U[start : start + len(rows)]).sum(axis=0, dtype=np.float64)
    return ones


def components_section(evidence: Evidence) -> Section:
    """Every component by the names of its features."""
    found, n = described(evidence), evidence.n_records
    pure = None if evidence.measured is None else purity(evidence.measured)
    with_support = any(component.support is not None for component in found)
    columns = [Column("No.", hint="Number of the component in the result"), Column("Features", "words")]
    columns += (
        [Column("Records", hint="Number of records that have the component"), Column("Share")] if with_support else []
    )
    columns += [Column("Size", hint="Number of features of the component")]
    columns += (
        [Column("Filled", hint="Share of ones among the matrix cells of its records and features")]
        if pure is not None
        else []
    )
    stable = evidence.stability
    columns += (
        [Column("Found", hint="Share of refits on resampled records that find the component again")]
        if stable is not None
        else []
    )
    rows = []
    for component in found:
        support, size = component.support, len(component.features)
        share = None if support is None or not n else support / n
        row: list[Any] = [Cell(component.number, order=component.number)]
        schema = evidence.result.schema
        named = component.features if schema is None else grouped(schema, component.features)
        row += [Cell(_features(named), order=" ".join(component.features[:SHOWN_FEATURES]))]
        if with_support:
            row += [Cell(number(support), order=support), Cell(percent(share), order=share, bar=share)]
        row += [Cell(number(size), order=size)]
        if pure is not None:
            filled = float(pure[component.number])
            row += [Cell(parts.DASH) if np.isnan(filled) else Cell(percent(filled), order=f"{filled:.4f}")]
        if stable is not None:
            found_in = float(stable.found[component.number])
            row += [Cell(percent(found_in), order=found_in, bar=found_in)]
        rows.append(row)
    unnamed = None
    if evidence.result.columns is None:
        unnamed = parts.note("The data has no feature names; x0 is the first column, x1 the second, and so on.")
    withheld = None
    if evidence.result.withheld:
        numbers = ", ".join(map(str, evidence.result.withheld))
        withheld = parts.note(
            f"Withheld by the disclosure rules, because too few records have them: components {numbers}."
        )
    warned = [parts.note(f"Warning: {sentence}.") for sentence in evidence.result.conflicts()]
    return section(
        "Components",
        unnamed,
        withheld,
        *warned,
        parts.table(columns, rows, caption=_caption(evidence, pure), sortable=True, search="Find a feature"),
    )


def _caption(evidence: Evidence, pure: Any) -> str:
    told = ["Components, ordered by the number of their records"]
    if all(support is None for support in evidence.supports):
        told = ["Components; how many records have each is not part of what this run releases"]
    if pure is not None:
        told.append("filled: share of ones among the matrix cells of its records and features")
        told.append("features are ordered by lift, their frequency in these records relative to the others")
    if evidence.stability is not None:
        times = evidence.stability.n_resamples
        told.append(f"found: share of {counted(times, 'refit')} on resampled records that find the component again")
    return "; ".join(told)


def _features(features: Sequence[str]) -> Html:
    if not features:
        return tag("span", "none, the component is empty", class_="fine")
    first, others = features[:SHOWN_FEATURES], features[SHOWN_FEATURES:]
    if not others:
        return parts.names(first)
    return tag("div", parts.names(first), parts.details(f"{number(len(others))} more", parts.names(others)))


def overlap(evidence: Evidence) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return Jaccard's coefficient of every two components over features, and over records where these are known."""
    return jaccard(evidence.result.components.T), None if evidence.members is None else jaccard(evidence.members)


def overlap_section(evidence: Evidence) -> Section | None:
    """How much every two components share."""
    order = [component.number for component in described(evidence)]
    if len(order) < 2:
        return None
    features, records = overlap(evidence)
    shown = order[:MOST_IN_A_MAP]
    cells: list[list[float | None]] = [
        [_overlap_cell(features, records, (i, j), (a, b)) for j, b in enumerate(shown)] for i, a in enumerate(shown)
    ]
    words = [str(component) for component in shown]
    told = "Below the diagonal: features that two components share; "
    told += (
        "above it: records that they share"
        if records is not None
        else "records are not shown, as no assignments are stored"
    )
    told += ". Values are Jaccard indices in percent. Components are in the order of the table above."
    if len(shown) < len(order):
        told += f" The first {len(shown)} of {len(order)} are shown; --csv DIR writes all."
    heat = parts.heat_table(cells, rows=words, columns=words, caption=told)
    return section("Overlap", _beside(heat, _most_alike(evidence, features, order), columns=len(shown)))


def _overlap_cell(
    features: NDArray[np.float64], records: NDArray[np.float64] | None, place: tuple[int, int], pair: tuple[int, int]
) -> float | None:
    if place[0] == place[1]:
        return None
    if place[0] > place[1]:
        return float(features[pair])
    return None if records is None else float(records[pair])


def _beside(heat: Html, other: Html, *, columns: int) -> Html:
    """Put something beside a heat map, or below it if that is wide."""
    return parts.grid(heat, other) if columns <= HALF_A_PAGE else Html(heat + other)


def _most_alike(evidence: Evidence, features: NDArray[np.float64], order: Sequence[int]) -> Html:
    """Return the pairs that share the largest part of their features, and which."""
    V = evidence.result.components
    names = evidence.feature_names
    pairs = [(float(features[a, b]), a, b) for i, a in enumerate(order) for b in order[i + 1 :] if features[a, b] > 0]
    if not pairs:
        return parts.note("No two components share a feature.")
    pairs.sort(key=lambda pair: -pair[0])
    rows = [
        (f"{a} and {b}", _features([names[j] for j in np.flatnonzero(V[a] & V[b])]), percent(share))
        for share, a, b in pairs[:ALIKE]
    ]
    columns = [Column("Components", "words"), Column("Shared features", "words"), Column("Share")]
    return parts.table(columns, rows, caption="Pairs of components with the largest share of common features")


def clients_section(evidence: Evidence) -> Section | None:
    """Where components occur, and how well each client is described."""
    result = evidence.result
    if len(result.clients) < 2:
        return None
    members = evidence.assignments
    if members is None:
        kept = "Which records have which component is known to the clients alone."
        return section(
            "Clients",
            parts.note(kept),
            parts.details(counted(len(result.clients), "client"), parts.names(result.clients)),
        )
    order = [component.number for component in described(evidence)][:MOST_IN_A_MAP]
    names = list(members)[:MOST_IN_A_MAP]
    shares = [[float(members[name][:, c].mean()) if len(members[name]) else 0.0 for c in order] for name in names]
    caption = "Share of the records of a client that have each component, in percent; columns are components"
    if len(names) < len(members):
        caption += f"; the first {len(names)} of {len(members)} clients are shown, --csv DIR writes all"
    heat = parts.heat_table(shares, rows=names, columns=[str(c) for c in order], caption=caption)
    counts = {} if evidence.measured is None else evidence.measured.counts_of_clients()
    return section("Clients", _beside(heat, _client_scores(evidence, counts), columns=len(order) + 3))


def _client_scores(evidence: Evidence, counts: Mapping[str, Counts]) -> Html:
    columns = [Column("Client", "words")]  # how many records a client has stays with it
    columns += [Column(name) for name in CLIENT_SCORES.values()] if counts else []
    caption = "Scores on the records of each client" if counts else "Clients"
    rows = []
    for name in evidence.result.clients:
        row: list[Any] = [Cell(name, order=name)]
        if counts:
            scores = counts[name].scores()
            row += [Cell(number(scores[key], 3), order=f"{scores[key]:.6f}") for key in CLIENT_SCORES]
        rows.append(row)
    return parts.table(columns, rows, caption=caption, sortable=True)
