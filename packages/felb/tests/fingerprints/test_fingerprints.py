"""Components, counts and rounds of every method are those that are stored; see `cases` for how to store others."""

import json

import pytest
from cases import CASES, STORED, found

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

EXPECTED = json.loads(STORED.read_text())


@pytest.mark.parametrize("case", EXPECTED)
def test_the_result_is_the_stored_one(case):
    assert found(case) == EXPECTED[case]


def test_every_case_of_the_paper_and_of_the_default_method_is_stored():
    assert {case for case in CASES if not case.startswith("zoo, ")} <= EXPECTED.keys() <= CASES.keys()
