"""Running experiments: what is there is kept, what fails is recorded, what takes too long is ended."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import asdict

import pytest

from felb.errors import InputError
from felb.runs import cells as cell_runner
from felb.runs.cells import Pool, answered, settled
from felb_paper.cells import MethodUse, run_study
from felb_paper.measuring import measured
from felb_paper.study import CELLS, CLAIMS, MANIFEST
from study_records import ASSO, tiny

SLOW = MethodUse("FELB-MU", "felb-mu", {"max_iter": 100_000, "tol": 0.0, "l2_rate": 1.0})


class InProcess(Pool):
    """Measures here instead of in processes, which take seconds to come up."""

    def measure(self, requests, *, limit, folders):
        for key, parameters in requests:
            yield key, answered(measured, {"parameters": json.loads(json.dumps(parameters)), **folders})


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(cell_runner, "Pool", InProcess)


def run(study, folder, **options):
    """Run a study; return its record and how many cells were measured."""
    seen = []
    record = run_study(study, folder, on_progress=seen.append, **options)
    assert seen[0].kept + seen[-1].measured == seen[-1].total == len(study.cells())
    return record, seen[-1].measured


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "noise"
    return folder, *run(tiny(), folder, jobs=2)


def test_every_cell_is_stored_with_what_made_it(finished):
    folder, record, measured = finished
    assert measured == record.count("done") == 4
    for cell in tiny().cells():
        raw = json.loads((folder / CELLS / f"{cell.key}.json").read_text(encoding="utf-8"))
        assert raw["parameters"] == json.loads(json.dumps(cell.parameters))
        assert {"felb", "date", "machine"} <= set(raw["provenance"])
        assert {"rmsd", "f1", "f1_star", "seconds_per_client"} <= set(raw["figures"])
        assert 0 <= raw["figures"]["f1_star"] <= 1
    assert json.loads((folder / CLAIMS).read_bytes()) == [asdict(claim) for claim in tiny().judge(record)]
    assert not list(folder.rglob("*.partial"))


def test_what_is_there_is_not_run_again(finished, here):
    folder, before, _ = finished
    after, measured = run(tiny(), folder)
    assert measured == 0
    assert after.cells == before.cells


def test_damaged_cells_are_run_again_and_give_the_same(finished, here):
    folder, before, _ = finished
    key = tiny().cells()[0].key
    (folder / CELLS / f"{key}.json").write_text("{", encoding="utf-8")
    after, measured = run(tiny(), folder)
    assert measured == 1
    timed = ("seconds", "seconds_per_client")
    same = [{k: v for k, v in record.cells[key].figures.items() if k not in timed} for record in (before, after)]
    assert same[0] == same[1]


def test_other_parameters_are_run_and_the_old_cells_stay(tmp_path, here):
    assert run(tiny(methods=(ASSO,)), tmp_path / "a")[1] == 2
    record, measured = run(tiny(methods=(ASSO,), levels=(0.0, 0.2)), tmp_path / "a")
    assert measured == 1
    assert record.places() == [0.0, 0.2]
    assert len(list((tmp_path / "a" / CELLS).glob("*.json"))) == 3
    assert run(tiny(methods=(ASSO,)), tmp_path / "a")[1] == 0


def test_a_cell_that_fails_is_recorded_and_tried_again(tmp_path, here):
    bad = MethodUse("MEBF", "mebf+vote", {"threshold": -3.0})
    study = tiny(methods=(bad, ASSO), levels=(0.0,))
    for _ in range(2):
        record, measured = run(study, tmp_path)
        assert (record.count("failed"), record.count("done")) == (1, 1)
        (failed,) = [cell for cell in record.cells.values() if cell.status == "failed"]
        assert failed.message.startswith("InputError: ")
        assert record.mean("f1", "MEBF", 0.0) is None
    assert measured == 1


def test_a_cell_beyond_its_time_is_ended_and_the_others_go_on(tmp_path):
    study = tiny(methods=(SLOW, ASSO), levels=(0.0,))
    record, _ = run(study, tmp_path, time_limit=2.0)
    assert (record.count("timeout"), record.count("done")) == (1, 1)
    (ended,) = [cell for cell in record.cells.values() if cell.status == "timeout"]
    assert "2 s" in ended.message
    assert run(study, tmp_path, time_limit=1.5)[1] == 0  # it had more time before
    assert not settled(tmp_path, study.cells()[0].key, 2.5)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="signals of POSIX")
def test_a_cell_that_hangs_without_running_any_python_is_ended_too():
    slow, fast = (cell for cell in tiny(methods=(SLOW, ASSO), levels=(0.0,)).cells())
    with Pool("felb_paper.measuring", 1) as pool:

        def stop():  # as a compiled kernel would that never returns and keeps the interpreter locked
            # All is compiled, and the time of the cell has begun.
            while not (pool._workers and pool._workers[0].counting):
                time.sleep(0.05)
            os.kill(pool._workers[0].process.pid, signal.SIGSTOP)

        threading.Thread(target=stop, daemon=True).start()
        requests = [(cell.key, cell.parameters) for cell in (slow, fast)]
        answers = dict(pool.measure(requests, limit=2.0))
    assert answers[slow.key]["status"] == "timeout"
    assert answers[fast.key]["status"] == "done"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_a_process_that_dies_costs_its_cell_only():
    slow, fast = (cell for cell in tiny(methods=(SLOW, ASSO), levels=(0.0,)).cells())
    with Pool("felb_paper.measuring", 1) as pool:

        def kill():
            while not (pool._workers and pool._workers[0].key):
                time.sleep(0.05)
            os.kill(pool._workers[0].process.pid, signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        requests = [(cell.key, cell.parameters) for cell in (slow, fast)]
        answers = dict(pool.measure(requests, limit=60.0))
    assert answers[slow.key]["status"] == "failed"
    assert "code -9" in answers[slow.key]["message"]
    assert answers[fast.key]["status"] == "done"


def reading():
    return [thread for thread in threading.enumerate() if thread.name.startswith("felb-worker")]


def test_an_interruption_keeps_what_was_measured_and_ends_the_processes(tmp_path, monkeypatch):
    study = tiny(trials=3, methods=(ASSO,))

    def stop(progress):
        if progress.measured == 2:
            assert reading()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path, on_progress=stop)
    assert len(list((tmp_path / CELLS).glob("*.json"))) == 2
    assert not reading()
    monkeypatch.setattr(cell_runner, "Pool", InProcess)
    record, measured = run(study, tmp_path)
    assert measured == 4
    assert record.count("done") == 6


def test_folders_of_others_are_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not empty"):
        run_study(tiny(), tmp_path / "mine")
    with pytest.raises(InputError, match="is a file"):
        run_study(tiny(), tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / MANIFEST).write_text('{"name": "drift"}', encoding="utf-8")
    with pytest.raises(InputError, match=r"'drift'.*'noise'"):
        run_study(tiny(), tmp_path / "other")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="locks of POSIX")
def test_two_processes_do_not_run_the_same_folder(tmp_path):
    def nested(progress):
        run_study(tiny(), tmp_path)

    with pytest.raises(InputError, match="another process"):
        run_study(tiny(), tmp_path, on_progress=nested)
