"""Terminals, pipes and encodings: a bar where someone watches, plain text elsewhere, no tracebacks anywhere."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings

import pytest
from cli_files import write_csv

from felb.cli import main
from felb.cli.output import SCORES, plain_console, score_table, warnings_as_notes

SMALL = ("--method", "felb-mu", "-k", 3, "--rounds", 8, "--clients", 3)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("verb", "shown"),
    [
        (("simulate", *SMALL), ("rounds", "13/13")),
        (("fit", "--method", "felb-mu", "-k", 3, "--max-iter", 8), ("rounds", "13/13")),
        (("fit", "--method", "grecond", "-k", 3), ("rounds", "0/?")),
    ],
)
def test_a_terminal_shows_the_rounds_going_by(table, monkeypatch, verb, shown):
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(SystemExit) as end:
        main([str(arg) for arg in (*verb, table, "-o", "out", "--json")])
    assert not end.value.code
    assert all(text in terminal.getvalue() for text in shown)


@pytest.mark.parametrize("wish", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_without_a_terminal_nothing_is_drawn(felb, table, monkeypatch, wish):
    for name, value in wish.items():
        monkeypatch.setenv(name, value)
    done = felb("simulate", table, "-o", "out", *SMALL, "--json")
    assert done.code == 0
    assert all(line.startswith("warning: ") for line in done.err.splitlines())
    assert done.json["folder"] == "out"


def test_letters_that_the_terminal_cannot_show_are_no_error(in_folder, monkeypatch):
    data = write_csv(in_folder / "t.csv", [[1, 1], [0, 0]] * 5, ["größe", "κ"])
    for arguments in (["simulate", "--help"], ["fit", str(data), "-o", "λ", "-k", "1"], ["show", "λ"]):
        shown = io.TextIOWrapper(io.BytesIO(), encoding="cp1252", errors="strict")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", shown)
            with pytest.raises(SystemExit) as end:
                main(arguments)
        assert not end.value.code
        text = shown.buffer.getvalue().decode("cp1252")
        assert "?" in text
        if arguments[0] != "simulate":
            assert "größe, ?" in text


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_goes_away_is_no_error_to_shout_about(felb, table, options):
    assert felb("simulate", table, "-o", "out", *SMALL).code == 0
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "felb", "show", "out", *options]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


def test_notes_are_one_line_each_and_told_once(capsys):
    with warnings_as_notes():
        for _ in range(3):
            warnings.warn("two\n  lines", UserWarning, stacklevel=1)
        warnings.warn("numbers ran over", RuntimeWarning, stacklevel=1)
        warnings.warn("for developers", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: two lines\nwarning: numbers ran over\n"


def test_notes_are_told_even_if_the_run_fails(capsys):
    def run():
        with warnings_as_notes():
            warnings.warn("before that", UserWarning, stacklevel=1)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run()
    assert capsys.readouterr().err == "warning: before that\n"


def test_scores_that_clients_keep_to_themselves_are_dashes():
    console = plain_console()
    with console.capture() as captured:
        console.print(score_table({"private": {}, "open": dict.fromkeys(SCORES, 0.5)}))
    _, private, told = captured.get().splitlines()
    assert private.split() == ["private", *["-"] * len(SCORES)]
    assert "-" not in told


def test_a_fingerprint_stands_on_one_line_and_prose_is_folded(monkeypatch, capsys):
    from felb.cli.output import print_facts

    monkeypatch.setenv("COLUMNS", "80")
    fingerprint, prose = "SHA256:" + ":".join(["AB"] * 32), " ".join(["word"] * 30)
    print_facts({"name": "a", "fingerprint": fingerprint, "about": prose}, as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == ["name         a", f"fingerprint  {fingerprint}"]
    assert all(len(line) <= 80 for line in lines[2:])
    assert " ".join(" ".join(lines[2:]).split()) == f"about {prose}"
