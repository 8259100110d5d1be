"""Sites and a coordinator without their network are a transport like any other; masked sums change nothing."""

import pytest
from loopback import Loopback
from masked_loopback import MaskedLoopback
from test_transport_contract import *  # noqa: F403
from test_transport_contract import PLANS, SHARDS, Played, assert_logged, assert_same, once, reference

from felb.federated.protocol import Request
from felb_sites.run_plan import Plan


def over_sites(plan, shards, folder, *, stop_after=None, kind=Loopback):
    loop = kind(folder, Plan("r", plan.method, 4, 40, plan.parameters, seed=plan.seed), shards, min_rows=1)
    if stop_after is not None:
        for _ in range(stop_after):
            loop.round()
        loop.restart()
    outcome = loop.finish()
    left = {name: [(line["round"], line["what"], tuple(line["shape"])) for line in loop.lines(name)] for name in shards}
    return Played(outcome, list(loop.history), {name: loop.assignment(name) for name in shards}, left)


TRANSPORTS = {"sites": over_sites}


# Every trip is on disk at every site, which takes long; in one process, the sums of all methods are masked.
@pytest.mark.parametrize("name", ["felb-mu", "asso+or"], ids=["V on the grid", "counts"])
def test_masked_sums_change_nothing_undisturbed_or_restarted(name, tmp_path):
    whole = over_sites(PLANS[name], SHARDS, tmp_path / "whole", kind=MaskedLoopback)
    assert_same(whole, once(reference, PLANS[name], SHARDS))
    assert_logged(whole)
    assert_same(over_sites(PLANS[name], SHARDS, tmp_path / "stopped", stop_after=2, kind=MaskedLoopback), whole)


def test_an_unknown_task_is_refused(tmp_path):
    loop = Loopback(tmp_path, Plan("r", "felb", 4, 40, {"max_iter": 6}, seed=3), SHARDS, min_rows=1)
    with pytest.raises(Exception, match=r"send_rows|knows no task"):
        loop.ask(Request("send_rows"))
