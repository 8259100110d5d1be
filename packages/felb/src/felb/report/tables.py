"""Tables of scores as papers print them, the best of a column bold and the second best underlined.

One table is written for a terminal, as Markdown and as LaTeX (booktabs); a template of pages writes it as HTML.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from felb.runs.compare import SCORES, SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from felb.runs.compare import Compared, Score

Mark = Literal["", "best", "second"]
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

    def format(self, best: Callable[[str], str], second: Callable[[str], str]) -> str:
        """Return the cell with its mark set by one of the functions."""
        text = {"best": best, "second": second}.get(self.mark, str)(self.text)
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
        return tuple(
            (method, *(cell.format(lambda text: f"{text}*", str) for cell in cells)) for method, cells in self.cells
        )

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table."""
        head = "| " + " | ".join(escape_markdown(text) for text in self.head) + " |"
        rule = "|---|" + "---:|" * (len(self.head) - 1)
        rows = [(escape_markdown(method), *map(_markdown_cell, cells)) for method, cells in self.cells]
        return [head, rule, *("| " + " | ".join(row) + " |" for row in rows)]

    def latex(self, *, caption: str, label: str) -> list[str]:
        """Return the lines of a LaTeX table, which needs the package booktabs."""
        rows = [" & ".join((_escape_latex(method), *map(_latex_cell, cells))) + r" \\" for method, cells in self.cells]
        return [
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{_escape_latex(caption)}}}",
            f"  \\label{{{label}}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
            r"    \toprule",
            "    " + " & ".join(map(_escape_latex, self.head)) + r" \\",
            r"    \midrule",
            *(f"    {row}" for row in rows),
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


def escape_markdown(text: str) -> str:
    """Return text as Markdown shows it."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _markdown_cell(cell: TableCell) -> str:
    plain = TableCell(escape_markdown(cell.text), cell.mark, cell.published)
    return plain.format(lambda text: f"**{text}**", lambda text: f"<u>{text}</u>")


def _escape_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def _latex_cell(cell: TableCell) -> str:
    plain = TableCell(_escape_latex(cell.text), cell.mark, cell.published)
    return plain.format(lambda text: rf"\textbf{{{text}}}", lambda text: rf"\underline{{{text}}}")


NO_SCORE = "–"
OUT_OF_TIME, FAILED = "out of time", "failed"


def comparison_tables(compared: Compared) -> list[MarkedTable]:
    """Return a table for each score: mean ± half the 95% interval over the seeds, methods by numbers of components."""
    return [_tabulate(compared, score) for score in SCORES if score.key in SHOWN]


def comparison_csv(compared: Compared) -> str:
    """Return one line for each method, number of components and score, with mean, interval and number of seeds."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["method", "components", "score", "mean", "low", "high", "seeds", "planned"])
    for method in compared.methods:
        for k in compared.components:
            for score in SCORES:
                found = compared.interval(score.key, method, k)
                if found is None:
                    row: list[object] = ["", "", "", 0]
                else:
                    ends = ["", ""] if math.isnan(found.half) else [found.low, found.high]
                    row = [found.mean, *ends, found.n]
                writer.writerow([method, k, score.key, *row, compared.seeds])
    return out.getvalue()


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


def _tabulate(compared: Compared, score: Score) -> MarkedTable:
    found = {
        (method, k): compared.interval(score.key, method, k) for method in compared.methods for k in compared.components
    }
    # As they are printed: what cannot be told apart is marked alike.
    means = {
        place: None if interval is None else round(interval.mean, score.digits) for place, interval in found.items()
    }
    top = {
        (method, k): mark
        for k in compared.components
        for method, mark in zip(
            compared.methods, mark_best([means[each, k] for each in compared.methods], better=score.better), strict=True
        )
    }
    rows = tuple(
        (method, tuple(TableCell(_text(compared, score, method, k), top[method, k]) for k in compared.components))
        for method in compared.methods
    )
    return MarkedTable(score.label, ("method", *(f"k = {k}" for k in compared.components)), rows)


def _text(compared: Compared, score: Score, method: str, k: int) -> str:
    """Write a mean with half its interval, and of how many seeds it is if some have ended without scores."""
    found, ended = compared.interval(score.key, method, k), compared.statuses(method, k)
    if found is None:
        return OUT_OF_TIME if "timeout" in ended else FAILED if "failed" in ended else NO_SCORE
    spread = "" if math.isnan(found.half) else f" ±{found.half:.{score.digits}f}"
    some = f" ({found.n} of {len(ended)})" if found.n < len(ended) else ""
    return f"{found.mean:.{score.digits}f}{spread}{some}"
