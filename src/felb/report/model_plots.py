"""Figures of a fitted estimator: ``model.plot.components()`` and others, which return matplotlib figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from felb.centralized.base import feature_names
from felb.errors import InputError, missing_extra
from felb.report.curves import figures
from felb.report.evidence import Measured
from felb.report.exports import COLOURS, INK, MUTED, draw_curves
from felb.report.images import PALETTES, pictures_of
from felb.report.pictures import tile_order

if TYPE_CHECKING:
    from felb.centralized.base import BooleanFactorization

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
