"""A process that is killed before any of its system calls: what it leaves is the old or the new, and is cleared away.

The file layer is Python's own: an audit hook sees every opening, renaming, linking and removing, and ends a forked
process before the n-th of them, for every n until nothing is left to interrupt.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings

import numpy as np
import pytest

from felb import Job, simulate
from felb import records as atomic_module
from felb.data import BinaryMatrix, convert
from felb.records import NEW, beside, clear_leftovers, replace_folder, replacing
from felb.runs import execute as job_runner
from felb.runs.folder import JOB, JOURNAL, RESPONSES, RunFolder
from felb.runs.result import Result

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed")

KILLED = 9


def killed_at(step, folder, work):
    """Run `work` in a process of its own that dies before its `step`-th event in `folder`; return whether it died."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn about forking beside threads
        child = os.fork()
    if child == 0:
        seen = 0

        def hook(event, arguments):
            nonlocal seen
            files = event in {"open", "shutil.rmtree", "ctypes.dlsym"} or event.startswith("os.")
            if files and (event == "ctypes.dlsym" or any(str(folder) in str(word) for word in arguments)):
                seen += 1
                if seen == step:
                    os._exit(KILLED)

        try:
            sys.addaudithook(hook)
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED), "the work failed by itself"
    return code == KILLED


def steps(folder, work, prepare=lambda: None):
    """Prepare, and kill `work` at its first, second, ... step, until it comes to its end."""
    for step in range(1, 1000):
        prepare()
        died = killed_at(step, folder, work)
        yield step
        if not died:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_that_is_replaced_is_the_old_or_the_new(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(atomic_module, "_exchange", lambda *_: False)
    target = tmp_path / "out"

    def prepare():
        target.mkdir(exist_ok=True)
        (target / "a.txt").write_text("old")

    def work():
        complete = beside(target, NEW)
        complete.mkdir()
        (complete / "a.txt").write_text("new")
        replace_folder(complete, target)

    found = []
    for _ in steps(tmp_path, work, prepare):
        if can_exchange and sys.platform.startswith("linux"):
            assert (target / "a.txt").is_file()  # at no moment is there neither
        clear_leftovers(tmp_path)
        found.append((target / "a.txt").read_text())
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert found[0] == "old"
    assert found[-1] == "new"
    assert len(found) > 4


def test_a_killed_conversion_leaves_nothing_for_good(tmp_path):
    source, target = tmp_path / "a.csv", tmp_path / "a.felb"
    source.write_text("1,0\n0,1\n")
    BinaryMatrix.of(np.eye(3)).save(target)
    shapes = []
    for _ in steps(tmp_path, lambda: convert(source, target, force=True)):
        shapes.append(BinaryMatrix.open(target).shape)
        with replacing(tmp_path / "other.txt") as partial:  # whatever is written next in the folder
            partial.write_text("x")
        assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "a.felb", "other.txt"}
    assert shapes[0] == (3, 3)
    assert shapes[-1] == (2, 2)


def test_what_a_living_process_or_another_machine_writes_is_left_alone(tmp_path):
    mine = beside(tmp_path / "x", "partial")
    foreign = tmp_path / ".x.1-ffffff.partial"
    mine.write_text("half")
    foreign.write_text("half")
    clear_leftovers(tmp_path)
    assert mine.exists()
    assert foreign.exists()


@pytest.mark.parametrize("privacy", [None, {"epsilon": 4.0}])
def test_a_run_killed_at_its_end_keeps_its_journal_to_itself_and_goes_on(
    tmp_path, tmp_path_factory, monkeypatch, privacy
):
    """Killed anywhere while the result is put in its place, over an old result."""
    if privacy is not None:
        pytest.importorskip("dp_accounting")
        pytest.importorskip("opendp")
    method, parameters = ("grecond+or", {}) if privacy is None else ("bmf", {"effort": "fast"})
    out = tmp_path / "out"
    simulate(Job("zoo", "grecond+or", 2, clients=2), out)
    new = Job("zoo", method, 3, clients=2, privacy=privacy, parameters=parameters)
    held = []

    def hold(*arguments):
        held.append(arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", hold)
        with pytest.raises(KeyboardInterrupt):
            simulate(new, out, force=True)
    kept = tmp_path_factory.mktemp("kept") / "run"
    shutil.copytree(tmp_path, kept)

    def prepare():
        shutil.rmtree(tmp_path)
        shutil.copytree(kept, tmp_path)

    after_the_end = 0
    for step in steps(tmp_path, lambda: RunFolder.finish(*held[0]), prepare):
        assert not any((out / name).exists() for name in (JOB, JOURNAL, RESPONSES, "lock", "done"))
        k = len(Result.read(out).components)
        assert k in (2, 3)
        unfinished = job_runner.unfinished_job(out) is not None
        after_the_end += not unfinished
        assert unfinished or k == 3
        if unfinished and step % 8 == 1:
            assert len(job_runner.resume(out).components) == 3
            unfinished = False
        left = {path.name for path in tmp_path.iterdir()}
        assert left == ({"out", "out.unfinished"} if unfinished else {"out"})
    assert after_the_end > 1
