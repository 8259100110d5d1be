"""Masked sums over real processes: the same result as in the clear, a roster that people confirm, and a lost site."""

from __future__ import annotations

import numpy as np
import pytest

from federation_parts import PATIENCE, ZOO
from federation_parts import plan as plan_of
from felb.data import partition
from felb.data.partition import split
from felb.engines.local import run as run_local
from felb.errors import FederationError
from felb_sites import SHORT
from felb_sites.deployed import DeployedRun, run_deployed
from felb_sites.local_federation import LocalFederation
from felb_sites.run_record import RunRecord
from felb_sites.terms import Terms

pytestmark = [pytest.mark.federation, pytest.mark.filterwarnings("ignore")]

SITES = ("site-1", "site-2", "site-3", "site-4")
SHARDS = split(ZOO, [SITES[i] for i in partition.even(101, 4)])[0]
TERMS = Terms(quorum=3, grace=3.0, round_timeout=60.0)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    pytest.importorskip("nvflare")
    policy = {"require_secure": True, "min_rows": 5}
    with LocalFederation(tmp_path_factory.mktemp("secure") / "f", SHARDS, policy=policy) as made:
        yield made


def test_three_sites_confirm_their_roster_and_get_the_result_of_sums_in_the_clear(federation, tmp_path):
    three, made = SITES[:3], plan_of("three", rounds=6)
    with pytest.raises(FederationError, match="sums are masked"):
        run_deployed(federation.coordinator, DeployedRun(made, TERMS, three, ZOO.columns), tmp_path / "p")
    run = DeployedRun(plan_of("masked", rounds=6), TERMS, three, ZOO.columns, "none", secure=True)
    with pytest.raises(FederationError, match=r"roster .*confirm"):
        run_deployed(federation.coordinator, run, tmp_path / "r", patience=PATIENCE)
    for name in three:
        rosters = federation.sites[name].rosters
        (proposed,) = rosters.proposed()
        assert proposed.names == three
        rosters.confirm(proposed.digest[:SHORT])
    result = run_deployed(federation.coordinator, run, tmp_path / "r", patience=PATIENCE)
    shards = {name: SHARDS[name] for name in three}
    local = run_local(made.algorithm(), shards, seed=made.seed)
    np.testing.assert_array_equal(result.components, local.outcome.components)
    assert list(result.history) == list(local.history)
    assert result.scores == local.outcome.counts.scores()
    assert result.provenance.parameters["secure"] is True
    for name in three:
        log = (federation.folder / f"{name}.log").read_text()
        assert "run masked proposes a roster" in log


def test_a_site_that_is_killed_is_missing_from_then_on_and_the_run_ends_with_the_others(federation, tmp_path):
    run = DeployedRun(plan_of("lost", rounds=12), TERMS, SITES, ZOO.columns, "none", secure=True)
    record = RunRecord(federation.coordinator.runs, "lost")
    killed = []

    def kill_once(status):
        if status.round >= 3 and not killed:
            killed.append(status.round)
            federation.kill("site-4")

    told = []
    result = run_deployed(
        federation.coordinator, run, tmp_path / "r", patience=PATIENCE, on_status=kill_once, on_event=told.append
    )
    missing = [list(row.get("missing", ())) for row in result.history]
    assert missing[:3] == [[], [], []]
    assert missing[-1] == ["site-4"]
    first = missing.index(["site-4"])
    assert all(names == ["site-4"] for names in missing[first:])
    assert len(result.history) == 4 + 12 + 1, "rounds that were asked again count once"
    assert set(result.clients) == set(SITES[:3])
    assert record.status().state == "finished"
    participation = result.provenance.data["participation"]
    assert participation["missed_rounds"] == {"site-4": len(missing) - first}
