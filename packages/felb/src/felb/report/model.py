"""What a fitted estimator shows: plots, a page, and a summary in a notebook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from felb.errors import InputError, missing_extra
from felb.report.evidence import Evidence, Measured
from felb.report.exports import COLOURS, INK, MUTED, draw_curves, draw_png
from felb.report.figures import PALETTES, check_drawable, figures, pictures_of, tile_order
from felb.report.parts import tag
from felb.report.result_page import result_page
from felb.runs.result import Result
from felb.sklearn.base import feature_names

if TYPE_CHECKING:
    import os

    from felb.analysis.choose_k import RankChoice
    from felb.report.parts import Html
    from felb.sklearn.base import BooleanFactorization


# -- What a notebook shows of a fitted estimator: its parameters, its scores and its components by name --------------

SHOWN_FEATURES, SHOWN_COMPONENTS = 12, 50
WORDS = "text-align:left;vertical-align:top;white-space:normal"
NUMBERS = "text-align:right;vertical-align:top"


def model_summary(model: BooleanFactorization) -> str:
    """Return the summary as HTML; names are escaped, and nothing is loaded or run."""
    V = model.components_
    facts = [f"{len(V)} components of {V.shape[1]} features", *_scores(model)]
    supports = getattr(model, "supports_", None)
    order = np.arange(len(V)) if supports is None else np.argsort(-np.asarray(supports), kind="stable")
    names = model.component_features()
    rows = [_row(int(i), None if supports is None else int(supports[i]), names[i]) for i in order[:SHOWN_COMPONENTS]]
    more = len(V) - len(rows)
    titles = ("component", *(() if supports is None else ("support",)), "size", "features")
    head = tag("tr", (tag("th", title, style=WORDS if title == "features" else NUMBERS) for title in titles))
    return tag(
        "div",
        tag("p", tag("strong", type(model).__name__), f" · {' · '.join(facts)}"),
        tag("p", tag("code", repr(model))),
        tag("table", tag("thead", head), tag("tbody", rows)),
        tag("p", f"{more} more components are not shown.") if more > 0 else None,
        class_="felb-model",
        style="overflow-x:auto;max-width:100%",
    )


def _row(number: int, support: int | None, features: tuple[str, ...]) -> Html:
    more = len(features) - SHOWN_FEATURES
    text = ", ".join(features[:SHOWN_FEATURES]) + (f", … ({more} more)" if more > 0 else "")
    cells: list[Any] = [number, *([] if support is None else [support]), len(features)]
    return tag("tr", (tag("td", cell, style=NUMBERS) for cell in cells), tag("td", text or "(empty)", style=WORDS))


def _scores(model: BooleanFactorization) -> list[str]:
    """Return the scores that the fit has left, and whether it was ended early."""
    counts, told = getattr(model, "counts_", None), []
    if counts is not None:
        told += [f"F1 {counts.f1:.3f}", f"{counts.fp + counts.fn} wrong cells"]
    if getattr(model, "n_iter_", None) is not None and len(getattr(model, "history_", ())):
        told.append(f"{len(model.history_)} rounds")
    if not getattr(model, "complete_", True):
        told.append("ended by its time limit")
    return told


# -- Figures of a fitted estimator: ``model.plot.components()`` and others, which return matplotlib figures ----------

MOST_FEATURES = 60
"""Features of a plot of components; those of most components come first."""


class ModelPlots:
    """The figures of a model; each is a new `matplotlib.figure.Figure`, to be shown, changed or saved.

    Examples
    --------
    >>> import felb
    >>> model = felb.FederatedBMF(5, random_state=0).fit(felb.data.load("zoo"))
    >>> model.plot.components().savefig("components.png")
    """

    def __init__(self, model: BooleanFactorization) -> None:
        check_is_fitted(model)
        self._model = model

    def components(self, *, max_features: int = MOST_FEATURES) -> Any:
        """Draw which features each component has, by their names; at most so many features, those used most."""
        V = self._model.components_
        used = np.argsort(-V.sum(axis=0), kind="stable")[: max(1, min(max_features, int(V.any(axis=0).sum())))]
        supports = getattr(self._model, "supports_", None)
        U = np.eye(len(V), dtype=bool)
        order = tile_order(U, V[:, used])
        shown = V[:, used][:, order.columns]
        names = feature_names(getattr(self._model, "feature_names_in_", None), V.shape[1])
        figure = _figure((2.2 + 0.22 * shown.shape[1], 1.6 + 0.3 * len(V)))
        axes = figure.subplots()
        axes.imshow(shown, cmap=_colours("#ffffff", COLOURS[0]), vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.set_xticks(range(shown.shape[1]), [names[used[j]] for j in order.columns], rotation=90, fontsize=8)
        rows = range(len(V)) if supports is None else [f"{i}  ({support})" for i, support in enumerate(supports)]
        axes.set_yticks(range(len(V)), rows, fontsize=8)
        axes.set_ylabel("component" if supports is None else "component (support)", fontsize=9, color=INK)
        left = int(V.any(axis=0).sum()) - shown.shape[1]
        more = f"; {left} more features are not shown" if left > 0 else ""
        axes.set_title(f"Components and their features{more}", fontsize=10, loc="left", color=INK)
        axes.set_xticks(np.arange(shown.shape[1] + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(V) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#e3e3de", linewidth=0.6)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        return figure

    def reconstruction(self, X: Any) -> Any:
        """Draw X, its reconstruction U∘V, and where they differ; rows and columns in the order of the components."""
        rows = self._model.new_rows(X)[0]
        U = np.asarray(self._model.transform(rows))
        measured = Measured(rows, U, self._model.components_, source="", same=None, stored=False, rows_of=None)
        drawn = pictures_of(measured)
        figure = _figure((10.5, 4.2))
        titles = {"data": "data", "reconstruction": "reconstruction", "residual": "explained, missed, wrong"}
        for axes, (name, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
            codes, palette = getattr(drawn, name), PALETTES["light"]
            axes.imshow(
                codes, cmap=_colours(*palette), vmin=0, vmax=len(palette) - 1, aspect="auto", interpolation="nearest"
            )
            axes.set_title(title, fontsize=10, loc="left", color=INK)
            axes.set_xticks([])
            axes.set_yticks([])
        _coloured_words(axes, PALETTES["light"][2:], ("explained", "missed", "wrong"))
        n, m = drawn.shape
        part = " An even selection is shown." if drawn.chosen else ""
        figure.supxlabel(f"{n} records x {m} features.{part}", fontsize=8, color=MUTED)
        return figure

    def rounds(self) -> Any:
        """Draw the metrics of the rounds: loss, integrality gap, wrong cells and others that the method reports."""
        found = figures(self._model.history_) if len(getattr(self._model, "history_", ())) else {}
        if not found:
            raise InputError(f"{type(self._model).__name__} has no metrics of rounds to draw")
        across = min(3, len(found))
        figure = _figure((3.6 * across, 2.6 * -(-len(found) // across)))
        draw_curves(figure, found)
        return figure

    def stability(self, found: Any = None) -> Any:
        """Draw how well each component is found again in refits, from the result of `felb.stability`.

        Parameters
        ----------
        found : has ``mean``, the mean match of each component, and ``interval``, components × 2
        """
        if found is None or not all(hasattr(found, name) for name in ("mean", "interval")):
            raise InputError("give the result of felb.stability(model, X), which has the means and intervals to draw")
        means, interval = np.asarray(found.mean, dtype=float), np.asarray(found.interval, dtype=float)
        k = len(self._model.components_)
        if means.shape != (k,) or interval.shape != (k, 2):
            raise InputError(f"the stability is of {means.size} components, and the model has {k}")
        figure = _figure((5.2, 1.2 + 0.3 * k))
        axes = figure.subplots()
        places = np.arange(k)
        axes.hlines(places, interval[:, 0], interval[:, 1], color=COLOURS[0], linewidth=2)
        axes.plot(means, places, "o", color=COLOURS[0], markersize=6)
        axes.set_xlim(-0.02, 1.02)
        axes.set_yticks(places, [str(number) for number in places], fontsize=8)
        axes.invert_yaxis()
        axes.set_ylabel("component", fontsize=9, color=INK)
        axes.set_xlabel(
            "Jaccard index of a component and its match in refits: mean, 95% of refits", fontsize=8, color=INK
        )
        axes.grid(axis="x", color="#e3e3de", linewidth=0.6)
        axes.tick_params(labelsize=8, colors=MUTED)
        axes.spines[["top", "right", "left"]].set_visible(False)
        return figure


def _figure(size: tuple[float, float]) -> Any:
    """Return a figure that a notebook shows once, when it is the value of a cell."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        missing_extra("drawing", "report", error)
    figure = pyplot.figure(figsize=size, layout="constrained", facecolor="white")
    pyplot.close(figure)  # not kept by pyplot, which would show it a second time
    return figure


def _colours(*colours: str) -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap(list(colours))


def _coloured_words(axes: Any, colours: tuple[str, ...], words: tuple[str, ...]) -> None:
    """Set a legend of coloured squares below a plot."""
    from matplotlib.patches import Patch

    patches = [Patch(color=colour, label=word) for colour, word in zip(colours, words, strict=True)]
    axes.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=3, fontsize=8, frameon=False)


# -- The page of a fitted estimator, without a stored run ------------------------------------------------------------

UNSTORED = "data in memory"


def report_model(model: BooleanFactorization, path: str | os.PathLike[str], X: Any = None, *, force: bool) -> None:
    """Write the page of a model; with X, its scores and plots are those of these records."""
    evidence = Evidence(Path(path), Result.from_model(model, source=UNSTORED), None, (), None, "No data was given.")
    if X is not None:
        rows, _ = model.new_rows(X)
        U, V = model._assign(rows), model.components_
        measured = Measured(rows, U, V, source=UNSTORED, same=None, stored=False, rows_of=None)
        evidence = replace(evidence, measured=measured, absent=None)
    result_page(evidence).write(Path(path), force=force)


# -- One figure for the choice of k: held-out cells, error, stability and description length -------------------------


def write_choice(choice: RankChoice, path: str | os.PathLike[str]) -> None:
    """Draw the scores over the number of components into a PNG file.

    Examples
    --------
    >>> import felb
    >>> choice = felb.choose_k(felb.data.load("zoo"), range(2, 5), cv=2, n_resamples=0)
    >>> write_choice(choice, "choice.png")
    """
    check_drawable(path)
    panels = _panels(choice)
    draw_png(Path(path), (3.2 * len(panels), 2.8), lambda figure: _draw(figure, choice, panels))


def _panels(choice: RankChoice) -> dict[str, list[float]]:
    """Return the curves by title."""
    rows = choice.scores
    panels = {
        "F1 of held-out cells": [row.mean for row in rows],
        "Wrong cells of the fit, %": [100 * row.error_rate for row in rows],
        "Components found by refits, %": [100 * (row.stability or 0.0) for row in rows],
        "Description length, kbit": [row.description_length / 1000 for row in rows],
    }
    if any(row.stability is None for row in rows):
        del panels["Components found by refits, %"]
    return panels


def _draw(figure: Any, choice: RankChoice, panels: dict[str, list[float]]) -> None:
    from matplotlib.ticker import MaxNLocator

    k = [row.n_components for row in choice.scores]
    chosen = {"Description length, kbit": choice.shortest_k, "F1 of held-out cells": choice.best_k}
    for axes, (title, values) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        axes.plot(k, values, color=COLOURS[0], linewidth=1.4, marker="o", markersize=3)
        if title == "F1 of held-out cells":
            errors = [row.standard_error for row in choice.scores]
            axes.errorbar(k, values, yerr=errors, color=COLOURS[0], linewidth=0, elinewidth=1)
        if title in chosen:
            at = chosen[title]
            axes.axvline(at, color=COLOURS[1], linewidth=1, linestyle=":")
            axes.plot([at], [values[k.index(at)]], color=COLOURS[1], marker="o", markersize=6)
            low = values[k.index(at)] < (min(values) + max(values)) / 2
            where = {"xycoords": ("data", "axes fraction"), "xytext": (4, 0), "textcoords": "offset points"}
            axes.annotate(f"k = {at}", (at, 0.92 if low else 0.04), fontsize=8, color=COLOURS[1], **where)
        axes.set_title(title, fontsize=9, loc="left", color=INK)
        axes.set_xlabel("components k", fontsize=8, color=MUTED)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(labelsize=7, colors=MUTED)
        axes.spines[["top", "right"]].set_visible(False)
