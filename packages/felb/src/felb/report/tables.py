"""Tables of scores as papers print them, the best of a column bold and the second best underlined.

One table is written for a terminal, as Markdown and as LaTeX (booktabs); a template of pages writes it as HTML.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from felb.records import write_csv
from felb.runs.compare import SCORES, SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from felb.metrics.comparison import Interval
    from felb.runs.compare import Compared

Mark = Literal["", "best", "second"]
NO_SCORE, OUT_OF_TIME, FAILED = "–", "out of time", "failed"
"""Stand where no trial has a score."""

LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--",
}  # fmt: skip
"""Characters that mean something else in LaTeX, and how they are written."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell of a table: its text, whether it is the best or second best of its column, and what is published."""

    text: str
    mark: Mark = ""
    published: str | None = None

    def format(self, best: str, second: str = "{}", escape: Callable[[str], str] = str) -> str:
        """Return the cell with its escaped text in the pattern of its mark."""
        text = {"best": best, "second": second}.get(self.mark, "{}").format(escape(self.text))
        return text if self.published is None else f"{text} / {self.published}"


@dataclass(frozen=True, slots=True)
class MarkedTable:
    """One score: a row for each method, a column for each place."""

    title: str
    head: tuple[str, ...]
    cells: tuple[tuple[str, tuple[TableCell, ...]], ...]

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The cells as plain text; the best of a column is marked with *."""
        return tuple((method, *(cell.format("{}*") for cell in cells)) for method, cells in self.cells)

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table."""
        head = "| " + " | ".join(escape_markdown(text) for text in self.head) + " |"
        rule = "|---|" + "---:|" * (len(self.head) - 1)
        rows = [
            (escape_markdown(method), *(cell.format("**{}**", "<u>{}</u>", escape_markdown) for cell in cells))
            for method, cells in self.cells
        ]
        return [head, rule, *("| " + " | ".join(row) + " |" for row in rows)]

    def latex(self, *, caption: str, label: str) -> list[str]:
        """Return the lines of a LaTeX table, which needs the package booktabs."""
        marks = r"\textbf{{{}}}", r"\underline{{{}}}", _escape_latex
        rows = [(_escape_latex(method), *(cell.format(*marks) for cell in cells)) for method, cells in self.cells]
        return [
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{_escape_latex(caption)}}}",
            f"  \\label{{{label}}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
            r"    \toprule",
            "    " + " & ".join(map(_escape_latex, self.head)) + r" \\",
            r"    \midrule",
            *("    " + " & ".join(row) + r" \\" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]


def mark_best(values: Sequence[float | None], *, better: Literal["high", "low", ""]) -> list[Mark]:
    """Mark the best of a column and, of three or more, the second best; nothing where there is no choice.

    Examples
    --------
    >>> mark_best([0.5, None, 0.9, 0.9, 0.7], better="high")
    ['', '', 'best', 'best', 'second']
    """
    known = [value for value in values if value is not None]
    if not better or len(known) < 2:
        return [""] * len(values)
    top = sorted(set(known), reverse=better == "high")[: 2 if len(known) > 2 else 1]
    names: dict[float, Mark] = dict(zip(top, ("best", "second"), strict=False))
    return ["" if value is None else names.get(value, "") for value in values]


class Trials(NamedTuple):
    """What a table says of a method at a place: mean and interval, how its trials ended, and what is published."""

    interval: Interval | None
    ended: Sequence[str | None]
    published: str | None = None


def tabulate(
    title: str,
    head: Sequence[str],
    trials: Mapping[str, Sequence[Trials]],
    *,
    better: Literal["high", "low", ""],
    write: Callable[[float], str],
    compared: Callable[[float], float] = float,
) -> MarkedTable:
    """Return a table of mean ± half the interval, a row for each method; cells without any say why.

    Parameters
    ----------
    title, head : of the table, and of its columns
    trials : of each method, at every place
    better : which means of a column are marked
    write : writes a number
    compared : what is compared of a mean, where printed numbers are
    """
    columns = [
        mark_best([None if one.interval is None else compared(one.interval.mean) for one in column], better=better)
        for column in zip(*trials.values(), strict=True)
    ]
    marks = zip(*columns, strict=True) if columns else [()] * len(trials)
    return MarkedTable(
        title,
        tuple(head),
        tuple(
            (
                method,
                tuple(
                    TableCell(_write_trials(one, write), mark, one.published)
                    for one, mark in zip(row, marked, strict=True)
                ),
            )
            for (method, row), marked in zip(trials.items(), marks, strict=True)
        ),
    )


def _write_trials(one: Trials, write: Callable[[float], str]) -> str:
    """Write a mean with half its interval, and of how many trials it is if some have ended without scores."""
    found, ended = one.interval, one.ended
    if found is None:
        return OUT_OF_TIME if "timeout" in ended else FAILED if "failed" in ended else NO_SCORE
    spread = "" if math.isnan(found.half) else f" ±{write(found.half)}"
    some = f" ({found.n} of {len(ended)})" if {"timeout", "failed"} & set(ended) else ""
    return f"{write(found.mean)}{spread}{some}"


def format_csv(rows: Iterable[Iterable[Any]]) -> str:
    """Return the text of a CSV file; nothing stands where there is no value."""
    out = io.StringIO()
    write_csv(out, rows, lineterminator="\n")
    return out.getvalue()


def escape_markdown(text: str) -> str:
    """Return text as Markdown shows it."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _escape_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def comparison_tables(compared: Compared) -> list[MarkedTable]:
    """Return a table for each score: mean ± half the 95% interval over the seeds, methods by numbers of components."""
    tables = []
    for score in (score for score in SCORES if score.key in SHOWN):
        trials = {
            method: [
                Trials(compared.interval(score.key, method, k), compared.statuses(method, k))
                for k in compared.components
            ]
            for method in compared.methods
        }
        head = ("method", *(f"k = {k}" for k in compared.components))
        # Means as they are printed: what cannot be told apart is marked alike.
        rounded, write = partial(round, ndigits=score.digits), f"{{:.{score.digits}f}}".format
        tables.append(tabulate(score.label, head, trials, better=score.better, write=write, compared=rounded))
    return tables


def comparison_csv(compared: Compared) -> str:
    """Return one line for each method, number of components and score, with mean, interval and number of seeds."""
    rows: list[list[object]] = [["method", "components", "score", "mean", "low", "high", "seeds", "planned"]]
    for method, k, score in product(compared.methods, compared.components, SCORES):
        found = compared.interval(score.key, method, k)
        rows.append([method, k, score.key, *describe_interval(found).values(), compared.seeds])
    return format_csv(rows)


def describe_interval(found: Interval | None) -> dict[str, float | None]:
    """Return mean, ends and number of trials as plain values; one trial has no ends."""
    if found is None:
        return {"mean": None, "low": None, "high": None, "trials": 0}
    low, high = (None, None) if math.isnan(found.half) else (found.low, found.high)
    return {"mean": found.mean, "low": low, "high": high, "trials": found.n}


def comparison_markdown(compared: Compared) -> str:
    """Return the tables as Markdown."""
    lines = [f"{escape_markdown(describe_comparison(compared))} Bold: best, underlined: second best of a column.", ""]
    for table in comparison_tables(compared):
        lines += [f"**{escape_markdown(table.title)}**", "", *table.markdown(), ""]
    return "\n".join(lines)


def comparison_latex(compared: Compared) -> str:
    """Return the tables as LaTeX; they need the package booktabs."""
    lines = ["% Needs \\usepackage{booktabs}."]
    for score, table in zip(SHOWN, comparison_tables(compared), strict=True):
        caption = f"{table.title}. {describe_comparison(compared)} Bold: best, underlined: second best."
        lines += ["", *table.latex(caption=caption, label=f"tab:{score}")]
    return "\n".join(lines) + "\n"


def describe_comparison(compared: Compared) -> str:
    """Say what was compared, and whether anything is missing."""
    rows, columns = compared.shape
    over = "clients by a column of the data" if compared.clients is None else f"{compared.clients} clients"
    spread = "mean ± half the 95% interval" if compared.seeds > 1 else "one seed, no interval"
    missing = compared.planned - compared.done
    lack = f" {missing} of {compared.planned} runs have no scores." if missing else ""
    trials = f"{compared.seeds} seed{'s' if compared.seeds > 1 else ''}"
    return f"{compared.source}, {rows} x {columns}, {over}, {trials}: {spread} over the seeds.{lack}"
