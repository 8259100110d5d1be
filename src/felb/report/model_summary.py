"""What a notebook shows of a fitted estimator: its parameters, its scores and its components by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.report.page import tag

if TYPE_CHECKING:
    from felb.centralized.base import BooleanFactorization
    from felb.report.page import Html

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
