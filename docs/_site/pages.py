"""Hooks of the documentation site: pages from outside docs/, the commands from the program itself, code from its files.

A page may hold two kinds of placeholders, each on a line of its own:

<!-- commands -->            every command with its arguments and options
<!-- code: examples/x.py --> the file as a block of code
"""

from __future__ import annotations

import itertools
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LISTED = "README.md"
"""The page of benchmarks/ that lists the others."""

MEASURED = sorted((path.name for path in (ROOT / "benchmarks").glob("*.md")), key=lambda name: (name != LISTED, name))
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "SECURITY.md": "security.md",
    **{f"benchmarks/{name}": f"measurements/{name.lower()}" for name in MEASURED},
    f"benchmarks/{LISTED}": "measurements/index.md",
}
"""Files beside docs/ that pages link to, as a reader of the repository needs it, and their place on the site."""

BORROWED = [name for name in OUTSIDE if name != "README.md"]
RESULTS = "results"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")
CHOICES = re.compile(r" \[(\w+(?:\|\w+)+)\]$")
TABLE, HEADING, CELL = re.compile(r"<table>.*?</table>", re.DOTALL), re.compile(r"<th[ >].*?</th>"), re.compile("<td")
CODE = re.compile(r"^<!-- code: (\S+) -->$", re.MULTILINE)


PARTS = {"tutorials": "Tutorials", "how-to": "How-to guides", "reference": "Reference", "explanation": "Explanation"}
"""Folders of docs/ and the section of the navigation that lists their pages."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add generated pages (further experiments, measurements) and pages without an entry to the navigation."""
    assert config.nav is not None
    listed, docs = str(config.nav), Path(config.docs_dir)
    sections = _sections(config.nav)
    further = [page for path in sorted(docs.glob(f"{RESULTS}/**/*.md")) if (page := _uri(path, docs)) not in listed]
    written = {"In full form": further, "Measurements": [OUTSIDE[f"benchmarks/{name}"] for name in MEASURED]}
    sections["Experiments"] += [{name: pages} for name, pages in written.items() if pages]
    for folder, section in PARTS.items():
        pages = (_uri(path, docs) for path in sorted((docs / folder).glob("*.md")))
        sections[section] += [page for page in pages if page not in listed]
    return config


def _sections(nav: list[Any]) -> dict[str, list[Any]]:
    """Return the sections of the navigation by name, those within others too."""
    found: dict[str, list[Any]] = {}
    for entry in nav:
        for name, pages in entry.items() if isinstance(entry, dict) else ():
            if isinstance(pages, list):
                found |= {**_sections(pages), name: pages}
    return found


def _uri(path: Path, docs: Path) -> str:
    return path.relative_to(docs).as_posix()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live beside docs/."""
    for name in BORROWED:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, OUTSIDE[name], content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Fill in the placeholders and point links that leave docs/ to where the site has what they name."""
    markdown = CODE.sub(lambda mark: as_code(mark[1]), markdown)
    markdown = markdown.replace("<!-- commands -->", "\n".join(command_lines()))
    place = page.file.src_uri
    source = next((name for name in BORROWED if OUTSIDE[name] == place), f"docs/{place}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        on_site = OUTSIDE.get(target, target.removeprefix("docs/"))
        anchor = "" if target == "README.md" else link[2] or ""
        return f"]({posixpath.relpath(on_site, posixpath.dirname(place) or '.')}{anchor})"

    return LINK.sub(moved, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Give every cell of a table the heading of its column, which a phone shows beside it (see site.css)."""
    return TABLE.sub(lambda table: labelled(table[0]), html)


def labelled(table: str) -> str:
    """Return a table whose cells know their headings; one of two columns needs none."""
    headings = [re.sub(r"<[^>]+>", "", heading).strip() for heading in HEADING.findall(table)]
    if len(headings) < 3:
        return table
    rows = re.split(r"(?=<tr>)", table)
    for number, row in enumerate(rows):
        column = itertools.count()
        rows[number] = CELL.sub(lambda _, column=column: f'<td data-label="{headings[next(column)]}"', row)
    return "".join(rows)


def as_code(path: str) -> str:
    """Return a file of the repository as a block of code."""
    return f'```python title="{path}"\n{(ROOT / path).read_text(encoding="utf-8").rstrip()}\n```'


def command_lines() -> Iterator[str]:
    """Describe every command from the objects that parse it, so that this cannot be out of date."""
    from felb.cli import felb

    for name, command in commands(felb, "felb"):
        context = click.Context(command, info_name=name)
        yield from (f"{'##' if name.count(' ') < 2 else '###'} {name}", "")
        yield from (prose(command.help or ""), "")
        if not isinstance(command, click.Group):
            pieces = command.collect_usage_pieces(context)
            yield from ("```text", " ".join([name, *pieces]), "```", "")
        yield from options(command, context)
        if command.epilog:
            yield from (prose(command.epilog), "")


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Return the commands of a group and, after each, those below it."""
    context = click.Context(group, info_name=name)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None, word
        yield f"{name} {word}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Return a table of the options."""
    records = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
    records = [(usage, text) for usage, text in records if text and "--help" not in usage]
    if not records:
        return
    yield from ("| option | meaning |", "|---|---|")
    for usage, text in records:
        choices = CHOICES.search(usage)
        listed = f" One of {', '.join(choices[1].split('|'))}." if choices else ""
        yield f"| `{CHOICES.sub('', usage).replace('|', ' or ')}` | {cell(text + listed)} |"
    yield ""


def cell(text: str) -> str:
    """Escape what Markdown would read as a table or as HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def prose(text: str) -> str:
    r"""Turn a help text into paragraphs; after \b, lines stay as they are."""
    paragraphs: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.lstrip().startswith("\b"):
            paragraphs.append("```text\n" + paragraph.replace("\b", "").strip("\n") + "\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()).replace("<", "&lt;").replace("*", "\\*"))
    return "\n\n".join(paragraphs)
