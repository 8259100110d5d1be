"""Tables and pages of stored experiments."""

from __future__ import annotations

import base64
import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.report.pages import Column, Page, Section, fill, make_table
from felb.report.tables import MarkedTable, TableCell, escape_markdown, mark_best
from felb_paper.study import CLAIMS, StudyRecord, read_claims

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from markupsafe import Markup

    from felb.metrics.comparison import Interval
    from felb.report.tables import Mark
    from felb_paper.study import Claim, Metric, Place


# -- Tables and pages of stored experiments; figures are drawn by `felb_paper.figures` -------------------------------

COLUMNS = (
    "experiment", "form", "panel", "method", "place", "figure", "mean", "low", "high", "trials", "published",
)  # fmt: skip
DASH = "–"
"""Stands where there is no figure: a cell failed, ran out of time, or was not run yet."""


OUT_OF_TIME, FAILED = "out of time", "failed"
"""Stand where all trials ended in this way."""


def study_tables(record: StudyRecord) -> list[MarkedTable]:
    """Return the tables of an experiment: mean ± half the 95% interval over the trials.

    The best and the second best mean of a column are marked. Where there are published figures of the same data, they
    follow after a slash. A figure of which no value is good, such as a cost, is left out where no cell has it. Where
    the view ranks methods, a table of their ranks follows.
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
            published = {place: record.published(metric.key, place) for place in places}
            if not metric.better and not any(found.values()):
                continue
            top = {place: _marks(metric, {method: found[method, place] for method in methods}) for place in places}
            rows = tuple(
                (
                    method,
                    tuple(
                        TableCell(
                            _cell(record, metric, method, place, panel),
                            top[place][method],
                            _value(metric, published[place].get(method)) if published[place] else None,
                        )
                        for place in places
                    ),
                )
                for method in methods
            )
            axis = record.view.axes.get(panel, record.view.axis)
            head = (axis, *(place_text(record, place) for place in places))
            title = " · ".join(filter(None, (panel, metric.label)))
            tables.append(MarkedTable(title, head, rows))
            tables += _rank_tables(record, metric, panel, head=head, title=title)
    return tables + _only_published(record)


def _rank_tables(
    record: StudyRecord, metric: Metric, panel: str, *, head: tuple[str, ...], title: str
) -> list[MarkedTable]:
    """Return the ranks of the methods that the view ranks, with their average over the places; or nothing."""
    ranks = {place: found for place in record.places(panel) if (found := record.ranks(metric, place, panel))}
    if metric.log or not metric.better or not ranks:
        return []
    methods = [method for method in record.methods(panel) if method in record.view.ranked]
    averages = {method: sum(found[method] for found in ranks.values()) / len(ranks) for method in methods}
    best = dict(zip(methods, mark_best(list(averages.values()), better="low"), strict=True))
    rows = tuple(
        (
            method,
            (
                *(TableCell(str(ranks[place][method]) if place in ranks else DASH) for place in record.places(panel)),
                TableCell(f"{averages[method]:.2f}", best[method]),
            ),
        )
        for method in methods
    )
    return [MarkedTable(f"{title} · rank among {len(methods)}", (*head, "average"), rows)]


def _only_published(record: StudyRecord) -> list[MarkedTable]:
    """Return the published figures of data that was not run, or in another shape."""
    tables = []
    run = {str(place): place for panel in record.view.panels for place in record.places(panel)}
    for metric in record.view.metrics:
        others = {
            name: row
            for name, row in record.view.published.get(metric.key, {}).items()
            if name not in run or not record.published(metric.key, run[name])
        }
        if others:
            methods = [method for method in record.view.methods if any(method in row for row in others.values())]
            rows = tuple(
                (method, tuple(TableCell(_value(metric, row.get(method))) for row in others.values()))
                for method in methods
            )
            head = (record.view.axis, *others)
            title = f"published only, data of that shape not at hand · {metric.label}"
            tables.append(MarkedTable(title, head, rows))
    return tables


def place_text(record: StudyRecord, place: Place) -> str:
    """Write a place on the axis."""
    if isinstance(place, str):
        return place
    return f"{place:.0%}" if record.view.percent else f"{place:g}"


def _marks(metric: Metric, intervals: Mapping[str, Interval | None]) -> dict[str, Mark]:
    """Return the mark of each method at a place."""
    means = [None if interval is None else interval.mean for interval in intervals.values()]
    return dict(zip(intervals, mark_best(means, better=metric.better), strict=True))


def _cell(record: StudyRecord, metric: Metric, method: str, place: Place, panel: str) -> str:
    interval, ended = record.interval(metric.key, method, place, panel), record.statuses(method, place, panel)
    if interval is None:
        return OUT_OF_TIME if "timeout" in ended else FAILED if "failed" in ended else DASH
    spread = "" if math.isnan(interval.half) else f" ±{_value(metric, interval.half)}"
    some = f" ({interval.n} of {len(ended)})" if {"timeout", "failed"} & set(ended) else ""
    return f"{_value(metric, interval.mean)}{spread}{some}"


def _value(metric: Metric, value: float | None) -> str:
    if value is None:
        return DASH
    if metric.log and 0 < abs(value) < 10:
        return f"{value:.2g}"
    return f"{value:.{metric.digits}f}"


def summary(record: StudyRecord, *, marks: str = "* best") -> str:
    """Say in a line how many cells there are and how they ended, and what marks mean."""
    parts = [f"{record.count('done')} of {len(record.planned)} runs done"]
    if failed := record.count("failed"):
        parts.append(f"{failed} failed")
    if late := record.count("timeout"):
        parts.append(f"{late} out of time")
    if record.missing:
        parts.append(f"{record.missing} not run yet")
    several = f"{record.trials} trials, mean ± half the 95% interval"
    trials = several if record.trials > 1 else "one trial, so no interval"
    return f"{', '.join(parts)}; {trials}; {marks}; {DASH} no value"


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
    return _csv_text(COLUMNS, (row.values() for row in to_rows(record)))


def runs_to_csv(record: StudyRecord) -> str:
    """Return one line for each planned run: how it ended, and the figures that the tables show."""
    keys = [metric.key for metric in record.view.metrics]
    rows = []
    for planned in record.planned:
        found = record.cells.get(planned.key)
        ended = ("not run", None) if found is None else (found.status, found.provenance.get("date"))
        figures = [None if found is None else found.figures.get(key) for key in keys]
        rows.append([planned.panel, planned.method, planned.place, planned.trial, *ended, *figures])
    return _csv_text(("panel", "method", "place", "trial", "status", "date", *keys), rows)


def _csv_text(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
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
                            "published": record.published(metric.key, place).get(method),
                        }
                    )
    return rows


def to_markdown(
    record: StudyRecord,
    claims: Sequence[Claim],
    *,
    figure: str | None = None,
    runs: str | None = None,
    level: int = 1,
) -> str:
    """Return a page: question, figure, claims, tables, provenance; `figure` and `runs` are files to link to."""
    mark = "#" * level
    lines = [f"{mark} {record.title}", "", record.question, "", escape_markdown(record.view.note), ""]
    if figure is not None:
        lines += [f"![{record.title}]({figure})", ""]
    lines += [
        f"{mark}# Claims",
        "",
        *_claims_markdown(claims),
        f"{mark}# Figures",
        "",
        f"{escape_markdown(summary(record, marks='bold: best, underlined: second best'))}.",
        "",
    ]
    for table in study_tables(record):
        lines += [f"**{escape_markdown(table.title)}**", "", *table.markdown(), ""]
    if wrong := failures(record):
        lines += [f"{mark}# Runs without values", "", *(f"- {escape_markdown(reason)}" for reason in wrong), ""]
    command = f"felb experiment run {record.name}{' --quick' if record.form == 'quick' else ''}"
    if record.settings.get("data"):
        command += " --data FOLDER"
    lines += [f"{mark}# Made by", "", f"`{command}`, {record.form} form; {provenance_text(record)}.", ""]
    if runs is not None:
        lines += [f"[{runs}]({runs}) lists all runs.", ""]
    return "\n".join(lines)


def index_markdown(entries: Sequence[tuple[StudyRecord, Sequence[Claim], str]]) -> str:
    """Return the page that lists experiments, from their records, claims and pages."""
    lines = ["# Experiments", "", "The experiments of the paper, as `felb experiment run` measures them.", ""]
    lines += ["| experiment | form | runs | claims reproduced | not | undecided |", "|---|---|---|---|---|---|"]
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
    rows = [
        f"| {escape_markdown(claim.says)} | {_verdict(claim.verdict)} | {escape_markdown(claim.numbers)} |"
        for claim in claims
    ]
    return ["| claim | | measured |", "|---|---|---|", *rows, ""]


def _verdict(verdict: str) -> str:
    return f"**{verdict}**" if verdict == "not reproduced" else verdict


# -- The page of a stored experiment: what the paper says, the figure, the tables, where they come from --------------

FIGURE = "figure.png"
"""The figure that `felb experiment run` leaves in the folder."""


def study_page(folder: str | os.PathLike[str]) -> Page:
    """Return the page of the experiment in a folder, from what is stored there alone."""
    record, claims = StudyRecord.read(folder), read_claims(folder)
    sections: list[Section] = []
    figure = Path(folder) / FIGURE
    if figure.is_file():
        source = f"data:image/png;base64,{base64.b64encode(figure.read_bytes()).decode()}"
        sections.append(Section("Figure", _fill("figure", source, record.name)))
    columns = [Column(title, "words") for title in ("claim", "verdict", "measured")]
    rows = [(claim.says, claim.verdict, claim.numbers) for claim in claims]
    told = "Claims of the paper, compared with the runs of this experiment"
    table = make_table(columns, rows, caption=told) if rows else None
    sections.append(Section("Claims", _fill("claims", table, CLAIMS)))
    told = summary(record, marks="bold: best, underlined: second best")
    sections.append(Section("Tables", fill("parts.html", "marked_tables", study_tables(record), f"{told}.")))
    if wrong := failures(record):
        sections.append(Section("Runs without values", fill("parts.html", "items", wrong)))
    settings = {name: _plain(value) for name, value in record.settings.items() if name != "methods"}
    sections.append(Section("Provenance", _fill("provenance", provenance_text(record), settings)))
    lead = _fill("lead", record.question, record.view.note)
    return Page(record.title, sections, kicker=f"Experiment {record.name}, {record.form} form", lead=lead)


def _fill(macro: str, *values: Any) -> Markup:
    return fill("study.html", macro, *values, package="felb_paper")


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
