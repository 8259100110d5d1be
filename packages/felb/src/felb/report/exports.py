"""Results for other tools: tables and rules as CSV, plots as PNG, sets of features as GMT, comparisons of methods."""

from __future__ import annotations

from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.metrics.interpretation import component_rules
from felb.records import replace_nonfinite, replacing, write_csv
from felb.report import figures
from felb.report.pages import arrange_overlap, build_comparison_page
from felb.report.tables import comparison_csv, comparison_latex, comparison_markdown

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from felb.report.inputs import ReportInputs
    from felb.runs.compare import Compared

WHY_DATA = "The meaning of components is measured on the data"
COMPARISON_PAGE = "comparison.html"


def write_sets(inputs: ReportInputs, path: str) -> None:
    """Write the components as sets of features to a GMT file, most distinctive first where the data is at hand.

    A line per component has its name, how many records have it, and its features, separated by tabs, as tools for
    enrichment of gene sets read them.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> write_sets(gather("zoo-run"), "zoo.gmt")
    >>> Path("zoo.gmt").read_text().split()[:3]
    ['component-3', 'support', '41']
    """
    if Path(path).suffix != ".gmt":
        raise InputError(f"{path} must end in .gmt", parameter="sets")
    lines = []
    for component in inputs.describe_components():
        support = "" if component.support is None else f"support {component.support}"
        fields = [f"component-{component.number}", support, *component.features]
        lines.append("\t".join(" ".join(field.split()) for field in fields) + "\n")
    with replacing(Path(path)) as partial:
        partial.write_text("".join(lines), encoding="utf-8")


def write_rules(inputs: ReportInputs, path: str) -> int:
    """Write the components as rules to a CSV file, largest lift first; return their number.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 2), "zoo-run")
    >>> found = gather("zoo-run")
    >>> write_rules(found, "rules.csv") == int(found.result.components.sum())
    True
    """
    measured = inputs.require_data(WHY_DATA)
    heading = ["component", "antecedent", "consequent", "support", "confidence", "lift", "rule"]
    rows = [
        {**asdict(rule), "antecedent": "; ".join(rule.antecedent), "rule": str(rule)}
        for rule in component_rules(measured.matrix, measured.V, inputs.feature_names)
    ]
    _write_csv(path, [heading, *([row[name] for name in heading] for row in rows)])
    return len(rows)


def write_columns(columns: Mapping[str, list[Any]], path: str) -> None:
    """Write a tidy table to a CSV file."""
    _write_csv(path, [list(columns), *zip(*columns.values(), strict=True)])


def _write_csv(path: str | os.PathLike[str], rows: Iterable[Iterable[Any]]) -> None:
    with replacing(Path(path)) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        write_csv(file, rows)


def interpret(inputs: ReportInputs) -> dict[str, Any]:
    """Return what the components mean as plain data: features with lift, supports, gains, and labels if known."""
    profile, names, labels = inputs.require_data(WHY_DATA).profile, inputs.feature_names, inputs.enrichment
    found = []
    for component in inputs.describe_components():
        number = component.number
        entry: dict[str, Any] = {
            "component": number,
            "support": int(profile.supports[number]),
            "coverage": float(profile.coverage[number]),
            "exclusive_gain": int(profile.exclusive[number]),
            "features": [
                {"feature": names[j], "lift": profile.lift[number, j], "confidence": profile.confidence[number, j]}
                for j in profile.order(number).tolist()
            ],
        }
        if inputs.stability is not None:
            entry["found"] = float(inputs.stability.found[number])
        if labels is not None:
            table = labels.columns()
            entry["labels"] = [
                {name: table[name][row] for name in table if name != "component"}
                for row, owner in enumerate(table["component"])
                if owner == number
            ]
        found.append(entry)
    return replace_nonfinite({"components": found})  # type: ignore[no-any-return]


def write_tables(inputs: ReportInputs, folder: str) -> list[str]:
    """Write components, scores, history, overlap and clients as CSV files into a folder; return their names.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> write_tables(gather("zoo-run"), "tables")
    ['components.csv', 'scores.csv', 'history.csv', 'overlap.csv']
    """
    place = _make_folder(folder)
    measured, history, members = inputs.measured, inputs.result.history, inputs.assignments
    scores, intervals, _ = inputs.score()
    names = list(dict.fromkeys(name for row in history for name in row))
    tables: dict[str, list[list[Any]]] = {
        "components": _tabulate_components(inputs),
        "scores": [
            ["score", "value", "low", "high"],
            *([name, value, *intervals.get(name, (None, None))] for name, value in scores.items()),
        ],
        "history": [names, *([row.get(name) for name in names] for row in history)],
        "overlap": _tabulate_overlap(inputs),
    }
    if members is not None and len(members) > 1:
        counts = {} if measured is None else measured.counts_of_clients()
        k = len(inputs.result.components)
        tables["clients"] = [
            ["client", "records", "f1", *(f"component {i}" for i in range(k))],
            *(
                [name, len(U), counts[name].f1 if name in counts else None, *U.sum(axis=0).tolist()]
                for name, U in members.items()
            ),
        ]
    for name, rows in tables.items():
        _write_csv(place / f"{name}.csv", rows)
    return [f"{name}.csv" for name in tables]


def _tabulate_components(inputs: ReportInputs) -> list[list[Any]]:
    purity = None if inputs.measured is None else replace_nonfinite(inputs.measured.purity.tolist())
    found = None if inputs.stability is None else inputs.stability.found.tolist()
    rows: list[list[Any]] = [["component", "support", "size", "filled", "found", "features"]]
    for c in inputs.describe_components():
        shares = [None if values is None else values[c.number] for values in (purity, found)]
        rows.append([c.number, c.support, len(c.features), *shares, "; ".join(c.features)])
    return rows


def _tabulate_overlap(inputs: ReportInputs) -> list[list[Any]]:
    features, records = inputs.overlap()
    pairs = combinations(range(len(features)), 2)
    rows = ([a, b, float(features[a, b]), None if records is None else float(records[a, b])] for a, b in pairs)
    return [["component", "other", "features", "records"], *rows]


def write_figures(inputs: ReportInputs, folder: str) -> list[str]:
    """Write the plots of the page as PNG files to a folder; return their names.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> "overlap.png" in write_figures(gather("zoo-run"), "figures")
    True
    """
    figures.check_matplotlib()
    place, written, measured = _make_folder(folder), [], inputs.measured
    if measured is not None and 0 not in measured.matrix.shape and len(measured.V):
        drawn = figures.picture(measured.matrix, measured.U, measured.V)
        for name in ("data", "reconstruction", "residual"):
            with replacing(place / f"{name}.png") as partial:
                partial.write_bytes(figures.draw_cells(getattr(drawn, name)))
            written.append(f"{name}.png")
    order = [component.number for component in inputs.describe_components()]
    if len(order) > 1:
        shares, numbers = arrange_overlap(*inputs.overlap(), order), [str(number) for number in order]
        title = "Jaccard index in percent: features below, records above the diagonal"
        figures.write_heat_map(shares, place / "overlap.png", rows=numbers, columns=numbers, title=title)
        written.append("overlap.png")
    if curves := figures.find_curves(inputs.result.history):
        figures.write_rounds(curves, place / "rounds.png")
        written.append("rounds.png")
    return written


def _make_folder(folder: str) -> Path:
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise InputError(f"{folder} is a file; name a folder")
    place.mkdir(parents=True, exist_ok=True)
    return place


def write_comparison(compared: Compared, folder: str | os.PathLike[str]) -> dict[str, str]:
    """Write the tables and the page of a comparison into its folder; return the files by their kind."""
    texts = {
        "csv": ("table.csv", comparison_csv(compared)),
        "markdown": ("table.md", comparison_markdown(compared)),
        "latex": ("table.tex", comparison_latex(compared)),
    }
    files = {kind: Path(folder) / name for kind, (name, _) in texts.items()} | {"page": Path(folder) / COMPARISON_PAGE}
    for kind, (_, text) in texts.items():
        with replacing(files[kind]) as partial:
            partial.write_text(text, encoding="utf-8")
    build_comparison_page(compared).write(files["page"], force=True)
    return {kind: str(path) for kind, path in files.items()}
