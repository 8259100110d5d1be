"""Unknown cells at the command line: said by empty cells or by another file, they are what they are in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from cli_files import leftovers

import felb as library
from felb.data import BinaryMatrix, planted, read
from felb.data.partition import dealt
from felb.runs.execute import simulate
from felb.runs.job import Job
from felb.runs.result import Result

DATA = planted(120, 15, 3, noise=0.03, heights=(0.3, 0.4), widths=(0.25, 0.4), seed=5).A.toarray()
HIDDEN = np.random.default_rng(1).random(DATA.shape) < 0.2
SEEN = DATA & ~HIDDEN
NAMES = [f"f{j}" for j in range(15)]
MARKED = BinaryMatrix.of(SEEN, columns=NAMES).with_unknown(HIDDEN)
ASK = ("-k", 3, "--seed", 4)
SAID = ("--missing", "unknown")

pytestmark = pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")


def write(path, cells):
    path.write_text("\n".join([",".join(NAMES), *(",".join(row) for row in cells)]) + "\n")


@pytest.fixture
def files(in_folder):
    """The data with NA in partly.csv; with zeros in seen.csv and the cells in cells.npz; both in one as both.felb."""
    write(in_folder / "partly.csv", np.where(HIDDEN, "NA", SEEN.astype(int).astype(str)))
    write(in_folder / "seen.csv", SEEN.astype(int).astype(str))
    sp.save_npz(in_folder / "cells.npz", sp.csr_array(HIDDEN))
    MARKED.save(in_folder / "both.felb")
    return in_folder


WAYS = {
    "missing": ("partly.csv", *SAID),
    "marks": ("seen.csv", "--unknown", "cells.npz"),
    "stored": ("both.felb",),
}


def same_result(folder, model):
    found = Result.read(folder)
    np.testing.assert_array_equal(found.components, model.components_)
    assert found.scores == model.counts_.scores()
    assert found.provenance.data["unknown"] == HIDDEN.sum()
    assert found.provenance.data["fingerprint"] == MARKED.fingerprint()


def test_all_ways_to_say_it_give_what_python_gives(felb, files):
    centralized = library.FederatedBMF(3, random_state=4).fit(np.where(HIDDEN, np.nan, SEEN))
    groups = dealt(120, 4, split="even", seed=4)
    shared = library.FederatedBMF(3, random_state=4).fit(SEEN, unknown=HIDDEN, groups=groups)
    assert centralized.counts_.cells == (~HIDDEN).sum()
    for name, way in WAYS.items():
        assert felb("fit", *way, *ASK, "-o", f"fit-{name}").code == 0
        same_result(f"fit-{name}", centralized)
        assert felb("simulate", *way, *ASK, "--clients", 4, "-o", f"run-{name}").code == 0
        same_result(f"run-{name}", shared)


def test_it_is_said_and_remembered(felb, files):
    done = felb("simulate", *WAYS["marks"], *ASK, "--clients", 4, "-o", "run")
    told = f"{SEEN.sum()} ones, {HIDDEN.sum()} unknown cells"
    assert told in " ".join(done.out.split())
    assert told in " ".join(felb("show", "run").out.split())
    kept = felb("show", "run", "--json").json["provenance"]
    assert kept["data"]["unknown"] == HIDDEN.sum()
    assert (kept["parameters"]["missing"], kept["parameters"]["unknown"]) == ("error", "cells.npz")
    assert "unknown" not in felb("fit", "seen.csv", *ASK, "-o", "plain").out


def test_scores_are_of_known_cells(felb, files):
    felb("fit", *WAYS["missing"], *ASK, "-o", "run")
    scores = [felb("score", "run", *way, "--json").json for way in WAYS.values()]
    assert [row["cells"] for row in scores] == [(~HIDDEN).sum()] * 3
    assert scores[0]["scores"] == scores[1]["scores"] == scores[2]["scores"]
    assert felb("score", "run", "seen.csv", "--json").json["cells"] == HIDDEN.size


@pytest.mark.parametrize("way", WAYS)
def test_the_report_finds_the_data_and_the_marks(felb, files, way):
    felb("simulate", *WAYS[way], *ASK, "--clients", 4, "-o", "run")
    done = felb("report", "run", "--json")
    assert done.code == 0, done.err
    assert done.json["data"] == WAYS[way][0]
    assert "Unknown cells" in (files / "run" / "report.html").read_text(encoding="utf-8")
    (files / "cells.npz").rename(files / "moved.npz")
    for path in ("partly.csv", "seen.csv", "both.felb"):
        (files / "elsewhere").mkdir(exist_ok=True)
        (files / path).rename(files / "elsewhere" / path)
    assert "note" in felb("report", "run", "--force", "--json").json
    extra = ("--unknown", "moved.npz") if way == "marks" else ()
    done = felb("report", "run", "--data", f"elsewhere/{WAYS[way][0]}", *extra, "--force", "--json")
    assert done.json["data"] == WAYS[way][0]


def test_converting_carries_them(felb, files):
    for name, way in WAYS.items():
        done = felb("convert", way[0], f"{name}.felb", *way[1:])
        assert done.code == 0, done.err
        assert done.out == f"{name}.felb: 120 records x 15 features, {SEEN.sum()} ones, {HIDDEN.sum()} unknown\n"
        assert read(f"{name}.felb").matrix == MARKED
    assert felb("convert", "partly.csv", "j.felb", *SAID, "--json").json["unknown"] == HIDDEN.sum()
    assert felb("convert", "both.felb", "zero.felb", "--missing", "zero").code == 0
    assert read("zero.felb").matrix == read("seen.csv").matrix


def test_an_interrupted_run_reads_the_marks_again(felb, files, monkeypatch):
    job = Job("seen.csv", "bmf", 3, seed=4, clients=4, unknown="cells.npz")

    def stop(snapshot):
        if len(snapshot.history) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(job, "run", on_round=stop)
    (files / "other").mkdir()
    monkeypatch.chdir(files / "other")
    assert felb("simulate", "--resume", "../run").code == 0
    undisturbed = library.FederatedBMF(3, random_state=4)
    undisturbed.fit(SEEN, unknown=HIDDEN, groups=dealt(120, 4, split="even", seed=4))
    same_result("../run", undisturbed)


def test_marks_that_changed_are_refused(felb, files):
    with pytest.raises(KeyboardInterrupt):
        simulate(Job("seen.csv", "bmf", 3, clients=4, unknown="cells.npz"), "run", on_round=interrupt)
    sp.save_npz("cells.npz", sp.csr_array(HIDDEN & (np.arange(120) > 3)[:, None]))
    done = felb("simulate", "--resume", "run")
    assert done.code == 1
    assert "cells.npz has changed since the run was started" in done.err


def interrupt(_):
    raise KeyboardInterrupt


# -- refusals -----------------------------------------------------------------------------------------------------


def refused(felb, *args, words):
    before = leftovers(Path())
    done = felb(*args, "-o", "out")
    assert done.code == 1, done.out
    assert done.out == ""
    for word in words:
        assert word in done.err
    assert leftovers(Path()) == before


@pytest.mark.parametrize("verb", ["fit", "simulate"])
def test_without_the_option_a_missing_cell_is_an_error_that_names_it(felb, files, verb):
    words = ("partly.csv: line 2, column", "is missing", "--missing", "'unknown'", "'zero'")
    refused(felb, verb, "partly.csv", words=words)


@pytest.mark.parametrize(
    ("verb", "method"),
    [
        *(("fit", method) for method in ("elbmf", "asso", "felb")),
        *(("simulate", method) for method in ("felb", "felb-mu", "asso+vote", "grecond+or")),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_other_methods_refuse(felb, files, verb, method, way):
    words = ("unknown cells", "bmf", "--missing")
    refused(felb, verb, *WAYS[way], "--method", method, *ASK, words=words)


def test_other_methods_take_zeros(felb, files):
    assert felb("fit", "partly.csv", "--missing", "zero", "--method", "grecond", *ASK, "-o", "zeros").code == 0
    assert felb("fit", "seen.csv", "--method", "grecond", *ASK, "-o", "seen").code == 0
    np.testing.assert_array_equal(Result.read("zeros").components, Result.read("seen").components)


@pytest.mark.parametrize("method", ["bmf", "felb", "asso+vote"])
@pytest.mark.parametrize("verb", ["fit", "simulate"])
def test_privacy_refuses(felb, files, verb, method):
    pytest.importorskip("dp_accounting")
    unit = () if method == "bmf" else ("--unit", "client")
    rounds = ("--param", "max_iter=3") if method == "felb" else ()
    words = ("all cells must be known",) if method == "bmf" else ("unknown cells",)
    args = (*WAYS["missing"], "--method", method, "--epsilon", 2, *unit, *rounds, *ASK)
    refused(felb, verb, *args, words=words)


def test_marks_that_do_not_fit_are_refused(felb, files):
    sp.save_npz("short.npz", sp.csr_array(HIDDEN[:7]))
    refused(felb, "fit", "seen.csv", "--unknown", "short.npz", words=("short.npz has 7 rows, but the data has 120",))
    refused(felb, "fit", "seen.csv", "--unknown", "no.npz", words=("no.npz: cannot be read",))
    refused(felb, "fit", "cells.npz", *SAID, words=("missing", ".csv", "--unknown"))
    assert felb("fit", "partly.csv", "--missing", "drop", "-o", "out").code == 2


def test_a_stored_job_of_before_is_still_read(files):
    job = Job(data="seen.csv", method="bmf", n_components=3, header=None, binarize_threshold=None)
    assert job.read().matrix == read("seen.csv").matrix
