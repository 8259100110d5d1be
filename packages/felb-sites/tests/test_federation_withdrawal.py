"""A site withdraws in the middle of a run over processes: the run goes on without it or stops, as its terms say."""

from __future__ import annotations

import numpy as np
import pytest

from felb.data import partition, planted
from felb.data.partition import split
from felb.errors import FederationError, InputError
from felb_sites.coordinator.local import LocalFederation
from felb_sites.coordinator.run import overview, run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.reasons import REASONS
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms
from felb_sites.vault.operator import Operator

pytestmark = pytest.mark.federation

SITES = ("site-1", "site-2", "site-3", "site-4")
POLICY = {"auto_approve": ["all"], "require_privacy": False, "disclosure": "none"}
N, M, K = 200, 12, 2
WITHDRAWN = 2
"""Rounds after which a site withdraws."""


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    shards, _ = split(planted(N, M, K, seed=1).A, np.array(SITES)[partition.even(N, len(SITES))])
    with LocalFederation(tmp_path_factory.mktemp("f") / "f", shards, policy=POLICY) as made:
        yield made


def operator(local, site):
    return Operator(local.sites[site].vault)


def play(local, name, withdraw, *, sites, secure, quorum):
    """Play a run, and let something happen in its middle; return the result and the lines that were told."""
    plan = Plan(name, "felb", K, M, {"max_iter": 6, "tol": 0.0})
    run = DeployedRun(plan, Terms(quorum=quorum), sites, None, disclosure="none", secure=secure)
    told, left = [], [withdraw]

    def at_round(status):
        if status.round >= WITHDRAWN and left:
            left.pop()()

    out = local.folder / name
    return run_deployed(local.federation, run, out, patience=60, on_status=at_round, on_event=told.append), told


@pytest.mark.parametrize(
    ("secure", "sites", "quorum"), [(False, SITES[:3], 2), (True, SITES, 3)], ids=["clear", "masked"]
)
def test_a_run_goes_on_without_a_site_that_denies_it_if_enough_are_left(local, secure, sites, quorum):
    name = f"goes-on-{secure}"
    deny = lambda: operator(local, "site-2").deny(name, "ada")  # noqa: E731
    result, told = play(local, name, deny, sites=sites, secure=secure, quorum=quorum)
    missing = [row.get("missing", []) for row in result.history]
    assert missing[0] == []
    assert missing[-1] == ["site-2"]
    assert any("without site-2" in line and REASONS["denied"] in line for line in told)
    last = max(line["round"] for line in operator(local, "site-2").log(name))
    assert last < len(result.history) - 1, "nothing has left since"


@pytest.mark.parametrize(("secure", "quorum"), [(False, 3), (True, 2)], ids=["clear", "masked"])
def test_a_run_stops_and_names_a_site_that_withdraws_if_too_few_are_left(local, secure, quorum):
    name = f"stops-{secure}"
    deny = lambda: operator(local, "site-2").deny(name, "ada")  # noqa: E731
    with pytest.raises(FederationError, match=f"site-2: {REASONS['denied']}"):
        play(local, name, deny, sites=SITES[:3], secure=secure, quorum=quorum)
    [run] = [run for run in overview(local.federation)["runs"] if run["run"] == name]
    assert (run["state"], run["hopeless"], run["reasons"]["site-2"]) == ("failed", True, REASONS["denied"])
    assert not (local.folder / name).exists()


def test_a_site_that_leaves_withdraws_from_all_open_runs_and_can_purge_them(local):
    found = []

    def leave():
        with pytest.raises(InputError, match="open"):
            operator(local, "site-4").purge("left")
        found.append(operator(local, "site-4").leave("ada")["withdrawn"])

    result, told = play(local, "left", leave, sites=SITES, secure=True, quorum=3)
    assert found == [["left"]]
    assert result.history[-1]["missing"] == ["site-4"]
    assert any("without site-4" in line for line in told)
    lines = operator(local, "site-4").log("left")
    assert operator(local, "site-4").purge("left")["status"] == "purged"
    assert operator(local, "site-4").log("left") == lines
    operator(local, "site-4").verify()


def test_a_run_that_is_purged_keeps_its_log_and_loses_its_assignment(local):
    play(local, "kept", lambda: None, sites=SITES[:3], secure=True, quorum=3)
    site = local.sites["site-1"]
    assignment = site.vault / "assignments" / "kept.npz"
    assert assignment.is_file()
    lines = operator(local, "site-1").log("kept")
    operator(local, "site-1").purge("kept")
    assert not assignment.exists()
    assert operator(local, "site-1").log("kept") == lines
    with pytest.raises(InputError, match="no run"):
        operator(local, "site-1").purge("never")
