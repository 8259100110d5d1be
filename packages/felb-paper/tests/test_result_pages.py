"""The pages of docs/results are those of the runs beside them and of the methods as they are today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from felb_paper.cells import fingerprint_method
from felb_paper.experiments import NAMES, find_study
from felb_paper.tables import digest_text

RESULTS = Path(__file__).parents[3] / "docs" / "results"
PAGES = [path for path in sorted(RESULTS.glob("**/*.md")) if path.stem in NAMES]


def test_there_are_pages():
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(RESULTS)))
def test_a_page_is_not_older_than_its_runs(page):
    (told,) = re.findall(r"its digest is `(\w+)`", page.read_text(encoding="utf-8"))
    assert told == digest_text(page.with_suffix(".csv").read_text(encoding="utf-8")), "write the pages anew"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(RESULTS)))
def test_a_page_is_not_older_than_the_methods_on_it(page):
    text = page.read_text(encoding="utf-8")
    (line,) = re.findall(r"^Methods, with fingerprints .*: (.*)\.$", text, flags=re.MULTILINE)
    told = {
        method: set(re.findall(r"`(\w+)`", codes)) for method, codes in re.findall(r"([^,`]+) ((?:`\w+` ?)+)", line)
    }
    quick = ", quick form;" in text
    today: dict[str, set[str]] = {}
    for cell in find_study(page.stem, quick=quick).cells():
        today.setdefault(cell.use.label, set()).add(fingerprint_method(cell.use))
    assert told
    for method, codes in told.items():
        assert codes <= today[method.strip()], f"measure {method.strip()} again"
