"""What a simulation accepts, sites accept: runs over vaults end as a simulation does, in the clear and masked.

Sites replay the algorithm and check every request and sum; the coordinator checks every response.
"""

import numpy as np
import pytest
from loopback import Loopback

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run
from felb_sites.run_plan import Plan

CASES = {
    "a sample of the rows is asked for a trial of recovery": (1_500, 24, 3, 0.25),
    "at most four features for each component": (240, 12, 4, 0.05),
}


def make_shards(n, m, k, noise=0.05, sites=3):
    data = planted(n, m, k, noise=noise, seed=1)
    names = np.array([f"site-{i + 1}" for i in range(sites)])
    return split(data.A, names[partition.even(n, sites)])[0]


@pytest.mark.parametrize(("n", "m", "k", "noise"), CASES.values(), ids=CASES)
def test_the_default_method_over_sites_ends_as_its_simulation(tmp_path, n, m, k, noise):
    shards = make_shards(n, m, k, noise)
    plan = Plan("r1", "bmf", k, m, sites=3)
    over_sites = Loopback(tmp_path, shards).play(plan)
    simulated = run(plan.algorithm(), shards, seed=plan.seed)
    np.testing.assert_array_equal(over_sites.outcome.components, simulated.outcome.components)
    assert over_sites.outcome.counts == simulated.outcome.counts
    assert [row["task"] for row in over_sites.history] == [row["task"] for row in simulated.history]


@pytest.mark.parametrize("method", ["bmf", "felb", "felb-mu"])
def test_masked_runs_end_as_their_simulation(tmp_path, method):
    shards = make_shards(120, 12, 2)
    loopback = Loopback(tmp_path, shards)
    plan = loopback.masked(Plan("r1", method, 2, 12, {"effort": "fast"} if method == "bmf" else {"max_iter": 5}))
    over_sites = loopback.play(plan)
    simulated = run(plan.algorithm(), shards, seed=plan.seed)
    np.testing.assert_array_equal(over_sites.outcome.components, simulated.outcome.components)
    assert all(line["masked"] and line["roster"] == plan.roster for line in loopback.lines("site-1"))
