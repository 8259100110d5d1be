"""More time is never worse: the loss of a run that is ended early does not grow with the checks of its time limit."""

from dataclasses import replace

import pytest
from driving import Rounds

from felb.data import BinaryMatrix, load, planted
from felb.engines.local import run
from felb.federated.algorithms.bmf import EFFORTS, federated_bmf

SETS = {
    "zoo": BinaryMatrix.of(load("zoo")),
    "planted": planted(40, 16, 3, noise=0.2, seed=1).A,
}
SHORT = {"relaxed_rounds": 3, "refine_rounds": 3, "tries": 3, "restarts": 1, "generations": 2, "proposals": 25}


@pytest.mark.parametrize("centralized", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_a_longer_time_limit_never_gives_a_larger_loss(name, centralized):
    A = SETS[name]
    algorithm = federated_bmf(
        A.shape[1], 4, objective="hamming", effort=replace(EFFORTS["high"], **SHORT), centralized=centralized
    )
    errors, complete, checks = [], False, 0
    while not complete:
        outcome = run(algorithm, {"a": A}, seed=1, deadline=Rounds(checks)).outcome
        errors.append(outcome.counts.errors)
        complete, checks = outcome.complete, checks + 1
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > errors[-1]
    assert len(errors) > 30
