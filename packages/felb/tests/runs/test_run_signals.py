"""Real processes that are interrupted, terminated and killed, and the runs that go on after them."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from run_files import contents
from waiting import PATIENCE, wait_for

from felb.data.synthetic import write_planted
from felb.errors import InputError
from felb.runs.execute import resume, simulate
from felb.runs.job import Job

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
    pytest.mark.filterwarnings("ignore::felb.ConvergenceWarning"),
]

ROUNDS = 60
OPTIONS = ("--method", "felb-mu", "--clients", "8", "-k", "8", "--rounds", str(ROUNDS), "--l2-rate", "1", "--seed", "3")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "long", 2000, 200, k=8, noise=0.05, seed=0)["data"]


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    """What the run gives when nothing happens to it; λ does not grow, so that it uses up its rounds."""
    parameters = {"max_iter": ROUNDS, "l2_rate": 1.0}
    participation = {"fraction": 1.0, "dropout": 0.0}
    job = Job(str(data), "felb-mu", 8, seed=3, clients=8, parameters=parameters, participation=participation)
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    simulate(job, out)
    return contents(out)


@pytest.fixture
def start():
    """Start ``python -m felb ARGS``; what still runs at the end of the test is killed."""
    started = []

    def run(*args) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "felb", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A test run in the background hands on an ignored Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


@pytest.mark.parametrize(
    ("number", "code", "options"),
    [
        (signal.SIGINT, 130, ("--workers", "2")),
        (signal.SIGTERM, 143, ("--json",)),
    ],
)
def test_a_signal_keeps_the_last_round_and_says_how_to_go_on(tmp_path, start, data, undisturbed, number, code, options):
    out = tmp_path / "the result"
    unfinished = tmp_path / "the result.unfinished"
    process = start("simulate", data, "-o", out, *OPTIONS, *options)
    wait_for(lambda: lines(unfinished / "outbound" / "client-05.jsonl") >= 9, process)
    process.send_signal(number)
    printed, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert printed == ""
    assert said.strip() == f"interrupted; resume with: felb simulate --resume {shlex.quote(str(out))}"
    assert not out.exists()
    assert (unfinished / "journal" / "states.safetensors").is_file()
    played = []
    resume(out, on_round=lambda progress: played.append(len(progress.history)))
    assert played[0] >= 3, "the rounds before the signal are kept"
    assert contents(out) == undisturbed
    assert list(tmp_path.iterdir()) == [out]


def test_a_killed_run_goes_on_in_another_process(tmp_path, start, data, undisturbed):
    out, unfinished = tmp_path / "out", tmp_path / "out.unfinished"
    process = start("simulate", data, "-o", out, *OPTIONS)
    wait_for(lambda: (unfinished / "journal" / "states.safetensors").exists(), process)
    wait_for(lambda: lines(unfinished / "outbound" / "client-05.jsonl") >= 8, process)
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(InputError, match="still under way"):
        resume(out)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    done = start("simulate", "--resume", out, "--json")
    printed, said = done.communicate(timeout=PATIENCE)
    assert done.returncode == 0, said
    assert json.loads(printed)["rounds"] == {"gram_sketch": 3, "sign_norms": 1, "local_factor": ROUNDS, "assign": 1}
    assert contents(out) == undisturbed
    assert list(tmp_path.iterdir()) == [out]
