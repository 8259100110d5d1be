"""Runs over real processes end with exactly the components of a simulation under the same rules on the same rows.

One site is behind an HTTP proxy, and the relay behind a reverse proxy that ends TLS. `benchmarks/federation_cells.py`
plays the other methods, sizes and numbers of sites.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from proxies import Proxies

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run as simulate
from felb.privacy.disclosure import Disclosure
from felb_sites.coordinator.local import LocalFederation, find_free_port
from felb_sites.coordinator.run import run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms
from felb_sites.vault.operator import Operator

pytestmark = pytest.mark.federation

POLICY = {"auto_approve": ["all"], "require_privacy": False, "exact_after_private": True, "min_rows": 5}
CELLS = {  # method, parameters, rows, features, components, masked, disclosure rules
    "bmf-masked": ("bmf", {"effort": "fast"}, 1_200, 12, 3, True, "strict"),
    "felb-clear": ("felb", {"max_iter": 4}, 60, 12, 2, False, "none"),
    "scaffold-masked": ("scaffold", {"max_iter": 3}, 240, 30, 4, True, "none"),
    "post-hoc-masked": ("asso+vote", {}, 300, 20, 3, True, "none"),
    "aligned-clear": ("grecond+aligned-vote", {}, 300, 20, 3, False, "none"),
}


def make_shards(n, m, k, sites):
    names = np.array([f"site-{number + 1}" for number in range(sites)])
    return split(planted(n, m, k, noise=0.05, seed=n).A, names[partition.even(n, sites)])[0]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    """Three sites, the first of them behind an HTTP proxy, and their relay behind a reverse proxy."""
    folder, port = tmp_path_factory.mktemp("proxied"), find_free_port()
    with Proxies(folder / "proxies", port) as proxies:
        settings = {"port": port, "trust": "authority", "certificate": proxies.certificate}
        url, through = f"https://localhost:{proxies.reverse}", {"site-1": f"http://127.0.0.1:{proxies.connect}"}
        shards = make_shards(60, 12, 2, 3)
        with LocalFederation(folder / "f", shards, policy=POLICY, proxies=through, url=url, **settings) as local:
            yield local, proxies


def set_rules(local, disclosure):
    for site in local.sites.values():
        site.configure(policy={"disclosure": disclosure})


@pytest.mark.parametrize("cell", CELLS)
def test_components_through_proxies_are_those_of_the_simulation(proxied, cell):
    local, proxies = proxied
    method, parameters, n, m, k, masked, rules = CELLS[cell]
    shards = make_shards(n, m, k, 3)
    local.load(shards)
    set_rules(local, rules)
    plan = Plan(cell, method, k, m, parameters)
    run = DeployedRun(plan, Terms(quorum=3), tuple(shards), None, disclosure=rules, secure=masked)
    result = run_deployed(local.federation, run, local.folder / cell, patience=60)
    simulated = simulate(plan.algorithm(), shards, seed=plan.seed, disclosure=Disclosure.of(rules))
    expected = simulated.outcome
    np.testing.assert_array_equal(result.outcome.components, expected.components)
    assert [row["task"] for row in result.history] == [row["task"] for row in simulated.history]
    assert proxies.tunnels > 0
    assert proxies.requests > 0


def test_a_private_run_agrees_with_its_simulation_in_tasks_charges_and_log(proxied):
    local, _ = proxied
    shards = make_shards(300, 12, 2, 3)
    local.load(shards)
    plan = Plan("private", "bmf", 2, 12, {"effort": "fast"}, privacy={"epsilon": 1.0}, records=300, sites=3)
    run = DeployedRun(plan, Terms(quorum=3), tuple(shards), None, secure=False)
    result = run_deployed(local.federation, run, local.folder / "private", patience=60)
    left = {name: [] for name in shards}
    simulated = simulate(plan.algorithm(), shards, seed=plan.seed, outbound=lambda name: left[name].append)
    assert [row["task"] for row in result.history] == [row["task"] for row in simulated.history]
    for name, records in left.items():
        operator = Operator(local.sites[name].vault)
        lines = operator.log("private")
        facts = ("round", "task", "what", "shape", "dtype", "mechanism")
        assert [tuple(line[fact] for fact in facts) for line in lines] == [
            (record.round, record.task, record.what, list(record.shape), record.dtype, record.mechanism)
            for record in records
        ]
        assert [line["cost"] for line in lines] == [record.cost and asdict(record.cost) for record in records]
        assert operator.budget()["runs"]["private"]["epsilon"] == 1.0
