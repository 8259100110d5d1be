"""What a site remembers of its runs, and what it refuses therefore."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from loopback import Loopback

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.privacy.spec import Privacy
from felb_sites import site_policy
from felb_sites.run_plan import Plan
from felb_sites.site_budget import Spent
from felb_sites.site_policy import Policy, Refusal
from felb_sites.site_session import SiteSession

ROWS = np.random.default_rng(3).random((90, 12)) < 0.3
SHARDS = {f"site-{i}": BinaryMatrix.of(ROWS[i::3]) for i in range(3)}


def private(run_id="p1", *, epsilon=1.0, sites=3, **terms):
    privacy = {"epsilon": epsilon, "row_bound": 4, **terms}
    return Plan(run_id, "bmf", 2, 12, {"effort": "fast"}, privacy=privacy, records=90, sites=sites)


EXACT = Plan("exact", "asso+vote", 2, 12, {})


def guaranteed(**terms):
    return Privacy(1.0, 1e-5, **terms).plan(n_records=90, n_clients=3, n_columns=12)


@pytest.mark.parametrize("lost", ["responses", "plan.json and responses", "everything", "one response"])
def test_a_site_that_has_lost_responses_of_a_run_does_not_begin_anew(tmp_path, lost):
    loop = Loopback(tmp_path, private(), SHARDS)
    assert loop.round()
    folder = loop.desks["site-0"].folder
    if lost == "everything":
        shutil.rmtree(folder)
    elif lost == "one response":
        next((folder / "responses").glob("response-*")).unlink()
    else:
        shutil.rmtree(folder / "responses")
        if "plan" in lost:
            (folder / "plan.json").unlink()
    with pytest.raises(Refusal, match="lost"):
        loop.restart()


def test_without_the_guard_a_lost_folder_resets_the_accountant(tmp_path, monkeypatch):
    loop = Loopback(tmp_path, private(), SHARDS)
    assert loop.round()
    shutil.rmtree(loop.desks["site-0"].folder / "responses")
    monkeypatch.setattr(Spent, "check_answers", lambda *_: None)
    loop.restart()
    assert loop.desks["site-0"]._responses.accountant.spent == 0.0, "the attack of the audit"


def test_a_crash_between_keeping_and_noting_a_response_is_no_loss(tmp_path, monkeypatch):
    loop = Loopback(tmp_path, private(), SHARDS)
    with monkeypatch.context() as crash:
        crash.setattr(Spent, "note_answers", lambda *_: None)
        assert loop.round()
    loop.restart()
    while loop.round():
        pass
    assert loop.outcome.components.shape == (2, 12)


@pytest.mark.parametrize("file", ["lost", "older"])
def test_a_budget_file_that_is_lost_or_put_back_makes_no_room_for_more_runs(tmp_path, file):
    loop = Loopback(tmp_path / "a", private(), SHARDS)
    spent = loop.spent("site-0").path
    older = '{"runs": {}}'
    assert loop.round()
    spent.unlink() if file == "lost" else spent.write_text(older)
    config = loop.configs["site-0"]
    exact = replace(private(), run_id="exact", privacy=None, records=None)
    for plan in (replace(private(), run_id="second"), exact, private()):
        for session in loop.desks.values():
            session.close()
        with pytest.raises(Refusal, match="restore the latest file"):
            SiteSession("site-0", plan.to_json(), config)
    with pytest.raises(Refusal, match="restore the latest file"):
        Spent(config.state).charge("data", (0.1, 1e-7), kind=("record", "add_remove"), limits=(None, None))


def test_noise_is_not_shared_with_more_sites_than_a_site_believes_in(monkeypatch):
    with pytest.raises(InputError, match=r"sites .*1 to 1000"):
        private(sites=100_000, noise="distributed")
    plan = private(sites=1000, noise="distributed").algorithm().privacy
    for policy in (Policy(), Policy(noise="distributed")):
        with pytest.raises(Refusal, match="50 sites"):
            policy.check_privacy(plan)
    Policy(noise="distributed", max_sites=1000).check_privacy(plan)
    with pytest.raises(Refusal, match="2 sites"):
        Policy(noise="distributed", max_sites=2).check_privacy(private(noise="distributed").algorithm().privacy)
    Policy(max_sites=2).check_privacy(private().algorithm().privacy)  # each adds all of its noise itself
    monkeypatch.setattr(site_policy, "LARGEST_FEDERATION", 100_000)
    Policy(noise="distributed").check_privacy(plan)


def test_a_plan_of_too_many_sites_is_refused_before_anything_leaves(tmp_path):
    with pytest.raises(Refusal, match="50 sites"):
        Loopback(tmp_path, private(sites=51, noise="distributed"), SHARDS, noise="distributed")
    assert not list(tmp_path.rglob("outbound.jsonl"))


def test_the_sum_of_delta_has_a_limit_also_if_none_was_set(tmp_path):
    spent = Spent(tmp_path)
    for run in range(10):
        spent.reserve(f"r{run}", guaranteed(), limit=None, delta_limit=site_policy.TOTAL_DELTA)
    with pytest.raises(Refusal, match="budget"):
        spent.reserve("r10", guaranteed(), limit=None, delta_limit=site_policy.TOTAL_DELTA)
    assert spent.total() == (10.0, pytest.approx(1e-4))
    spent.reserve("r10", guaranteed(), limit=None, delta_limit=None)  # as before, without end


def test_the_thirty_first_run_of_a_site_is_refused(tmp_path):
    for run in range(3):
        loop = Loopback(tmp_path, private(f"r{run}"), SHARDS, total_delta=2e-5)
        if run < 2:
            assert loop.round()
        else:
            with pytest.raises(Refusal, match="budget"):
                loop.round()


def test_exact_runs_do_not_follow_private_ones_unless_the_policy_says_so(tmp_path, monkeypatch):
    assert Loopback(tmp_path / "before", EXACT, SHARDS).round()
    assert Loopback(tmp_path, private(), SHARDS).round()
    with pytest.raises(Refusal, match="exact"):
        Loopback(tmp_path, EXACT, SHARDS)
    assert Loopback(tmp_path, EXACT, SHARDS, exact_after_private=True).round()
    monkeypatch.setattr(Spent, "check_exact", lambda *_, **__: None)
    assert Loopback(tmp_path, Plan("again", "asso+vote", 2, 12, {}), SHARDS).round(), "the attack of the audit"


def test_guarantees_of_different_kinds_are_not_added_up(tmp_path):
    spent = Spent(tmp_path)
    spent.reserve("a", guaranteed(), limit=1.5)
    spent.reserve("b", guaranteed(neighbours="replace"), limit=1.5)
    assert spent.totals() == {("record", "add_remove"): (1.0, 1e-5), ("record", "replace"): (1.0, 1e-5)}
    for kind in ("add_remove", "replace"):
        with pytest.raises(Refusal, match="budget"):
            spent.reserve("c", guaranteed(neighbours=kind), limit=1.5)


@pytest.mark.parametrize(
    "facts",
    [
        {"epsilon": float("nan"), "delta": 1e-5},
        {"epsilon": -3.0, "delta": 1e-5},
        {"epsilon": float("inf"), "delta": 1e-5},
        {"epsilon": 1.0, "delta": float("nan")},
        {"epsilon": 1.0, "delta": -1e-5},
        {"epsilon": 1.0, "delta": 2.0},
        {"epsilon": "1", "delta": 1e-5},
        {"epsilon": True, "delta": 1e-5},
        {"epsilon": 1.0},
        {"epsilon": 1.0, "delta": 1e-5, "unit": "village"},
        {"epsilon": 1.0, "delta": 1e-5, "neighbours": "friends"},
        {"epsilon": 1.0, "delta": 1e-5, "answers": -1},
    ],
)
def test_an_amount_that_is_none_is_refused_in_the_budget_file(tmp_path, facts):
    (tmp_path / "spent.json").write_text(json.dumps({"runs": {"a": facts}}))
    spent = Spent(tmp_path)
    for use in (spent.runs, spent.total, lambda: spent.reserve("b", guaranteed(), limit=1.0)):
        with pytest.raises(InputError, match=r"spent\.json is damaged"):
            use()
