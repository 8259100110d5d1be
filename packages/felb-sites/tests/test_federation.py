"""A relay, vaults and couriers as real processes over TLS: results, kills of every process, revocation, withdrawal."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run as simulate
from felb.errors import FederationError, InputError
from felb.privacy.disclosure import Disclosure
from felb_sites.coordinator.local import LocalFederation
from felb_sites.coordinator.run import overview, run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms
from felb_sites.vault.operator import Operator

pytestmark = pytest.mark.federation

SITES = ("site-1", "site-2", "site-3")
POLICY = {"auto_approve": ["all"], "require_privacy": False}
N, M, K = 1_200, 12, 3


def make_shards(n=N, m=M, k=K):
    data = planted(n, m, k, noise=0.1, seed=1)
    return split(data.A, np.array(SITES)[partition.even(n, 3)])[0]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    with LocalFederation(tmp_path_factory.mktemp("föderation eins") / "f", make_shards(), policy=POLICY) as made:
        yield made


def settings(run_id, method="bmf", *, secure, parameters=None, privacy=None, **terms):
    private = {} if privacy is None else {"privacy": privacy, "records": N, "sites": 3}
    plan = Plan(run_id, method, K, M, parameters or {}, **private)
    return DeployedRun(plan, Terms(**{"quorum": 3, **terms}), SITES, None, secure=secure)


def play(local, run, **options):
    return run_deployed(local.federation, run, local.folder / f"out-{run.plan.run_id}", patience=60, **options)


def lines(local, site, run_id):
    ignored = {"time", "previous", "hash", "run", "roster"}
    found = Operator(local.sites[site].vault).log(run_id)
    return [{key: value for key, value in line.items() if key not in ignored} for line in found]


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "masked"])
@pytest.mark.parametrize("method", ["bmf", "felb-mu"])
def test_a_run_over_processes_ends_with_the_components_of_its_simulation(local, method, secure):
    parameters = {} if method == "bmf" else {"max_iter": 20}
    run = settings(f"equal-{method}-{secure}", method, secure=secure, parameters=parameters)
    result = play(local, run)
    simulated = simulate(run.plan.algorithm(), make_shards(), seed=0, disclosure=Disclosure())
    np.testing.assert_array_equal(result.outcome.components, simulated.outcome.components)
    assert all(line.get("masked", False) == secure for line in lines(local, "site-1", run.plan.run_id))


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "masked"])
def test_kills_of_every_process_leave_result_and_log_as_undisturbed(local, secure):
    undisturbed = settings(f"calm-{secure}", secure=secure, parameters={"effort": "fast"})
    expected = play(local, undisturbed)
    run = settings(f"killed-{secure}", secure=secure, parameters={"effort": "fast"})
    found = []
    playing = threading.Thread(target=lambda: found.append(play(local, run)))
    playing.start()
    killed = []
    for name in ("vault:site-1", "courier:site-2", "relay", "vault:site-3", "courier:site-1"):
        playing.join(0.7)
        if playing.is_alive():
            local.kill(name)
            killed.append(name)
            local.start(name)
    playing.join()
    [result] = found
    local.wait_until_connected()
    assert killed
    np.testing.assert_array_equal(result.outcome.components, expected.outcome.components)
    for site in SITES:
        assert lines(local, site, f"killed-{secure}") == lines(local, site, f"calm-{secure}")
        assert Operator(local.sites[site].vault).verify()["lines"] > 0


def test_a_private_run_is_charged_once_and_logged_with_its_cost(local):
    run = settings("private", secure=False, privacy={"epsilon": 1.0})
    play(local, run)
    planned = simulate(run.plan.algorithm(), make_shards(), seed=0)
    for site in SITES:
        budget = Operator(local.sites[site].vault).budget()
        assert budget["runs"]["private"]["epsilon"] == 1.0
        told = lines(local, site, "private")
        assert [line["task"] for line in told if line["task"] != "assign"]
        assert all(line["cost"] is not None for line in told)
    assert len(planned.history) > 0


def test_an_exact_run_after_a_private_one_is_refused_before_anybody_is_asked(local):
    with pytest.raises(FederationError, match="site-1"):
        play(local, settings("after", secure=True))
    assert lines(local, "site-1", "after") == []


def test_a_site_that_is_away_is_named_and_comes_back(local):
    local.kill("courier:site-3")
    try:
        end = time.monotonic() + 60
        while overview(local.federation)["sites"]["site-3"]["connected"] and time.monotonic() < end:
            time.sleep(0.5)
        assert not overview(local.federation)["sites"]["site-3"]["connected"]
    finally:
        local.start("courier:site-3")
    local.wait_until_connected()


def test_a_revoked_site_is_named_at_once_and_knows_it(local):
    local.federation.revoke(names=["site-3"])
    with pytest.raises(InputError, match="site-3"):
        play(local, settings("revoked", secure=False))
    end = time.monotonic() + 60
    operator = Operator(local.sites["site-3"].vault)
    while operator.health()["ok"] and time.monotonic() < end:
        time.sleep(0.5)
    assert not operator.health()["ok"]
    assert operator.health()["problems"]
