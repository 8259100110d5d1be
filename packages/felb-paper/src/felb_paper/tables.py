"""Tables of stored experiments, and Markdown pages with claims and figures around them."""

from __future__ import annotations

import hashlib
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from felb.report.tables import (
    NO_SCORE,
    MarkedTable,
    TableCell,
    Trials,
    describe_interval,
    escape_markdown,
    format_csv,
    mark_best,
    tabulate,
)
from felb_paper.cells import variants_of
from felb_paper.study import CERTAIN, FEWEST, RESAMPLES, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from felb_paper.study import Claim, Metric, Place, StudyRecord

BOLD = ("contradicted",)


def study_tables(record: StudyRecord) -> list[MarkedTable]:
    """Return the tables of an experiment: mean ± half the 95% interval over the trials.

    The best and the second best mean of a column are marked. Where there are published figures of the same data, they
    follow after a slash. A figure of which no value is good, such as a cost, is left out where no cell has it. Where
    the view ranks methods, a table of their ranks follows.
    """
    tables = []
    for panel, metric in product(record.view.panels, record.view.metrics):
        places, write = record.places(panel), partial(_write, metric)
        trials = {
            method: [_trials(record, metric, method, place, panel) for place in places]
            for method in record.methods(panel)
        }
        if not metric.better and not any(one.interval for row in trials.values() for one in row):
            continue
        axis = record.view.axes.get(panel, record.view.axis)
        head = (axis, *(place_text(record, place) for place in places))
        title = " · ".join(filter(None, (panel, metric.label)))
        tables.append(tabulate(title, head, trials, better=metric.better, write=write))
        for variants, kept in variants_of(record).items():
            about = ", ".join(filter(None, (title, variants)))
            tables += _rank_tables(kept, metric, panel, head=head, title=about)
    return tables + _only_published(record)


def _trials(record: StudyRecord, metric: Metric, method: str, place: Place, panel: str) -> Trials:
    published = record.published(metric.key, place)
    return Trials(
        record.interval(metric.key, method, place, panel),
        record.statuses(method, place, panel),
        _write(metric, published.get(method)) if published else None,
    )


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
                *(
                    TableCell(str(ranks[place][method]) if place in ranks else NO_SCORE)
                    for place in record.places(panel)
                ),
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
                (method, tuple(TableCell(_write(metric, row.get(method))) for row in others.values()))
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


def _write(metric: Metric, value: float | None) -> str:
    if value is None:
        return NO_SCORE
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
    return f"{', '.join(parts)}; {trials}; {marks}; {NO_SCORE} no value"


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


def codes_text(record: StudyRecord) -> str:
    """Say of which code the runs are: the fingerprints of each method."""
    found: dict[str, dict[str, None]] = {}
    for cell in record.planned:
        if cell.key in record.cells and cell.key in record.codes:
            found.setdefault(cell.method, {})[record.codes[cell.key]] = None
    return ", ".join(f"{method} `{'` `'.join(codes)}`" for method, codes in found.items())


def digest_text(text: str) -> str:
    """Return a short digest, by which a page names the runs behind it."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def to_csv(record: StudyRecord) -> str:
    """Return one line for each panel, method, place and figure, with mean, interval and number of trials."""
    rows = to_rows(record)
    return format_csv([list(rows[0]), *(row.values() for row in rows)])


def runs_to_csv(record: StudyRecord) -> str:
    """Return one line for each planned run: how it ended, and the figures that the tables show."""
    keys = [metric.key for metric in record.view.metrics]
    rows: list[list[Any]] = [["panel", "method", "place", "trial", "status", "date", *keys]]
    for planned in record.planned:
        found = record.cells.get(planned.key)
        ended = ("not run", None) if found is None else (found.status, found.provenance.get("date"))
        figures = [None if found is None else found.figures.get(key) for key in keys]
        rows.append([planned.panel, planned.method, planned.place, planned.trial, *ended, *figures])
    return format_csv(rows)


def to_rows(record: StudyRecord) -> list[dict[str, Any]]:
    """Return the figures as plain data, those without any trial too."""
    return [
        {
            "experiment": record.name,
            "form": record.form,
            "panel": panel,
            "method": method,
            "place": place,
            "figure": metric.key,
            **describe_interval(record.interval(metric.key, method, place, panel)),
            "published": record.published(metric.key, place).get(method),
        }
        for panel in record.view.panels
        for method, place, metric in product(record.methods(panel), record.places(panel), record.view.metrics)
    ]


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
        lines += [f"[{runs}]({runs}) lists all runs; its digest is `{digest_text(runs_to_csv(record))}`.", ""]
    if record.codes:
        lines += [
            f"Methods, with fingerprints of what they found on a small problem then: {codes_text(record)}.",
            "",
        ]
    return "\n".join(lines)


def index_markdown(entries: Sequence[tuple[StudyRecord, Sequence[Claim], str]]) -> str:
    """Return the page that lists experiments, from their records, claims and pages."""
    lines = ["# Experiments", "", "The experiments of the paper, as `felb experiment run` measures them.", ""]
    lines += ["| experiment | form | runs | " + " | ".join(VERDICTS) + " |", "|---" * (3 + len(VERDICTS)) + "|"]
    for record, claims, page in entries:
        verdicts = [claim.verdict for claim in claims]
        counts = " | ".join(str(verdicts.count(word)) for word in VERDICTS)
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
        f"| {escape_markdown(claim.says)} | {claim.variants} "
        f"| {f'**{claim.verdict}**' if claim.verdict in BOLD else claim.verdict} | {escape_markdown(claim.numbers)} |"
        for claim in claims
    ]
    return [
        f"A verdict is that of the means if {CERTAIN:.1%} of {RESAMPLES} bootstrap resamples of the trials agree, in "
        f"which methods stay paired; otherwise, or with fewer than {FEWEST} trials, a claim is undecided. Thresholds "
        "that the paper does not give are felb's and stand in brackets.",
        "",
        "| claim | methods | | measured |",
        "|---|---|---|---|",
        *rows,
        "",
    ]
