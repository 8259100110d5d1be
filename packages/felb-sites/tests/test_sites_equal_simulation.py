"""What a simulation accepts, sites accept: the default method over site sessions ends as a simulation does.

Sites replay the algorithm, check every request, and the coordinator checks every response and every sum.
"""

import numpy as np
import pytest
from loopback import Loopback

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run
from felb.federated.loop import play
from felb_sites.run_plan import Plan

CASES = {
    "a sample of the rows is asked for a trial of recovery": (1_500, 24, 3, 0.25),
    "at most four features for each component": (240, 12, 4, 0.05),
}


@pytest.mark.parametrize(("n", "m", "k", "noise"), CASES.values(), ids=CASES)
def test_the_default_method_over_sites_ends_as_its_simulation(tmp_path, n, m, k, noise):
    data = planted(n, m, k, noise=noise, seed=1)
    shards, _ = split(data.A, np.array(["site-1", "site-2", "site-3"])[partition.even(n, 3)])
    plan = Plan("r1", "bmf", k, m, sites=3)
    over_sites = play(plan.algorithm(), Loopback(tmp_path, plan, shards), seed=plan.seed)
    simulated = run(plan.algorithm(), shards, seed=plan.seed)
    np.testing.assert_array_equal(over_sites.outcome.components, simulated.outcome.components)
    assert over_sites.outcome.counts == simulated.outcome.counts
    assert [row["task"] for row in over_sites.history] == [row["task"] for row in simulated.history]
