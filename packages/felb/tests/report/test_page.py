"""Pages are complete in themselves, and whatever is put into them is shown, not run."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felb.errors import InputError
from felb.report import parts
from felb.report.parts import Html, Page, asset, markup, section, tag


class Reader(HTMLParser):
    """Collects the elements and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.attributes, self.texts = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append(name)
        self.attributes.extend(attributes)

    def handle_data(self, data):
        self.texts.append(data)


ELEMENTS = {
    *("b", "dl", "dt", "dd", "ul", "li", "p", "i", "div", "span", "strong", "figure", "figcaption", "label", "input"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary"),
}

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=40)


@given(TEXT, TEXT)
def test_text_and_attributes_come_back_as_they_were(content, attribute):
    read = Reader(tag("p", content, title=attribute))
    assert read.elements == ["p"]
    assert read.attributes == [("title", attribute)]
    assert "".join(read.texts) == content


@given(st.lists(TEXT, min_size=1, max_size=5))
def test_no_part_lets_a_name_become_markup(names):
    shown = [
        parts.facts(dict.fromkeys(names, names[0])),
        parts.names(names),
        parts.table([parts.Column(names[0], "words")], [[name] for name in names], caption=names[0], search=names[0]),
        parts.heat_table([[0.5] * len(names)], rows=names[:1], columns=names, caption=names[0]),
        parts.note(names[0]),
        parts.legend(dict.fromkeys(names, "ink")),
        parts.headlines([parts.Headline(name, name, name, name) for name in names]),
        parts.details(names[0], names),
        parts.figure(None, caption=names[0]),
    ]
    for part in shown:
        assert set(Reader(part).elements) <= ELEMENTS


def test_what_html_cannot_hold_is_replaced():
    assert markup("a\x00b\ud800") == "a\ufffdb?"
    assert markup("tab\tand\nline") == "tab\tand\nline"


def test_markup_takes_lists_numbers_and_nothing():
    assert markup([1, None, "<", Html("<b>")]) == "1&lt;<b>"
    assert isinstance(markup(("a",)), Html)


def test_attributes_may_be_left_out_or_bare():
    assert tag("input", hidden=True, title=None, disabled=False, data_order=0) == '<input hidden data-order="0">'


@pytest.fixture
def page():
    return Page(
        "A <title>", [section("First & foremost", "text"), section("Second", "more", anchor="two")], lead="lead"
    )


def test_the_page_loads_nothing(page):
    text = page.html()
    read = Reader(text)
    for name, value in read.attributes:
        if name in ("src", "href", "action", "srcset"):
            assert value.startswith(("#", "data:")), value
    assert not re.search(r"https?://|url\(|@import", text)
    assert "link" not in read.elements
    assert "iframe" not in read.elements


def test_the_policy_admits_the_one_script(page):
    text = page.html()
    policy = re.search(r'Policy" content="([^"]*)"', text)[1]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert scripts == [asset("page.js")]
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"sha256-{digest}" in policy
    assert "default-src &#x27;none&#x27;" in policy


def test_the_assets_end_no_element_early():
    assert "</" not in asset("page.js")
    assert "</" not in asset("page.css")


def test_the_bar_links_every_section(page):
    read = Reader(page.html())
    targets = {value for name, value in read.attributes if name == "id"}
    assert {"main", "first-foremost", "two"} <= targets
    assert {"#first-foremost", "#two", "#main"} <= {value for name, value in read.attributes if name == "href"}


def test_writing_replaces_pages_of_felb_only(page, tmp_path):
    path = tmp_path / "new" / "page.html"
    assert page.write(path) == path.stat().st_size
    assert page.write(path) == path.stat().st_size
    path.write_text("my diary")
    with pytest.raises(InputError, match="page"):
        page.write(path)
    assert path.read_text() == "my diary"
    page.write(path, force=True)
    assert path.read_text(encoding="utf-8") == page.html()
    assert [entry.name for entry in path.parent.iterdir()] == ["page.html"]


def test_a_folder_is_no_page(page, tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        page.write(tmp_path)


def test_numbers_for_people():
    assert parts.number(float("nan")) == "–"
    assert parts.number(1234.5, 1) == "1\u202f234.5"
    assert parts.significant(1e20) == "1.00e+20"
    assert parts.significant(-0.5) == "\u22120.5"
    assert parts.percent(0.256) == "26\u202f%"
    assert (parts.counted(1, "record"), parts.counted(2000, "record")) == ("1 record", "2\u202f000 records")


def test_rows_that_do_not_fit_the_columns_are_refused():
    with pytest.raises(ValueError, match="zip"):
        parts.table([parts.Column("a"), parts.Column("b")], [[1]], caption="")
