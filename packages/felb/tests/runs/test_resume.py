"""An interrupted run that is resumed ends as if it had never stopped."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.sparse as sp
from run_files import contents

from felb import __version__
from felb.errors import FederationError, InputError
from felb.federated.algorithms.bmf import EFFORTS
from felb.federated.journal import Journal
from felb.metrics import confusion
from felb.privacy.outbound_log import OutboundLog
from felb.runs.execute import fit, resume, simulate, unfinished_job
from felb.runs.result import Result, read_assignment
from felb.sklearn.methods import make

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::felb.ConvergenceWarning")


def stop_after(rounds: int, error: BaseException | None = None):
    """Return a function for `on_round` that interrupts the run after so many rounds."""

    def on_round(progress):
        if len(progress.history) == rounds:
            raise error or KeyboardInterrupt

    return on_round


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def unfinished(out) -> Path:
    return out.with_name("out.unfinished")


@pytest.fixture
def interrupted(out, make_job):
    """Interrupt the usual job after four rounds."""
    with pytest.raises(KeyboardInterrupt):
        simulate(make_job(), out, on_round=stop_after(4))
    return out


@pytest.fixture
def undisturbed(tmp_path, make_job):
    simulate(make_job(), tmp_path / "undisturbed")
    return contents(tmp_path / "undisturbed")


KINDS = {
    "felb-mu": {},
    "felb": {"method": "felb"},
    "scaffold": {"method": "scaffold"},
    "proxskip": {"method": "proxskip", "participation": {"fraction": 0.6, "dropout": 0.4}, "clients": 5},
    "inertia": {"parameters": {"inertia": 0.2}},
    "own starts": {"parameters": {"setting": "literal"}},
    "missing clients": {"participation": {"fraction": 0.6, "dropout": 0.4}, "clients": 5},
    "threads": {"workers": 3, "split": "uneven"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [1, 7, 13])
def test_the_result_is_exactly_that_of_an_undisturbed_run(tmp_path, out, unfinished, make_job, kind, rounds):
    job = make_job(**KINDS[kind])
    whole = simulate(job, tmp_path / "whole")
    rounds = min(rounds, len(whole.history))
    with pytest.raises(KeyboardInterrupt):
        simulate(job, out, on_round=stop_after(rounds))
    assert unfinished.is_dir()
    assert not out.exists()
    seen = []
    resumed = resume(out, on_round=lambda progress: seen.append(len(progress.history)))
    assert seen == list(range(rounds + 1, len(whole.history) + 1)), "completed rounds are not played again"
    assert resumed.history == whole.history
    assert contents(out) == contents(tmp_path / "whole")
    assert not unfinished.exists()


def test_a_run_may_be_interrupted_again_and_again(out, make_job, undisturbed):
    with pytest.raises(KeyboardInterrupt):
        simulate(make_job(), out, on_round=stop_after(2))
    for rounds in (3, 6, 7):
        with pytest.raises(KeyboardInterrupt):
            resume(out, on_round=stop_after(rounds))
    resume(out)
    assert contents(out) == undisturbed


@pytest.mark.parametrize("line", [1, 2, 30, 61])
def test_an_interruption_amid_a_round_leaves_no_line_twice(out, make_job, undisturbed, monkeypatch, line):
    written = []

    def interrupting(log, record, write=OutboundLog.__call__):
        write(log, record)
        written.append(record)
        if len(written) == line:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OutboundLog, "__call__", interrupting)
        with pytest.raises(KeyboardInterrupt):
            simulate(make_job(), out)
    resume(out)
    assert contents(out) == undisturbed


@pytest.mark.parametrize("lost", ["the journal", "its states"])
def test_without_its_journal_the_run_is_played_from_its_start(interrupted, unfinished, undisturbed, lost):
    if lost == "the journal":
        shutil.rmtree(unfinished / "journal")
    else:
        (unfinished / "journal" / "states.safetensors").unlink()
    resume(interrupted)
    assert contents(interrupted) == undisturbed


def test_what_a_killed_process_leaves_half_written_is_cleared_away(out, make_job, unfinished, undisturbed, monkeypatch):
    # Killed, a process saves nothing more: all there is are the entries of before and lines of later rounds.
    monkeypatch.setattr("felb.federated.journal.SECONDS_BETWEEN_SAVES", 1e9)
    saved = []

    def save_once(journal, states=None, save=Journal.save):
        if not saved:
            saved.append(save(journal, states))

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "save", save_once)
        with pytest.raises(KeyboardInterrupt):
            simulate(make_job(), out, on_round=stop_after(6))
    log = unfinished / "outbound" / "client-01.jsonl"
    assert len(log.read_text().splitlines()) == 3 + 2 + 2 * 3  # sketches; signs; V, curvature and loss
    with log.open("a") as file:
        file.write('{"time": "2026-01-01", "client": "cli')
    (unfinished / "journal" / ".states.safetensors.123.partial").write_bytes(b"half")
    seen = []
    resume(out, on_round=lambda progress: seen.append(len(progress.history)))
    assert seen[0] == 2
    assert contents(out) == undisturbed


def test_an_interruption_while_the_result_is_written_can_be_resumed(out, make_job, undisturbed, monkeypatch):
    def write_half(self, folder, assignments):
        sp.save_npz(folder / "components.npz", sp.csr_array(self.components))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Result, "write", write_half)
        with pytest.raises(KeyboardInterrupt):
            simulate(make_job(), out)
    seen = []
    resume(out, on_round=seen.append)
    assert seen == [], "all rounds had been played"
    assert contents(out) == undisturbed


def test_a_full_disk_keeps_what_was_done(out, make_job, unfinished, undisturbed):
    with pytest.raises(OSError, match="No space left"):
        simulate(make_job(), out, on_round=stop_after(5, OSError(28, "No space left on device")))
    assert (unfinished / "journal" / "states.safetensors").is_file()
    resume(out)
    assert contents(out) == undisturbed


def test_an_error_of_the_run_itself_leaves_nothing(out, make_job, unfinished):
    with pytest.raises(FederationError):
        simulate(make_job(), out, on_round=stop_after(5, FederationError("too few clients answered")))
    assert not out.exists()
    assert not unfinished.exists()


def test_an_error_of_a_resumed_run_keeps_what_was_done_before(interrupted, unfinished, undisturbed):
    with pytest.raises(FederationError):
        resume(interrupted, on_round=stop_after(6, FederationError("too few clients answered")))
    assert unfinished.is_dir()
    resume(interrupted)
    assert contents(interrupted) == undisturbed


# -- refusals ----------------------------------------------------------------------------------------------------


def test_changed_data_is_refused(tmp_path, out, make_job, small_data, unfinished):
    moved = tmp_path / "moved.npz"
    shutil.copy(small_data, moved)
    with pytest.raises(KeyboardInterrupt):
        simulate(make_job(data=str(moved)), out, on_round=stop_after(3))
    A = sp.load_npz(moved).toarray()
    A[0, 0] = 1 - A[0, 0]
    sp.save_npz(moved, sp.csr_array(A))
    with pytest.raises(InputError, match=r"moved\.npz has changed.*--force"):
        resume(out)
    moved.unlink()
    with pytest.raises(InputError, match=r"there is no file .*moved\.npz"):
        resume(out)
    shutil.copy(small_data, moved)
    assert resume(out).converged in (True, False)
    assert not unfinished.exists()


def test_another_version_of_felb_is_refused(interrupted, unfinished, monkeypatch, undisturbed):
    with monkeypatch.context() as patch:
        patch.setattr("felb.runs.execute.__version__", "99.0")
        with pytest.raises(InputError, match=rf"felb {__version__}, .*felb 99\.0"):
            resume(interrupted)
    resume(interrupted)
    assert contents(interrupted) == undisturbed


def test_a_relative_path_is_resumed_from_anywhere(tmp_path, make_job, small_data, monkeypatch, undisturbed):
    shutil.copy(small_data, tmp_path / "small.npz")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        simulate(make_job(data="small.npz"), "out", on_round=stop_after(3))
    monkeypatch.chdir("/")
    resume(tmp_path / "out")
    assert contents(tmp_path / "out") == undisturbed


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"no archive at all"])
@pytest.mark.parametrize("name", ["states", "round-0000001"])
def test_a_damaged_journal_is_refused_and_can_be_deleted(interrupted, unfinished, undisturbed, damage, name):
    entry = unfinished / "journal" / f"{name}.safetensors"
    entry.write_bytes(damage)
    with pytest.raises(InputError, match=rf"{name}\.safetensors is damaged .*journal.*--resume"):
        resume(interrupted)
    assert entry.read_bytes() == damage
    shutil.rmtree(unfinished / "journal")
    resume(interrupted)
    assert contents(interrupted) == undisturbed


@pytest.mark.parametrize("text", ["", "{", "[]", '{"data": "x"}', '{"unknown": 1}'])
def test_a_damaged_job_is_refused(interrupted, unfinished, text):
    (unfinished / "job.json").write_text(text)
    with pytest.raises(InputError, match=r"job\.json is damaged .*--force"):
        resume(interrupted)
    assert unfinished_job(interrupted) is None


def test_a_new_run_does_not_silently_replace_an_unfinished_one(interrupted, make_job, unfinished, undisturbed):
    with pytest.raises(InputError, match=r"unfinished .*--resume .*--force"):
        simulate(make_job(), interrupted)
    with pytest.raises(InputError, match="unfinished run"):
        fit(make_job(method="elbmf"), interrupted)
    job = unfinished_job(interrupted)
    assert job is not None
    assert replace(job, fingerprint=None, version=None) == make_job()
    simulate(make_job(), interrupted, force=True)
    assert contents(interrupted) == undisturbed
    assert not unfinished.exists()


def test_finished_and_unknown_runs(tmp_path, out, make_job):
    simulate(make_job(), out)
    before = contents(out)
    with pytest.raises(InputError, match="finished already"):
        resume(out)
    with pytest.raises(InputError, match="never started"):
        resume(tmp_path / "other")
    assert contents(out) == before


@pytest.mark.parametrize("method", ["bmf", "felb-mu", "felb", "grecond+vote"])
def test_a_centralized_fit_is_that_of_the_estimator_and_can_be_resumed(
    tmp_path, out, unfinished, make_job, method, monkeypatch
):
    monkeypatch.setitem(EFFORTS, "high", replace(EFFORTS["high"], tries=4, restarts=1, proposals=20))
    parameters = {"effort": "high"} if method == "bmf" else {} if "+" in method else {"max_iter": 12, "l2_rate": 1.5}
    job = replace(make_job(method=method, clients=None), parameters=parameters)
    whole = fit(job, tmp_path / "whole")
    model = make(method, n_components=3, random_state=1, **parameters)
    U = model.fit_transform(job.read().matrix)
    np.testing.assert_array_equal(whole.components, model.components_)
    np.testing.assert_array_equal(read_assignment(tmp_path / "whole", "centralized"), U)
    assert whole.history == model.history_
    assert whole.supports == tuple(U.sum(axis=0).tolist())
    assert whole.scores == confusion(job.read().matrix, U, model.components_).scores()
    assert not (tmp_path / "whole" / "outbound").exists()
    for rounds in {1, len(whole.history) // 2, len(whole.history) - 1}:
        shutil.rmtree(out, ignore_errors=True)
        with pytest.raises(KeyboardInterrupt):
            fit(job, out, on_round=stop_after(rounds))
        assert unfinished_job(out).centralized
        with pytest.raises(InputError, match="unfinished run"):
            fit(job, out)
        resume(out)
        assert contents(out) == contents(tmp_path / "whole")
        assert not unfinished.exists()


def test_a_killed_fit_is_told_apart_from_a_simulation(out, make_job, unfinished):
    unfinished.mkdir()
    stored = {"data": "x.csv", "method": "elbmf", "n_components": 3}
    (unfinished / "job.json").write_text(json.dumps(stored))
    with pytest.raises(InputError, match=r"elbmf .* cannot be resumed"):
        resume(out)
    assert unfinished_job(out) is None
    fit(make_job(method="elbmf", clients=None), out)  # what it left is no obstacle
    assert not unfinished.exists()


def test_a_run_under_way_is_neither_resumed_nor_replaced(interrupted, make_job, undisturbed):
    refusals = []

    def meanwhile(progress):
        if len(progress.history) == 6:
            for attempt in (
                lambda: resume(interrupted),
                lambda: simulate(make_job(), interrupted, force=True),
                lambda: fit(make_job(method="elbmf"), interrupted, force=True),
            ):
                with pytest.raises(InputError) as refusal:
                    attempt()
                refusals.append(str(refusal.value))

    resume(interrupted, on_round=meanwhile)
    assert len(refusals) == 3
    assert all("is still under way; wait for its end" in refusal for refusal in refusals)
    assert contents(interrupted) == undisturbed
