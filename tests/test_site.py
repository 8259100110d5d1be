"""The documentation site: builds without a warning, leads nowhere but into itself, and knows every name and command."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest
from browsing import DESK, PHONE, started_browser

import felb
from felb.cli import felb as program

ROOT = Path(__file__).parents[1]
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
LOOKED_AT = (
    "how-to/apply", "how-to/compare", "how-to/interpret", "how-to/notebook", "how-to/stability",
    "tutorials/single-cells", "reference/api", "reference/api-estimators", "reference/references", "reference/commands",
)  # fmt: skip
"""Pages with every kind of content: tables, code, figures and entries of the reference."""
SCHEMES = {"light": "default", "dark": "slate"}
OVERFLOWING = """() => [
  ...document.querySelectorAll("article .md-typeset__scrollwrap, article pre, article .doc-contents")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.tagName} ${one.innerText.slice(0, 60)}`)"""
"""Tables and code that are cut, or must be scrolled sideways to be read."""
FAINT = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], base) => [r, g, b].map((v, i) => a * v + (1 - a) * base[i]);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = parts(getComputedStyle(document.body).backgroundColor).slice(0, 3);
  return [...document.querySelectorAll("article p, article li, article td, article th, article h1, article h2")]
    .map((one) => [one, over(parts(getComputedStyle(one).color), paper)])
    .map(([one, ink]) => [one, light(ink), light(paper)])
    .filter(([one, a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5)
    .map(([one]) => one.innerText.slice(0, 60));
}"""
"""Text with less than the contrast that WCAG asks for."""


LOOK = f"""() => ({{
  "too wide": document.documentElement.scrollWidth > innerWidth,
  "cut": ({OVERFLOWING})(),
  "faint": ({FAINT})(),
  "broken": [...document.querySelectorAll("article img")].filter((one) => !one.naturalWidth).length,
}})"""
CHANGE_THEME = """(scheme) => {
  document.body.dataset.mdColorSwitching = "";  // no transitions
  document.body.dataset.mdColorScheme = scheme;
}"""
"""What the switch of the page does."""


class Page(HTMLParser):
    """What a page links to, what it loads, and where links may point."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if found.get(FETCHED.get(tag)) and found.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(found[FETCHED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "packages" / "felb" / "src")},
    )
    assert built.returncode == 0, built.stderr + built.stdout
    return out


@pytest.fixture(scope="module")
def browser():
    with started_browser() as started:
        yield started


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def test_links_and_anchors_lead_somewhere(site, pages):
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.relative_to(site)} leads to {link}"
            if parts.fragment and target in pages and parts.fragment != "__skip":
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.relative_to(site)} leads to {link}"


def test_every_page_stands_once_in_the_navigation(site):
    menu = (site / "contributing.html").read_text(encoding="utf-8").partition("md-nav--primary")[2]
    listed = re.findall(r'<a href="([^"#]+)" class="md-nav__link', menu)
    assert len(listed) > 20
    assert len(listed) == len(set(listed))
    reached = {(site / link).resolve() for link in listed}
    assert {path for path in site.rglob("*.html") if path.name != "404.html"} <= reached


def test_nothing_is_fetched_from_elsewhere(site, pages):
    for path, page in pages.items():
        foreign = [address for address in page.loads if urlsplit(address).netloc]
        assert not foreign, f"{path.relative_to(site)} loads {foreign}"
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_every_public_name_is_in_the_reference(site):
    anchors = set().union(*(Page(path).anchors for path in (site / "reference").glob("api*.html")))
    modules = {"data": felb.data, "metrics": felb.metrics, "privacy": felb.privacy, "scverse": felb.scverse}
    expected = {f"felb.{name}" for name in felb.__all__ if not name.startswith("__") and name not in modules}
    for name, module in modules.items():
        own = set(module.__all__) - set(felb.__all__)
        expected |= {f"felb.{name}.{public}" for public in own if callable(getattr(module, public))}
    assert expected <= anchors, expected - anchors


def test_every_command_and_option_is_in_the_reference(site):
    text = (site / "reference" / "commands.html").read_text(encoding="utf-8")

    def check(command, name):
        context = click.Context(command, info_name=name)
        if name != "felb":
            assert f'id="{name.replace(" ", "-")}"' in text
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden and name != "felb":
                assert parameter.opts[0] in text
        if isinstance(command, click.Group):
            for word in command.list_commands(context):
                check(command.get_command(context, word), f"{name} {word}")

    check(program, "felb")


@contextmanager
def opened(browser, width, theme):
    """A page of that width for a reader who prefers that theme; nothing may go wrong in it."""
    context, errors = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme), []
    context.set_default_timeout(600_000)  # on a busy machine
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def found_wrong(page):
    """What does not fit into the width, cannot be read, or is not there."""
    return {what: seen for what, seen in page.evaluate(LOOK).items() if seen}


def test_all_pages_fit_and_can_be_read_in_both_themes(browser, site):
    """On a phone and at a desk. Width and theme are changed in the page, since loading it takes longest."""
    complaints, widths = {}, [PHONE, DESK]
    with opened(browser, PHONE, "light") as page:
        for path in sorted(site.rglob("*.html")):
            if path.name == "404.html":
                continue
            place = str(path.relative_to(site))
            page.goto(path.as_uri())
            assert page.evaluate("[innerWidth, document.body.dataset.mdColorScheme]") == [widths[0], SCHEMES["light"]]
            complaints[place, widths[0]] = found_wrong(page)
            widths.reverse()  # the next page begins with the width that this one ends with
            page.evaluate(CHANGE_THEME, SCHEMES["dark"])
            page.set_viewport_size({"width": widths[0], "height": 900})
            complaints[place, widths[0]] = found_wrong(page)
    assert len(complaints) > 80
    assert {place: wrong for place, wrong in complaints.items() if wrong} == {}


@pytest.mark.parametrize(("width", "theme"), [(PHONE, "dark"), (DESK, "light"), (DESK, "dark")])
def test_a_page_has_the_theme_of_the_system_from_the_start(browser, site, width, theme):
    with opened(browser, width, theme) as page:
        for name in LOOKED_AT:
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.body.dataset.mdColorScheme") == SCHEMES[theme]
            assert found_wrong(page) == {}, name


def test_the_change_of_theme_in_a_page_is_that_of_its_switch(browser, site):
    """Everything has the same colours, whether the theme was chosen here or by the system."""
    colours = """() => [...document.querySelectorAll("body, article *")].map((one) => getComputedStyle(one))
      .map((style) => `${style.color} ${style.backgroundColor}`)"""
    address = (site / f"{LOOKED_AT[0]}.html").as_uri()
    with opened(browser, DESK, "light") as page:
        page.goto(address)
        light = page.evaluate(colours)
        page.evaluate(CHANGE_THEME, SCHEMES["dark"])
        changed = page.evaluate(colours)
    with opened(browser, DESK, "dark") as page:
        page.goto(address)
        assert changed == page.evaluate(colours) != light


@pytest.mark.parametrize("example", ["zoo", "clients", "noise", "cells"])
def test_an_example_of_the_gallery_draws(example, tmp_path, capsys):
    path = ROOT / "examples" / f"{example}.py"
    spec = importlib.util.spec_from_file_location(f"example_{example}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(["--quick", "--picture", str(tmp_path / "p.png")])
    printed = capsys.readouterr().out
    assert (tmp_path / "p.png").stat().st_size > 1000
    assert "False" not in printed
    gallery = (ROOT / "docs" / "tutorials" / "gallery.md").read_text(encoding="utf-8")
    picture = re.search(r"--picture docs/(\S+)", path.read_text(encoding="utf-8"))[1]
    assert f"](../{picture})" in gallery
    assert (ROOT / "docs" / picture).is_file()
    assert f"<!-- code: examples/{example}.py -->" in gallery
