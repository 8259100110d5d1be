"""Comparisons of methods: cells that are kept, methods by import path, scores as single runs give them."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from waiting import PATIENCE, wait_for

from felb import Asso, FederatedBMF
from felb.data import load, partition
from felb.errors import InputError
from felb.runs import cells as cell_runner
from felb.runs.cells import CELLS, Pool, answered
from felb.runs.compare import Comparison, compare, factorized, measured
from felb.runs.job import Job

JOB = Job("zoo", "bmf", 3, clients=3)
OWN = """
import numpy as np

class Rows:
    def __init__(self, n_components=5, first=0):
        self.n_components, self.first = n_components, first

    def fit(self, X):
        assert isinstance(X, np.ndarray)
        self.components_ = X[self.first : self.first + self.n_components]
        return self

not_a_class = 3
"""


class InProcess(Pool):
    """Measures here instead of in processes, which take seconds to come up."""

    def measure(self, requests, *, limit, folders):
        for key, parameters in requests:
            yield key, answered(measured, {"parameters": json.loads(json.dumps(parameters)), **folders})


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(cell_runner, "Pool", InProcess)


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_rows.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "own_rows.py"
    sys.modules.pop("own_rows", None)


def counted(comparison, out, **options):
    """Compare; return what was found and how many cells were measured."""
    seen = []
    found = compare(comparison, out, on_progress=seen.append, **options)
    return found, seen[-1].measured


def test_scores_are_those_of_single_fits(here, tmp_path):
    found, _ = counted(Comparison(JOB, ("bmf", "asso"), (3, 4), seeds=2), tmp_path / "cmp")
    assert found.done == found.planned == 8
    zoo = load("zoo")
    clients = JOB.labels(JOB.read())
    model = FederatedBMF(4, random_state=0).fit(zoo, groups=clients)
    assert found.cells["bmf", 4, 0].figures["f1"] == model.counts_.f1
    U = (centralized := Asso(3, random_state=0)).fit_transform(zoo)
    wrong = np.count_nonzero((U.astype(int) @ centralized.components_ > 0) != zoo.toarray())
    assert found.cells["asso", 3, 1].figures["errors"] == wrong
    assert found.interval("f1", "asso", 3).n == 2


def test_what_is_there_is_not_measured_again_and_more_can_be_added(here, tmp_path):
    first = Comparison(JOB, ("bmf", "asso+vote"), (3,), seeds=2)
    assert counted(first, tmp_path / "cmp")[1] == 4
    assert counted(first, tmp_path / "cmp")[1] == 0
    assert counted(Comparison(JOB, ("bmf", "asso+vote", "grecond"), (3,), seeds=3), tmp_path / "cmp")[1] == 5
    others = Comparison(JOB, ("asso+vote",), (3,), seeds=1, parameters={"asso+vote": {"tau": 0.5}})
    assert counted(others, tmp_path / "cmp")[1] == 1
    damaged = next((tmp_path / "cmp" / CELLS).glob("bmf.*"))
    damaged.write_text("{")
    assert counted(first, tmp_path / "cmp")[1] == 1


def test_data_from_another_place_is_the_same_data(here, tmp_path):
    zoo = load("zoo")
    for name in ("a.felb", "b.felb"):
        zoo.save(tmp_path / name)
    for name, measured_now in (("a.felb", 1), ("b.felb", 0)):
        job = Job(str(tmp_path / name), "bmf", 3, clients=3)
        assert counted(Comparison(job, ("grecond",), (3,), seeds=1), tmp_path / "cmp")[1] == measured_now


def test_own_methods_are_compared_and_measured_again_when_they_change(here, own, tmp_path):
    comparison = Comparison(JOB, ("own_rows:Rows", "grecond"), (3,), seeds=1, parameters={"": {"first": 7}})
    found, _ = counted(comparison, tmp_path / "cmp")
    rows = load("zoo").toarray()[7:10]
    _, V = factorized(type("Fixed", (), {"fit": lambda self, X: None, "components_": rows})(), load("zoo"), None)
    np.testing.assert_array_equal(V, rows)
    assert 0 < found.cells["own_rows:Rows", 3, 0].figures["f1"] < 1
    assert counted(comparison, tmp_path / "cmp")[1] == 0
    own.write_text(OWN + "\n# edited\n")
    assert counted(comparison, tmp_path / "cmp")[1] == 1


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("own_rows:Missing", "no class 'Missing'"),
        ("own_rows:not_a_class", "no class with a method fit"),
        ("no_such_package:Rows", "cannot be imported"),
    ],
)
def test_what_is_no_method_is_refused(own, path, words):
    with pytest.raises(InputError, match=words):
        Comparison(JOB, (path,), (3,)).cells("0")


def test_wrong_settings_are_refused():
    for settings, words in (
        ({"methods": ()}, "methods"),
        ({"components": ()}, "components"),
        ({"components": (0,)}, "at least 1"),
        ({"methods": ("bmf", "nothing")}, "unknown method"),
        ({"parameters": {"asso": {"tau": 1}}}, "not compared"),
        ({"parameters": {"": {"tau": 1}}}, "tau"),
    ):
        with pytest.raises(InputError, match=words):
            Comparison(JOB, **{"methods": ("bmf",), "components": (3,), **settings})


def test_more_components_than_the_data_has_are_refused(tmp_path):
    with pytest.raises(InputError, match="50 components"):
        compare(Comparison(JOB, ("bmf",), (50,)), tmp_path / "cmp")
    assert not (tmp_path / "cmp").exists()


def test_a_folder_of_something_else_is_not_taken(here, tmp_path):
    (tmp_path / "cmp").mkdir()
    (tmp_path / "cmp" / "thesis.txt").write_text("")
    with pytest.raises(InputError, match="holds no comparison"):
        compare(Comparison(JOB, ("bmf",), (3,)), tmp_path / "cmp")


def test_a_folder_in_which_a_process_died_at_its_manifest_is_taken(tmp_path):
    folder = tmp_path / "cmp"
    folder.mkdir()
    dying = "import sys, felb.records as a; from pathlib import Path; a.beside(Path(sys.argv[1]), a.PARTIAL).touch()"
    subprocess.run([sys.executable, "-c", dying, str(folder / "comparison.json")], check=True)
    assert [path.suffix for path in folder.iterdir()] == [".partial"]
    with cell_runner.claim_folder(folder, manifest="comparison.json", what="comparison"):
        assert not list(folder.glob(".*.partial"))
    (folder / "mine.txt").touch()
    with pytest.raises(InputError, match="comparison"):
        cell_runner.claim_folder(folder, manifest="comparison.json", what="comparison")


def test_federated_methods_get_the_clients_and_others_do_not():
    zoo, clients = load("zoo"), partition.even(101, 4)
    U, V = factorized(FederatedBMF(3, random_state=0), zoo, clients)
    model = FederatedBMF(3, random_state=0).fit(zoo, groups=clients)
    np.testing.assert_array_equal(V, model.components_)
    assert U.shape == (101, 3)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupted_comparison_goes_on_when_it_is_run_again(tmp_path):
    words = ["compare", "zoo", "--methods", "asso+vote", "-k", "3", "--clients", "3", "-o", "cmp"]
    command = [sys.executable, "-m", "felb", *words]
    options = {"cwd": tmp_path, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    listen = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    process = subprocess.Popen([*command, "--seeds", "5000"], **options, **listen)
    cells = tmp_path / "cmp" / CELLS
    wait_for(lambda: len(list(cells.glob("*.json"))) >= 3, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "finished runs are kept; resume with: felb compare zoo" in err
    kept = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    assert len(kept) >= 3
    assert not list(cells.glob(".*.partial"))
    done = subprocess.run([*command, "--seeds", "3"], **options, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 seeds" in done.stdout
    assert all((cells / name).stat().st_mtime_ns == changed for name, changed in kept.items())
