"""Whatever is wrong: a message that says what and what to do, a code that is not 0, and no folder left behind."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from cli_files import leftovers, write_csv
from results import reseal

from felb.runs.result import Result

GOOD = [[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]]
SMALL = ("--method", "felb-mu", "-k", 2, "--rounds", 3, "--clients", 2)


@pytest.fixture
def refused(felb, in_folder):
    """Run felb, expect a refusal that mentions all `words`, and see that the folder looks as before."""

    def run(*args, words, code=1):
        before = leftovers(in_folder)
        done = felb(*args)
        assert done.code == code, done.out + done.err
        assert done.out == ""
        assert "Traceback" not in done.err
        for word in words:
            assert word in done.err
        assert leftovers(in_folder) == before
        return done

    return run


@pytest.fixture
def good(in_folder):
    return write_csv(in_folder / "good.csv", GOOD, ["a", "b", "c"])


@pytest.fixture
def result(felb, good, in_folder):
    assert felb("simulate", good, "-o", "result", *SMALL).code == 0
    return in_folder / "result"


VERBS = [("fit", "-k", 2), ("simulate", *SMALL)]


# -- data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([[1, 0], [1, 2]], ("line 3", "column 2 ('b')", "holds 2", "--binarize-threshold")),
        ([[0.5, 0], [1, 1]], ("line 2", "column 1 ('a')", "holds 0.5", "--binarize-threshold")),
        ([[1, 0], ["nan", 1]], ("line 3", "column 1 ('a')", "missing", "--missing")),
        ([[1, 0], ["", 1]], ("line 3", "column 1 ('a')", "missing", "--missing")),
        ([[1, 0], [1]], ("line 3 has 1 cells", "2 were expected")),
        ([], ("holds no rows",)),
    ],
)
def test_cells_that_are_not_0_or_1(refused, in_folder, verb, cells, words):
    data = write_csv(in_folder / "bad.csv", cells, ["a", "b"])
    refused(*verb, data, "-o", "out", words=("bad.csv", *words))


@pytest.mark.parametrize("verb", VERBS)
def test_not_a_number_in_arrays(refused, in_folder, verb):
    np.save(in_folder / "bad.npy", np.array([[0.0, 1.0], [np.nan, 1.0]]))
    refused(*verb, "bad.npy", "-o", "out", words=("bad.npy", "row 1", "column 0", "missing"))
    sp.save_npz(in_folder / "bad.npz", sp.csr_array(np.array([[0, 3], [1, 1]])))
    refused(*verb, "bad.npz", "-o", "out", words=("bad.npz", "row 0", "column 1", "holds 3", "--binarize-threshold"))


@pytest.mark.parametrize("verb", VERBS)
def test_files_that_hold_nothing(refused, in_folder, verb):
    (in_folder / "empty.csv").touch()
    refused(*verb, "empty.csv", "-o", "out", words=("empty.csv", "is empty"))
    np.save(in_folder / "empty.npy", np.zeros((0, 3)))
    refused(*verb, "empty.npy", "-o", "out", words=("empty.npy", "no data", "0 rows and 3 columns"))
    sp.save_npz(in_folder / "empty.npz", sp.csr_array((4, 0)))
    refused(*verb, "empty.npz", "-o", "out", words=("empty.npz", "no data", "4 rows and 0 columns"))


@pytest.mark.parametrize("verb", VERBS)
def test_files_that_cannot_be_read(refused, in_folder, verb, good):
    refused(*verb, "missing.csv", "-o", "out", words=("missing.csv", "there is no file", "zoo"))
    refused(*verb, "missing/x.csv", "-o", "out", words=("missing/x.csv", "there is no file"))
    refused(*verb, ".", "-o", "out", words=("folder",))
    refused(*verb, good.rename("good.xlsx"), "-o", "out", words=("'.xlsx'", "felb reads .csv"))
    sp.save_npz(in_folder / "cut.npz", sp.csr_array(np.eye(50)))
    whole = (in_folder / "cut.npz").read_bytes()
    for size in (1, 30, len(whole) // 2, len(whole) - 1):
        (in_folder / "cut.npz").write_bytes(whole[:size])
        refused(*verb, "cut.npz", "-o", "out", words=("cut.npz", "write it again"))
    (in_folder / "latin.csv").write_bytes("größe,b\n1,0\n".encode("latin-1"))
    refused(*verb, "latin.csv", "-o", "out", words=("latin.csv", "UTF-8"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read and write everything")
def test_files_and_folders_without_permission(refused, in_folder, good):
    good.chmod(0)
    refused("fit", good, "-o", "out", words=("good.csv", "Permission denied"))
    good.chmod(0o600)
    (in_folder / "closed").mkdir(mode=0o500)
    refused("fit", good, "-o", "closed/out", words=("closed/out", "Permission denied", "choose another folder"))


def test_header_advice_speaks_of_options(refused, in_folder):
    (in_folder / "t.csv").write_text("a,a\n1,0\n")
    refused("fit", "t.csv", "-o", "out", words=("column name 'a' occurs more than once", "--no-header"))
    np.save(in_folder / "t.npy", np.eye(3))
    refused("fit", "t.npy", "-o", "out", "--no-header", words=("--header", ".csv, .tsv"))


# -- clients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--client-column", "ward"), 1, ("'ward' is not a column", "'a', 'b', 'c'")),
        (("--clients", 5), 1, ("5 clients cannot share 4 rows",)),
        (("--clients", 0), 2, ("'--clients'", "0 is not in the range x>=1")),
        (("--clients", -3), 2, ("'--clients'", "-3 is not in the range x>=1")),
        (("--clients", "two"), 2, ("'--clients'", "'two'")),
        (("--clients", 2, "--client-column", "a"), 1, ("number of clients or a client column", "not both")),
        (("--split", "odd"), 2, ("'--split'", "even", "uneven")),
        (("--sample", 0), 2, ("'--sample'", "0<x<=1")),
        (("--sample", 1.2), 2, ("'--sample'", "0<x<=1")),
        (("--sample", "nan"), 1, ("fraction of clients", "(0, 1]")),
        (("--dropout", 1), 2, ("'--dropout'", "0<=x<1")),
        (("--dropout", -0.1), 2, ("'--dropout'", "0<=x<1")),
        (("--workers", 0), 2, ("'--workers'", "x>=1")),
    ],
)
def test_clients_that_cannot_be(refused, good, options, code, words):
    refused(
        "simulate", good, "-o", "out", "--method", "felb-mu", "-k", 2, "--rounds", 3, *options, words=words, code=code
    )


def test_rows_without_a_client(refused, in_folder):
    (in_folder / "t.csv").write_text("a,ward\n1,x\n0,\n")
    refused("simulate", "t.csv", "-o", "out", "--client-column", "ward", words=("line 3 has no client", "'ward'"))
    refused("simulate", "zoo", "-o", "out", "--client-column", "ward", words=("'zoo' has no client column",))
    np.save(in_folder / "t.npy", np.eye(3))
    refused("simulate", "t.npy", "-o", "out", "--client-column", "w", words=("--client-column", ".csv"))


# -- parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("-k", 0), 2, ("'--components'", "x>=1")),
        (("-k", -2), 2, ("'--components'", "x>=1")),
        (("-k", 1.5), 2, ("'--components'", "'1.5'")),
        (("--method", "nmf"), 1, ("unknown method 'nmf'", "felb, felb-mu, fednmf")),
        (("--l1", -1), 2, ("'--l1'", "x>=0")),
        (("--l2", "nan"), 1, ("l2", "nan")),
        (("--inertia", 0.5), 2, ("'--inertia'", "0<=x<0.5")),
        (("--seed", -1), 2, ("'--seed'", "x>=0")),
        (("--unheard", 1), 2, ("--unheard",)),
        (("--param", "tau"), 2, ("'tau' is not NAME=VALUE",)),
        (("--param", "tau=0.9"), 1, ("method 'felb' has no parameter 'tau'", "local_steps")),
        (("--method", "asso+vote", "--param", "tau=7"), 1, ("tau", "7")),
        (("--method", "asso+median"), 1, ("unknown method 'asso+median'", "asso+vote")),
        (("--method", "asso+vote", "--time-limit", 0), 2, ("'--time-limit'", "x>0")),
    ],
)
@pytest.mark.parametrize("verb", ["fit", "simulate"])
def test_parameters_that_cannot_be(refused, good, verb, options, code, words):
    method = () if "--method" in options else ("--method", "felb")
    clients = ("--clients", 2) if verb == "simulate" else ()
    refused(verb, good, "-o", "out", *method, *clients, *options, words=words, code=code)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--rounds", 0), 2, ("'--rounds'", "x>=1")),
        (("--local-steps", 0), 2, ("'--local-steps'", "x>=1")),
        (("--proximity", -1), 2, ("'--proximity'", "x>=0")),
        (("--setting", "loud"), 2, ("'loud'", "recommended", "literal")),
        (("--method", "elbmf"), 1, ("'elbmf' is for centralized data", "felb fit", "elbmf+vote")),
    ],
)
def test_parameters_of_a_simulation(refused, good, options, code, words):
    refused("simulate", good, "-o", "out", "--clients", 2, *options, words=words, code=code)


def test_a_weight_that_overflows_leaves_nothing(refused, good):
    options = ("--method", "felb-mu", "-k", 2, "--clients", 2, "--proximity", "inf", "--rounds", 9)
    refused("simulate", good, "-o", "out", *options, words=("proximity must be a finite number",))


def test_parameters_of_generate(refused):
    refused("generate", "g", "-n", 0, words=("'--rows'", "x>=1"), code=2)
    refused("generate", "g", "-k", "mdl", words=("'--components'", "mdl"), code=2)
    refused("generate", "g", "--noise", 1.5, words=("'--noise'", "0<=x<=1"), code=2)
    refused("generate", "g", "--noise", "nan", words=("noise", "between 0 and 1"))
    refused("generate", "g", "--heights", 0.5, 0.2, words=("heights", "(low, high)"))
    refused("generate", ".", words=("folder", "file name"))


# -- where the result goes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_result_is_only_replaced_with_force(felb, refused, good, in_folder, verb):
    assert felb(*verb, good, "-o", "out", "--seed", 1).code == 0
    before = (in_folder / "out" / "result.json").read_bytes()
    refused(*verb, good, "-o", "out", "--seed", 2, words=("out exists", "another folder", "--force"))
    assert (in_folder / "out" / "result.json").read_bytes() == before
    done = felb(*verb, good, "-o", "out", "--seed", 2, "--force")
    assert done.code == 0, done.err
    assert Result.read("out").provenance.seed == 2
    assert leftovers(in_folder) == ["good.csv", "out"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_failing_run_keeps_the_result_it_would_have_replaced(refused, result, in_folder, verb):
    write_csv(in_folder / "bad.csv", [[1, 0], [1, 2]])
    before = (result / "result.json").read_bytes()
    refused(*verb, "bad.csv", "-o", "result", "--force", words=("bad.csv",))
    assert (result / "result.json").read_bytes() == before


@pytest.mark.parametrize("verb", VERBS)
def test_force_never_deletes_what_is_not_a_result(refused, good, in_folder, verb):
    thesis = in_folder / "home" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    for out in ("home", good, "."):
        refused(*verb, good, "-o", out, words=("exists", "--force"))
        refused(*verb, good, "-o", out, "--force", words=("is not a result of felb",))
    assert thesis.read_text() == "years of work"
    (in_folder / "out.unfinished").write_text("mine")
    refused(*verb, good, "-o", "out", "--force", words=("out.unfinished is in the way",))


@pytest.mark.parametrize("verb", VERBS)
def test_places_that_cannot_be_written(refused, good, verb):
    refused(*verb, good, "-o", good / "out", words=("good.csv", "choose another folder"))
    if sys.platform == "linux":
        refused(*verb, good, "-o", "/proc/felb/out", words=("/proc/felb/out", "cannot be written"))
    if verb[0] == "fit":
        refused("generate", good / "g", words=("good.csv", "check the path"))


def test_the_command_line_names_what_is_missing(refused, good):
    refused("fit", good, words=("--out",), code=2)
    refused("fit", words=("DATA",), code=2)
    refused("simulate", good, words=("Give DATA and --out, or --resume OUT",), code=2)
    refused("simulate", "-o", "out", words=("Give DATA and --out",), code=2)
    refused("show", words=("RESULT",), code=2)
    refused("score", "result", words=("DATA",), code=2)


# -- results that are none ---------------------------------------------------------------------------------------


def test_folders_that_hold_no_result(refused, in_folder, good):
    (in_folder / "empty").mkdir()
    refused("show", "missing", words=("no folder 'missing'", "finished run"))
    refused("score", "missing", good, words=("no folder 'missing'",))
    for folder in ("empty", good):
        refused("show", folder, words=(str(folder), "not a result folder", "no result.json", "finished run"))
        refused("score", folder, good, words=(str(folder), "not a result folder"))


@pytest.mark.parametrize("verb", [("show", "result"), ("score", "result", "good.csv")])
def test_damaged_results(refused, result, verb):
    record, components = result / "result.json", result / "components.npz"
    whole, raw = record.read_bytes(), components.read_bytes()
    for damaged in (b"", b"{", whole[: len(whole) // 2], b"[]", b"{}", b"\xff\xfe", b'{"format": "felb-result-3"}'):
        record.write_bytes(damaged)
        refused(*verb, words=("result.json is damaged", "make the result again"))
    record.write_text(json.dumps({**json.loads(whole), "format": "felb-result-9"}))
    refused(*verb, words=("'felb-result-9'", "result.json is damaged"))
    record.write_bytes(whole)
    for size in (0, 10, len(raw) // 2, len(raw) - 1):
        components.write_bytes(raw[:size])
        refused(*verb, words=("components.npz is not the file", "make the result again", "--unverified"))
        reseal(result)
        refused(*verb, words=("components.npz is damaged or missing", "make the result again"))
    components.unlink()
    refused(*verb, words=("components.npz is missing",))
    sp.save_npz(components, sp.csr_array(np.eye(7)))
    reseal(result)
    refused(
        *verb,
        words=(
            "components.npz",
            "does not belong to result.json",
        ),
    )


def test_data_with_other_columns_is_not_scored(refused, result, in_folder):
    write_csv(in_folder / "wide.csv", [[1, 0, 1, 0]], list("abcd"))
    refused("score", "result", "wide.csv", words=("wide.csv has 4 columns", "the result has 3", "same features"))
    write_csv(in_folder / "turned.csv", GOOD, ["a", "c", "b"])
    refused("score", "result", "turned.csv", words=("column 1 of turned.csv is 'c'", "'b'", "order of the result"))
    refused("score", "result", "missing.csv", words=("missing.csv", "there is no file"))


# -- resume ------------------------------------------------------------------------------------------------------


def test_runs_that_cannot_be_resumed(refused, felb, result, good, in_folder):
    refused("simulate", "--resume", "result", words=("nothing to resume", "finished already"))
    refused("simulate", "--resume", "never", words=("nothing to resume", "was never started"))
    (in_folder / "folder").mkdir()
    refused("simulate", "--resume", "folder", words=("nothing to resume", "is not the folder of a run"))
    refused("simulate", good, "--resume", "result", words=("--resume cannot be combined with DATA",), code=2)
    refused("simulate", "--resume", "result", "-o", "x", words=("cannot be combined with --out",), code=2)
    refused("simulate", "--resume", "result", "--rounds", 500, words=("cannot be combined with --rounds",), code=2)
    refused("simulate", "--resume", "result", "-k", 3, words=("cannot be combined with --components",), code=2)


def test_a_folder_in_place_of_a_file_is_named(refused, result, in_folder):
    (in_folder / "folder").mkdir()
    refused("score", "result", "folder", words=("folder: is a folder",))


def test_parameters_are_checked_before_rounds_are_counted(refused, good):
    refused("simulate", good, "-k", 2, "-o", "x", "--method", "fedprox", "-p", "max_iter=[]", words=("max_iter",))


def test_endless_numbers_and_endless_nesting_are_refused(refused, good):
    refused("choose-k", good, "-k", "1-999999999999", words=("compare fewer",), code=2)
    refused("fit", good, "-k", 2, "-o", "x", "-p", "nothing=" + "[" * 100_000, words=("nothing",))


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes")
def test_names_that_no_record_can_hold_are_refused_before_work_starts(refused, in_folder):
    name = os.fsdecode(b"gr\xfc\xdfe.csv")
    (in_folder / name).write_text("a,b\n" + "1,0\n0,1\n" * 10)
    words = ("is not UTF-8", "rename the file")
    refused("simulate", name, "--method", "grecond+or", "-k", "1", "-o", "out", words=words)
    refused("fit", name, "--method", "grecond", "-k", "1", "-o", "out", words=words)
    refused("schema", "infer", name, "-o", "s.toml", words=words)
    refused("compare", name, "--methods", "grecond", "-k", "1", "-o", "out", words=words)
