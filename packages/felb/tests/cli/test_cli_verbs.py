"""Every verb does its work, prints it for people and for programs, and leaves files that others can read."""

from __future__ import annotations

import csv
import hashlib
import json
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from cli_files import leftovers, read_log, write_csv

import felb as library
from felb.federated.steps.assignment import assigned
from felb.runs.result import Result, file_stem, read_assignment

SMALL = ("--method", "felb-mu", "-k", 3, "--rounds", 8)


@pytest.fixture
def simulated(felb, table):
    """A finished simulation over four clients in ./out."""
    done = felb("simulate", table, "-o", "out", *SMALL, "--clients", 4, "--seed", 5, "--json")
    assert done.code == 0, done.err
    return done


# -- simulate ----------------------------------------------------------------------------------------------------


def test_simulate_prints_facts_scores_and_components(felb, table, in_folder):
    done = felb("simulate", table, "-o", "out", *SMALL, "--clients", 4)
    assert done.code == 0
    words = " ".join(done.out.split())
    for fact in (
        "result out",
        "method felb-mu, seed 0",
        "data table.csv: 60 records x 12 features",
        "clients 4 with 15 records each",
        "run 13 rounds: initialisation 4, local steps 8, assignment 1",
        "f1 rmsd precision recall coverage errors",
        "component support size features",
    ):
        assert fact in words
    assert leftovers(in_folder) == ["out", "table.csv"]


def test_simulate_json_is_all_of_stdout_and_agrees_with_the_folder(simulated):
    printed, stored = simulated.json, Result.read("out").to_json()
    for key in ("scores", "supports", "clients", "converged", "provenance", "n_components", "n_features"):
        assert printed[key] == stored[key]
    assert printed["folder"] == "out"
    assert printed["rounds"] == {"gram_sketch": 3, "sign_norms": 1, "local_factor": 8, "assign": 1}
    found = Result.read("out")
    assert [(c["number"], tuple(c["features"]), c["support"]) for c in printed["components"]] == [
        (c.number, c.features, c.support) for c in found.described()
    ]


def test_the_folder_holds_components_assignments_logs_and_the_record(simulated, in_folder, rows):
    out = in_folder / "out"
    assert leftovers(out) == [
        "assignments", "components.csv", "components.npz", "outbound", "private.json", "result.json",
    ]  # fmt: skip
    V = sp.load_npz(out / "components.npz").toarray()
    assert V.shape == (3, 12)
    assert set(np.unique(V)) <= {0, 1}
    record = Result.read(out).to_json()
    assert sum(record["clients"].values()) == len(rows)
    assert leftovers(out / "assignments") == [f"{name}.npz" for name in sorted(record["clients"])]
    supports = np.zeros(3, dtype=int)
    for name, size in record["clients"].items():
        U = sp.load_npz(out / "assignments" / f"{name}.npz")
        assert U.shape == (size, 3)
        supports += U.toarray().astype(int).sum(axis=0)
    assert record["supports"] == supports.tolist()
    with (out / "components.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            row = V[int(line["component"])]
            assert line["features"].split("; ") == [f"f{j}" for j in np.flatnonzero(row)] or not row.any()
            assert int(line["size"]) == row.sum()
            assert int(line["support"]) == supports[int(line["component"])]


def test_the_record_says_how_to_make_the_result_again(simulated, in_folder, rows):
    record = Result.read(in_folder / "out").to_json()
    made = record["provenance"]
    assert made["method"] == "felb-mu"
    assert made["seed"] == 5
    assert made["felb"] == library.__version__
    matrix = library.BinaryMatrix.of(rows, columns=[f"f{i}" for i in range(12)])
    assert made["data"] == {
        "source": "table.csv", "rows": 60, "columns": 12, "ones": int(rows.sum()), "unknown": 0,
        "fingerprint": matrix.fingerprint(),
    }  # fmt: skip
    assert {"n_components", "max_iter", "l1", "l2", "local_steps", "setting"} <= made["parameters"].keys()
    assert made["parameters"]["clients"] == 4
    groups = [f"client-{i + 1:02}" for i in library.data.partition.even(60, 4, seed=5)]
    model = library.FELBMU(3, max_iter=8, random_state=5)
    with warnings.catch_warnings(action="ignore", category=library.ConvergenceWarning):  # eight rounds are few
        model.fit(matrix, groups=groups)
    assert np.array_equal(model.components_, Result.read("out").components)
    assert [row["round"] for row in record["history"]] == list(range(13))
    assert [row["loss"] for row in record["history"][4:12]] == model.history_["loss"].tolist()
    assert record["history"][-1]["f1"] == record["scores"]["f1"] == model.counts_.f1


def test_the_logs_tell_everything_that_left_each_client_and_nothing_else(simulated, in_folder):
    clients = Result.read("out").clients
    assert leftovers(in_folder / "out" / "outbound") == [f"{name}.jsonl" for name in sorted(clients)]
    for name, size in clients.items():
        lines = read_log(in_folder / "out" / "outbound" / f"{name}.jsonl")
        expected = [(r, "gram_sketch", "sketch") for r in range(3)]
        expected += [(3, "sign_norms", what) for what in ("positive", "negative")]
        expected += [(r, "local_factor", what) for r in range(4, 12) for what in ("V", "curvature", "loss")]
        expected += [(12, "assign", "counts"), (12, "assign", "supports")]
        assert [(line["round"], line["task"], line["what"]) for line in lines] == expected
        shapes = {
            "sketch": ([12, 12], 12 * 12 * 8),
            "positive": ([3], 24),
            "negative": ([3], 24),
            "V": ([3, 12], 3 * 12 * 8),
            "curvature": ([3], 24),
            "loss": ([], 8),
            "counts": ([4], 32),
            "supports": ([3], 24),
        }
        for line in lines:
            assert line["client"] == name
            assert (line["shape"], line["bytes"]) == shapes[line["what"]]
            assert size not in line["shape"], "an array with an entry per row left the client"
            assert line["mechanism"] == "none"
            assert line["cost"] is None
            assert line["time"].endswith("+00:00")


def test_the_same_seed_gives_the_same_result_and_workers_do_not_show(felb, table):
    for out, options in (("a", ()), ("b", ("--workers", 3)), ("c", ("--seed", 1))):
        assert felb("simulate", table, "-o", out, *SMALL, "--clients", 3, *options).code == 0
    a, b, c = (Result.read(name) for name in "abc")
    assert np.array_equal(a.components, b.components)
    assert a.history == b.history
    assert a.scores == b.scores
    assert a.history != c.history


def test_clients_from_a_column(felb, hospitals, rows):
    done = felb("simulate", hospitals, "-o", "out", *SMALL, "--client-column", "hospital", "--json")
    assert done.code == 0, done.err
    assert done.json["clients"] == {"north": 20, "south": 20, "west": 20}
    assert done.json["n_features"] == rows.shape[1]
    assert done.json["provenance"]["parameters"]["client_column"] == "hospital"


ODD = [
    "a/b",
    "../escape",
    "..",
    ".",
    "St. Mary's",
    "Köln",
    "ko ln",
    "%2F",
    "a%2Fb",
    "€",
    " AC",
    "x~",
    "\\\\host",
    "L" * 300,
]


def test_odd_client_labels_stay_inside_the_folder_and_apart(felb, in_folder, rows):
    labels = np.resize(ODD, len(rows))
    data = write_csv(in_folder / "odd.csv", rows, clients=labels)
    done = felb("simulate", data, "-o", "runs/out", *SMALL, "--client-column", "hospital", "--json")
    assert done.code == 0, done.err
    names = {label.strip() for label in ODD}
    assert set(done.json["clients"]) == names
    assert leftovers(in_folder) == ["odd.csv", "runs"]
    assert leftovers(in_folder / "runs") == ["out"]
    for kind in ("assignments", "outbound"):
        files = leftovers(in_folder / "runs" / "out" / kind)
        assert len(files) == len(names)
        assert not any(file.startswith(".") for file in files)
    for name in names:
        assert read_assignment("runs/out", name).shape == (done.json["clients"][name], 3)
        log = in_folder / "runs" / "out" / "outbound" / f"{file_stem(name)}.jsonl"
        assert {line["client"] for line in read_log(log)} == {name}


def test_sampling_and_dropout_are_recorded(felb, table):
    options = ("--sample", 0.5, "--dropout", 0.3, "--split", "uneven")
    done = felb("simulate", table, "-o", "out", *SMALL, "--clients", 6, *options, "--json")
    assert done.code == 0, done.err
    assert done.json["provenance"]["parameters"]["participation"] == {"fraction": 0.5, "dropout": 0.3}
    assert len(set(done.json["clients"].values())) > 1
    history = Result.read("out").history
    assert all(1 <= row["clients"] <= 3 for row in history if row["task"] == "local_factor")
    assert all(row["clients"] + len(row.get("missing", ())) == 6 for row in history if row["task"] != "local_factor")
    assert history[-1]["clients"] == 6


@pytest.mark.parametrize("option", [("--method", "felb"), ("--setting", "literal"), ("--local-steps", 1), ("--l1", 0)])
def test_options_reach_the_method(felb, table, option):
    done = felb("simulate", table, "-o", "out", *SMALL, "--clients", 2, *option, "--json")
    assert done.code == 0, done.err
    made = done.json["provenance"]
    name = option[0].removeprefix("--").replace("-", "_")
    assert (made["method"] if name == "method" else made["parameters"][name]) == option[1]


def test_post_hoc_methods_run_like_any_other(felb, in_folder):
    options = ("-k", 4, "--clients", 3, "--param", "tau=[0.5, 0.9]", "--time-limit", 60, "--json")
    found = json.loads(felb("simulate", "zoo", "--method", "asso+or", "-o", "out", *options).out)
    assert found["rounds"] == {"local_components": 1, "assign": 1}
    assert found["complete"] is True
    parameters = found["provenance"]["parameters"]
    assert parameters["aggregation"] == "or"
    assert parameters["model__tau"] == [0.5, 0.9]
    assert parameters["model__time_limit"] == 60
    log = [json.loads(line) for line in (in_folder / "out/outbound/client-01.jsonl").read_text().splitlines()]
    assert [line["what"] for line in log] == ["V", "unfinished", "counts", "supports"]


def test_aligned_methods_send_their_components_once_a_pass(felb, in_folder):
    options = ("-k", 4, "--clients", 3, "--param", "alignment_passes=1", "--json")
    done = felb("simulate", "zoo", "--method", "grecond+aligned-vote", "-o", "out", *options)
    assert done.code == 0, done.err
    assert done.json["rounds"] == {"aligned_components": 2, "assign": 1}
    assert done.json["provenance"]["parameters"]["aggregation"] == "aligned-vote"
    log = [json.loads(line) for line in (in_folder / "out/outbound/client-01.jsonl").read_text().splitlines()]
    assert [line["what"] for line in log] == ["V", "unfinished", "V", "unfinished", "counts", "supports"]


@pytest.mark.parametrize("method", ["asso", "grecond", "mebf", "zhang"])
def test_centralized_methods_fit(felb, in_folder, method):
    found = json.loads(felb("fit", "zoo", "--method", method, "-k", 3, "-o", "out", "--json").out)
    assert found["n_components"] == 3
    assert found["scores"]["f1"] > 0.5


def test_a_result_cut_short_says_so(felb, in_folder):
    done = felb("fit", "zoo", "--method", "grecond", "-k", 9, "-o", "out", "--time-limit", 1e-9)
    assert "warning: GreConD was ended by its time limit" in done.err
    assert "stopped by the time limit" in done.out


def test_missing_folders_on_the_way_are_made(felb, table):
    assert felb("simulate", table, "-o", "new/deep/out", *SMALL).code == 0
    assert felb("show", "new/deep/out").code == 0


# -- fit ---------------------------------------------------------------------------------------------------------


def test_fit_prints_and_stores_like_simulate(felb, table, in_folder, rows):
    done = felb("fit", table, "--method", "elbmf", "-o", "out", "-k", 3, "--seed", 2)
    assert (done.code, done.err) == (0, "")
    assert "elbmf, seed 2" in done.out
    again = felb("fit", table, "--method", "elbmf", "-o", "again", "-k", 3, "--seed", 2, "--json")
    assert again.json["clients"] == {"centralized": 60}
    assert np.array_equal(Result.read("out").components, Result.read("again").components)
    kept = ["assignments", "components.csv", "components.npz", "private.json", "result.json"]
    assert leftovers(in_folder / "out") == kept
    assert read_assignment("out", "centralized").shape == (60, 3)
    model = library.ELBMF(3, random_state=2).fit(rows)
    assert np.array_equal(model.components_, Result.read("out").components)
    assert Result.read("out").provenance.parameters["l2_rate"] == model.l2_rate


def test_fit_runs_federated_methods_on_one_client(felb, table):
    done = felb("fit", table, "-o", "out", "-k", 3, "--method", "felb", "--max-iter", 5, "--json")
    assert done.code == 0, done.err
    assert done.json["provenance"]["method"] == "felb"


def test_fit_leaves_the_client_column_out(felb, hospitals):
    done = felb("fit", hospitals, "-o", "out", "-k", 3, "--client-column", "hospital", "--json")
    assert done.code == 0, done.err
    assert done.json["n_features"] == 12


def test_fit_binarizes_on_request(felb, in_folder):
    data = write_csv(in_folder / "lab.csv", [[0.2, 3.5], [4.0, 0.1], [3.1, 3.2]], ["sodium", "iron"])
    assert felb("fit", data, "-o", "out", "-k", 1).code == 1
    done = felb("fit", data, "-o", "out", "-k", 1, "--binarize-threshold", 1, "--json")
    assert done.code == 0, done.err
    assert done.json["provenance"]["data"]["ones"] == 4
    assert done.json["provenance"]["parameters"]["binarize_threshold"] == 1


def test_a_data_set_of_felb_is_found_even_beside_a_folder_of_its_name(felb, in_folder):
    assert felb("fit", "zoo", "-o", "zoo", "-k", 2).code == 0
    done = felb("fit", "zoo", "-o", "other", "-k", 2, "--json")
    assert done.code == 0, done.err
    assert done.json["provenance"]["data"]["source"] == "zoo"


# -- show and score ----------------------------------------------------------------------------------------------


def test_show_tells_data_clients_rounds_and_components(felb, simulated):
    shown = felb("show", "out")
    assert (shown.code, shown.err) == (0, "")
    words = " ".join(shown.out.split())
    assert "data table.csv: 60 records x 12 features" in words
    assert "clients 4 with 15 records each" in words
    assert "run 13 rounds: initialisation 4, local steps 8, assignment 1" in words
    best = Result.read("out").described()[0]
    assert f"{best.number} {best.support} {len(best.features)} {', '.join(best.features)}" in words


def test_show_json_is_what_simulate_printed(felb, simulated):
    assert felb("show", "out", "--json").json == simulated.json


def test_show_shortens_long_components(felb, simulated):
    longest = max(Result.read("out").described(), key=lambda c: len(c.features))
    shown = " ".join(felb("show", "out", "--features", 1).out.split())
    assert f"{longest.features[0]}, … ({len(longest.features) - 1} more)" in shown
    assert longest.features[1] not in shown


def test_names_are_printed_as_they_are(felb, in_folder):
    names = ["[bold]ICD[/bold]", "[A00-B99]", ":smile:", "ünï"]
    data = write_csv(in_folder / "data[1].csv", [[1, 1, 1, 1], [0, 0, 0, 0]] * 5, names)
    done = felb("fit", data, "-o", "out", "-k", 1)
    assert done.code == 0
    assert "data[1].csv: 10 records" in done.out
    assert ", ".join(names) in done.out
    assert "data[1].csv" in felb("score", "out", data.name).out


def test_score_on_the_data_of_the_run_is_the_score_of_the_run(felb, simulated, table):
    scored = felb("score", "out", table, "--json")
    assert (scored.code, scored.err) == (0, "")
    assert scored.json["scores"] == simulated.json["scores"]
    assert scored.json["cells"] == 60 * 12
    assert scored.json["fp"] + scored.json["fn"] == scored.json["scores"]["errors"]
    shown = felb("score", "out", table)
    assert f"{simulated.json['scores']['f1']:.4f}" in shown.out


def test_score_on_unseen_records_with_a_client_column(felb, simulated, in_folder, rows):
    part = write_csv(in_folder / "part.csv", rows[:7], clients=["new"] * 7)
    scored = felb("score", "out", part, "--client-column", "hospital", "--json")
    assert scored.code == 0, scored.err
    assert scored.json["cells"] == 7 * 12


# -- generate ----------------------------------------------------------------------------------------------------


def test_generate_writes_data_and_its_answer(felb, in_folder):
    options = ("-n", 40, "-m", 15, "-k", 2, "--noise", 0.1, "--seed", 4)
    done = felb("generate", "sub/planted", *options)
    assert (done.code, done.err) == (0, "")
    files = {name: f"planted{end}.npz" for name, end in (("data", ""), ("signal", ".signal"), ("U", ".U"), ("V", ".V"))}
    assert leftovers(in_folder / "sub") == sorted(files.values())
    expected = library.data.planted(40, 15, 2, noise=0.1, seed=4)
    held = {name: sp.load_npz(in_folder / "sub" / file).toarray().astype(bool) for name, file in files.items()}
    assert np.array_equal(held["data"], expected.A.toarray())
    assert np.array_equal(held["signal"], expected.signal.toarray())
    assert np.array_equal(held["U"], expected.U)
    assert np.array_equal(held["V"], expected.V)
    for file in files.values():
        assert file in done.out


def test_generate_json_and_suffix_and_force(felb, in_folder):
    options = ("-n", 20, "-m", 6, "-k", 1, "--kind", "additive", "--heights", 0.2, 0.5, "--contiguous")
    done = felb("generate", "g.npz", *options, "--json")
    assert done.json == {"data": "g.npz", "signal": "g.signal.npz", "U": "g.U.npz", "V": "g.V.npz"}
    before = hashlib.sha256((in_folder / "g.npz").read_bytes()).hexdigest()
    refused = felb("generate", "g", *options, "--seed", 1)
    assert refused.code == 1
    assert "--force" in refused.err
    assert hashlib.sha256((in_folder / "g.npz").read_bytes()).hexdigest() == before
    assert felb("generate", "g", *options, "--seed", 1, "--force").code == 0
    assert hashlib.sha256((in_folder / "g.npz").read_bytes()).hexdigest() != before


# -- notes -------------------------------------------------------------------------------------------------------


def test_a_collapsed_result_comes_with_advice_on_one_line(felb, table, monkeypatch):
    # Which data make a method collapse changes with the method; what is said about it should not.
    monkeypatch.setattr(
        "felb.federated.algorithms.felb.assigned", lambda V, **outcome: assigned(np.zeros_like(V), **outcome)
    )
    done = felb("simulate", table, "-o", "out", *SMALL, "--clients", 3)
    assert done.code == 0
    assert "(empty)" in done.out
    notes = done.err.splitlines()
    assert len(notes) == 1
    assert notes[0].startswith("warning: ")
    assert "all components are empty" in notes[0]
    assert "try a smaller l2" in notes[0]


def test_notes_do_not_disturb_json(felb, table):
    done = felb(
        "simulate",
        table,
        "-o",
        "out",
        "--method",
        "felb-mu",
        "-k",
        3,
        "--rounds",
        1,
        "--l2",
        0,
        "--clients",
        2,
        "--json",
    )
    assert done.code == 0
    assert done.json["converged"] is False
    assert [line.partition(" ")[0] for line in done.err.splitlines()] == ["warning:"]
    assert "not Boolean" in done.err or "before the components were Boolean" in done.err
    assert "rounded at 1/2" in felb("show", "out").out


@pytest.mark.parametrize("verb", [("fit",), ("simulate", "--clients", 2)])
def test_more_components_than_the_data_can_have_is_allowed_with_a_warning(felb, in_folder, verb):
    data = write_csv(in_folder / "t.csv", [[1, 0, 1]] * 4)
    done = felb(*verb, data, "-o", "out", "-k", 5)
    assert done.code == 0
    assert "warning: n_components=5 is more than min(rows, columns) = 3" in done.err
    assert Result.read("out").components.shape == (5, 3)


@pytest.mark.parametrize("method", ["felb-mu", "asso+vote", "asso+aligned-vote"])
def test_simulate_refines_if_asked(felb, table, method):
    common = ("simulate", table, "--method", method, "-k", 3, "--clients", 4, "--json")
    plain = felb(*common, "-o", "plain")
    refined = felb(*common, "-o", "refined", "--param", "refine=true")
    assert (plain.code, refined.code) == (0, 0), refined.err
    assert "flip_gains" not in plain.json["rounds"]
    assert refined.json["rounds"]["flip_gains"] >= 1
    assert refined.json["scores"]["errors"] <= plain.json["scores"]["errors"]
    assert refined.json["provenance"]["parameters"]["refine"] is True


def test_simulate_by_secure_aggregation_finds_the_same(felb, table, simulated):
    done = felb("simulate", table, "-o", "masked", *SMALL, "--clients", 4, "--seed", 5, "--secure", "--json")
    assert done.code == 0, done.err
    assert done.json["components"] == simulated.json["components"]
    assert done.json["scores"] == simulated.json["scores"]
    assert (done.json["provenance"]["parameters"]["secure"], simulated.json["provenance"]["parameters"]["secure"]) == (
        True,
        False,
    )
    few = felb("simulate", table, "-o", "few", *SMALL, "--clients", 2, "--secure")
    assert few.code == 1
    assert "3 to 50" in few.err
