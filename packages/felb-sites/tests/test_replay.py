"""Sites derive the next request themselves, and answer no other: also after crashes, absence and rounding."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from loopback import Loopback

from felb.data import partition
from felb.data.files import load
from felb.data.partition import split
from felb.engines.local import run
from felb.federated.protocol import Part, Request, Sums
from felb_sites.replay import pack_sums, same_values, unpack_sums
from felb_sites.run_plan import Plan
from felb_sites.site_policy import Refusal

ZOO = load("zoo")
SHARDS = split(ZOO, [f"site-{i}" for i in partition.even(101, 3)])[0]
MU = Plan("r1", "felb-mu", 4, 17, {"max_iter": 8})


@pytest.mark.parametrize(
    "plan",
    [
        MU,
        Plan("r1", "bmf", 4, 17, {"effort": "fast"}, seed=3),
        Plan("r1", "bmf", "mdl", 17, {"effort": "fast", "max_components": 6}),
        Plan("r1", "asso+aligned-vote", 4, 17),
        Plan("r1", "scaffold", 4, 17, {"max_iter": 5}),
    ],
    ids=lambda plan: f"{plan.method}-{plan.n_components}",
)
def test_a_run_that_is_replayed_has_the_same_result(tmp_path, plan):
    local = run(plan.algorithm(), SHARDS, seed=plan.seed)
    loop, played = Loopback(tmp_path, plan, SHARDS, require_replay=True), 0
    while loop.round():
        played += 1
        if played in (2, 5, 6):
            loop.restart()
    np.testing.assert_array_equal(loop.outcome.components, local.outcome.components)
    assert loop.desks["site-0"].have == played - 1, "the sums of the last round come to nothing more"


def other(request, **changes):
    return Request.of(
        [Part(request.task, {**request.values, **changes})], all_clients=request.all_clients, number=request.round
    )


def test_a_question_that_the_algorithm_does_not_ask_is_refused(tmp_path):
    plan = Plan("r1", "bmf", 4, 17, {"effort": "fast"})
    loop = Loopback(tmp_path, plan, SHARDS, require_replay=True)
    chosen = np.zeros((1, 17), dtype=bool)
    chosen[0, :3] = True
    probe = {"components": np.zeros((1, 17), bool), "weights": np.array([1.0, -1.0]), "candidates": chosen}
    for number in range(3):
        asked = Request.of([Part("candidate_gains", probe)], all_clients=True, number=number)
        with pytest.raises(Refusal) as refused:
            loop.desks["site-0"].answer(asked)
        assert refused.value.code in ("request", "behind")
        loop.round()
    asked = loop.request
    for changed in (
        other(asked, **{name: np.zeros_like(value) for name, value in asked.values.items()}),
        Request.of([Part(asked.task, asked.values)], all_clients=not asked.all_clients, number=asked.round),
        Request.of([Part(asked.task, asked.values)], all_clients=asked.all_clients, number=asked.round + 1),
    ):
        with pytest.raises(Refusal):
            loop.ask_site("site-0", changed)
    assert not [line for line in loop.lines("site-0") if line["round"] >= asked.round], "nothing of it left"
    loop.finish()


def test_false_sums_are_played_as_sums_or_refused(tmp_path):
    loop = Loopback(tmp_path, MU, SHARDS, require_replay=True)
    loop.round()
    site, asked = loop.desks["site-0"], loop.request
    with pytest.raises(Refusal) as refused:
        site.answer(asked)
    assert refused.value.code == "behind"
    for values in ({"other": np.zeros(3)}, {"sketch": np.zeros((2, 2), np.int64)}, {}):
        with pytest.raises(Refusal) as refused:
            site.answer(asked, [Sums(values, 3, number=0)])
        assert refused.value.code in ("request", "behind")


@pytest.mark.parametrize("entry", [np.inf, np.nan, 1e300, 4.0, -1.0])
def test_false_sums_do_not_leave_the_next_question_to_the_coordinator(tmp_path, entry):
    loop = Loopback(tmp_path, Plan("r1", "fedprox", 4, 17, {"max_iter": 5}, sites=3), SHARDS, require_replay=True)
    loop.round()
    site, asked = loop.desks["site-0"], loop.request
    true = loop.record.sums().between(0, 1)[0]
    false = {name: value.copy() for name, value in true.items()}
    false["V"][0, 0] = entry
    chosen = other(asked, V=(np.arange(asked.values["V"].size).reshape(4, 17) % 2).astype(asked.values["V"].dtype))
    for question in (chosen, asked):
        with pytest.raises(Refusal, match="sums of round 0"):
            site.answer(question, [Sums(false, 3, number=0)])
    with pytest.raises(Refusal, match="more sites"):
        site.answer(asked, [Sums(dict(true), 4, number=0)])
    with pytest.raises(Refusal, match="not the one that follows"):
        site.answer(chosen, [true])
    loop.finish()


def test_a_site_that_was_away_catches_up_with_the_sums_it_missed(tmp_path):
    loop = Loopback(tmp_path, MU, SHARDS, require_replay=True)
    for _ in range(5):
        loop.round()
    loop.absent = {"site-1": "away"}
    for _ in range(2):
        loop.round()
    assert loop.desks["site-1"].have == 4
    loop.absent = {}
    loop.finish()
    assert loop.desks["site-1"].have == loop.desks["site-0"].have


@pytest.mark.parametrize("change", ["a record less", "another order"])
def test_a_run_is_about_the_same_records_all_along(tmp_path, change):
    loop = Loopback(tmp_path, MU, SHARDS, require_replay=True)
    loop.round()
    data = tmp_path / "site-0" / "data.npz"
    rows = sp.load_npz(data)
    sp.save_npz(data, rows[:-1] if change == "a record less" else rows[::-1])
    loop.restart()
    with pytest.raises(Refusal) as refused:
        loop.round()
    assert refused.value.code == "changed"
    assert max(line["round"] for line in loop.lines("site-0")) == 0, "nothing of it left"
    sp.save_npz(data, rows)
    loop.restart()
    loop.finish()


def test_real_values_may_differ_by_rounding_and_nothing_else():
    own = {"V": np.array([0.5, 1.0], np.float32), "t": np.asarray(3), "on": np.array([True])}
    assert same_values({**own, "V": own["V"] * np.float32(1 + 1e-6)}, own)
    assert not same_values({**own, "V": own["V"] * np.float32(1.01)}, own)
    assert not same_values({**own, "V": own["V"].astype(np.float64)}, own)
    assert not same_values({**own, "V": own["V"] * np.float32(np.nan)}, own)
    assert not same_values({**own, "t": np.asarray(4)}, own)
    assert not same_values({**own, "on": np.array([False])}, own)
    assert not same_values({"V": own["V"]}, own)


@pytest.mark.parametrize("huge", [1e12, np.inf, np.nan])
def test_one_huge_value_does_not_leave_the_others_free(huge):
    own = {"V": np.array([huge, 0.0, 0.5, 30.0])}
    assert not same_values({"V": np.array([huge, 1.0, 0.5, 30.0])}, own)
    assert not same_values({"V": np.array([1.0, 1.0, 0.0, 30.0])}, own)
    assert same_values({"V": np.array([huge, 1e-6, 0.5, 30.0001])}, own) == np.isfinite(huge)


def test_sums_travel_as_they_are():
    sums = [Sums({"a": np.arange(3)}, 3, number=0), Sums({"b": np.eye(2)}, 2, number=1)]
    table, data = pack_sums(sums)
    back = unpack_sums(table, data)
    assert [(part.round, part.clients) for part in back] == [(0, 3), (1, 2)]
    np.testing.assert_array_equal(back[1]["b"], np.eye(2))
    for broken in (
        None,
        [[0, 3]],
        [[0, 3, "1"]],
        [[0, 0, len(data)]],
        [[-1, 3, 1]],
        table[:1],
        [[0, 3, 10**9]],
    ):
        with pytest.raises(Refusal):
            unpack_sums(broken, data)
    with pytest.raises(Refusal):
        unpack_sums(table, data[:-1])
