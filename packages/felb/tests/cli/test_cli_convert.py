"""``felb convert`` writes what the other verbs then use from disk, or nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cli_files import leftovers, write_csv
from test_cli_terminal import Terminal

from felb.cli import main
from felb.data import BinaryMatrix, read


def test_convert_says_what_was_written(felb, table, in_folder):
    done = felb("convert", table, "t.felb")
    assert (done.code, done.err) == (0, "")
    matrix = BinaryMatrix.open("t.felb")
    assert done.out == f"t.felb: 60 records x 12 features, {matrix.nnz} ones\n"
    assert matrix == read(table).matrix
    assert leftovers(in_folder) == ["t.felb", "table.csv"]


def test_convert_speaks_json(felb, hospitals):
    done = felb("convert", hospitals, "t.felb", "--client-column", "hospital", "--json")
    matrix = BinaryMatrix.open("t.felb")
    assert done.json == {
        "source": str(hospitals),
        "target": "t.felb",
        "bytes": Path("t.felb").stat().st_size,
        "rows": 60,
        "columns": 12,
        "ones": matrix.nnz,
        "unknown": 0,
        "fingerprint": read(hospitals, client_column="hospital").matrix.fingerprint(),
    }
    assert "hospital" not in matrix.columns


def test_options_of_reading_apply(felb, in_folder):
    data = write_csv(in_folder / "t.csv", [[0.2, 7], [1, 0]])
    assert felb("convert", data, "t.felb", "--no-header", "--binarize-threshold", 0.5).code == 0
    np.testing.assert_array_equal(BinaryMatrix.open("t.felb").toarray(), [[0, 1], [1, 0]])


def test_a_run_from_disk_is_the_run_on_the_source(felb, table):
    assert felb("convert", table, "t.felb").code == 0
    options = ("--method", "felb-mu", "-k", 3, "--rounds", 8, "--clients", 4, "--split", "consecutive", "--json")
    one, other = (felb("simulate", data, "-o", Path(data).stem, *options).json for data in (table, "t.felb"))
    assert one["clients"] == other["clients"] == {f"client-{i:02}": 15 for i in range(1, 5)}
    for key in ("scores", "components", "supports"):
        assert one[key] == other[key]
    assert one["provenance"]["data"]["fingerprint"] == other["provenance"]["data"]["fingerprint"]
    assert other["provenance"]["parameters"]["split"] == "consecutive"


def test_an_existing_target_needs_force(felb, table, in_folder):
    Path("t.felb").write_text("precious")
    done = felb("convert", table, "t.felb")
    assert done.code == 1
    assert done.err == "error: t.felb exists; choose another name, or set force to replace it (option --force)\n"
    assert Path("t.felb").read_text() == "precious"
    assert felb("convert", table, "t.felb", "--force").code == 0
    assert BinaryMatrix.open("t.felb") == read(table).matrix


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("bad.csv", "t.felb", ("bad.csv", "line 3", "holds 7", "--binarize-threshold")),
        ("none.csv", "t.felb", ("none.csv", "No such file")),
        ("bad.csv", "t.npz", ("t.npz does not end in .felb; use t.felb",)),
        ("bad.csv", "none/t.felb", ("cannot write none/t.felb", "No such file")),
        ("bad.xyz", "t.felb", ("unknown file type",)),
    ],
)
def test_refusals_leave_nothing(felb, in_folder, source, target, words):
    write_csv(in_folder / "bad.csv", [[1, 0], [7, 0]], ["a", "b"])
    write_csv(in_folder / "bad.xyz", [[1, 0]])
    done = felb("convert", source, target)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    for word in words:
        assert word in done.err
    assert leftovers(in_folder) == ["bad.csv", "bad.xyz"]


def test_a_terminal_shows_the_rows_going_by(table, monkeypatch):
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(SystemExit) as end:
        main(["convert", str(table), "t.felb", "--json"])
    assert not end.value.code
    assert "60 rows" in terminal.getvalue()
