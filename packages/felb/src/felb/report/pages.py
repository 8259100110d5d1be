"""Pages: the report of a result, a comparison of methods, the summary of a model in a notebook.

A page is one self-contained HTML file: a title and sections, filled into the Jinja2 templates of this package. Whatever
is not markup is escaped, so names that come with data can be passed as they are. Style and script are inlined; a
content security policy in the page admits that one script and nothing from the network. The page is readable without
the script, which only adds sorting, searching and the choice of a theme.
"""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from felb._version import __version__
from felb.errors import InputError, MissingExtraError
from felb.federated.algorithms import count_rounds_by_phase
from felb.privacy.outbound_log import UNPROTECTED
from felb.records import replacing
from felb.report import figures
from felb.report.figures import Series, to_printable
from felb.report.inputs import Measured, ReportInputs
from felb.report.tables import comparison_tables, describe_comparison
from felb.runs import UNVERIFIED
from felb.runs.compare import SCORES as COMPARED_SCORES
from felb.runs.result import Result, records_in_words, remarks
from felb.tables.schema import grouped

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from felb.metrics import Counts
    from felb.report.figures import Image
    from felb.runs.compare import Compared, Score
    from felb.sklearn.base import BooleanFactorization

GENERATOR = '<meta name="generator" content="felb'
"""By this a page is known as one of felb's, which may be replaced by a newer one."""

THIN_SPACE, MINUS, DASH = "\u202f", "\u2212", "–"


# -- Numbers and words for people ------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 0) -> str:
    """Return a number for people: thousands apart, a true minus, a dash for none.

    Examples
    --------
    >>> number(1234567), number(-0.51234, 3), number(None)
    ('1\u202f234\u202f567', '\u22120.512', '–')
    """
    if value is None or value != value:
        return DASH
    return f"{value:,.{digits}f}".replace(",", THIN_SPACE).replace("-", MINUS)


def significant(value: float | None, digits: int = 3) -> str:
    """Return a number to so many significant digits, whole ones in full.

    Examples
    --------
    >>> significant(0.000123456), significant(12345), significant(3.14159)
    ('0.000123', '12\u202f345', '3.14')
    """
    if value is None or value != value:
        return DASH
    if abs(value) >= 1e15:
        return f"{value:.{digits - 1}e}"
    if value == int(value) or abs(value) >= 10**digits:
        return number(value)
    return f"{value:.{digits}g}".replace("-", MINUS)


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return DASH if share is None or share != share else f"{number(100 * share)}{THIN_SPACE}%"


def counted(n: int | None, what: str) -> str:
    """Return a number of things, in the plural unless it is one."""
    return f"{number(n)} {what}{'' if n == 1 else 's'}"


# -- Pages and their templates ---------------------------------------------------------------------------------------


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("felb.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {"number": number, "significant": significant, "counted": counted}
    return environment


def _finalize(value: Any) -> Any:
    """Return a value as templates show it: nothing for None, and nothing that HTML cannot hold."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else to_printable(str(value))


def fill(template: str, macro: str, *values: Any, **named: Any) -> Markup:
    """Return a macro of a template as markup.

    Parameters
    ----------
    template, macro : the file in ``templates/`` and the macro in it
    values, named : its arguments

    Examples
    --------
    >>> print(fill("parts.html", "paragraph", "a < b"))
    <p>a &lt; b</p>
    """
    filled = getattr(_environment().get_template(template).module, macro)(*values, **named)
    assert isinstance(filled, Markup)
    return filled


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what is below it."""

    title: str
    content: Markup

    @property
    def anchor(self) -> str:
        """The name by which it is linked: its title in small letters and hyphens."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Parameters
    ----------
    title : of the window, and the heading
    sections : in order; a bar at the top links to them
    kicker, lead : a line above the heading, and what stands below it
    """

    title: str
    sections: Sequence[Section]
    kicker: str = ""
    lead: str | Markup = ""

    def html(self) -> str:
        """Return the whole page."""
        environment = _environment()
        script = Markup(environment.get_template("page.js").render())
        style = Markup(environment.get_template("page.css").render(themes=figures.THEMES))
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'none'"
        )
        template = environment.get_template("page.html")
        return template.render(page=self, policy=policy, version=__version__, style=style, script=script)

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> int:
        """Write the page, complete or not at all, and return its size in bytes; pages of felb are replaced."""
        target = Path(path)
        if target.is_dir():
            raise InputError(f"{target} is a folder; name a file for the page")
        if target.exists() and not force and not _is_page(target):
            raise InputError(f"{target} exists and is no page of felb; choose another file, or replace it with --force")
        text = self.html().encode("utf-8")
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as partial:
            partial.write_bytes(text)
        return len(text)


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return GENERATOR.encode() in file.read(4096)


class Column(NamedTuple):
    """A column of a table: its heading, and whether it holds numbers or words."""

    title: str
    kind: Literal["number", "words"] = "number"
    hint: str | None = None


class PageCell(NamedTuple):
    """A cell of a table: what it shows, by what it is sorted, how much of its width a bar fills; or a list of names."""

    content: Any = ""
    order: float | str | None = None
    bar: float | None = None
    names: Sequence[str] | None = None


def make_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]], *, caption: str, **options: Any) -> Markup:
    """Return a table that scrolls within itself if it is too wide; on a phone, wide ones show row below row.

    Parameters
    ----------
    columns, rows : headings, and for each row its cells: `PageCell`, or content alone; the first names the row
    caption : says what it shows, also to screen readers
    options : sortable, to sort by a column, and search, the label of a box to search by the words of a row
    """
    cells = [
        [
            (column, cell if isinstance(cell, PageCell) else PageCell(cell))
            for column, cell in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    return fill("parts.html", "table", columns=columns, rows=cells, caption=caption, **options)


class Chart(NamedTuple):
    """Curves with what stands around them."""

    title: str
    image: Image | None
    summary: str
    colours: Mapping[str, str]


class HeatMap(NamedTuple):
    """Shares as an image and as a table."""

    image: Image | None
    shares: Sequence[Sequence[float | None]]
    rows: Sequence[str]
    columns: Sequence[str]


def make_chart(title: str, series: Sequence[Series], **options: Any) -> Chart:
    """Return a chart with its summary for screen readers; see `felb.report.figures.draw_chart`."""
    told = []
    for one in series:
        known = [(x, y) for x, y in zip(one.x, one.y, strict=True) if y is not None]
        if known:
            (x0, y0), (x1, y1) = known[0], known[-1]
            told.append(f"{one.name}: {significant(y0)} at {significant(x0)}, {significant(y1)} at {significant(x1)}")
    image = _draw_if_possible(figures.draw_chart, series, **options)
    return Chart(title, image, f"{title}. {'; '.join(told)}", {one.name: f"s{i}" for i, one in enumerate(series)})


def _make_heat_map(shares: Sequence[Sequence[float | None]], rows: Sequence[str], columns: Sequence[str]) -> HeatMap:
    return HeatMap(_draw_if_possible(figures.draw_heat_map, shares, rows, columns), shares, rows, columns)


def _draw_if_possible(draw: Callable[..., Image], *values: Any, **options: Any) -> Image | None:
    """Draw an image, or return None where matplotlib is not installed; the page says so."""
    try:
        return draw(*values, **options)
    except MissingExtraError:
        return None


# -- The report of a result ------------------------------------------------------------------------------------------

SCORES = {
    "f1": ("F1", 3, "harmonic mean of precision and recall; 1 is best"),
    "precision": ("Precision", 3, "share of the reconstructed ones that are in the data"),
    "recall": ("Recall", 3, "share of the ones in the data that are reconstructed"),
    "coverage": ("Coverage", 3, "1 − wrong cells / ones in the data"),
    "rmsd": ("RMSD", 3, "square root of the share of wrong cells; 0 is best"),
    "errors": ("Wrong cells", 0, "number of missed ones and false ones"),
}
"""Name, digits and meaning of the scores that are shown."""

CLIENT_SCORES = {"f1": "F1", "precision": "Precision", "recall": "Recall"}

SHOWN_FEATURES, SHOWN_COMPONENTS = 12, 50
"""Features by which a table sorts, and features and components of a summary in a notebook."""

MOST_IN_A_MAP = 40
"""Rows or columns of a heat map at most; the tables as CSV have all."""

MOST_ALIKE = 5
"""Pairs of components that are shown with what they share."""

MOST_LABELS = 60
"""Enriched labels in the table."""

FALSE_DISCOVERIES = 0.05

MOST_CHARTS = 9


UNVERIFIED_WORDS = ", unverified: its files may have been changed"


def build_result_page(inputs: ReportInputs) -> Page:
    """Make the page of a result.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> build_result_page(gather("zoo-run")).write("zoo.html") > 10_000
    True
    """
    result = inputs.result
    sections = {
        "Scores": _fill_scores(inputs),
        "Components": fill("result.html", "components", result, _make_components_table(inputs)),
        "Labels": _fill_labels(inputs),
        "Data and reconstruction": _fill_pictures(inputs),
        "Overlap": _fill_overlap(inputs),
        "Clients": _fill_clients(inputs),
        "Rounds": _fill_rounds(result),
        "Privacy": _fill_privacy(inputs),
        "Run": _fill_run(inputs),
    }
    records = records_in_words(result) if inputs.n_records is None else counted(inputs.n_records, "record")
    k, m = result.components.shape
    return Page(
        f"{counted(k, 'component')} of {result.provenance.data.get('source') or 'unnamed data'}",
        [Section(title, content) for title, content in sections.items() if content is not None],
        kicker="Result of a Boolean matrix factorization" + (UNVERIFIED_WORDS if UNVERIFIED.get() else ""),
        lead=fill("result.html", "lead", result.provenance.method, records, m, len(result.clients)),
    )


def _fill_scores(inputs: ReportInputs) -> Markup:
    scores, intervals, resamples = inputs.score()
    shown = [
        {
            "name": name,
            "value": number(scores[key], digits),
            "interval": [number(end, digits) for end in intervals.get(key, ())],
            "meaning": meaning,
        }
        for key, (name, digits, meaning) in SCORES.items()
        if scores.get(key) is not None
    ]
    return fill("result.html", "scores", inputs, remarks(inputs.result), shown, resamples)


def _make_components_table(inputs: ReportInputs) -> Markup:
    """Return every component by the names of its features."""
    found, n, schema, stable = inputs.describe_components(), inputs.n_records, inputs.result.schema, inputs.stability
    purity = None if inputs.measured is None else inputs.measured.purity
    has_support = any(component.support is not None for component in found)
    caption = ["Components, ordered by the number of their records"]
    if all(support is None for support in inputs.supports):
        caption = ["Components; how many records have each is not part of what this run releases"]
    columns = [Column("No.", hint="Number of the component in the result"), Column("Features", "words")]
    if has_support:
        columns += [Column("Records", hint="Number of records that have the component"), Column("Share")]
    columns += [Column("Size", hint="Number of features of the component")]
    if purity is not None:
        columns += [Column("Filled", hint="Share of ones among the matrix cells of its records and features")]
        caption += [
            "filled: share of ones among the matrix cells of its records and features",
            "features are ordered by lift, their frequency in these records relative to the others",
        ]
    if stable is not None:
        columns += [Column("Found", hint="Share of refits on resampled records that find the component again")]
        refits = counted(stable.n_resamples, "refit")
        caption += [f"found: share of {refits} on resampled records that find the component again"]
    rows = []
    for component in found:
        support, features = component.support, component.features
        named = features if schema is None else grouped(schema, features)
        row = [
            PageCell(component.number, order=component.number),
            PageCell(names=named, order=" ".join(features[:SHOWN_FEATURES])),
        ]
        if has_support:
            share = None if support is None or not n else support / n
            row += [PageCell(number(support), order=support), _share_cell(share, bar=True)]
        row += [PageCell(number(len(features)), order=len(features))]
        if purity is not None:
            row += [_share_cell(float(purity[component.number]))]
        if stable is not None:
            row += [_share_cell(float(stable.found[component.number]), bar=True)]
        rows.append(row)
    return make_table(columns, rows, caption="; ".join(caption), sortable=True, search="Find a feature")


def _share_cell(share: float | None, *, bar: bool = False) -> PageCell:
    known = None if share is None or math.isnan(share) else share
    return PageCell(percent(known), order=known, bar=None if known is None or not bar else min(1.0, max(0.0, known)))


def _fill_pictures(inputs: ReportInputs) -> Markup:
    measured, drawn, images = inputs.measured, None, None
    if measured is not None and 0 not in measured.matrix.shape and len(measured.V):
        drawn = figures.picture(measured.matrix, measured.U, measured.V)
        codes = (drawn.data, drawn.reconstruction, drawn.residual)
        images = [_draw_if_possible(figures.draw_picture, each) for each in codes]
    return fill("result.html", "pictures", inputs, drawn, images)


def _fill_overlap(inputs: ReportInputs) -> Markup | None:
    """Return how much every two components share."""
    order = [component.number for component in inputs.describe_components()]
    if len(order) < 2:
        return None
    features, records = inputs.overlap()
    shown = order[:MOST_IN_A_MAP]
    shares = arrange_overlap(features, records, shown)
    numbers = [str(component) for component in shown]
    pairs = [(float(features[a, b]), a, b) for i, a in enumerate(order) for b in order[i + 1 :] if features[a, b] > 0]
    pairs.sort(key=lambda pair: -pair[0])
    V, names = inputs.result.components, inputs.feature_names
    rows = [
        (f"{a} and {b}", PageCell(names=[names[j] for j in np.flatnonzero(V[a] & V[b])]), percent(share))
        for share, a, b in pairs[:MOST_ALIKE]
    ]
    columns = [Column("Components", "words"), Column("Shared features", "words"), Column("Share")]
    told = "Pairs of components with the largest share of common features"
    alike = make_table(columns, rows, caption=told) if rows else None
    heat = _make_heat_map(shares, numbers, numbers)
    return fill("result.html", "overlap", heat, alike, n_all=len(order), has_records=records is not None)


def arrange_overlap(features: Any, records: Any, order: Sequence[int]) -> list[list[float | None]]:
    """Return the overlap in features below the diagonal and in records above it, for components in an order."""

    def share(i: int, a: int, j: int, b: int) -> float | None:
        found = features if i > j else records if i < j else None
        return None if found is None else float(found[a, b])

    return [[share(i, a, j, b) for j, b in enumerate(order)] for i, a in enumerate(order)]


def _fill_clients(inputs: ReportInputs) -> Markup | None:
    """Return where components occur, and how well each client is described."""
    clients, members = inputs.result.clients, inputs.assignments
    if len(clients) < 2:
        return None
    if members is None:
        return fill("result.html", "clients", list(clients), None, None)
    order = [component.number for component in inputs.describe_components()][:MOST_IN_A_MAP]
    names = list(members)[:MOST_IN_A_MAP]
    shares = [[float(members[name][:, c].mean()) if len(members[name]) else 0.0 for c in order] for name in names]
    counts = {} if inputs.measured is None else inputs.measured.counts_of_clients()
    heat = _make_heat_map(shares, names, [str(c) for c in order])
    return fill("result.html", "clients", list(clients), heat, _make_client_scores(clients, counts))


def _make_client_scores(clients: Iterable[str], counts: Mapping[str, Counts]) -> Markup:
    columns = [Column("Client", "words")]  # how many records a client has stays with it
    columns += [Column(name) for name in CLIENT_SCORES.values()] if counts else []
    rows = []
    for name in clients:
        scores = counts[name].scores() if counts else {}
        cells = [PageCell(number(scores[key], 3), order=f"{scores[key]:.6f}") for key in CLIENT_SCORES if counts]
        rows.append([PageCell(name, order=name), *cells])
    caption = "Scores on the records of each client" if counts else "Clients"
    return make_table(columns, rows, caption=caption, sortable=True)


def _fill_labels(inputs: ReportInputs) -> Markup | None:
    """Return how the labels of records go with components."""
    found = inputs.enrichment
    if found is None:
        return None
    order = [component.number for component in inputs.describe_components()][:MOST_IN_A_MAP]
    shown = np.argsort(-found.totals, kind="stable")[:MOST_IN_A_MAP]
    shares: list[list[float | None]] = [
        [float(found.joint[c, g] / found.supports[c]) if found.supports[c] else None for g in shown] for c in order
    ]
    heat = _make_heat_map(shares, [str(c) for c in order], [found.labels[g] for g in shown])
    table = found.columns()
    rows = [
        (
            PageCell(component, order=component),
            label,
            PageCell(number(records), order=records),
            _share_cell(share),
            PageCell(number(odds, 1), order=odds),
            PageCell(significant(q, 2), order=q),
        )
        for component, label, records, share, odds, q in zip(
            *(table[name] for name in ("component", "label", "records", "share", "log2_odds", "q")), strict=True
        )
        if q <= FALSE_DISCOVERIES and odds > 0
    ]
    columns = [Column("No."), Column("Label", "words"), Column("Records"), Column("Share")]
    columns += [Column("log₂ odds"), Column("q", hint="p-value of Fisher's exact test, adjusted for all tests")]
    caption = "Enriched labels at a false discovery rate of 5% (Fisher's exact test, Benjamini–Hochberg)"
    if len(rows) > MOST_LABELS:
        caption += f"; the first {MOST_LABELS} of {len(rows)} are shown"
    enriched = make_table(columns, rows[:MOST_LABELS], caption=caption, sortable=True) if rows else None
    return fill("result.html", "labels", heat, enriched)


def _fill_rounds(result: Result) -> Markup:
    """Return the curves of what was kept of every round, over the same axis, so that they can be compared."""
    history = result.history
    last = max((float(row.get("round", at)) for at, row in enumerate(history)), default=0.0)
    drawn = [
        make_chart(
            figures.title_of(metric), series, x_label="round", log_y=figures.is_wide(series), x_range=(0.0, last)
        )
        for metric, series in list(figures.find_curves(history).items())[:MOST_CHARTS]
    ]
    return fill("result.html", "rounds", result, count_rounds_by_phase(result.rounds()), drawn)


def _fill_privacy(inputs: ReportInputs) -> Markup:
    """Return the guarantee, or that there is none, and the sums of the logs."""
    kinds = summarize_logs(inputs.outbound)
    words, numbers = ("Task", "Array", "Type", "Mechanism"), ("Largest shape", "Rounds", "Arrays", "Bytes")
    columns = [*(Column(name, "words") for name in words), *(Column(name) for name in numbers)]
    rows = [
        (
            kind["task"],
            kind["what"],
            kind["dtype"],
            f"{kind['mechanism']}{kind['total']}",
            PageCell(" × ".join(map(number, kind["largest"])) or "1", order=math.prod(kind["largest"])),
            *(PageCell(number(kind[name]), order=kind[name]) for name in ("rounds", "arrays", "bytes")),
        )
        for kind in kinds
    ]
    caption = "Arrays that left the clients, summed over rounds and clients"
    return fill("result.html", "privacy", inputs, kinds, make_table(columns, rows, caption=caption, sortable=True))


def summarize_logs(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put lines together that differ in client, round and shape only, in the order in which each kind first left."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        groups.setdefault(tuple(line[name] for name in ("task", "what", "dtype", "mechanism")), []).append(line)
    found = []
    for (task, what, dtype, mechanism), same in groups.items():
        spent = [line["total"]["epsilon"] for line in same if line.get("total")]  # if accountants were kept
        found.append(
            {
                "task": task,
                "what": what,
                "largest": max((line["shape"] for line in same), key=math.prod),
                "dtype": dtype,
                "mechanism": mechanism,
                "rounds": len({line["round"] for line in same}),
                "arrays": len(same),
                "bytes": sum(line["bytes"] for line in same),
                "total": f", total ε up to {max(spent):.3g}" if spent and mechanism != UNPROTECTED else "",
            }
        )
    return found


def _fill_run(inputs: ReportInputs) -> Markup:
    """Return what was run, on what, by which version, on which machine."""
    made = inputs.result.provenance
    parameters = {name: _describe_parameter(value) for name, value in sorted(made.parameters.items())}
    return fill("result.html", "run", inputs, made, records_in_words(inputs.result), inputs.seconds(), parameters)


def _describe_parameter(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_describe_parameter(item)}" for name, item in value.items()) or "none"
    return "none" if value is None else str(value)


# -- A fitted model: its page, and its summary in a notebook ---------------------------------------------------------

UNSTORED = "data in memory"


def report_model(model: BooleanFactorization, path: str | os.PathLike[str], X: Any = None, *, force: bool) -> None:
    """Write the page of a model; with X, its scores and plots are those of these records."""
    inputs = ReportInputs(Path(path), Result.from_model(model, source=UNSTORED), None, (), None, "No data was given.")
    if X is not None:
        rows, _ = model.new_rows(X)
        U, V = model._assign(rows), model.components_
        measured = Measured(rows, U, V, source=UNSTORED, same=None, stored=False, rows_of=None)
        inputs = replace(inputs, measured=measured, absent=None)
    if Path(path).exists() and not force:
        raise InputError(f"{path} exists; choose another file, or replace it by force", parameter="force")
    build_result_page(inputs).write(Path(path), force=force)


def summarize_model(model: BooleanFactorization) -> str:
    """Return what a notebook shows of a fitted model as HTML: its parameters, scores and components by name."""
    V, counts, supports = model.components_, getattr(model, "counts_", None), getattr(model, "supports_", None)
    told = [f"{len(V)} components of {V.shape[1]} features"]
    if counts is not None:
        told += [f"F1 {counts.f1:.3f}", f"{counts.fp + counts.fn} wrong cells"]
    if getattr(model, "n_iter_", None) is not None and len(getattr(model, "history_", ())):
        told.append(f"{len(model.history_)} rounds")
    if not getattr(model, "complete_", True):
        told.append("ended by its time limit")
    order = np.arange(len(V)) if supports is None else np.argsort(-np.asarray(supports), kind="stable")
    names, rows = model.component_features(), []
    for i in order[:SHOWN_COMPONENTS].tolist():
        more = len(names[i]) - SHOWN_FEATURES
        text = ", ".join(names[i][:SHOWN_FEATURES]) + (f", … ({more} more)" if more > 0 else "")
        rows.append([i, *([] if supports is None else [int(supports[i])]), len(names[i]), text or "(empty)"])
    titles = ["component", *([] if supports is None else ["support"]), "size", "features"]
    return fill("result.html", "model", type(model).__name__, repr(model), told, titles, rows, more=len(V) - len(rows))


# -- A comparison of methods -----------------------------------------------------------------------------------------


def build_comparison_page(compared: Compared) -> Page:
    """Return the page of a comparison: tables, curves over the number of components, what failed, provenance."""
    tables = fill("parts.html", "marked_tables", comparison_tables(compared), describe_comparison(compared))
    sections = [Section("Tables", tables)]
    if len(compared.components) > 1:
        drawn = [_chart_of(compared, score) for score in COMPARED_SCORES if score.key in ("f1", "rmsd")]
        sections.append(Section("Curves", fill("parts.html", "charts", drawn, narrow=False)))
    if wrong := compared.failures():
        reasons = [f"{', '.join(where)}: {reason}" for reason, where in wrong.items()]
        sections.append(Section("Runs without scores", fill("parts.html", "items", reasons)))
    sections.append(Section("Provenance", fill("result.html", "comparison", compared)))
    return Page(f"Methods on {compared.source}", sections, kicker="Comparison")


def _chart_of(compared: Compared, score: Score) -> Chart:
    """Draw a score over the number of components."""
    series = []
    for method in compared.methods[: figures.MOST_CURVES]:
        found = [compared.interval(score.key, method, k) for k in compared.components]
        series.append(Series(method, compared.components, [None if i is None else i.mean for i in found]))
    return make_chart(f"{score.label} over the number of components", series, x_label="components")
