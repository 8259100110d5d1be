"""Private runs over real processes: a site's policy against its coordinator, and a guarantee kept through a crash."""

from __future__ import annotations

import contextlib
import os
import signal

import numpy as np
import pytest
import scipy.sparse as sp

from federation_parts import SITES, play
from felb.data import planted
from felb.data.partition import split
from felb.errors import FederationError
from felb.metrics import confusion
from felb_sites.local_federation import LocalFederation
from felb_sites.reasons import REASONS
from felb_sites.refusals import read_refusals
from felb_sites.run_plan import Plan
from felb_sites.site_budget import Spent
from felb_sites.site_logs import read_outbound

pytestmark = pytest.mark.federation

DATA = planted(6000, 60, 4, noise=0.02, heights=(0.2, 0.2), widths=(0.15, 0.15), density=0.95, seed=3)
WHO = np.arange(6000) % 3
SHARDS = split(DATA.A, [SITES[i] for i in WHO])[0]
POLICY = {"max_epsilon": 2.0, "max_delta": 1e-5, "total_epsilon": 3.0}


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """Three sites that take part in private runs only."""
    pytest.importorskip("nvflare")
    pytest.importorskip("opendp")
    pytest.importorskip("dp_accounting")
    with LocalFederation(tmp_path_factory.mktemp("hospitals") / "f", SHARDS, policy=POLICY) as made:
        yield made


def plan(run_id, **terms):
    agreed = {"epsilon": 2.0, **terms}
    return Plan(run_id, "bmf", 4, 60, {"effort": "fast"}, privacy=agreed, records=6000, sites=3)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (plan("too-much", epsilon=4.0), "this site spends at most epsilon 2 on a run"),
        (plan("shares", noise="distributed"), "leaves it a share"),
        (Plan("bare", "bmf", 4, 60), "guarantees none"),
    ],
    ids=lambda value: value.run_id if isinstance(value, Plan) else "",
)
def test_a_coordinator_that_promises_less_than_the_sites_ask_for_is_refused(hospitals, tmp_path, made, said):
    with pytest.raises(FederationError, match="not begun") as refused:
        play(hospitals, tmp_path / "out", made, columns=None)
    reason = REASONS["epsilon" if made.run_id == "too-much" else "privacy"]
    assert all(f"{name}: {reason}" in str(refused.value) for name in SITES)
    for name in SITES:
        state = hospitals.sites[name].state
        refusals = read_refusals(state, run_id=made.run_id)  # more than one if the coordinator had to ask again
        assert {said in line["reason"] for line in refusals} == {True}
        assert read_outbound(state, run_id=made.run_id) == []
        assert made.run_id not in Spent(state).runs()
        assert hospitals.processes[name].poll() is None, "the service goes on"


def test_a_private_run_through_the_death_of_a_worker_is_good_and_charged_once(hospitals, tmp_path):
    def kill():
        for process in hospitals.workers("site-2"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    result, told = play(hospitals, tmp_path / "out", plan("private"), trouble=kill, at=1, columns=None)
    assert any("broke off" in line for line in told)
    assert [row["task"] for row in result.history] == ["sizes", "cooccurrence", "choice", "assign"]
    assert result.scores == {}
    assert result.privacy["epsilon"] == 2.0
    U = np.zeros((6000, 4), bool)
    for name in SITES:
        state = hospitals.sites[name].state
        U[SITES.index(name) == WHO] = sp.load_npz(state / "private" / "assignment.npz").toarray()
        lines = read_outbound(state, run_id="private")
        assert [line["what"] for line in lines] == ["sizes", "cooccurrence", "choice"]
        assert 1.99 < lines[-1]["total"]["epsilon"] <= 2.0
        assert Spent(state).total() == (2.0, 1e-5)
    assert confusion(DATA.signal, U, result.components).f1 > 0.95
    with pytest.raises(FederationError, match="budget"):
        play(hospitals, tmp_path / "more", plan("second", epsilon=1.5), columns=None)
