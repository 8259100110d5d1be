"""A short, repeatable part of the fuzzing of records of sites, and inputs that once were read wrongly."""

import random
from pathlib import Path

import pytest

from fuzz.targets import try_case
from site_fuzz import site_targets

TARGETS = site_targets()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_mutants_are_read_or_refused(name, tmp_path):
    for number in range(100):
        case = TARGETS[name].make(random.Random(f"{name}-{number}"))
        assert try_case(TARGETS[name], case, tmp_path) is None, f"{name}, case {number}"


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "reproducers").iterdir()), ids=lambda path: path.name)
def test_what_was_read_wrongly_is_read_or_refused(path, tmp_path):
    """A file is named by its target and what was wrong with it: ``budget~nan.json``."""
    assert try_case(TARGETS[path.name.partition("~")[0]], path.read_bytes(), tmp_path) is None
