"""The documentation site: builds without a warning, leads nowhere but into itself, and knows every name and command."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

import felb
from felb.cli import felb as program

ROOT = Path(__file__).parents[1]
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


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
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")},
    )
    assert built.returncode == 0, built.stderr + built.stdout
    return out


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
