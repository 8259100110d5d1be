"""Every verb and option explains itself, at once."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from felb import __version__
from felb.cli import felb as group

VERBS = {name: summary for name, (summary, _) in group.places.items()}
"""Those of felb, and of the other distributions where they are installed."""

HEAVY = ("numpy", "scipy", "sklearn", "numba", "pandas", "rich", "matplotlib", "pyarrow")


def verb(name: str) -> click.Command:
    """Return a verb by its name, or by two words one of a group's."""
    command: click.Command | None = group
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
        assert command is not None
    return command


def below(name: str) -> list[str]:
    """Return a verb and, of a group, all verbs in it."""
    command = verb(name)
    if not isinstance(command, click.Group):
        return [name]
    return [name, *(leaf for word in command.list_commands(click.Context(command)) for leaf in below(f"{name} {word}"))]


ALL = [name for top in VERBS for name in below(top)]
GROUPS = [name for name in ALL if isinstance(verb(name), click.Group)]
LEAVES = [name for name in ALL if name not in GROUPS]


def test_help_lists_every_verb_an_example_and_the_exit_codes(felb):
    for flag in ("--help", "-h"):
        shown = felb(flag)
        assert (shown.code, shown.err) == (0, "")
        for name, summary in VERBS.items():
            assert f"  {name} " in shown.out
            assert summary in shown.out
        assert "felb simulate zoo" in shown.out
        for code in ("0", "1", "2", "130"):
            assert f"\n    {code} " in shown.out


@pytest.mark.parametrize("name", [*GROUPS, *LEAVES])
def test_every_verb_has_help_that_fits_a_terminal(felb, name):
    shown = felb(*name.split(), "--help")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: felb {name} ")
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize("name", [*GROUPS, *LEAVES])
def test_every_option_says_what_it_does(name):
    command = verb(name)
    assert command.name == name.split()[-1]
    assert len(command.help or "") > 20
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts} has no help"
            assert parameter.help.endswith("."), f"help of {name} {parameter.opts} is no sentence"
        else:
            assert parameter.make_metavar(click.Context(command)).strip("[]") in command.help


@pytest.mark.parametrize("name", LEAVES)
def test_every_verb_speaks_json(name):
    assert "--json" in [option for parameter in verb(name).params for option in parameter.opts]


@pytest.mark.parametrize("name", ["fit", "simulate"])
def test_help_lists_the_methods_a_verb_can_run(felb, name):
    listed = felb(name, "--help").out.partition("Methods:")[2]
    for method in ("felb", "felb-mu"):
        assert f"\n    {method} " in listed
    assert ("\n    elbmf " in listed) == (name == "fit")
    assert "asso+vote" in listed
    assert "asso+aligned-vote" in listed


def test_version(felb):
    shown = felb("--version")
    assert (shown.code, shown.err) == (0, "")
    assert __version__ in shown.out


def test_without_a_verb_the_help_is_shown(felb):
    shown = felb()
    assert shown.code == 2
    assert "Commands:" in shown.out + shown.err


def test_an_unknown_verb_is_named(felb):
    shown = felb("fitt")
    assert shown.code == 2
    assert "fitt" in shown.err
    assert "--help" in shown.err
    assert shown.out == ""


def test_help_is_instant_and_python_m_works():
    code = (
        "import sys, runpy\n"
        "sys.argv = ['felb', '--help']\n"
        "try:\n    runpy.run_module('felb', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: felb ")
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stderr == ""
