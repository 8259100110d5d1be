"""By the default policy of a site, neither chosen requests nor exact sums of small sites tell a row.

How: an exact run over few rows for its features and components, or over fewer than three sites, is refused before
anything leaves. The attacks are played here with the rules off, to show that they are what the rules stop.
"""

from __future__ import annotations

import numpy as np
import pytest
from loopback import Loopback

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.federated.journal import unpack
from felb.federated.protocol import Part, Request
from felb.kernels.passes import as_sketch, from_sketch
from felb_sites.deployed import DeployedRun
from felb_sites.run_plan import Plan
from felb_sites.site_policy import Policy, Refusal

DEFAULT = {"disclosure": None, "min_rows": Policy().min_rows}
"""Nothing set: the strict rules."""
OWN = [1.0, -1.0]
"""Weights of a one and a zero in the objective of the plan."""
OLD = {"disclosure": "none", "require_privacy": False}


def rows(n, m, seed=0, density=0.1):
    return np.random.default_rng(seed).random((n, m)) < density


def loop_of(tmp_path, A, *, k=4, sites=3, **policy):
    plan = Plan("r1", "bmf", k, A.shape[1], {"effort": "fast"}, sites=sites)
    return Loopback(tmp_path, plan, {name: BinaryMatrix.of(A) for name in ("a", "b", "c")}, **policy)


def asked(loop, task, **values):
    request = Request.of([Part(task, {name: np.asarray(value) for name, value in values.items()})], number=0)
    return loop.desks["a"].answer(request)


def count_rows_with(tmp_path, A, items, *, weights=None, **policy):
    """with weights (1, −m) a row is assigned to a component iff it has all of its items; supports count them."""
    V = np.zeros((4, A.shape[1]), dtype=bool)
    V[0, items] = True
    loop = loop_of(tmp_path, A, **policy)
    weights = weights or [1.0, -float(A.shape[1])]
    return int(asked(loop, "flip_gains", components=V, weights=weights)["supports"][0])


def test_chosen_questions_get_no_row_by_the_default_policy(tmp_path):
    A = rows(200, 40)
    A[:, 0] = np.arange(200) < 5
    with pytest.raises(Refusal, match="weights"):  # the attack of the audit, whatever the policy
        count_rows_with(tmp_path / "audit", A, [0, 1, 2], **OLD)
    assert count_rows_with(tmp_path / "off", A, [0], weights=OWN, **OLD) == 5, "one item, and the weights of the plan"
    with pytest.raises(Refusal):
        count_rows_with(tmp_path / "on", A, [0], weights=OWN, **DEFAULT)


def test_where_exact_runs_are_allowed_small_counts_are_hidden(tmp_path):
    A = rows(2000, 50)
    A[:, 0] = np.arange(2000) < 5
    allowed = {"disclosure": None, "require_privacy": False}
    assert count_rows_with(tmp_path, A, [0], weights=OWN, **allowed) == 0


def gram_by_sketches(tmp_path, A, **policy):
    """three sketches AᵀA Q of as many columns in all as there are rows give AᵀA: S (QᵀS)⁺ Sᵀ (Nyström)."""
    loop, rng = loop_of(tmp_path, A, k=10, **policy), np.random.default_rng(1)
    Q = as_sketch(np.linalg.qr(rng.standard_normal((A.shape[1], 60)))[0])
    S = np.hstack([from_sketch(asked(loop, "gram_sketch", Q=Q[:, i : i + 20])["sketch"]) for i in (0, 20, 40)])
    return S @ np.linalg.pinv(Q.T @ S, rcond=1e-9) @ S.T


def test_a_passive_server_reconstructs_nothing_by_the_default_policy(tmp_path):
    A = rows(40, 80)
    gram = A.T.astype(float) @ A
    np.testing.assert_allclose(gram_by_sketches(tmp_path / "off", A, **OLD), gram, atol=1e-3)
    with pytest.raises(Refusal):
        gram_by_sketches(tmp_path / "on", A, **DEFAULT)


def test_at_one_component_the_record_of_a_rare_feature_is_not_told(tmp_path, monkeypatch):
    """The rules ask for 3 m k rows. With k = 1 there may be few enough features for all of AᵀA to be told."""
    A = rows(40, 11, density=0.4)
    A[:, 0] = np.arange(40) == 7

    def sketched(folder, **policy):
        loop, asked, told = loop_of(folder, A, k=1, require_replay=True, **policy), [], []
        while loop.request.task == "gram_sketch":
            asked.append(loop.request.values["Q"])
            told.append(from_sketch(unpack(loop.ask_site("a", loop.request))["sketch"]))
            loop.round()
        Q, S = np.hstack(asked), np.hstack(told)
        return S @ np.linalg.pinv(Q.T @ S, rcond=1e-9) @ S.T

    exact = {**DEFAULT, "require_privacy": False}
    with pytest.raises(Refusal, match="have a feature"):
        sketched(tmp_path / "rules", **exact)
    with pytest.raises(Refusal, match="guarantee privacy"):
        sketched(tmp_path / "default", **{**DEFAULT, "require_privacy": True})
    monkeypatch.setattr(Policy, "check_rare_features", lambda *_: None)
    np.testing.assert_array_equal(np.rint(sketched(tmp_path / "off", **exact)[0]), A[7], "its whole row")


@pytest.mark.parametrize("k", [1, 2, 10, 50])
@pytest.mark.parametrize("m", [11, 40, 1000])
def test_the_rule_is_beyond_what_sketches_of_a_run_determine(k, m):
    rules, reached = Policy().rules, 3 * (k + 10)
    least = next(n for n in range(1, 10**6) if rules.rows_suffice(n, n_features=m, n_components=k))
    assert least >= min(reached, 3 * m * k)
    assert least >= 3 * m, "more rows than the rank of AᵀA, which then has no unique rows"


@pytest.mark.parametrize("sites", [None, 1, 2])
def test_sums_of_fewer_than_three_sites_are_not_told(tmp_path, sites):
    with pytest.raises(Refusal):
        loop_of(tmp_path, rows(2000, 20), k=2, sites=sites, disclosure=None, require_privacy=False)
    loop_of(tmp_path / "three", rows(2000, 20), k=2, sites=3, disclosure=None, require_privacy=False)


def test_a_policy_or_a_run_with_a_misspelt_rule_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no preset 'csm'"):
        Policy(disclosure="csm")
    (tmp_path / "run.toml").write_text('id = "r"\ncomponents = 2\nfeatures = 5\ndisclosure = "csm"\n')
    with pytest.raises(InputError, match="no preset 'csm'"):
        DeployedRun.read(tmp_path / "run.toml")
    (tmp_path / "run.toml").write_text('id = "r"\ncomponents = 2\nfeatures = 5\nsites = ["a", "b", "c"]\n')
    run = DeployedRun.read(tmp_path / "run.toml")
    assert (run.rules, run.plan.sites) == (Policy().rules, 3)
