"""Tables of scores as papers print them: the best of a column bold, the second best underlined.

One table is written for a terminal, as Markdown, as LaTeX (booktabs) and as HTML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from felb.report import parts
from felb.report.page import tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from felb.report.page import Html

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

    def written(self, best: Callable[[str], str], second: Callable[[str], str]) -> str:
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
            (method, *(cell.written(lambda text: f"{text}*", str) for cell in cells)) for method, cells in self.cells
        )

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table."""
        head = "| " + " | ".join(escaped(text) for text in self.head) + " |"
        rule = "|---|" + "---:|" * (len(self.head) - 1)
        rows = [(escaped(method), *map(_markdown_cell, cells)) for method, cells in self.cells]
        return [head, rule, *("| " + " | ".join(row) + " |" for row in rows)]

    def latex(self, *, caption: str, label: str) -> list[str]:
        """Return the lines of a LaTeX table, which needs the package booktabs."""
        rows = [" & ".join((_latex(method), *map(_latex_cell, cells))) + r" \\" for method, cells in self.cells]
        return [
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{_latex(caption)}}}",
            f"  \\label{{{label}}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
            r"    \toprule",
            "    " + " & ".join(map(_latex, self.head)) + r" \\",
            r"    \midrule",
            *(f"    {row}" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]

    def html(self) -> Html:
        """Return the table as a part of a page."""
        columns = [parts.Column(title, "number" if number else "words") for number, title in enumerate(self.head)]
        rows = [(method, *map(_html_cell, cells)) for method, cells in self.cells]
        return parts.table(columns, rows, caption=self.title)


def marks(values: Sequence[float | None], *, better: Literal["high", "low", ""]) -> list[Mark]:
    """Mark the best of a column and, of three or more, the second best; nothing where there is no choice.

    Examples
    --------
    >>> marks([0.5, None, 0.9, 0.9, 0.7], better="high")
    ['', '', 'best', 'best', 'second']
    """
    known = [value for value in values if value is not None]
    if not better or len(known) < 2:
        return [""] * len(values)
    top = sorted(set(known), reverse=better == "high")[: 2 if len(known) > 2 else 1]
    names: dict[float, Mark] = dict(zip(top, ("best", "second"), strict=False))
    return ["" if value is None else names.get(value, "") for value in values]


def escaped(text: str) -> str:
    """Return text as Markdown shows it."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _markdown_cell(cell: TableCell) -> str:
    plain = TableCell(escaped(cell.text), cell.mark, cell.published)
    return plain.written(lambda text: f"**{text}**", lambda text: f"<u>{text}</u>")


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def _latex_cell(cell: TableCell) -> str:
    plain = TableCell(_latex(cell.text), cell.mark, cell.published)
    return plain.written(lambda text: rf"\textbf{{{text}}}", lambda text: rf"\underline{{{text}}}")


def _html_cell(cell: TableCell) -> object:
    marked = {"best": "strong", "second": "u"}.get(cell.mark)
    text = cell.text if marked is None else tag(marked, cell.text)
    return text if cell.published is None else tag("span", text, f" / {cell.published}")
