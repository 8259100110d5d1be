"""Tables as papers print them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felb.report.tables import MarkedTable, TableCell, marks

values = st.lists(st.none() | st.sampled_from([0.1, 0.2, 0.3, 0.4]), max_size=6)


@given(values, st.sampled_from(["high", "low"]))
def test_best_and_second_are_those_of_a_sorted_column(column, better):
    known = sorted({value for value in column if value is not None}, reverse=better == "high")
    found = marks(column, better=better)
    counted = sum(value is not None for value in column)
    for value, mark in zip(column, found, strict=True):
        rank = None if value is None else known.index(value)
        expected = "best" if rank == 0 and counted > 1 else "second" if rank == 1 and counted > 2 else ""
        assert mark == expected


def test_nothing_is_marked_where_no_direction_is_good():
    assert marks([1.0, 2.0, 3.0], better="") == ["", "", ""]


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


def test_html_has_bold_and_underline():
    html = TABLE.html()
    assert "<strong>0.9 ±0.1</strong>" in html
    assert "<u>–</u>" in html


def test_plain_rows_mark_the_best():
    assert TABLE.rows == (("a_b|c", "0.9 ±0.1*"), ("d", "–"))
