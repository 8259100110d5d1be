"""What the documentation shows works: Python runs, commands exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from postgres_server import postgres_server

import felb
from felb.cli import main
from felb.federated.algorithms.bmf import EFFORTS
from felb.runs.execute import simulate
from felb.runs.job import Job

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXPECTED = "# → "
SITES = ("north", "south", "west")
GENERATED = {"commands.md", *(page.name for page in PAGES if page.name.startswith("api"))}
"""Pages with headings that come when the site is built, which `test_site.py` does."""


def blocks(language):
    return [
        pytest.param(match[2], id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        if page not in TUTORIALS
        for number, match in enumerate(FENCE.finditer(page.read_text(encoding="utf-8")))
        if match[1] == language
    ]


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs_and_prints_what_it_says(code, in_folder, capsys):
    check_python(code, {"__name__": "documentation"}, capsys)


def check_python(code, names, capsys):
    exec(compile(code, "documentation", "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out
    for line in code.splitlines():
        if EXPECTED in line:
            assert line.split(EXPECTED)[1] in printed.splitlines()


@pytest.mark.parametrize("block", blocks("console"))
def test_commands_work_and_print_what_is_shown(block, in_folder, capsys, monkeypatch):
    """A command of which nothing is shown plays fewer generations, for what it finds is not compared with anything."""
    fewer = replace(EFFORTS["default"], generations=1)
    for command, shown in commands_of(block):
        with monkeypatch.context() as patch:
            if not shown:
                patch.setitem(EFFORTS, "default", fewer)
            check_command(command, shown, capsys)


@contextmanager
def databases(monkeypatch):
    """A PostgreSQL server with the databases of three sites, to which the usual variables lead."""
    with postgres_server() as server:
        for name, value in (("PGHOST", server.folder), ("PGPORT", server.port), ("PGUSER", "owner")):
            monkeypatch.setenv(name, str(value))
        import psycopg

        with psycopg.connect(dbname="postgres", autocommit=True) as connection:
            for site in SITES:
                connection.execute(f"CREATE DATABASE {site}")
        yield


def at_every_site(statements):
    import psycopg

    for site in SITES:
        with psycopg.connect(dbname=site) as connection:
            connection.execute(statements)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_works_from_top_to_bottom(page, in_folder, capsys, monkeypatch):
    names, fences = {"__name__": "documentation"}, FENCE.findall(page.read_text(encoding="utf-8"))
    # fed.example.org is on no network; what the check does with a real relay is tested with the federations.
    monkeypatch.setattr("felb_sites.cli.site.check_relay", lambda invitation: {"relay": f"{invitation.url} answers"})
    needed = databases(monkeypatch) if any(language == "sql" for language, _ in fences) else nullcontext()
    with warnings.catch_warnings(), needed:
        for language, text in fences:
            if language == "python":
                check_python(text, names, capsys)
            elif language == "console":
                check_console(text, capsys)
            elif language == "sql":
                at_every_site(text)


def check_console(block, capsys):
    for command, shown in commands_of(block):
        check_command(command, shown, capsys)


def commands_of(block):
    """Return the commands of a block, each with the lines that are shown below it."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def check_command(command, shown, capsys):
    printed = words(run(shlex.split(command, comments=True), capsys))
    for line in shown:
        # Figures may differ from machine to machine in the last digits, words may not.
        assert words(line) <= printed, f"{line!r} is not printed"


def words(text):
    return set(re.findall(r"[A-Za-z_]{2,}", text))


def run(command, capsys):
    """Run one command of a console block and return what it printed."""
    match command:
        case ["felb", *arguments]:
            read_out = key_fingerprint if "--key-fingerprint" in arguments else fingerprint
            arguments = [read_out() if argument == "SHA256:…" else argument for argument in arguments]
            if "--resume" in arguments:
                interrupted_run(arguments[arguments.index("--resume") + 1])
            with pytest.raises(SystemExit) as ended:
                main(arguments)
            out, err = capsys.readouterr()
            assert ended.value.code == 0, err
            return out
        case ["head", "-n", _, path]:
            assert Path(path).is_file()
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout
        case ["make", *targets]:
            assert {target for target in targets if "=" not in target} <= make_targets()
        case ["pip", "install", *requirements]:
            for requirement in requirements:
                name, _, extras = requirement.rstrip("]").partition("[")
                assert set(filter(None, extras.split(","))) <= optional_dependencies(name)
        case [".venv/bin/python", "-m", "pytest", *paths]:
            assert all((ROOT / path).exists() for path in paths)
        case [".venv/bin/python", script, *_]:
            help_text = [sys.executable, str(ROOT / script), "--help"]
            assert subprocess.run(help_text, check=True, capture_output=True).stdout
        case _:
            pytest.fail(f"a command this test does not know: {command}")
    return ""


def fingerprint():
    """What a coordinator reads out on the telephone."""
    from felb_sites.keys.members import Invitation

    return Invitation.read("fed/invitation.json").fingerprint


def key_fingerprint():
    """What a site reads out on the telephone."""
    from felb_sites.site_folder import Site

    return Site.open("site").fingerprint


def interrupted_run(out):
    def interrupt(snapshot):
        if len(snapshot.history) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(Job("zoo", "felb-mu", 3, clients=4), out, on_round=interrupt)


def make_targets():
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def optional_dependencies(distribution):
    """Return the extras of a distribution, given by its name or its folder."""
    path = ROOT / "packages" / distribution.removeprefix("packages/") / "pyproject.toml"
    return set(tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("optional-dependencies", ()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        place = page.parent / path if path else page
        assert place.exists(), f"{page.name} links to {target}"
        if anchor and place.name not in GENERATED:
            headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_targets_named_in_the_text_exist(page):
    assert set(re.findall(r"`make ([a-z-]+)`", page.read_text(encoding="utf-8"))) <= make_targets()


def test_the_example_of_the_readme_is_short():
    code = FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert [len(text.splitlines()) <= 20 for language, text in code if language == "python"] == [True]


def test_versions_agree():
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited[1] == felb.__version__
    assert f"## [{felb.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_readme_is_clear_about_privacy():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "not by itself differentially private" in text
