"""Processes may die before or after any file appears: the result is the undisturbed one, charged and logged once."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from loopback import Loopback

from felb.data import partition
from felb.data.files import load
from felb.data.partition import split
from felb.engines.local import run
from felb_sites.run_plan import Plan

ZOO = load("zoo")
SHARDS = split(ZOO, [f"site-{i}" for i in partition.even(101, 3)])[0]
PLANS = {
    "exact": Plan("r1", "felb-mu", 3, 17, {"max_iter": 2}),
    "private": Plan("r1", "asso+vote", 3, 17, {"tau": 0.8}, {"epsilon": 1.0, "unit": "client"}, 101, 3),
}


class Killed(BaseException):
    """The process ends here."""


class Killer:
    """Ends the process at the n-th file that appears, before or after it does."""

    def __init__(self, monkeypatch, at, *, after):
        self.seen, real = 0, Path.replace

        def replace(path, target):
            self.seen += 1
            if self.seen == at and not after:
                raise Killed
            moved = real(path, target)
            if self.seen == at:
                raise Killed
            return moved

        monkeypatch.setattr(Path, "replace", replace)


def play(loop):
    while loop.round():
        pass


@pytest.mark.parametrize("kind", PLANS)
def test_a_run_survives_death_at_some_instants(tmp_path, monkeypatch, kind):
    survive(tmp_path, monkeypatch, PLANS[kind], most=6)


@pytest.mark.federation
@pytest.mark.parametrize("kind", PLANS)
def test_a_run_survives_death_at_every_file(tmp_path, monkeypatch, kind):
    """More than a hundred instants; too many for every day."""
    survive(tmp_path, monkeypatch, PLANS[kind], most=None)


def survive(tmp_path, monkeypatch, plan, *, most):
    """Play a run with a death at every instant, or at `most` that are drawn."""
    if plan.privacy is not None:
        pytest.importorskip("opendp")
    undisturbed = Loopback(tmp_path / "whole", plan, SHARDS, require_replay=True, unit=plan.privacy and "client")
    with monkeypatch.context() as patch:
        counter = Killer(patch, 0, after=False)
        play(undisturbed)
    whole, files = undisturbed.lines("site-0"), counter.seen
    local = run(plan.algorithm(), SHARDS, seed=plan.seed)
    assert files > 10
    instants = [(at, after) for at in range(1, files + 1) for after in (False, True)]
    for at, after in instants if most is None else random.Random(1).sample(instants, most):
        loop = Loopback(tmp_path / f"{at}-{after}", plan, SHARDS, require_replay=True, unit=plan.privacy and "client")
        with monkeypatch.context() as patch:
            Killer(patch, at, after=after)
            with pytest.raises(Killed):
                play(loop)
        loop.restart()
        play(loop)
        for name in SHARDS:
            lines = loop.lines(name)
            keys = [(line["round"], line["what"]) for line in lines]
            assert len(keys) == len(set(keys)) == len(whole), (at, after, name)
            if plan.privacy is not None:
                assert lines[-1]["total"]["epsilon"] == pytest.approx(whole[-1]["total"]["epsilon"])
                assert len(loop.desks[name]._client.gate.accountant.entries) == len(plan.algorithm().privacy.shares)
        if plan.privacy is None:
            np.testing.assert_array_equal(loop.outcome.components, local.outcome.components)
