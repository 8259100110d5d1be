"""One self-contained HTML page, made of parts that are safe by construction."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from felb._version import __version__
from felb.errors import InputError
from felb.records import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence


# -- One self-contained HTML page, made of parts that are safe by construction ---------------------------------------
#
# A page is a title and sections; a section is a heading and content; content is made by `tag`, or by the functions of
# `felb.report.parts` (facts, tables, figures, notes) and `felb.report.figures` (curves as inline SVG).
#
#     page = Page("Noise", sections=[section("Results", parts.note("10 seeds"), charts.line_chart(...))])
#     page.write("noise.html")
#
# Whatever is not `Html` is escaped, so names that come with data can be passed as they are. Style and script are
# inlined from ``assets/``; a content security policy in the page admits that one script and nothing from the network.
# The page is readable without the script, which only adds sorting, searching and the choice of a theme.

GENERATOR = '<meta name="generator" content="felb'
"""By this a page is known as one of felb's, which may be replaced by a newer one."""

VOID = {"br", "img", "input", "meta"}


class Html(str):
    """Text that is markup already and is not escaped again."""

    __slots__ = ()


def markup(content: Any) -> Html:
    """Return content as markup: `Html` as it is, None as nothing, lists piece by piece, all else escaped."""
    if isinstance(content, Html):
        return content
    if content is None:
        return Html()
    if not isinstance(content, str) and isinstance(content, Iterable):
        return Html("".join(map(markup, content)))
    # A lone half of a surrogate pair cannot be written, and control characters are not allowed in HTML.
    plain = str(content).encode("utf-8", "replace").decode("utf-8")
    return Html(escape("".join(c if c >= " " or c in "\n\t" else "\ufffd" for c in plain)))


def tag(name: str, /, *content: Any, **attributes: Any) -> Html:
    """Return an element; ``class_`` and ``data_x`` become class and data-x, None and False leave an attribute out.

    Examples
    --------
    >>> tag("p", "a < b", class_="lead", hidden=True)
    '<p class="lead" hidden>a &lt; b</p>'
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{markup(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{markup(content)}</{name}>")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, what is below it, and the name by which it is linked."""

    title: str
    content: Html
    anchor: str


def section(title: str, *content: Any, anchor: str | None = None) -> Section:
    """Return a section; its anchor is its title in small letters and hyphens."""
    plain = "".join(c if c.isalnum() else " " for c in title.lower())
    return Section(title, markup(content), anchor or "-".join(plain.split()))


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Parameters
    ----------
    title : of the window, and the heading
    sections : in order; a bar at the top links to them
    kicker, lead : a line above the heading, and what stands below it
    footer : the last line
    """

    title: str
    sections: Sequence[Section]
    kicker: str = ""
    lead: Any = None
    footer: Any = f"Made by felb {__version__}. This page is self-contained and loads no other files."

    def html(self) -> str:
        """Return the whole page."""
        script, style = asset("page.js"), asset("page.css")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'none'"
        )
        head = (
            tag("meta", charset="utf-8"),
            Html('<meta http-equiv="Content-Security-Policy" content="' + escape(policy) + '">'),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            Html(f'{GENERATOR} {__version__}">'),
            tag("title", self.title),
            Html(f"<style>{style}</style><script>{script}</script>"),
        )
        body = (
            tag("a", "Skip to the content", class_="skip", href="#main"),
            self._bar(),
            tag("main", self._heading(), map(_rendered, self.sections), id="main"),
            tag("footer", tag("p", self.footer)),
        )
        return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> int:
        """Write the page, complete or not at all, and return its size in bytes; pages of felb are replaced."""
        target = Path(path)
        if target.is_dir():
            raise InputError(f"{target} is a folder; name a file for the page")
        if target.exists() and not force and not is_page(target):
            raise InputError(f"{target} exists and is no page of felb; choose another file, or replace it with --force")
        text = self.html().encode("utf-8")
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as partial:
            partial.write_bytes(text)
        return len(text)

    def _bar(self) -> Html:
        links = (tag("li", tag("a", s.title, href=f"#{s.anchor}")) for s in self.sections)
        return tag(
            "header",
            tag("a", "felb", class_="mark", href="#main", aria_label="felb, to the top"),
            tag("nav", tag("ul", links), aria_label="Sections"),
            tag("button", "Theme", class_="theme", type="button", hidden=True),
            class_="bar",
        )

    def _heading(self) -> Html:
        return tag(
            "header",
            tag("p", self.kicker, class_="kicker") if self.kicker else None,
            tag("h1", self.title),
            tag("div", self.lead, class_="lead") if self.lead else None,
            class_="heading",
        )


def _rendered(part: Section) -> Html:
    heading = f"{part.anchor}-heading"
    return tag(
        "section", tag("h2", part.title, id=heading), part.content, id=part.anchor, aria_labelledby=heading, tabindex=-1
    )


def asset(name: str) -> str:
    """Return a file of ``assets/``."""
    return (files("felb.report") / "assets" / name).read_text(encoding="utf-8")


def is_page(path: Path) -> bool:
    """Whether a file is a page that felb made."""
    with path.open("rb") as file:
        return GENERATOR.encode() in file.read(4096)


# -- Parts of pages: facts, plots with captions, notes, tables, heat maps --------------------------------------------

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
