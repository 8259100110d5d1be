"""Tables and figures of a report as files, and tables as papers print them."""

from __future__ import annotations

import csv
import dataclasses
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from felb.errors import InputError, MissingExtraError
from felb.report import gather, write_figures, write_tables
from felb.report.tables import MarkedTable, TableCell, mark_best


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def inputs(run):
    return gather(run.folder)


def test_tables_hold_the_numbers_of_the_page(run, inputs, tmp_path):
    names = write_tables(inputs, str(tmp_path / "new"))
    assert names == ["components.csv", "scores.csv", "history.csv", "overlap.csv", "clients.csv"]
    assert sorted(names) == sorted(path.name for path in (tmp_path / "new").iterdir())
    components = read(tmp_path / "new" / "components.csv")
    assert [int(row["component"]) for row in components] == [c.number for c in run.result.described()]
    assert [int(row["support"]) for row in components] == [c.support for c in run.result.described()]
    A, V = run.matrix.toarray(), run.result.components
    for row in components:
        tile = A[run.U[:, int(row["component"])]][:, V[int(row["component"])]]
        assert float(row["filled"]) == pytest.approx(tile.mean())
    scores = {row["score"]: row for row in read(tmp_path / "new" / "scores.csv")}
    assert float(scores["f1"]["value"]) == run.result.scores["f1"]
    assert float(scores["f1"]["low"]) < run.result.scores["f1"] < float(scores["f1"]["high"])
    assert len(read(tmp_path / "new" / "history.csv")) == len(run.result.history)
    assert len(read(tmp_path / "new" / "overlap.csv")) == 20 * 19 // 2
    clients = read(tmp_path / "new" / "clients.csv")
    assert sum(int(row["component 0"]) for row in clients) == run.result.supports[0]


def test_figures_are_pictures(inputs, tmp_path):
    names = write_figures(inputs, str(tmp_path))
    assert names == ["data.png", "reconstruction.png", "residual.png", "overlap.png", "rounds.png"]
    for name in names:
        with Image.open(tmp_path / name) as image:
            assert image.format == "PNG"
            assert min(image.size) > 200
            assert len(np.unique(np.asarray(image.convert("L")))) > 1


def test_without_data_there_are_fewer_figures(inputs, tmp_path):
    bare = dataclasses.replace(inputs, measured=None, absent="gone", assignments=None)
    assert write_figures(bare, str(tmp_path)) == ["overlap.png", "rounds.png"]
    assert "clients.csv" not in write_tables(bare, str(tmp_path))
    assert {row["records"] for row in read(tmp_path / "overlap.csv")} == {""}


def test_without_matplotlib_the_error_names_the_extra(inputs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"felb\[report\]"):
        write_figures(inputs, str(tmp_path / "figures"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(inputs, tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match="folder"):
        write_tables(inputs, str(tmp_path / "taken"))


values = st.lists(st.none() | st.sampled_from([0.1, 0.2, 0.3, 0.4]), max_size=6)


@given(values, st.sampled_from(["high", "low"]))
def test_best_and_second_are_those_of_a_sorted_column(column, better):
    known = sorted({value for value in column if value is not None}, reverse=better == "high")
    found = mark_best(column, better=better)
    counted = sum(value is not None for value in column)
    for value, mark in zip(column, found, strict=True):
        rank = None if value is None else known.index(value)
        expected = "best" if rank == 0 and counted > 1 else "second" if rank == 1 and counted > 2 else ""
        assert mark == expected


def test_nothing_is_marked_where_no_direction_is_good():
    assert mark_best([1.0, 2.0, 3.0], better="") == ["", "", ""]


TABLE = MarkedTable(
    "F1", ("method", "k = 5"), (("a_b|c", (TableCell("0.9 ±0.1", "best"),)), ("d", (TableCell("–", "second"),)))
)


def test_markdown_has_bold_and_underline_and_escapes():
    assert TABLE.markdown() == ["| method | k = 5 |", "|---|---:|", "| a_b\\|c | **0.9 ±0.1** |", "| d | <u>–</u> |"]


def test_latex_has_bold_and_underline_and_escapes():
    text = "\n".join(TABLE.latex(caption="100% of F_1", label="tab:f1"))
    assert r"a\_b|c & \textbf{0.9 $\pm$0.1} \\" in text
    assert r"d & \underline{--} \\" in text
    assert r"\caption{100\% of F\_1}" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert r"\begin{tabular}{lr}" in text


@pytest.mark.parametrize("character", list("\\&%$#_{}~^"))
def test_no_character_of_a_name_means_something_to_latex(character):
    [row] = [
        line
        for line in MarkedTable("t", ("m", "k"), ((f"a{character}b", (TableCell("1"),)),)).latex(caption="", label="l")
        if "& 1" in line
    ]
    name = row.strip().removesuffix(r" & 1 \\")
    assert name.startswith("a")
    assert name.endswith("b")
    assert name[1:-1] != character


def test_plain_rows_mark_the_best():
    assert TABLE.rows == (("a_b|c", "0.9 ±0.1*"), ("d", "–"))
