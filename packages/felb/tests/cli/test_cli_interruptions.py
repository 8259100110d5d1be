"""Being stopped at any moment: the code a shell expects, a way on where there is one, nothing half-done otherwise."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cli_files import leftovers

from felb.centralized.elbmf import ELBMFMethod
from felb.cli import main
from felb.runs.execute import fit, simulate
from felb.runs.result import Result

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

SMALL = ("--method", "felb-mu", "-k", 3, "--rounds", 8, "--clients", 3)
STOPS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.fixture(autouse=True)
def _interruptible():
    """Undo what a test run in the background inherits: ignored signals."""
    before = {number: signal.getsignal(number) for number, _ in STOPS}
    for number, _ in STOPS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def after_round(monkeypatch):
    """Have something happen after some round of a new simulation."""

    def happen(round_, act):
        def playing(*args, on_round, **options):
            def watch(snapshot):
                on_round(snapshot)
                if len(snapshot.history) == round_:
                    act()

            return simulate(*args, on_round=watch, **options)

        monkeypatch.setattr("felb.runs.execute.simulate", playing)

    return happen


def fail(error: BaseException):
    raise error


@pytest.mark.parametrize(("number", "code"), STOPS)
def test_a_stopped_simulation_can_be_resumed(felb, table, in_folder, after_round, number, code):
    assert felb("simulate", table, "-o", "whole", *SMALL).code == 0
    after_round(4, lambda: os.kill(os.getpid(), number))
    done = felb("simulate", table, "-o", "my out", *SMALL, "--json")
    assert done.code == code
    assert done.out == ""
    assert done.err.split("\n")[-2] == "interrupted; resume with: felb simulate --resume 'my out'"
    assert leftovers(in_folder) == ["my out.unfinished", "table.csv", "whole"]
    advised = shlex.split(done.err.partition("resume with: felb ")[2])
    assert felb(*advised).code == 0
    assert Result.read("my out").history == Result.read("whole").history
    assert leftovers(in_folder) == ["my out", "table.csv", "whole"]


def test_a_stopped_fit_with_rounds_can_be_resumed(felb, table, in_folder, monkeypatch):
    assert felb("fit", table, "-o", "whole", "-k", 3).code == 0

    def stopping(*args, on_round, **options):
        def watch(snapshot):
            on_round(snapshot)
            if len(snapshot.history) == 9:
                os.kill(os.getpid(), signal.SIGINT)

        return fit(*args, on_round=watch, **options)

    monkeypatch.setattr("felb.runs.execute.fit", stopping)
    done = felb("fit", table, "-o", "out", "-k", 3, "--json")
    assert done.code == 130
    assert done.err.split("\n")[-2] == "interrupted; resume with: felb fit --resume out"
    assert "--resume cannot be combined with --components" in felb("fit", "--resume", "out", "-k", 3).err
    assert felb("fit", "--resume", "out", "--json").json["folder"] == "out"
    assert Result.read("out").history == Result.read("whole").history
    assert leftovers(in_folder) == ["out", "table.csv", "whole"]


def test_fit_wants_data_and_a_folder_or_a_run_to_resume(felb, table):
    for arguments in ((table,), ("-o", "out"), ()):
        done = felb("fit", *arguments, "-k", 3)
        assert done.code == 2
        assert "Give DATA and --out, or --resume OUT." in done.err


@pytest.mark.parametrize(("number", "code"), STOPS)
def test_a_stopped_fit_without_rounds_leaves_nothing(felb, table, in_folder, monkeypatch, number, code):
    monkeypatch.setattr(ELBMFMethod, "_settled", lambda self, rows: os.kill(os.getpid(), number))
    done = felb("fit", table, "--method", "elbmf", "-o", "out", "-k", 3)
    assert done.code == code
    assert done.out == ""
    assert done.err.strip() == "interrupted"
    assert leftovers(in_folder) == ["table.csv"]


def test_stopped_before_anything_was_done_there_is_nothing_to_go_on_with(felb, table, in_folder, monkeypatch):
    monkeypatch.setattr("felb.runs.execute.simulate", lambda *args, **options: fail(KeyboardInterrupt()))
    done = felb("simulate", table, "-o", "out", *SMALL)
    assert done.code == 130
    assert done.err.strip() == "interrupted"
    assert leftovers(in_folder) == ["table.csv"]


def test_a_full_disk_is_told_with_the_way_on(felb, table, after_round):
    after_round(4, lambda: fail(OSError(28, "No space left on device", "checkpoint.npz")))
    done = felb("simulate", table, "-o", "out", *SMALL)
    assert done.code == 1
    assert done.err == (
        "error: checkpoint.npz: No space left on device; check the path, its permissions and the free space; "
        "resume with: felb simulate --resume out\n"
    )


def test_too_little_memory_is_told_without_a_traceback(felb, table, monkeypatch, in_folder):
    monkeypatch.setattr(ELBMFMethod, "_settled", lambda self, rows: fail(MemoryError()))
    done = felb("fit", table, "--method", "elbmf", "-o", "out", "-k", 3)
    assert done.code == 1
    assert "not enough memory" in done.err
    assert leftovers(in_folder) == ["table.csv"]


def test_handlers_are_put_back_and_what_is_ignored_stays_ignored(felb, table, after_round):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    after_round(4, lambda: os.kill(os.getpid(), signal.SIGHUP))
    assert felb("simulate", table, "-o", "out", *SMALL).code == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_the_command_line_runs_in_any_thread(table, capsys):
    codes = []

    def call():
        try:
            main(["show", "missing"])
        except SystemExit as end:
            codes.append(end.code)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert codes == [1]


def test_output_that_nobody_reads_ends_the_command_silently(felb, in_folder):
    assert felb("fit", "zoo", "--method", "grecond", "-k", 3, "-o", "out").code == 0
    for command in (["show", "out"], ["show", "out", "--json"], ["--help"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "felb", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        process.stdout.close()
        assert process.stderr.read() == ""
        process.stderr.close()
        assert process.wait() == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_an_error_without_a_traceback(felb, in_folder):
    assert felb("fit", "zoo", "--method", "grecond", "-k", 3, "-o", "out").code == 0
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "felb", "show", "out"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr
