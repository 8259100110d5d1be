"""The report of a stored result as one HTML page, section by section."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.rules import rounds_by_phase
from felb.report import parts
from felb.report.evidence import BLOCK, bootstrap, cell_intervals, jaccard
from felb.report.figures import PALETTES, curves, data_uri, enlarged, pictures_of
from felb.report.parts import Cell, Column, Headline, Html, Page, counted, number, percent, section, significant, tag
from felb.runs.result import records_in_words, remarks
from felb.tables.schema import grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.metrics import Counts
    from felb.report.evidence import Evidence, Interval, Measured
    from felb.report.figures import Pictures
    from felb.report.parts import Section
    from felb.runs.result import Component


# -- Data, reconstruction and residual, side by side -----------------------------------------------------------------


def pictures_section(evidence: Evidence) -> Section:
    """Data, reconstruction and residual side by side."""
    title = "Data and reconstruction"
    measured = evidence.measured
    if measured is None:
        told = f"{evidence.absent} With --data FILE the report shows data, reconstruction and residual."
        return section(title, parts.note(told))
    if 0 in measured.matrix.shape or not len(measured.V):
        return section(title, parts.note("There is nothing to draw: the data or the result is empty."))
    drawn, unknown = pictures_of(measured), 0 if measured.matrix.unknown is None else measured.matrix.unknown.nnz
    tp, fp, fn = (number(count) for count in (measured.counts.tp, measured.counts.fp, measured.counts.fn))
    return section(
        title,
        parts.legend(
            {
                "one": "ink",
                "zero": "paper",
                "explained one": "kept",
                "missed one": "missed",
                "false one": "wrong",
            }
        ),
        parts.grid(
            _picture(drawn.data, f"Data: {number(measured.matrix.nnz)} ones"),
            _picture(drawn.reconstruction, f"Reconstruction: {tp} ones that are in the data, {fp} false ones"),
            _picture(drawn.residual, f"Residual: {fn} missed ones, {fp} false ones"),
            narrow=True,
        ),
        parts.paragraph(_picture_note(drawn, unknown), fine=True),
    )


def _picture(codes: NDArray[np.uint8], caption: str) -> Html:
    pixels = enlarged(codes)
    high, wide = pixels.shape
    images = (
        tag("img", src=Html(data_uri(pixels, colours)), alt=caption, width=wide, height=high, class_=f"on-{theme}")
        for theme, colours in PALETTES.items()
    )
    return parts.figure(images, caption=caption)


def _picture_note(drawn: Pictures, unknown: int) -> str:
    told = (
        "Rows are records and columns are features. Both are ordered by their components, beginning with the component "
        "that covers most cells; records and features without a component are at the end."
    )
    if unknown:
        told += f" The data has {counted(unknown, 'unknown cell')}; unknown cells are left blank in data and residual."
    if not drawn.chosen:
        return told
    shown = [
        f"{number(some)} of {number(all_)} {what}" if some < all_ else f"all {what}"
        for some, all_, what in zip(drawn.data.shape, drawn.shape, ("records", "features"), strict=True)
    ]
    return (
        f"{told} The picture shows {' and '.join(shown)}, selected evenly in this order. At most a quarter of them "
        "have no component, unless there are too few others."
    )


# -- The components of a result: their names, their overlap, and their clients ---------------------------------------

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
    found = evidence.result.described(evidence.supports)
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


# -- Labels of records beside components: a heat map, and which labels are enriched ----------------------------------

LEVEL = 0.05
"""False discovery rate."""
MOST_ROWS = 60


def labels_section(evidence: Evidence) -> Section | None:
    """Return how the labels of records go with components."""
    found = evidence.enrichment
    if found is None:
        return None
    order = [component.number for component in described(evidence)][:MOST_IN_A_MAP]
    shown = np.argsort(-found.totals, kind="stable")[:MOST_IN_A_MAP]
    shares: list[list[float | None]] = [
        [float(found.joint[c, g] / found.supports[c]) if found.supports[c] else None for g in shown] for c in order
    ]
    heat = parts.heat_table(
        shares,
        rows=[str(c) for c in order],
        columns=[found.labels[g] for g in shown],
        caption="Share of the records of a component (row) that have each label (column), in percent",
    )
    table = found.columns()
    rows = [
        (
            Cell(table["component"][i], order=table["component"][i]),
            table["label"][i],
            Cell(number(table["records"][i]), order=table["records"][i]),
            Cell(percent(table["share"][i]), order=table["share"][i]),
            Cell(number(table["log2_odds"][i], 1), order=table["log2_odds"][i]),
            Cell(significant(table["q"][i], 2), order=table["q"][i]),
        )
        for i in range(len(table["q"]))
        if table["q"][i] <= LEVEL and table["log2_odds"][i] > 0
    ]
    if not rows:
        return section("Labels", heat, parts.note("No label is enriched at a false discovery rate of 5%."))
    columns = [Column("No."), Column("Label", "words"), Column("Records"), Column("Share")]
    columns += [Column("log₂ odds"), Column("q", hint="p-value of Fisher's exact test, adjusted for all tests")]
    caption = "Enriched labels at a false discovery rate of 5% (Fisher's exact test, Benjamini–Hochberg)"
    if len(rows) > MOST_ROWS:
        caption += f"; the first {MOST_ROWS} of {len(rows)} are shown"
    return section("Labels", heat, parts.table(columns, rows[:MOST_ROWS], caption=caption, sortable=True))


# -- The privacy guarantee of a result and its outbound logs ---------------------------------------------------------

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


SCORES = {
    "f1": ("F1", 3, "harmonic mean of precision and recall; 1 is best"),
    "precision": ("Precision", 3, "share of the reconstructed ones that are in the data"),
    "recall": ("Recall", 3, "share of the ones in the data that are reconstructed"),
    "coverage": ("Coverage", 3, "1 − wrong cells / ones in the data"),
    "rmsd": ("RMSD", 3, "square root of the share of wrong cells; 0 is best"),
    "errors": ("Wrong cells", 0, "number of missed ones and false ones"),
}
"""Name, digits and meaning of the scores that are shown."""


def result_page(evidence: Evidence) -> Page:
    """Make the page of a result.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> result_page(gather("zoo-run")).write("zoo.html") > 10_000
    True
    """
    result = evidence.result
    data, k = result.provenance.data, result.components.shape[0]
    sections = [
        scores_section(evidence),
        components_section(evidence),
        labels_section(evidence),
        pictures_section(evidence),
        overlap_section(evidence),
        clients_section(evidence),
        rounds_section(evidence),
        privacy_section(evidence),
        run_section(evidence),
    ]
    lead = (
        f"Sets of features that occur together, found by {result.provenance.method} in "
        f"{_records(evidence)} with {counted(result.components.shape[1], 'feature')}"
        f"{_where(result.clients)}. A record has a feature if one of its components has it."
    )
    return Page(
        f"{counted(k, 'component')} of {data.get('source') or 'unnamed data'}",
        [part for part in sections if part is not None],
        kicker="Result of a Boolean matrix factorization",
        lead=tag("p", lead),
    )


def _records(evidence: Evidence) -> str:
    known = evidence.n_records
    return records_in_words(evidence.result) if known is None else counted(known, "record")


def _where(clients: Mapping[str, int | None]) -> str:
    return f" at {len(clients)} clients" if len(clients) > 1 else ""


# -- scores ------------------------------------------------------------------------------------------------------------


def scores_with_intervals(evidence: Evidence) -> tuple[dict[str, float], dict[str, Interval], str]:
    """Return the scores, their intervals, and how both were come by."""
    measured = evidence.measured
    if measured is not None:
        intervals, resamples = bootstrap(measured.rows)
        how = (
            f"The brackets contain 95% bootstrap intervals over records ({number(resamples)} resamples). They show how "
            "much the scores of these components vary over other records of the same population. They do not show how "
            "much the components themselves vary; the command felb stability measures that."
        )
        return measured.counts.scores(), intervals, f"{_measured_on(measured)} {how}"
    counts = evidence.result.counts
    if counts is None:
        return (
            dict(evidence.result.scores),
            {},
            "There are no intervals, because the result does not contain the counts that they need.",
        )
    how = (
        "The brackets contain 95% Wilson intervals from the summed counts of all clients. They treat matrix cells as "
        "independent. The cells of one record are not, so the intervals are too narrow. With --data FILE, the report "
        "contains bootstrap intervals over records instead."
    )
    return dict(evidence.result.scores), cell_intervals(counts), how


def _measured_on(measured: Measured) -> str:
    if measured.same:
        agreed = "the stored assignments" if measured.stored else "new assignments, because none are stored for it"
        return f"Computed on the data of the run, with {agreed}."
    if measured.same is None:
        return f"Computed on {measured.source}; the result has no fingerprint of the data of the run to compare with."
    rows = number(len(measured.matrix))
    return f"Computed on {measured.source} ({rows} records), which is not the data of the run."


def scores_section(evidence: Evidence) -> Section:
    """Scores in large digits, with explanations."""
    scores, intervals, how = scores_with_intervals(evidence)
    if not scores:
        told = (
            "Scores are not part of what this run releases. The owner of the data can compute them with "
            "felb report RESULT --data FILE."
        )
        return section("Scores", *map(parts.note, remarks(evidence.result)), parts.note(told))
    shown = [
        Headline(name, number(scores[key], digits), _between(intervals.get(key), digits), meaning)
        for key, (name, digits, meaning) in SCORES.items()
        if scores.get(key) is not None
    ]
    warning = (
        parts.note(
            "This run was private. The scores, supports and pictures on this page are exact and not covered by its "
            "guarantee: protect the page like the data.",
            kind="important",
        )
        if evidence.private
        else None
    )
    incomplete = (
        None
        if evidence.result.complete
        else parts.note("A time limit ended the search; the page shows the best result until then.", kind="important")
    )
    notes = [parts.note(remark, kind="important") for remark in remarks(evidence.result)]
    return section("Scores", warning, incomplete, *notes, parts.headlines(shown), parts.paragraph(how, fine=True))


def _between(interval: Interval | None, digits: int) -> str | None:
    return None if interval is None else f"[{number(interval[0], digits)}, {number(interval[1], digits)}]"


# -- rounds and provenance ---------------------------------------------------------------------------------------------


def rounds_section(evidence: Evidence) -> Section:
    """Curves of what was kept of every round."""
    history = evidence.result.history
    if not len(history):
        return section("Rounds", parts.note("This method keeps no record of its steps."))
    phases = rounds_by_phase(evidence.result.rounds())
    told = ", ".join(f"{phase} {number(times)}" for phase, times in phases.items())
    drawn = curves(history)
    converged = "The search converged." if evidence.result.converged else "The search ended before it converged."
    return section(
        "Rounds",
        tag("p", f"{counted(len(history), 'round')}: {told}. {converged}"),
        parts.grid(*drawn, narrow=True)
        if drawn
        else parts.note("No value was recorded in more than one round, so there is no curve to draw."),
    )


def run_section(evidence: Evidence) -> Section:
    """What was run, on what, by which version, on which machine."""
    made, result = evidence.result.provenance, evidence.result
    data, seconds = made.data, evidence.seconds()
    machine = made.machine
    facts = {
        "Method": made.method,
        "Seed": made.seed,
        "Components": number(len(result.components)),
        "Boolean": "yes" if result.integrality_gap == 0 else f"up to a gap of {significant(result.integrality_gap)}",
        "Data": f"{data.get('source')}: {records_in_words(result)} × {counted(data.get('columns'), 'feature')}",
        **({"Unknown cells": number(data["unknown"])} if data.get("unknown") else {}),
        "Clients": number(len(result.clients)) if len(result.clients) > 1 else next(iter(result.clients), "none"),
        "Duration": "not recorded" if seconds is None else f"{significant(seconds)} s from first to last message",
        "felb": made.felb,
        "Machine": f"{machine.get('system')}, {machine.get('processor')}, {machine.get('cores')} cores",
        "Python, NumPy": f"{machine.get('python')}, {machine.get('numpy')}",
        **({"Folder": evidence.folder.name or str(evidence.folder)} if evidence.folder.is_dir() else {}),
    }
    parameters = {name: parts.code(_value(value)) for name, value in sorted(made.parameters.items())}
    return section("Run", parts.facts(facts), parts.details("All parameters", parts.facts(parameters)))


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_value(item)}" for name, item in value.items()) or "none"
    return "none" if value is None else str(value)
