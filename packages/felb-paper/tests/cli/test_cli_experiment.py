"""``felb experiment``: tables, refusals, and an interruption of the real thing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from waiting import PATIENCE, wait_for

from felb.errors import MissingExtraError
from felb.runs.cells import CELLS, CellRecord
from felb_paper.cells import MethodUse, _manifest
from felb_paper.experiments import NAMES
from felb_paper.experiments.planted import NOISE
from felb_paper.study import StudyRecord

TINY = replace(
    NOISE[1],
    rows=60,
    columns=12,
    components=2,
    clients=3,
    levels=(0.0, 0.1),
    trials=2,
    methods=(MethodUse("Asso", "asso+vote"), MethodUse("GreConD", "grecond+vote")),
)


@pytest.fixture
def stored(in_folder):
    """The experiment noise with one cell missing."""
    folder = in_folder / "felb-experiments" / "noise-quick"
    (folder / CELLS).mkdir(parents=True)
    record = _manifest(TINY)
    record.write_manifest(folder)
    for number, cell in enumerate(record.planned[1:]):
        CellRecord(cell.key, "done", {"f1": number / 10, "rmsd": 0.3, "f1_star": 0.5}).write(folder)
    return folder


def test_list_names_the_experiments_and_their_sizes(felb):
    shown = felb("experiment", "list")
    assert (shown.code, shown.err) == (0, "")
    rows = felb("experiment", "list", "--json").json
    assert [row["name"] for row in rows] == list(NAMES)
    for row in rows:
        assert row["name"] in shown.out
        assert 0 < row["quick"] < row["full"]


@pytest.mark.parametrize("arguments", [("run", "nois"), ("table", "nois")])
def test_an_unknown_experiment_is_refused_with_those_there_are(felb, in_folder, arguments):
    done = felb("experiment", *arguments)
    assert done.code == 1
    assert done.err.startswith("error: there is no experiment 'nois'; felb knows invader, noise, ")
    assert list(in_folder.iterdir()) == []


def test_folders_that_hold_no_experiment_or_another_are_refused(felb, in_folder, stored):
    (in_folder / "letters").mkdir()
    (in_folder / "letters" / "a.txt").touch()
    assert "not the folder of an experiment" in felb("experiment", "table", "noise", "--out", "letters").err
    assert "not empty and holds no experiment" in felb("experiment", "run", "noise", "--out", "letters").err
    assert "not the folder of an experiment" in felb("experiment", "table", "drift").err
    done = felb("experiment", "table", "drift", "--out", stored)
    assert done.code == 1
    assert "holds the experiment 'noise', not 'drift'" in done.err
    assert "no experiments in letters" in felb("experiment", "pages", "letters", "--to", "pages").err


@pytest.mark.parametrize("option", [("--jobs", 0), ("--trials", 0), ("--time-limit", 0), ("--time-limit", "x")])
def test_numbers_that_make_no_sense_are_refused(felb, in_folder, option):
    assert felb("experiment", "run", "noise", *option).code == 2


def test_a_table_is_printed_from_what_is_stored(felb, stored):
    shown = felb("experiment", "table", "noise")
    assert (shown.code, shown.err) == (0, "")
    assert "7 of 8 runs done, 1 not run yet" in shown.out
    assert "Asso" in shown.out
    assert "undecided" in shown.out
    assert felb("experiment", "table", "noise", "--csv").out.startswith(
        "experiment,form,panel,method,place,figure,mean"
    )
    assert felb("experiment", "table", "noise", "--markdown").out.startswith("# Robustness against noise\n")
    found = felb("experiment", "table", "noise", "--json").json
    assert found["cells"] == {"done": 7, "failed": 0, "timeout": 0}
    assert found["missing"] == 1
    assert len(found["figures"]) == 2 * 2 * 4
    assert felb("experiment", "table", "noise", "--json", "--csv").code == 2


def test_pages_are_written_for_every_experiment_in_a_folder(felb, stored, in_folder):
    pytest.importorskip("matplotlib")
    done = felb("experiment", "pages", "felb-experiments", "--to", "pages")
    assert (done.code, done.err) == (0, "")
    written = ["README.md", "noise.csv", "noise.md", "noise.png"]
    assert sorted(path.name for path in (in_folder / "pages").iterdir()) == written
    header, *runs = (in_folder / "pages" / "noise.csv").read_text(encoding="utf-8").splitlines()
    assert header.startswith("panel,method,place,trial,status,date,")
    states = [line.split(",")[4] for line in runs]
    assert (len(states), states.count("not run")) == (len(TINY.cells()), 1)
    assert "(noise.csv)" in (in_folder / "pages" / "noise.md").read_text(encoding="utf-8")
    assert "(noise.md)" in (in_folder / "pages" / "README.md").read_text(encoding="utf-8")


def test_without_the_extra_the_table_is_printed_and_the_extra_named(felb, stored, monkeypatch):
    def draw(record, path):
        raise MissingExtraError("drawing needs an optional package: pip install 'felb[report]'")

    monkeypatch.setattr("felb_paper.figures.draw_study", draw)
    monkeypatch.setattr("felb_paper.experiments.find_study", lambda name, **_: TINY)
    record = StudyRecord.read(stored)
    monkeypatch.setattr("felb_paper.cells.run_study", lambda *args, **options: record)
    done = felb("experiment", "run", "noise", "--quick")
    assert done.code == 0
    assert "Asso" in done.out
    assert done.err == "note: no figure was drawn: drawing needs an optional package: pip install 'felb[report]'\n"


def test_the_data_folder_reaches_the_experiments_that_read_it(felb, in_folder, monkeypatch):
    seen = {}

    def run_study(study, *args, **options):
        seen[study.name] = study.data
        raise KeyboardInterrupt

    monkeypatch.setattr("felb_paper.cells.run_study", run_study)
    (in_folder / "my data").mkdir()
    done = felb("experiment", "run", "realworld", "--quick", "--data", "my data")
    assert seen == {"realworld": "my data"}
    assert "felb experiment run realworld --quick --data 'my data'" in done.err
    felb("experiment", "run", "all", "--quick", "--data", "my data")
    assert seen["invader"] is None
    assert "generates its own data" in felb("experiment", "run", "noise", "--data", "my data").err
    assert "no folder nowhere" in felb("experiment", "run", "sync", "--data", "nowhere").err


REAL = """
import sys
from dataclasses import replace
import felb_paper.experiments as catalogue
from felb.cli import main
from felb_paper.experiments import find_study
from felb_paper.cells import MethodUse

def tiny(name, **options):
    study = find_study(name, **options)
    settings = dict(rows=60, columns=12, components=2, clients=3, levels=(0.0, 0.1))
    return replace(study, **settings, methods=(MethodUse("Asso", "asso+vote"),))

catalogue.find_study = tiny
main(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupted_experiment_goes_on_when_it_is_run_again(in_folder):
    # Enough cells that some are left whenever the signal comes; then few enough to end soon.
    command = [sys.executable, "-c", REAL, "experiment", "run", "noise", "--quick", "--out", "my out", "--jobs", "1"]
    cells = in_folder / "my out" / CELLS
    options = {"text": True, "env": dict(os.environ)}
    process = subprocess.Popen(
        [*command, "--trials", "5000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_listen, **options
    )
    wait_for(lambda: len(list(cells.glob("*.json"))) >= 3, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert out == ""
    advice = "felb experiment run noise --quick --out 'my out' --trials 5000"
    assert err.strip() == f"interrupted; finished runs are kept; resume with: {advice}"
    kept = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    assert 3 <= len(kept) < 10_000
    assert not list(cells.glob("*.partial"))
    done = subprocess.run([*command, "--trials", "3"], capture_output=True, check=False, timeout=PATIENCE, **options)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 runs done" in done.stdout
    assert (in_folder / "my out" / "figure.png").is_file()
    assert all((cells / name).stat().st_mtime_ns == time_ for name, time_ in kept.items())


def _listen():
    """Undo what a test run in the background inherits: an ignored signal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
