"""One self-contained HTML page, made of parts that are safe by construction.

A page is a title and sections; a section is a heading and content; content is made by `tag`, or by the functions of
`felb.report.parts` (facts, tables, figures, notes) and `felb.report.charts` (curves as inline SVG).

    page = Page("Noise", sections=[section("Results", parts.note("10 seeds"), charts.line_chart(...))])
    page.write("noise.html")

Whatever is not `Html` is escaped, so names that come with data can be passed as they are. Style and script are inlined
from ``assets/``; a content security policy in the page admits that one script and nothing from the network. The page is
readable without the script, which only adds sorting, searching and the choice of a theme.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb._version import __version__
from felb.errors import InputError
from felb.safe_files import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

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
