"""The brief effort of the contract suites plays every task that the default effort plays on the same data."""

from __future__ import annotations

import pytest
import test_algorithm_contract as algorithms
import test_transport_contract as transports
from brief_effort import BRIEF

from felb.data import load, partition
from felb.data.partition import split
from felb.engines.local import run
from felb.federated.algorithms.bmf import federated_bmf

SITES = split(load("zoo"), partition.even(101, 3))[0]
"""Those of ``test_site_session.py`` of felb-sites."""


@pytest.mark.parametrize(
    ("shards", "k", "objective"),
    [
        (transports.SHARDS, 4, "hamming"),
        (transports.SHARDS, 4, "recover"),
        (algorithms.SHARDS, algorithms.K, "auto"),
        (algorithms.SHARDS, algorithms.K, "f1"),
        (algorithms.SHARDS, algorithms.K, "recover"),
        (SITES, 4, "auto"),
    ],
    ids=["transports-hamming", "transports-recover", "algorithms", "algorithms-f1", "algorithms-recover", "sites"],
)
def test_no_task_of_the_default_effort_is_missing(shards, k, objective):
    (n_features,) = {shard.shape[1] for shard in shards.values()}
    asked = [
        {
            row["task"]
            for row in run(federated_bmf(n_features, k, objective=objective, effort=effort), shards, seed=3).history
        }
        for effort in (BRIEF, "default")
    ]
    # How the rows are assigned in the end depends on what was found; the suites have plans for both ways.
    brief, default = (tasks - {"assign", "assign_by_belief"} for tasks in asked)
    assert default <= brief
    assert len(default) >= (5 if objective == "recover" else 9)
