"""Tables and pages of stored experiments; figures are drawn by `felb.report.study_figures`."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from felb.results.study import Claim, Interval, Metric, Place, StudyRecord

COLUMNS = (
    "experiment", "form", "panel", "method", "place", "figure", "mean", "low", "high", "trials", "published",
)  # fmt: skip
DASH = "–"
"""Stands where there is no figure: a cell failed, ran out of time, or was not run yet."""


@dataclass(frozen=True, slots=True)
class StudyTable:
    """One figure of one panel: a row for each method, a column for each place, cells as text."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def study_tables(record: StudyRecord) -> list[StudyTable]:
    """Return the tables of an experiment: mean ± half the 95% interval over the trials.

    The best mean of a column is marked with *. Where there are published figures, they follow after a slash. A figure
    of which no value is good, such as a cost, is left out where no cell has it.
    """
    tables = []
    for panel in record.view.panels:
        for metric in record.view.metrics:
            places, methods = record.places(panel), record.methods(panel)
            found = {
                (method, place): record.interval(metric.key, method, place, panel)
                for method in methods
                for place in places
            }
            published = record.view.published.get(metric.key, {})
            if not metric.better and not any(found.values()):
                continue
            best = {place: _best(metric, [found[method, place] for method in methods]) for place in places}
            rows = tuple(
                (
                    method,
                    *(
                        _cell(metric, found[method, place], best=best[place])
                        + (f" / {_value(metric, published[str(place)].get(method))}" if str(place) in published else "")
                        for place in places
                    ),
                )
                for method in methods
            )
            axis = record.view.axes.get(panel, record.view.axis)
            head = (axis, *(place_text(record, place) for place in places))
            tables.append(StudyTable(" · ".join(filter(None, (panel, metric.label))), head, rows))
    return tables + _only_published(record)


def _only_published(record: StudyRecord) -> list[StudyTable]:
    """Return the published figures of data that was not run."""
    tables = []
    run = {str(place) for panel in record.view.panels for place in record.places(panel)}
    for metric in record.view.metrics:
        others = {name: row for name, row in record.view.published.get(metric.key, {}).items() if name not in run}
        if others:
            methods = [method for method in record.view.methods if any(method in row for row in others.values())]
            rows = tuple((method, *(_value(metric, row.get(method)) for row in others.values())) for method in methods)
            head = (record.view.axis, *others)
            tables.append(StudyTable(f"published only, data not at hand · {metric.label}", head, rows))
    return tables


def place_text(record: StudyRecord, place: Place) -> str:
    """Write a place on the axis."""
    if isinstance(place, str):
        return place
    return f"{place:.0%}" if record.view.percent else f"{place:g}"


def _best(metric: Metric, intervals: Sequence[Interval | None]) -> float | None:
    means = [interval.mean for interval in intervals if interval is not None]
    if not metric.better or len(means) < 2:
        return None
    return max(means) if metric.better == "high" else min(means)


def _cell(metric: Metric, interval: Interval | None, *, best: float | None) -> str:
    if interval is None:
        return DASH
    spread = "" if math.isnan(interval.half) else f" ±{_value(metric, interval.half)}"
    return f"{_value(metric, interval.mean)}{spread}{'*' if best is not None and interval.mean == best else ''}"


def _value(metric: Metric, value: float | None) -> str:
    if value is None:
        return DASH
    if metric.log and 0 < abs(value) < 10:
        return f"{value:.2g}"
    return f"{value:.{metric.digits}f}"


def summary(record: StudyRecord) -> str:
    """Say in a line how many cells there are and how they ended."""
    parts = [f"{record.count('done')} of {len(record.planned)} cells done"]
    if failed := record.count("failed"):
        parts.append(f"{failed} failed")
    if late := record.count("timeout"):
        parts.append(f"{late} out of time")
    if record.missing:
        parts.append(f"{record.missing} not run yet")
    trials = record.trials
    spread = "mean ± half the 95% interval" if trials > 1 else "one trial, no interval"
    return f"{', '.join(parts)}; {trials} trial{'s' if trials > 1 else ''}, {spread}; * best; {DASH} no figure"


def failures(record: StudyRecord) -> list[str]:
    """Say what went wrong, each reason once, with the cells it hit."""
    reasons: dict[str, list[str]] = {}
    for cell in record.planned:
        stored = record.cells.get(cell.key)
        if stored is not None and stored.status != "done":
            place = " ".join(filter(None, (cell.method, cell.panel, place_text(record, cell.place))))
            reasons.setdefault(stored.message, []).append(place)
    return [f"{', '.join(dict.fromkeys(where))}: {message}" for message, where in reasons.items()]


def provenance_text(record: StudyRecord) -> str:
    """Say when, where and by what the cells were measured."""
    measured = [record.cells[cell.key].provenance for cell in record.planned if cell.key in record.cells]
    cells = measured or [record.provenance]
    dates = sorted(str(facts.get("date", ""))[:10] for facts in cells)
    versions = sorted({str(facts.get("felb")) for facts in cells})
    loads = sorted(load for facts in cells if (load := facts.get("load")) is not None)
    machine = record.provenance.get("machine", {})
    days = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    facts = f"{machine.get('cores')} cores, {machine.get('system')} {machine.get('processor')}"
    busy = f" (median load {loads[len(loads) // 2]:g}; times are of a clock)" if loads else ""
    software = f"Python {machine.get('python')}, NumPy {machine.get('numpy')}"
    return f"felb {', '.join(versions)}, {days}, {facts}{busy}, {software}"


def to_csv(record: StudyRecord) -> str:
    """Return one line for each panel, method, place and figure, with mean, interval and number of trials."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["experiment", "form", "panel", "method", "place", "figure", "mean", "low", "high", "trials", "published"]
    )
    for row in to_rows(record):
        writer.writerow(["" if value is None else value for value in row.values()])
    return out.getvalue()


def to_rows(record: StudyRecord) -> list[dict[str, Any]]:
    """Return the figures as plain data, those without any trial too."""
    rows = []
    for panel in record.view.panels:
        for method in record.methods(panel):
            for place in record.places(panel):
                for metric in record.view.metrics:
                    found = record.interval(metric.key, method, place, panel)
                    known = found is not None and not math.isnan(found.half)
                    rows.append(
                        {
                            "experiment": record.name,
                            "form": record.form,
                            "panel": panel,
                            "method": method,
                            "place": place,
                            "figure": metric.key,
                            "mean": None if found is None else found.mean,
                            "low": found.low if found is not None and known else None,
                            "high": found.high if found is not None and known else None,
                            "trials": 0 if found is None else found.n,
                            "published": record.view.published.get(metric.key, {}).get(str(place), {}).get(method),
                        }
                    )
    return rows


def to_markdown(record: StudyRecord, claims: Sequence[Claim], *, figure: str | None = None, level: int = 1) -> str:
    """Return a page: question, figure, claims, tables, provenance."""
    mark = "#" * level
    lines = [f"{mark} {record.title}", "", record.question, "", _escaped(record.view.note), ""]
    if figure is not None:
        lines += [f"![{record.title}]({figure})", ""]
    lines += [
        f"{mark}# What the paper says",
        "",
        *_claims_markdown(claims),
        f"{mark}# Figures",
        "",
        f"{_escaped(summary(record))}.",
        "",
    ]
    for table in study_tables(record):
        lines += [f"**{_escaped(table.title)}**", "", *_table_markdown(table), ""]
    if wrong := failures(record):
        lines += [f"{mark}# Cells without figures", "", *(f"- {_escaped(reason)}" for reason in wrong), ""]
    command = f"felb experiment run {record.name}{' --quick' if record.form == 'quick' else ''}"
    lines += [f"{mark}# Made by", "", f"`{command}`, {record.form} form; {provenance_text(record)}.", ""]
    return "\n".join(lines)


def index_markdown(entries: Sequence[tuple[StudyRecord, Sequence[Claim], str]]) -> str:
    """Return the page that lists experiments, from their records, claims and pages."""
    lines = ["# Experiments", "", "The experiments of the paper, as `felb experiment run` measures them.", ""]
    lines += ["| experiment | form | cells | claims reproduced | not | undecided |", "|---|---|---|---|---|---|"]
    for record, claims, page in entries:
        verdicts = [claim.verdict for claim in claims]
        counts = " | ".join(str(verdicts.count(word)) for word in ("reproduced", "not reproduced", "undecided"))
        cells = f"{record.count('done')} of {len(record.planned)}"
        lines.append(f"| [{record.title}]({page}) | {record.form} | {cells} | {counts} |")
    if any(record.form == "quick" for record, _, _ in entries):
        lines += ["", "Quick forms use smaller data and few trials: they show trends, and their intervals are wide."]
    lines.append("")
    if entries:
        lines += [f"{provenance_text(entries[0][0])}.", ""]
    return "\n".join(lines)


def _claims_markdown(claims: Sequence[Claim]) -> list[str]:
    if not claims:
        return ["Nothing to compare.", ""]
    rows = [f"| {_escaped(claim.says)} | {_verdict(claim.verdict)} | {_escaped(claim.numbers)} |" for claim in claims]
    return ["| claim | | measured |", "|---|---|---|", *rows, ""]


def _verdict(verdict: str) -> str:
    return f"**{verdict}**" if verdict == "not reproduced" else verdict


def _table_markdown(table: StudyTable) -> list[str]:
    head = "| " + " | ".join(_escaped(text) for text in table.head) + " |"
    rule = "|---|" + "---:|" * (len(table.head) - 1)
    return [head, rule, *("| " + " | ".join(_escaped(text) for text in row) + " |" for row in table.rows)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
