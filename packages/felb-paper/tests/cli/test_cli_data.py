"""``felb data`` tells what there is and turns raw files into matrices, or says why it cannot."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from cli_files import leftovers

from felb.data import BinaryMatrix, load
from felb_paper.data import DATA_FOLDER, entries

MOVIES = "movieId,title,genres\n1,Toy Story (1995),Comedy\n2,Heat (1995),Action\n"
RATINGS = "userId,movieId,rating,timestamp\n1,1,4.0,0\n3,2,3.5,0\n3,1,1.0,0\n"


@pytest.fixture
def raw(in_folder, monkeypatch):
    """A folder with a tiny Movielens."""
    monkeypatch.setenv(DATA_FOLDER, str(in_folder / "data"))
    folder = in_folder / "ml"
    folder.mkdir()
    (folder / "movies.csv").write_text(MOVIES)
    (folder / "ratings.csv").write_text(RATINGS)
    return folder


def test_list_names_all_data_sets(felb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    shown = felb("data", "list")
    assert (shown.code, shown.err) == (0, "")
    for entry in entries().values():
        line = next(line for line in shown.out.splitlines() if line.startswith(f"{entry.name} "))
        assert ("included" in line) == entry.shipped
        assert (str(entry.shape[0]) if entry.shape else "–") in line
    assert [entry["name"] for entry in felb("data", "list", "--json").json] == list(entries())


@pytest.mark.parametrize("name", entries())
def test_info_says_whose_it_is_and_where_to_get_it(felb, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "1000")
    entry = entries()[name]
    shown = felb("data", "info", name)
    assert (shown.code, shown.err) == (0, "")
    for fact in (entry.licence, entry.attribution, entry.home, entry.download, *entry.files):
        assert fact in shown.out
    assert (str(entry.folder) in shown.out) != entry.shipped
    assert (f"felb data load {name} --raw" in shown.out) != entry.shipped
    facts = felb("data", "info", name.upper(), "--json").json
    assert (facts["name"], facts["licence"], facts["rows"]) == (name, entry.licence, entry.shape and entry.shape[0])


def test_info_tells_the_printed_density_from_the_one_computed_back(felb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    shown = felb("data", "info", "tcga").out
    assert "0.019 dense as the paper prints it; 0.01889 computed back from an RMSD of its table" in shown
    assert "computed back" not in felb("data", "info", "zoo").out
    assert "of no published size" in felb("data", "info", "genomics").out


def test_load_writes_matrix_and_names(felb, raw, in_folder):
    done = felb("data", "load", "movielens", "--raw", raw, "--out", "m.felb", "--any-shape")
    assert done.code == 0, done.err
    assert done.out == "m.felb: 2 records x 2 features, 2 ones\nm.rows.txt: names of the records\n"
    assert done.err == "note: the published matrix is 162541 x 62423, this one 2 x 2\n"
    matrix = BinaryMatrix.open("m.felb")
    assert matrix.columns == ("Toy Story (1995)", "Heat (1995)")
    np.testing.assert_array_equal(matrix.toarray(), [[1, 0], [0, 1]])
    assert (in_folder / "m.rows.txt").read_text() == "1\n3\n"
    assert leftovers(in_folder) == ["m.felb", "m.rows.txt", "ml"]
    assert felb("fit", "m.felb", "-k", 1, "-o", "result").code == 0


def test_load_speaks_json_and_takes_the_rating(felb, raw):
    load_all = ("data", "load", "movielens", "--raw", raw / "ratings.csv", "--any-shape", "--json", "-o", "m.felb")
    facts = felb(*load_all, "--at-least", 1).json
    assert facts == {
        "name": "movielens",
        "target": "m.felb",
        "row_names": "m.rows.txt",
        "rows": 2,
        "columns": 2,
        "ones": 3,
        "fingerprint": BinaryMatrix.open("m.felb").fingerprint(),
    }


def test_load_looks_into_the_data_folder(felb, raw, in_folder):
    (in_folder / "data").mkdir()
    raw.rename(in_folder / "data" / "movielens")
    assert felb("data", "load", "movielens", "-o", "m.felb", "--any-shape").code == 0


def test_load_of_what_comes_with_felb(felb, in_folder):
    done = felb("data", "load", "zoo", "-o", "z.felb")
    assert (done.code, done.err) == (0, "")
    assert BinaryMatrix.open("z.felb") == load("zoo")
    assert (in_folder / "z.rows.txt").read_text().startswith("aardvark\n")


def test_force_replaces_the_names_as_well(felb, in_folder):
    assert felb("data", "load", "zoo", "-o", "z.felb").code == 0
    done = felb("data", "load", "sc_10x_brain_10k", "-o", "z.felb")
    assert (done.code, done.err) == (
        1,
        "error: z.felb exists; choose another name, or set force to replace it (option --force)\n",
    )
    assert felb("data", "load", "sc_10x_brain_10k", "-o", "z.felb", "--force").code == 0
    assert leftovers(in_folder) == ["z.felb"]


def bad_inputs(folder):
    """Files that are wrong, each in a folder with the movies."""
    for name, content in {
        "short": b"userId,movieId,rating,timestamp\n1,1,4.0\n",
        "lacking": b"userId,movieId,timestamp\n1,1,4\n",
        "words": b"userId,movieId,rating,timestamp\n1,1,good,0\n",
        "utf16": RATINGS.encode("utf-16"),
        "empty": b"",
    }.items():
        (folder / name).mkdir()
        (folder / name / "movies.csv").write_text(MOVIES)
        (folder / name / "ratings.csv").write_bytes(content)
    (folder / "cut").mkdir()
    (folder / "cut" / "movies.csv").write_text(MOVIES)
    (folder / "cut" / "ratings.csv.gz").write_bytes(gzip.compress(RATINGS.encode())[:-4])
    (folder / "broken.zip").write_bytes(b"PK\x03\x04 and nothing more")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("mnist", "--raw", "ml", "-o", "m.felb"), 1, ("no data set 'mnist'", "felb knows zoo")),
        (("movielens", "--raw", "ml", "-o", "m.felb"), 1, ("2 x 2", "162541 x 62423", "--any-shape")),
        (("movielens", "--raw", "none", "-o", "m.felb"), 1, ("none", "No such file")),
        (("movielens", "-o", "m.felb"), 1, ("there is no", "movielens", "https://grouplens.org", "movies.csv")),
        (("movielens", "--raw", "short", "-o", "m.felb"), 1, ("short/ratings.csv", "line 2 has 3 fields")),
        (("movielens", "--raw", "lacking", "-o", "m.felb"), 1, ("lacks the column rating",)),
        (("movielens", "--raw", "words", "-o", "m.felb"), 1, ("line 2", "'good'")),
        (("movielens", "--raw", "utf16", "-o", "m.felb"), 1, ("UTF-8",)),
        (("movielens", "--raw", "empty", "-o", "m.felb"), 1, ("line 1 is empty",)),
        (("movielens", "--raw", "cut", "-o", "m.felb"), 1, ("ratings.csv.gz", "damaged or incomplete")),
        (("movielens", "--raw", "broken.zip", "-o", "m.felb"), 1, ("broken.zip", "damaged or incomplete")),
        (("netflix", "--raw", "ml", "-o", "m.felb"), 1, ("holds no combined_data_*.txt or mv_*.txt",)),
        (("movielens", "--raw", "ml", "-o", "m.npz"), 1, ("m.npz does not end in .felb",)),
        (("movielens", "--raw", "ml", "-o", "none/m.felb"), 1, ("folder none",)),
        (("movielens", "--raw", "ml", "-o", "m.felb", "--at-least", "nan"), 1, ("at_least=nan",)),
        (("zoo", "--raw", "ml", "-o", "m.felb"), 1, ("zoo comes with felb",)),
        (("tcga", "--raw", "ml", "-o", "m.felb", "--at-least", 3), 2, ("--at-least is for ratings",)),
        (("movielens", "--raw", "ml"), 2, ("--out",)),
        ((), 2, ("NAME",)),
    ],
)
def test_refusals_leave_nothing(felb, raw, in_folder, arguments, code, words):
    bad_inputs(in_folder)
    before = leftovers(in_folder)
    done = felb("data", "load", *arguments)
    assert (done.code, done.out) == (code, ""), done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err
    assert leftovers(in_folder) == before


def test_unknown_names_and_verbs(felb):
    done = felb("data", "info", "mnist")
    assert (done.code, done.out) == (1, "")
    assert "no data set 'mnist'" in done.err
    done = felb("data", "fetch")
    assert done.code == 2
    assert "fetch" in done.err
    done = felb("data")
    assert done.code == 2
    assert "load" in done.out + done.err
