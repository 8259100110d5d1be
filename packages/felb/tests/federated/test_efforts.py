"""More effort is never worse: a higher effort keeps the result of the lower one as a candidate."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from driving import drive

from felb.data import BinaryMatrix, load, planted
from felb.engines.local import run
from felb.federated.algorithms.bmf import EFFORTS, federated_bmf
from felb.federated.steps import search as recombine
from felb.federated.steps.assignment import choose_by_exact_loss
from felb.federated.steps.state import Cost, Solution
from felb.kernels.assign import assign_rows
from felb.kernels.exact import assign_rows_exact
from felb.metrics import confusion

SETS = {
    "zoo": BinaryMatrix.of(load("zoo")),
    "planted": planted(60, 24, 4, noise=0.15, seed=2).A,
    "noise": planted(40, 16, 3, noise=0.4, seed=1).A,
}
LADDER = [EFFORTS["fast"], EFFORTS["default"], replace(EFFORTS["high"], proposals=20)]


@pytest.mark.parametrize("centralized", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", SETS)
def test_a_higher_effort_never_has_more_errors(name, seed, centralized):
    A = SETS[name]
    errors = []
    for effort in LADDER:
        algorithm = federated_bmf(A.shape[1], 5, objective="hamming", effort=effort, centralized=centralized)
        errors.append(run(algorithm, {"a": A}, seed=seed).outcome.counts.errors)
    assert errors == sorted(errors, reverse=True)


def test_a_race_of_starts_keeps_what_fast_has_found(monkeypatch):
    monkeypatch.setattr(recombine, "MOST_WORK_OF_GENERATIONS", 0)
    for seed in range(3):
        fast, default = (
            run(federated_bmf(17, 6, objective="hamming", effort=effort), {"a": SETS["zoo"]}, seed=seed).outcome.counts
            for effort in LADDER[:2]
        )
        assert default.errors <= fast.errors


def test_what_counts_is_the_exact_assignment():
    A, rng = SETS["planted"], np.random.default_rng(0)

    def quick(V):
        return confusion(A, assign_rows(A, V), V).errors

    def exact(V):
        return confusion(A, assign_rows_exact(A, V)[0], V).errors

    measured = [(V, quick(V), exact(V)) for V in (rng.random((12, 24)) < 0.4 for _ in range(80))]
    a, b = next(
        (one[0], other[0])
        for one, other in itertools.permutations(measured, 2)
        if one[1] < other[1] <= 1.02 * one[1] and other[2] < one[2]
    )
    weights = np.array([1.0, -1.0])
    known, lower = (Solution(components=V, value=float(quick(V)), weights=weights) for V in (a, b))
    assert drive(choose_by_exact_loss(known, [lower], Cost(), node_cap=1_000), [A]).solution is lower
    assert drive(choose_by_exact_loss(known, [known], Cost(), node_cap=1_000), [A]).requests == []


def test_a_lower_effort_is_compared_however_much_worse_its_quick_assignment_is():
    """Greedy cover takes the first component of the trap, and no single switch leads from there to the other two."""
    A = BinaryMatrix.of(np.tile(np.arange(12) < 8, (5, 1)))
    trap, plain = np.zeros((3, 12), bool), np.zeros((3, 12), bool)
    for component, columns in enumerate(([0, 1, 2, 3, 4, 5, 10, 11], [0, 1, 2, 6, 8], [3, 4, 5, 7, 9])):
        trap[component, columns] = True
    plain[0, :5] = True
    quick = [confusion(A, assign_rows(A, V), V).errors for V in (plain, trap)]
    assert quick == [15, 20]
    known, lower = (Solution(components=V, value=float(value)) for V, value in zip((plain, trap), quick, strict=True))
    assert drive(choose_by_exact_loss(known, [lower], Cost(), node_cap=1_000), [A]).solution is lower
