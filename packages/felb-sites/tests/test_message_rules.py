"""Every request and response of every method satisfies the rules; what an attacker would ask or answer does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from felb.data.files import load
from felb.data.partition import split
from felb.engines.local import run
from felb.errors import FederationError
from felb.federated.protocol import Request
from felb.federated.rules import Limits, check_request, check_response, request_table, rows_told
from felb_sites.run_plan import Plan

ZOO = load("zoo")
SHARDS = split(ZOO, [f"site-{number % 3}" for number in range(len(ZOO))])[0]
PRIVACY = {"epsilon": 4.0}


def limits_of(plan):
    most = plan.n_components if isinstance(plan.n_components, int) else 8
    return Limits.of(plan.n_features, most, plan.parameters, privacy=plan.algorithm().privacy)


PLANS = {
    "bmf": Plan("r", "bmf", 4, 17),
    "bmf-f1": Plan("r", "bmf", 4, 17, {"objective": "f1", "effort": "fast"}),
    "bmf-recover": Plan("r", "bmf", 4, 17, {"objective": "recover"}),
    "bmf-costs": Plan("r", "bmf", 4, 17, {"false_positive_cost": 2.0, "false_negative_cost": 0.5}),
    "bmf-mdl": Plan("r", "bmf", "mdl", 17, {"max_components": 8, "effort": "fast"}),
    "felb": Plan("r", "felb", 4, 17, {"max_iter": 8}),
    "felb-mu": Plan("r", "felb-mu", 4, 17, {"max_iter": 8}),
    "fednmf": Plan("r", "fednmf", 4, 17),
    "fedprox": Plan("r", "fedprox", 4, 17, {"max_iter": 6}),
    "scaffold": Plan("r", "scaffold", 4, 17, {"max_iter": 6}),
    "proxskip": Plan("r", "proxskip", 4, 17, {"max_iter": 6}),
    "asso+vote": Plan("r", "asso+vote", 4, 17),
    "asso+aligned-vote": Plan("r", "asso+aligned-vote", 4, 17),
    "private": Plan("r", "bmf", 3, 17, {"effort": "fast"}, PRIVACY, 3000, 3),
    "private-hybrid": Plan(
        "r", "bmf", 3, 17, {"effort": "fast"}, {**PRIVACY, "mechanism": "hybrid", "score_share": 0.05}, 3000, 3
    ),
    "private-statistics": Plan(
        "r", "bmf", 3, 17, {"effort": "fast"}, {**PRIVACY, "mechanism": "statistics", "rounds": 3}, 3000, 3
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_all_that_a_method_asks_and_is_told_satisfies_the_rules(name):
    plan = PLANS[name]
    algorithm, limits, seen, rows = plan.algorithm(), limits_of(plan), set(), {}
    if algorithm.privacy is not None:
        pytest.importorskip("opendp")

    def checked(task):
        def respond(state, shard, request, rng):
            check_request(request, limits)
            new, update = task(state, shard, request, rng)
            values = {key: np.asarray(value) for key, value in update.values.items()}
            noisy = algorithm.privacy is not None
            check_response(values, request, n_features=17, noisy=noisy, rows=rows.get(id(shard)))
            rows.setdefault(id(shard), rows_told(values))
            seen.add(request.task)
            return new, update

        return respond

    run(replace(algorithm, tasks={task: checked(do) for task, do in algorithm.tasks.items()}), SHARDS, seed=3)
    assert seen <= set(request_table(limits))
    assert len(seen) > 1


def request(task, **values):
    return Request(task, **values)


EXACT, PRIVATE = PLANS["bmf"], PLANS["private"]
V = np.zeros((2, 17), dtype=bool)


@pytest.mark.parametrize(
    ("plan", "asked"),
    [
        # noise that overflows
        (PRIVATE, request("cooccurrence", row_bound=1e30)),
        (PRIVATE, request("cooccurrence", row_bound=18)),
        (PRIVATE, request("cooccurrence", row_bound=0)),
        (PRIVATE, request("cooccurrence", row_bound=3, columns=[1, 1])),
        (PRIVATE, request("cooccurrence", row_bound=3, columns=[17])),
        (PRIVATE, request("choice", candidates=V[None], bound=1e12)),
        (PRIVATE, request("choice", candidates=np.zeros((17, 2, 17), bool), bound=1.0)),
        (PRIVATE, request("statistics", V=V.astype(float), lam=0.1, bounds=[1e9, 5.0, 1.0])),
        (PRIVATE, request("statistics", V=V + np.nan, lam=0.1, bounds=[1.0, 5.0, 1.0])),
        (PRIVATE, request("scores", components=V, node_cap=10, bound=1e9)),
        # weights that count rows with a chosen set of items
        (EXACT, request("candidate_gains", components=V, weights=[1.0, -17.0], candidates=V)),
        (EXACT, request("flip_gains", components=V, weights=[np.nan, -1.0])),
        (EXACT, request("residual_counts", components=V, weights=[1e-9, -1.0])),
        # work without end
        (EXACT, request("assign", components=V, weights=[1.0, -1.0], node_cap=10**6)),
        (EXACT, request("stacked_gains", candidates=np.zeros((5000, 2, 17), bool), weights=[1.0, -1.0])),
        (EXACT, request("flip_gains", components=np.zeros((5, 17), bool), weights=[1.0, -1.0])),
        (EXACT, request("flip_gains", components=np.zeros((2, 16), bool), weights=[1.0, -1.0])),
        # other shapes, types and names
        (EXACT, request("flip_gains", components=V.astype(float), weights=[1.0, -1.0])),
        (EXACT, request("flip_gains", components=V)),
        (EXACT, request("flip_gains", components=V, weights=[1.0, -1.0], extra=1)),
        (EXACT, request("pair_counts", components=V, weights=[1.0, -1.0], seeds=[3, 3])),
        (EXACT, request("gram_sketch", Q=np.full((17, 2), 1e6))),
        (EXACT, request("centralized_search", components=V)),
        (EXACT, request("cooccurrence", row_bound=3)),
        (EXACT, request("shell", command=[1])),
    ],
)
def test_a_request_that_the_algorithm_would_not_make_is_refused(plan, asked):
    with pytest.raises(FederationError, match="request") as refused:
        check_request(asked, limits_of(plan))
    assert "1e" not in str(refused.value), "no value is quoted"


def counts(*numbers):
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        (request("assign", components=V), {"counts": counts(2**53, 0, 0, 2**53), "supports": counts(1, 1)}),
        (request("assign", components=V), {"counts": counts(-1, 0, 0, 10), "supports": counts(1, 1)}),
        (request("assign", components=V), {"counts": counts(5, 5, 5, 10), "supports": counts(1, 1)}),
        (request("assign", components=V), {"counts": counts(1, 1, 1, 1700), "supports": counts(1, 101)}),
        (request("residual_counts", components=V), {"residual": np.zeros(17, int), "rows": np.asarray(-5)}),
        (request("residual_counts", components=V), {"residual": np.full(17, 9), "rows": np.asarray(8)}),
        (request("pair_counts", components=V, seeds=[0]), {"pairs": np.array([[3, 4] + [0] * 15])}),
        (request("local_factor", t=0), {"V": np.full((2, 17), 3e38), "loss": np.asarray(1.0)}),
        (request("local_factor", t=0), {"V": np.full((2, 17), -0.5), "loss": np.asarray(1.0)}),
        (request("local_components"), {"V": np.full((2, 17), 2, np.uint8), "unfinished": np.asarray(0)}),
    ],
)
def test_a_response_that_no_rows_can_give_is_refused(asked, values):
    with pytest.raises(FederationError):
        check_response(values, asked, n_features=17, noisy=False, rows=100)


def test_a_site_that_changes_its_number_of_rows_is_refused():
    told = {"residual": np.zeros(17, int), "rows": np.asarray(40)}
    asked = request("residual_counts", components=V)
    check_response(told, asked, n_features=17, noisy=False, rows=40)
    with pytest.raises(FederationError, match="has changed"):
        check_response(told, asked, n_features=17, noisy=False, rows=41)
