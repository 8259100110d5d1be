"""Private runs in folders: charged once whatever interrupts them, and nothing exact in what they leave behind."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from run_files import contents

from felb.errors import InputError, PrivacyError
from felb.federated.algorithms import private
from felb.federated.algorithms.private import Candidates
from felb.privacy.outbound_log import OutboundLog, read_log
from felb.runs.execute import fit, resume, simulate, unfinished_job
from felb.runs.job import Job
from felb.runs.result import Result

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")
pytestmark = pytest.mark.filterwarnings("ignore::felb.ConvergenceWarning")

EPSILON = 2.0
ONCE = [(0, "sizes"), (1, "cooccurrence"), (2, "choice")]


@pytest.fixture
def job(small_data):
    return Job(small_data, "bmf", 3, clients=3, seed=1, privacy={"epsilon": EPSILON}, parameters={"effort": "fast"})


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Let the server find its candidates at once; what it makes of releases is not looked at here."""

    def found(released, n_components, *, factorize, seed):
        heavy = np.argsort(-np.diag(released.M))[: 2 * n_components].reshape(n_components, 2)
        V = np.zeros((2, n_components, released.M.shape[0]), dtype=bool)
        for number, pair in enumerate(heavy):
            V[:, number, pair] = True
        V[1, 0] = True
        return Candidates(V, 2.0)

    monkeypatch.setattr(private, "find_candidates", found)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def unfinished(out):
    return out.with_name("out.unfinished")


def stop_after(rounds):
    def on_round(snapshot):
        if len(snapshot.history) == rounds:
            raise KeyboardInterrupt

    return on_round


def check_logs(folder, clients=("client-01", "client-02", "client-03")):
    """Everything left once, and the running total ends at what was agreed."""
    logs = sorted((folder / "outbound").glob("*.jsonl"))
    assert [log.stem for log in logs] == list(clients)
    for log in logs:
        lines = read_log(log)
        assert [(line["round"], line["what"]) for line in lines] == ONCE
        totals = [line["total"]["epsilon"] for line in lines]
        assert totals == sorted(totals)
        assert 0.99 * EPSILON < totals[-1] <= EPSILON
        squares = sum(line["cost"]["loss"] ** 2 for line in lines)
        assert lines[-1]["total"]["mu"] == pytest.approx(np.sqrt(squares))


def test_what_a_private_run_leaves_is_covered_by_its_promise(job, out):
    result = simulate(job, out)
    check_logs(out)
    assert result.privacy is not None
    stored = Result.read(out)
    assert stored.scores == {}
    assert set(stored.supports) == {None}
    assert set(stored.clients.values()) == {None}
    assert stored.provenance.data["ones"] is None
    assert stored.provenance.data["fingerprint"] is None
    assert stored.provenance.parameters["privacy"]["epsilon"] == EPSILON
    assert (out / "privacy.txt").read_text(encoding="utf-8") == stored.privacy["text"] + "\n"
    assert stored.privacy == result.privacy
    facts = {key: stored.privacy[key] for key in ("epsilon", "unit", "neighbours", "noise", "mechanism", "clients")}
    assert facts == {
        "epsilon": EPSILON,
        "unit": "record",
        "neighbours": "add_remove",
        "noise": "client",
        "mechanism": "cooccurrence",
        "clients": 3,
    }
    assert stored.privacy["row_bound"] == stored.history[0]["row_bound"]
    assert f"B = {stored.privacy['row_bound']:g}" in stored.privacy["text"]
    held = sorted(path.name for path in out.iterdir())
    assert held == ["assignments", "components.csv", "components.npz", "outbound", "privacy.txt", "result.json"]


def test_without_an_agreement_nothing_is_promised(small_data, out):
    result = simulate(Job(small_data, "bmf", 3, clients=3), out)
    assert result.privacy is None
    assert Result.read(out).privacy is None
    assert Result.read(out).scores
    assert not (out / "privacy.txt").exists()


def test_centralized_data_can_be_published_in_private(small_data, out):
    privacy = {"epsilon": EPSILON, "row_bound": 4}
    result = fit(Job(small_data, "bmf", 3, privacy=privacy, parameters={"effort": "fast"}), out)
    assert result.scores == {}
    assert set(result.supports) == {None}
    assert result.provenance.data["fingerprint"] is None
    assert result.privacy is not None
    assert result.privacy["clients"] == 1
    assert "B = 4" in result.privacy["text"]
    assert Result.read(out).privacy == result.privacy


def test_an_interrupted_private_fit_of_centralized_data_is_charged_once(small_data, out, unfinished):
    job = Job(small_data, "bmf", 3, privacy={"epsilon": EPSILON}, parameters={"effort": "fast"})
    for rounds in (1, 2, 3):
        with pytest.raises(KeyboardInterrupt):
            fit(job, out, force=True, on_round=stop_after(rounds))
        shutil.rmtree(unfinished / "journal")
        resume(out)
        check_logs(out, clients=("centralized",))


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_an_interrupted_run_is_charged_once(job, out, unfinished, rounds, journal):
    with pytest.raises(KeyboardInterrupt):
        simulate(job, out, on_round=stop_after(rounds))
    before = {
        log.name: log.read_text(encoding="utf-8")
        for log in (unfinished / "outbound").glob("*.jsonl")
        if not log.name.startswith(".")
    }
    assert unfinished_job(out).privacy == {"epsilon": EPSILON}
    if journal == "lost":
        shutil.rmtree(unfinished / "journal")
    result = resume(out)
    check_logs(out)
    assert result.privacy["epsilon"] == EPSILON
    for name, text in before.items():
        after = (out / "outbound" / name).read_text(encoding="utf-8")
        assert after.startswith(text), "what had left before stands as it was, with its time"
    assert not unfinished.exists()
    assert not (out / "responses").exists()
    assert not (out / "journal").exists()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("line", [1, 2, 3, 5, 9])
def test_an_interruption_amid_a_round_charges_nothing_twice(job, out, unfinished, monkeypatch, line, workers):
    written = []

    def interrupting(log, record, write=OutboundLog.__call__):
        write(log, record)
        written.append(record)
        if len(written) == line:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OutboundLog, "__call__", interrupting)
        with pytest.raises(KeyboardInterrupt):
            simulate(job if workers == 1 else Job(**{**fields(job), "workers": workers}), out)
    resume(out)
    check_logs(out)


def fields(job):
    return {name: getattr(job, name) for name in job.__dataclass_fields__}


def test_a_replayed_run_ends_as_the_one_it_repeats(job, out, unfinished, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        simulate(job, out, on_round=stop_after(4))
    shutil.copytree(unfinished, tmp_path / "copy.unfinished")
    resume(out)
    shutil.rmtree(tmp_path / "copy.unfinished" / "journal")
    resume(tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(out)


def test_lost_responses_are_not_given_anew(job, out, unfinished):
    with pytest.raises(KeyboardInterrupt):
        simulate(job, out, on_round=stop_after(2))
    shutil.rmtree(unfinished / "responses" / "client-02")
    with pytest.raises(PrivacyError, match=r"client-02 .*round 0"):
        resume(out)


def test_another_epsilon_is_not_slipped_in(job, out, unfinished):
    with pytest.raises(KeyboardInterrupt):
        simulate(job, out, on_round=stop_after(2))
    raw = json.loads((unfinished / "job.json").read_text(encoding="utf-8"))
    raw["privacy"]["epsilon"] = 8.0
    (unfinished / "job.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(PrivacyError, match="was agreed as"):
        resume(out)


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"delta": 1e-6}, "needs epsilon"),
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": 1, "row_bond": 3}, "has no 'row_bond'; it has epsilon, delta"),
        ({"epsilon": 1, "row_bound": "many"}, "row_bound must be a whole number"),
        ({"epsilon": 1, "noise": "nowhere"}, "noise must be one of client, distributed"),
    ],
)
def test_terms_that_make_no_agreement_are_refused(small_data, privacy, said):
    with pytest.raises(InputError, match=said):
        Job(small_data, "bmf", 3, privacy=privacy)


def test_a_method_without_noise_promises_nothing(small_data, out):
    for run, said in ((simulate, "'asso' is for centralized data"), (fit, r"'asso' .*bmf")):
        with pytest.raises(InputError, match=said):
            run(Job(small_data, "asso", 3, privacy={"epsilon": 1}), out)
    assert not out.exists()


def test_delta_beyond_one_record_in_all_is_refused_and_leaves_nothing(small_data, out, unfinished):
    with pytest.raises(InputError, match="below 1/90"):
        simulate(Job(small_data, "bmf", 3, clients=3, privacy={"epsilon": 1, "delta": 0.02}), out)
    assert not out.exists()
    assert not unfinished.exists()
