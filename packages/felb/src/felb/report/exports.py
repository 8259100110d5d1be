"""Tables, plots, gene sets, rules and JSON for other tools."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError, missing_extra
from felb.metrics.interpretation import component_rules
from felb.records import replacing
from felb.report.figures import PALETTES, TITLES, enlarged, figures, is_wide, pictures_of, png
from felb.report.result_page import described, overlap, purity, scores_with_intervals
from felb.runs.result import finite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from felb.report.evidence import Evidence, Measured


# -- Components for other tools: gene set files (GMT), JSON, rules and tidy tables -----------------------------------

SUFFIXES = (".gmt", ".json", ".csv")


def write_sets(evidence: Evidence, path: str) -> None:
    """Write the components as sets of features, most distinctive first where the data is at hand.

    A ``.gmt`` file has a line per component: its name, how many records have it, and its features, separated by tabs,
    as tools for enrichment of gene sets read them. A ``.json`` file has an object per component.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> write_sets(gather("zoo-run"), "zoo.gmt")
    >>> Path("zoo.gmt").read_text().split()[:3]
    ['component-3', 'support', '41']
    """
    place = Path(path)
    components = described(evidence)
    if place.suffix == ".gmt":
        lines = []
        for component in components:
            support = "" if component.support is None else f"support {component.support}"
            fields = [f"component-{component.number}", support, *component.features]
            lines.append("\t".join(" ".join(field.split()) for field in fields) + "\n")
        text = "".join(lines)
    elif place.suffix == ".json":
        text = json.dumps([asdict(component) for component in components], indent=1)
    else:
        raise InputError(f"{path} must end in .gmt or .json", parameter="sets")
    with replacing(place) as partial:
        partial.write_text(text, encoding="utf-8")


def write_rules(evidence: Evidence, path: str) -> int:
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
    measured = at_hand(evidence)
    names = evidence.feature_names
    rows = [
        {**asdict(rule), "antecedent": "; ".join(rule.antecedent), "rule": str(rule)}
        for rule in component_rules(measured.matrix, measured.V, names)
    ]
    heading = ["component", "antecedent", "consequent", "support", "confidence", "lift", "rule"]
    write_columns({name: [row[name] for row in rows] for name in heading}, path)
    return len(rows)


def write_columns(columns: Mapping[str, list[Any]], path: str) -> None:
    """Write a tidy table to a CSV file."""
    with replacing(Path(path)) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def interpretation(evidence: Evidence) -> dict[str, Any]:
    """Return what the components mean as plain data: features with lift, supports, gains, and labels if known."""
    measured, names = at_hand(evidence), evidence.feature_names
    profile, labels = measured.profile, evidence.enrichment
    found = []
    for component in described(evidence):
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
        if evidence.stability is not None:
            entry["found"] = float(evidence.stability.found[number])
        if labels is not None:
            table = labels.columns()
            entry["labels"] = [
                {name: table[name][row] for name in table if name != "component"}
                for row, owner in enumerate(table["component"])
                if owner == number
            ]
        found.append(entry)
    return finite({"components": found})  # type: ignore[no-any-return]


def at_hand(evidence: Evidence) -> Measured:
    """Return the result held against its data, or raise because there is none."""
    if evidence.measured is None:
        raise InputError(
            f"{evidence.absent} The meaning of components is measured on the data; name the data", parameter="data"
        )
    return evidence.measured


# -- The tables of a report as CSV files and its plots as PNG files --------------------------------------------------

INK, MUTED, COLOURS = "#1b1d1f", "#5d6267", ("#0b6b69", "#c2500f")
DPI = 200


def write_tables(evidence: Evidence, folder: str) -> list[str]:
    """Write components, scores, history and overlap as CSV files into a folder; return their names.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> write_tables(gather("zoo-run"), "tables")
    ['components.csv', 'scores.csv', 'history.csv', 'overlap.csv']
    """
    place = _folder(folder)
    scores, intervals, _ = scores_with_intervals(evidence)
    tables = {
        "components": _components(evidence),
        "scores": [
            ["score", "value", "low", "high"],
            *([name, value, *intervals.get(name, (None, None))] for name, value in scores.items()),
        ],
        "history": _history(evidence),
        "overlap": _overlap(evidence),
    }
    if evidence.assignments is not None and len(evidence.assignments) > 1:
        tables["clients"] = _clients(evidence)
    for name, rows in tables.items():
        with replacing(place / f"{name}.csv") as partial, partial.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    return [f"{name}.csv" for name in tables]


def _components(evidence: Evidence) -> list[list[Any]]:
    pure = None if evidence.measured is None else purity(evidence.measured)
    stable = evidence.stability
    rows: list[list[Any]] = [["component", "support", "size", "filled", "found", "features"]]
    for c in described(evidence):
        filled = None if pure is None or np.isnan(pure[c.number]) else float(pure[c.number])
        found = None if stable is None else float(stable.found[c.number])
        rows.append([c.number, c.support, len(c.features), filled, found, "; ".join(c.features)])
    return rows


def _history(evidence: Evidence) -> list[list[Any]]:
    names = list(dict.fromkeys(name for row in evidence.result.history for name in row))
    return [names, *([row.get(name) for name in names] for row in evidence.result.history)]


def _overlap(evidence: Evidence) -> list[list[Any]]:
    features, records = overlap(evidence)
    rows: list[list[Any]] = [["component", "other", "features", "records"]]
    for a in range(len(features)):
        for b in range(a + 1, len(features)):
            rows.append([a, b, float(features[a, b]), None if records is None else float(records[a, b])])
    return rows


def _clients(evidence: Evidence) -> list[list[Any]]:
    members = evidence.assignments or {}
    counts = {} if evidence.measured is None else evidence.measured.counts_of_clients()
    k = len(evidence.result.components)
    rows: list[list[Any]] = [["client", "records", "f1", *(f"component {i}" for i in range(k))]]
    for name, U in members.items():
        rows.append([name, len(U), counts[name].f1 if name in counts else None, *U.sum(axis=0).tolist()])
    return rows


def write_figures(evidence: Evidence, folder: str) -> list[str]:
    """Write the plots of the page as PNG files to a folder; return their names.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> "overlap.png" in write_figures(gather("zoo-run"), "figures")
    True
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        missing_extra("drawing figures as PNG", "report", error)
    place, written = _folder(folder), []
    if evidence.measured is not None and 0 not in evidence.measured.matrix.shape and len(evidence.measured.V):
        drawn = pictures_of(evidence.measured)
        for name in ("data", "reconstruction", "residual"):
            with replacing(place / f"{name}.png") as partial:
                partial.write_bytes(png(enlarged(getattr(drawn, name)), PALETTES["light"]))
            written.append(f"{name}.png")
    if len(evidence.result.components) > 1:
        draw_png(place / "overlap.png", (5.2, 4.4), lambda figure: _draw_overlap(figure, evidence))
        written.append("overlap.png")
    curves = figures(evidence.result.history)
    if curves:
        down = -(-len(curves) // 3)
        draw_png(
            place / "rounds.png", (3.6 * min(3, len(curves)), 2.6 * down), lambda figure: draw_curves(figure, curves)
        )
        written.append("rounds.png")
    return written


def draw_png(path: Path, size: tuple[float, float], paint: Callable[[Any], None]) -> None:
    """Write a PNG file of a figure of that size in inches, which `paint` draws."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=DPI, facecolor="white", layout="constrained")
    paint(figure)
    with replacing(path) as partial, partial.open("wb") as file:
        # Not savefig, which listens to settings of the user such as a tight bounding box.
        FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})  # type: ignore[no-untyped-call]


def _draw_overlap(figure: Any, evidence: Evidence) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    order = [component.number for component in described(evidence)]
    features, records = overlap(evidence)
    shares = np.full(features.shape, np.nan)
    below, above = np.tril_indices(len(order), -1), np.triu_indices(len(order), 1)
    shares[below] = features[np.ix_(order, order)][below]
    if records is not None:
        shares[above] = records[np.ix_(order, order)][above]
    axes = figure.subplots()
    colours = LinearSegmentedColormap.from_list("accent", ["#f1f1ec", COLOURS[0]])
    image = axes.imshow(shares, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks(range(len(order)), order, fontsize=7)
    axes.set_yticks(range(len(order)), order, fontsize=7)
    axes.set_title("Jaccard index: features below, records above the diagonal", fontsize=9, loc="left", color=INK)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, shrink=0.8).outline.set_visible(False)


def draw_curves(figure: Any, curves: dict[str, Any]) -> None:
    """Draw the metrics of the rounds, an axis each, up to three side by side."""
    across = min(3, len(curves))
    grid = np.atleast_1d(figure.subplots(-(-len(curves) // across), across)).reshape(-1)
    for axes in grid[len(curves) :]:
        axes.set_visible(False)
    for axes, (key, series) in zip(grid, curves.items(), strict=False):
        for one, colour in zip(series, COLOURS, strict=False):
            axes.plot(one.x, one.y, color=colour, linewidth=1.4, label=one.name)
        axes.set_title(TITLES.get(key, key.replace("_", " ")), fontsize=9, loc="left", color=INK)
        axes.set_yscale("log" if is_wide(series) else "linear")
        axes.tick_params(labelsize=7, colors=MUTED)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("round", fontsize=8, color=MUTED)
        if len(series) > 1:
            axes.legend(fontsize=7, frameon=False)


def _folder(folder: str) -> Path:
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise InputError(f"{folder} is a file; name a folder")
    place.mkdir(parents=True, exist_ok=True)
    return place
