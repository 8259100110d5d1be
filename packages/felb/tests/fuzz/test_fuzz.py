"""A short, repeatable part of the fuzzing in every test run, and inputs that once were read wrongly.

The long part is `make fuzz`; docs/explanation/reliability.md tells its counts.
"""

import random
from pathlib import Path

import pytest

from fuzz.targets import all_targets, try_case

REPRODUCERS = sorted((Path(__file__).parent / "reproducers").glob("*.*"))
CASES = {"estimators": 25, "h5ad": 12, "mat": 40, "mtx": 40, "parquet": 60}
NAMES = [
    "felb", "csv", "csv.gz", "dat", "mtx", "npz", "npy", "mat", "parquet", "h5ad", "scipy", "result.json",
    "components.npz", "assignment", "outbound", "job", "journal round", "journal step", "accountant", "wire",
    "estimators", "model",
]  # fmt: skip


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    return all_targets(tmp_path_factory.mktemp("seeds"))


def test_every_target_is_played(targets):
    assert set(targets) <= set(NAMES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_mutants_are_read_or_refused(name, targets, tmp_path):
    if name not in targets:
        pytest.skip("needs a package that is not installed")
    for number in range(CASES.get(name, 100)):
        case = targets[name].make(random.Random(f"{name}-{number}"))
        assert try_case(targets[name], case, tmp_path) is None, f"{name}, case {number}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", REPRODUCERS, ids=lambda path: path.name)
def test_what_was_read_wrongly_is_read_or_refused(path, targets, tmp_path):
    """A reproducer is named by its target, what was wrong, and the suffix of the file: ``mtx~many-rows.mtx``."""
    name = path.name.partition("~")[0]
    assert try_case(targets[name], path.read_bytes(), tmp_path) is None
