"""Parts of pages: facts, plots with captions, notes, tables, heat maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from felb.report.page import Html, markup, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LONG = 6
"""Number of characters of a score beyond which it is set smaller."""

THIN_SPACE, MINUS, DASH = "\u202f", "\u2212", "–"


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


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share as a percentage."""
    return DASH if share is None else f"{number(100 * share, digits)}{THIN_SPACE}%"


def counted(n: int | None, what: str) -> str:
    """Return a number of things, in the plural unless it is one."""
    return f"{number(n)} {what}{'' if n == 1 else 's'}"


def paragraph(*content: Any, fine: bool = False) -> Html:
    """Return a paragraph, in small print if `fine`."""
    return tag("p", *content, class_="fine" if fine else None)


def note(*content: Any, kind: Literal["plain", "important"] = "plain") -> Html:
    """Return a remark set apart from the text."""
    return tag("p", *content, class_=f"note {kind}", role="note")


def facts(named: Mapping[str, Any]) -> Html:
    """Return named facts as a list of terms."""
    return tag("dl", (tag("div", tag("dt", name), tag("dd", fact)) for name, fact in named.items()), class_="facts")


def code(text: Any) -> Html:
    """Return text as it would be typed."""
    return tag("code", text)


def details(summary: Any, *content: Any) -> Html:
    """Return content that opens on demand, and for the printer."""
    return tag("details", tag("summary", summary), *content)


def names(features: Iterable[str]) -> Html:
    """Return names one by one; they may hold commas and spaces. There may be thousands, so the markup is short."""
    return tag("span", Html(" ".join(tag("b", name) for name in features)), class_="names")


@dataclass(frozen=True, slots=True)
class Headline:
    """One score in large digits: name, value, interval and explanation."""

    name: str
    value: str
    interval: str | None = None
    meaning: str | None = None


def headlines(scores: Iterable[Headline]) -> Html:
    """Return scores side by side in large digits."""
    return tag(
        "ul",
        (
            tag(
                "li",
                tag("span", s.name, class_="of"),
                tag("strong", s.value, class_="long" if len(s.value) > LONG else None),
                tag("span", s.interval, class_="interval") if s.interval else None,
                tag("span", s.meaning, class_="meaning") if s.meaning else None,
            )
            for s in scores
        ),
        class_="headlines",
        role="list",
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, and whether it holds numbers or words."""

    title: str
    kind: Literal["number", "words"] = "number"
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: what it shows, by what it is sorted, and how much of its width a bar fills."""

    content: Any
    order: float | str | None = None
    bar: float | None = None


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Any]],
    *,
    caption: str,
    sortable: bool = False,
    search: str | None = None,
    row_header: int | None = 0,
) -> Html:
    """Return a table that scrolls within itself if it is too wide; on a phone, wide ones show row below row.

    Parameters
    ----------
    columns, rows : headings, and for each row its cells: `Cell`, or content alone
    caption : says what it shows, also to screen readers
    sortable : offer to sort by a column
    search : offer a search by the words of a row; the label of the box
    row_header : the column that names the row, if any
    """
    head = tag(
        "tr",
        (
            tag("th", c.title, scope="col", class_=c.kind, title=c.hint, data_sort=c.kind if sortable else None)
            for c in columns
        ),
    )
    body = [
        tag(
            "tr",
            (_cell(c, cell, is_header=i == row_header) for i, (c, cell) in enumerate(zip(columns, row, strict=True))),
        )
        for row in rows
    ]
    kinds = [*(["sortable"] if sortable else []), *(["stacked"] if len(columns) > NARROW else [])]
    scroll = _scrolling(head, body, caption=caption, class_=" ".join(kinds) or None)
    if search is None:
        return scroll
    box = tag(
        "div",
        tag("label", tag("span", search), tag("input", type="search", autocomplete="off", spellcheck="false")),
        tag("p", role="status", class_="count"),
        class_="search",
        hidden=True,
    )
    return tag("div", box, scroll, class_="searchable")


def _cell(column: Column, cell: Any, *, is_header: bool) -> Html:
    held = cell if isinstance(cell, Cell) else Cell(cell)
    bar = None if held.bar is None else tag("i", class_="share", style=f"--share:{min(1.0, max(0.0, held.bar)):.4g}")
    return tag(
        "th" if is_header else "td",
        held.content,
        bar,
        scope="row" if is_header else None,
        class_=column.kind,
        data_label=column.title,
        data_order=held.order,
    )


def heat_table(
    shares: Sequence[Sequence[float | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    caption: str,
    corner: str = "",
) -> Html:
    """Return a table of shares between 0 and 1, the more the darker; None leaves a cell empty."""
    head = tag("tr", tag("th", corner, scope="col"), (tag("th", name, scope="col") for name in columns))
    body = (tag("tr", tag("th", name, scope="row"), map(_heat, row)) for name, row in zip(rows, shares, strict=True))
    return _scrolling(head, body, caption=caption, class_="heat dense" if len(columns) > ROOMY else "heat")


def _scrolling(head: Any, body: Any, *, caption: str, class_: str | None) -> Html:
    """Return a table that scrolls below its caption; one of its own would scroll too, and be as narrow as it is."""
    content = tag("table", tag("thead", head), tag("tbody", body), class_=class_, aria_label=caption)
    scroll = tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=caption)
    return tag("figure", tag("figcaption", caption), scroll, class_="tabular")


NARROW = 3
"""Columns that a phone shows side by side; of a table with more, it shows the cells of a row below each other."""

ROOMY = 14
"""Columns of a heat map beyond which they are set narrower."""


def _heat(share: float | None) -> Html:
    if share is None:
        return tag("td", class_="none")
    shown = number(100 * share)
    strong = "strong" if share >= 0.55 else None
    return tag("td", tag("span", shown), style=f"--v:{share:.2f}", class_=strong)


def figure(content: Any, *, caption: Any, wide: bool = False) -> Html:
    """Return a plot with its caption."""
    return tag("figure", content, tag("figcaption", caption), class_="wide" if wide else None)


def grid(*content: Any, narrow: bool = False) -> Html:
    """Return content side by side where there is room; `narrow` content in threes, also on paper."""
    return tag("div", *content, class_="grid narrow" if narrow else "grid")


def legend(entries: Mapping[str, str]) -> Html:
    """Return what colours mean: name of a class in the style sheet (``s0`` … ``s9``, ``ink``, …) by meaning."""
    items = (tag("li", tag("i", class_=f"swatch {css}"), meaning) for meaning, css in entries.items())
    return tag("ul", items, class_="legend", role="list")


def joined(pieces: Iterable[Any], between: str = ", ") -> Html:
    """Return pieces of markup with text between them."""
    return Html(markup(between).join(markup(piece) for piece in pieces))
