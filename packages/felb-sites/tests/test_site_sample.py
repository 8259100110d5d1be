"""Refits over sites: each takes part with a random half of its rows, and nobody else knows which."""

from dataclasses import replace

import numpy as np
import pytest
from loopback import Loopback

from felb.data import BinaryMatrix, partition
from felb.data.files import load
from felb.data.partition import split
from felb.engines.local import run
from felb_sites.deployed import DeployedRun
from felb_sites.plan_summary import in_words
from felb_sites.run_plan import Plan, fingerprint
from felb_sites.site_policy import Refusal
from felb_sites.site_sample import SAMPLE_KEY, drawn_half

ZOO = load("zoo")
SHARDS = split(ZOO, [f"site-{i}" for i in partition.even(101, 3)])[0]
PLAN = Plan("r1", "bmf", 4, 17, {"effort": "fast"}, columns=fingerprint(ZOO.columns), resample=True)


def halves(loop):
    return {name: drawn_half(SHARDS[name], loop.state(name) / "r1", answered=True) for name in SHARDS}


def test_a_refit_is_a_run_of_the_rows_that_were_drawn_also_after_crashes(tmp_path):
    loop = Loopback(tmp_path, PLAN, SHARDS, require_replay=True)
    while loop.round():
        if loop.request is not None and loop.request.round % 7 == 1:
            loop.restart()
    local = run(PLAN.algorithm(), halves(loop), seed=PLAN.seed)
    np.testing.assert_array_equal(loop.outcome.components, local.outcome.components)
    assert loop.outcome.counts == local.outcome.counts
    assert loop.outcome.counts.cells == 17 * sum((len(shard) + 1) // 2 for shard in SHARDS.values())
    assert not list(tmp_path.rglob("assignment.npz"))


def test_a_site_draws_distinct_rows_that_the_plan_does_not_tell(tmp_path):
    records, drawn = BinaryMatrix.of(np.eye(101, dtype=bool)), []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        half = drawn_half(records, tmp_path / name, answered=False).toarray()
        np.testing.assert_array_equal(half, drawn_half(records, tmp_path / name, answered=True).toarray())
        assert half.shape == (51, 101)
        assert half.sum(axis=0).max() == 1
        drawn.append(half)
    assert (drawn[0] != drawn[1]).any()  # they are equal with odds of one in 10^29


def test_a_site_that_has_lost_its_key_answers_no_more(tmp_path):
    loop = Loopback(tmp_path, PLAN, SHARDS)
    loop.round()
    (loop.state("site-1") / "r1" / SAMPLE_KEY).unlink()
    loop.restart()
    with pytest.raises(Refusal, match="lost"):
        loop.round()


def test_conditions_on_rows_hold_for_the_half(tmp_path):
    loop = Loopback(tmp_path, PLAN, SHARDS, min_rows=20)
    with pytest.raises(Refusal, match="fewer rows"):
        loop.round()


def test_whoever_approves_is_told():
    assert "random half of its records" in in_words(PLAN)
    assert "refit" not in in_words(replace(PLAN, resample=False))


def test_a_refit_has_its_own_name_and_seed_and_low_effort():
    made = DeployedRun(Plan("cardio", "bmf", 4, 17, seed=5))
    first, second = made.refit(1).plan, made.refit(2).plan
    assert (first.run_id, second.run_id) == ("cardio-refit-1", "cardio-refit-2")
    assert len({made.plan.seed, first.seed, second.seed}) == 3
    assert first.resample
    assert first.parameters == {"effort": "fast"}
    assert DeployedRun(Plan("r", "bmf", 4, 17, {"effort": "high"})).refit(1).plan.parameters == {"effort": "high"}
    assert DeployedRun(Plan("r", "felb-mu", 4, 17)).refit(1).plan.parameters == {}
