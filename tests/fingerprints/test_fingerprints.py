"""Components, counts and rounds of every method are those that are stored; see `cases` for how to store others."""

import json

import pytest
from cases import CASES, STORED, found

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

EXPECTED = json.loads(STORED.read_text())


@pytest.mark.parametrize("case", CASES)
def test_the_result_is_the_stored_one(case):
    assert found(case) == EXPECTED[case]
