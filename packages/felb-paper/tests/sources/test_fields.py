"""Fields of text read all at once are what reading them one by one gives."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from felb.data import readers
from felb.errors import InputError
from felb_paper.sources.raw import Fields, field_blocks

DECIMALS = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, places=4).map(str),
    st.sampled_from(["0", "-0", "00012", "3.5", ".5", "5.", "1e3", "-1.5E-2", "+7", " 7 "]),
)


@given(st.lists(st.tuples(DECIMALS, DECIMALS), min_size=1, max_size=30))
def test_numbers_are_those_that_python_reads(rows):
    fields = Fields.of("".join(f"{a},{b}\n" for a, b in rows).encode(), 2)
    for column in (0, 1):
        np.testing.assert_array_equal(fields.numbers(column, "x"), [float(row[column]) for row in rows])
    np.testing.assert_array_equal(fields.table(0), [[float(cell) for cell in row] for row in rows])


@pytest.mark.parametrize("bad", ["x", "1_0", "--1", "1.2.3", "", "nan", "inf", "1e999", "é"])
def test_what_is_no_number_is_said_with_its_line(bad):
    with pytest.raises(InputError, match=r"line 12 .*rating"):
        Fields.of(f"1,2\n3,{bad}\n".encode(), 2, lines=11).numbers(1, "the rating")


def test_missing_numbers_are_nan_only_where_they_may_be():
    fields = Fields.of(b"1\nNA\n\nnan\n", 1)
    np.testing.assert_array_equal(fields.numbers(0, "x", missing=True), [1, np.nan, np.nan, np.nan])


def test_whole_numbers():
    assert Fields.of(b"1\n-20\n9007199254740991\n", 1).integers(0, "id").tolist() == [1, -20, 2**53 - 1]
    for bad in ("1.5", "9007199254740993000"):
        with pytest.raises(InputError, match=r"line 2 .*id .*whole number"):
            Fields.of(f"1\n{bad}\n".encode(), 1).integers(0, "id")


def test_quotes_and_line_ends_do_not_count():
    fields = Fields.of(b'"1","a"\r\n2,b\r\n', 2)
    assert fields.numbers(0, "x").tolist() == [1, 2]
    assert fields.texts(1) == ["a", "b"]
    assert fields.texts(1, [1]) == ["b"]


def test_some_lines_keep_their_numbers():
    fields = Fields.of(b"1,a\n2,b\n3,c\nx,d\n", 2, lines=5)
    some = fields.only(np.array([True, False, True, False]))
    assert (some.texts(1), some.numbers(0, "n").tolist()) == (["a", "c"], [1, 3])
    assert [*some.lines] == [5, 7]
    last = fields.only(np.array([False, True, False, True])).only(np.array([False, True]))
    with pytest.raises(InputError, match="line 8 holds 'x'"):
        last.numbers(0, "n")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"1,2\n1\n1,2,3\n", "line 6 has 1 fields.* 2 "),
        (b"1,2\n1,2,3\n1\n", "line 6 has 3 fields"),
        (b"1,2\n\n1,2\n", "line 6 is empty"),
        (b"1,2\n3,", "line 6, field 2, holds ''"),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 1 << 20])
def test_lines_of_another_width_are_said(monkeypatch, content, words, size):
    monkeypatch.setattr(readers, "BLOCK_BYTES", size)
    with pytest.raises(InputError, match=words):
        [fields.table(0) for fields in field_blocks(io.BytesIO(content), 2, first_line=5)]


@pytest.mark.parametrize("size", [1, 3, 7, 1 << 20])
def test_blocks_of_any_size_give_the_same(monkeypatch, size):
    monkeypatch.setattr(readers, "BLOCK_BYTES", size)
    content = b"".join(b"%d,%d\n" % (i, i * i) for i in range(50)) + b"\n\n"
    blocks = list(field_blocks(io.BytesIO(content), 2))
    np.testing.assert_array_equal(
        np.concatenate([fields.table(0) for fields in blocks]), [(i, i * i) for i in range(50)]
    )
    assert [block.lines[0] for block in blocks] == np.cumsum([1, *map(len, blocks[:-1])]).tolist()


def test_text_in_another_encoding():
    with pytest.raises(InputError, match=r"line 2 .*UTF-8"):
        Fields.of("a\né\n".encode("latin-1"), 1).texts(0)
