"""A job is plain data; running it claims its folder only once everything about it is in order."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import scipy.sparse as sp

from felb import FELBMU, BinaryMatrix
from felb.data import load, planted
from felb.data.files import read_data
from felb.data.synthetic import write_planted
from felb.errors import InputError
from felb.runs.apply import score_file
from felb.runs.execute import federated_method, fit, prepare, simulate
from felb.runs.folder import RunFolder
from felb.runs.job import Job
from felb.runs.result import Result, read_assignment

pytestmark = pytest.mark.filterwarnings("ignore::felb.ConvergenceWarning")


# -- jobs --------------------------------------------------------------------------------------------------------


def test_a_job_can_be_stored_as_json(make_job):
    job = make_job(client_column=None, participation={"fraction": 0.5})
    assert Job(**json.loads(json.dumps(asdict(job)))) == job


def test_contradictory_jobs_are_refused():
    with pytest.raises(InputError, match=r"split 'odd'.*even, uneven or consecutive"):
        Job("zoo", "felb", 3, split="odd")
    with pytest.raises(InputError, match=r"clients .*client column"):
        Job("zoo", "felb", 3, clients=2, client_column="ward")


@pytest.mark.parametrize("split", ["even", "uneven", "consecutive"])
def test_rows_are_dealt_out_to_named_clients(split):
    job = Job("zoo", "felb", 3, clients=12, split=split, seed=4)
    labels = job.labels(job.read())
    assert len(labels) == 101
    assert sorted(set(labels)) == [f"client-{i:02}" for i in range(1, 13)]
    assert np.array_equal(labels, job.labels(job.read()))
    assert np.array_equal(labels, replace(job, seed=5).labels(job.read())) == (split == "consecutive")
    sizes = np.unique(labels, return_counts=True)[1]
    assert (sizes.max() - sizes.min() <= 1) == (split != "uneven")


@pytest.mark.parametrize("clients", [0, -1])
def test_no_clients_are_no_clients(clients):
    job = Job("zoo", "felb", 3, clients=clients)
    with pytest.raises(InputError, match=rf"client.* {clients}"):
        job.labels(job.read())


def test_names_of_many_clients_sort_by_number():
    job = Job("zoo", "felb", 3, clients=101)
    assert sorted(set(job.labels(job.read())))[99:] == ["client-100", "client-101"]


def test_a_file_goes_before_a_data_set_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo").mkdir()
    assert read_data("zoo").matrix == load("zoo")
    (tmp_path / "zoo").rmdir()
    (tmp_path / "zoo").write_text("1,0\n")
    with pytest.raises(InputError, match="unknown file type"):
        read_data("zoo")


# -- running them ------------------------------------------------------------------------------------------------


def test_simulate_gives_what_the_estimator_gives(make_job, small_data, tmp_path):
    job = make_job()
    result = simulate(job, tmp_path / "out")
    table = job.read()
    model = FELBMU(3, max_iter=12, l2_rate=1.5, random_state=1)
    U = model.fit_transform(table.matrix, groups=job.labels(table))
    assert np.array_equal(result.components, model.components_)
    assert result.history == model.history_
    assert result.scores == model.counts_.scores()
    assert result.supports == tuple(U.sum(axis=0))
    labels = np.array(job.labels(table))
    for client in result.clients:
        assert np.array_equal(read_assignment(tmp_path / "out", client), U[labels == client])
    stored = Result.read(tmp_path / "out")
    assert np.array_equal(stored.components, result.components)
    assert stored.to_json() == result.to_json()


def test_all_parameters_are_recorded_not_only_those_given(make_job, tmp_path):
    made = simulate(make_job(), tmp_path / "out").provenance
    defaults = FELBMU().get_params()
    for name in ("l1", "l2", "inertia", "proximity", "local_steps", "tol", "setting", "dtype"):
        assert made.parameters[name] == defaults[name]
    assert made.parameters["l2_rate"] == 1.5
    assert "random_state" not in made.parameters


def test_rounds_are_reported_as_they_pass(make_job, tmp_path):
    seen = []
    result = simulate(make_job(), tmp_path / "out", on_round=lambda snapshot: seen.append(len(snapshot.history)))
    assert seen == list(range(1, len(result.history) + 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "nmf"}, "unknown method 'nmf'; use one of bmf, felb"),
        ({"method": "elbmf", "parameters": {}}, "for centralized data"),
        ({"parameters": {"colour": 1}}, "no parameter 'colour'; it has"),
        ({"parameters": {"max_iter": 0}}, "max_iter must be at least 1"),
        ({"parameters": {"setting": "loud"}}, "setting .*'loud'"),
        ({"parameters": {"setting": [1]}}, "setting"),
        ({"parameters": {"participation": 3}}, "participation"),
        ({"parameters": {"secure": "maybe"}}, "secure"),
        ({"n_components": 0}, "n_components must be at least 1"),
        ({"participation": {"fraction": 0}}, "fraction of clients"),
        ({"participation": {"quorum": 0}}, "quorum must be at least 1"),
        ({"clients": 91}, "91 clients cannot share 90 rows"),
        ({"data": "missing.csv"}, "there is no file 'missing.csv'"),
    ],
)
def test_what_cannot_run_claims_no_folder(make_job, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        simulate(make_job(**changes), tmp_path / "new" / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_occupied_place_is_noticed_before_anything_is_read(make_job, tmp_path):
    (tmp_path / "out").mkdir()
    for run in (fit, simulate):
        with pytest.raises(InputError, match="out exists"):
            run(make_job(data="missing.csv"), tmp_path / "out")


def test_an_empty_folder_is_replaced_with_force(make_job, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out.unfinished").mkdir()  # what a process killed in its first moment leaves
    simulate(make_job(), tmp_path / "out", force=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_a_link_is_followed(make_job, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "results")
    simulate(make_job(), tmp_path / "out")
    simulate(make_job(seed=2), tmp_path / "out", force=True)
    assert (tmp_path / "out").is_symlink()
    assert list((tmp_path / "disk").iterdir()) == [tmp_path / "disk" / "results"]
    assert Result.read(tmp_path / "out").provenance.seed == 2


def test_a_folder_taken_while_the_data_was_read_is_not_shared(make_job, tmp_path):
    first, second = RunFolder(tmp_path / "out"), RunFolder(tmp_path / "out")
    second.check(force=True)
    first.begin(make_job(fingerprint="x"), force=False)
    for force, message in ((True, "still under way"), (False, "an unfinished run is at")):
        with pytest.raises(InputError, match=message):
            second.begin(make_job(), force=force)
    first.discard()
    assert list(tmp_path.iterdir()) == []


# -- scoring and generating --------------------------------------------------------------------------------------


def test_scores_of_parts_add_up_to_the_score_of_the_run(make_job, small_data, tmp_path):
    result = simulate(make_job(), tmp_path / "out")
    A = sp.load_npz(small_data)
    parts = []
    for i, rows in enumerate((slice(0, 40), slice(40, 90))):
        sp.save_npz(tmp_path / f"part{i}.npz", A[rows])
        parts.append(score_file(tmp_path / "out", str(tmp_path / f"part{i}.npz")))
    assert (parts[0] + parts[1]).scores() == result.scores


def test_unnamed_data_is_scored_by_position(tmp_path):
    named = planted(30, 5, 2, seed=1).A.with_columns(list("abcde"))
    named.save(tmp_path / "named.felb")
    result = fit(Job(str(tmp_path / "named.felb"), "elbmf", 2), tmp_path / "out")
    np.save(tmp_path / "unnamed.npy", named.toarray())
    assert score_file(tmp_path / "out", str(tmp_path / "unnamed.npy")).scores() == result.scores


def test_generated_files_hold_planted_data(tmp_path):
    written = write_planted(tmp_path / "g", 50, 20, k=2, noise=0.1, seed=9)
    expected = planted(50, 20, 2, noise=0.1, seed=9)
    assert read_data(str(written["data"])).matrix == expected.A
    assert read_data(str(written["signal"])).matrix == expected.signal
    assert BinaryMatrix.of(sp.load_npz(written["V"])) == BinaryMatrix.of(expected.V)
    with pytest.raises(InputError, match=r"g\.npz exists.*--force"):
        write_planted(tmp_path / "g.npz", 50, 20, k=2)
    with pytest.raises(InputError, match="is a folder"):
        write_planted("..", 50, 20, k=2)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_a_method_knows_whether_a_sample_of_the_clients_plays(make_job, fraction):
    """Otherwise it would compare the losses of different clients."""
    job = make_job(parameters={"refine": True}, participation={"fraction": fraction})
    assert prepare(job, federated_method(job)).method.sampled is (fraction < 1)
