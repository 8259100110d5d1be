"""A short, repeatable part of the fuzzing of relay, vault and files in every test run; the long part is `make fuzz`."""

import random

import pytest

import site_fuzz
from fuzz.targets import try_case

CASES = {"private run.toml": 20, "requests at the socket": 60}


@pytest.fixture(scope="module")
def targets():
    with site_fuzz.open_targets() as found:
        yield found


NAMES = [
    "envelopes at a vault", "signed envelopes", "member lists", "carrier frames", "operator messages",
    "envelopes at a relay", "signed by a site", "requests at the port", "requests at the socket", "invitations",
    "join requests", "settings of sites", "settings of couriers", "run.toml", "private run.toml", "plans", "status",
]  # fmt: skip


def test_every_target_is_played(targets):
    assert set(targets) == set(NAMES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_mutants_are_taken_or_refused(name, targets, tmp_path):
    for number in range(CASES.get(name, 150)):
        case = targets[name].make(random.Random(f"{name}-{number}"))
        assert try_case(targets[name], case, tmp_path) is None, f"{name}, case {number}"
