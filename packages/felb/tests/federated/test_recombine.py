"""Recombination: never worse, the same for any split, children made of their parents."""

import numpy as np
import pytest
from driving import cut, drive

from felb.data import planted
from felb.errors import InputError
from felb.federated.steps.refine import refine
from felb.federated.steps.search import Population, as_set, child, recombine
from felb.federated.steps.state import Solution
from felb.kernels.assign import assign_rows
from felb.metrics import confusion

DATA = planted(120, 30, 4, noise=0.1, seed=3)
PATTERNS = np.random.default_rng(1).random((20, 30)) < 0.2


def crossed(**options):
    """Three refined random V, then their recombination."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(3):
        found.append((yield from refine(Solution(components=rng.random((4, 30)) < 0.2), rounds=3)))
    return (yield from recombine(found, PATTERNS, **{"generations": 3, "children": 6, "rounds": 3} | options))


def test_recombination_improves_on_the_best_and_its_loss_is_true():
    before = drive(crossed(generations=0), [DATA.A]).solution
    after = drive(crossed(), [DATA.A]).solution
    assert after.value < before.value
    U = assign_rows(DATA.A, after.components)
    assert confusion(DATA.A, U, after.components).errors == after.value


def test_more_generations_are_never_worse():
    values = [drive(crossed(generations=generations), [DATA.A]).solution.value for generations in range(4)]
    assert values == sorted(values, reverse=True)


def test_recombination_does_not_depend_on_the_split():
    a, b = (drive(crossed(), shards).solution for shards in ([DATA.A], cut(DATA.A, 1, 17, 80)))
    np.testing.assert_array_equal(a.components, b.components)
    assert a.value == b.value


def test_a_generation_is_one_request_a_round_without_those_that_have_settled():
    asked = [request for request in drive(crossed(), [DATA.A]).requests if request.task == "stacked_gains"]
    assert 3 <= len(asked) <= 9
    sizes = [len(request.values["candidates"]) for request in asked]
    assert max(sizes) == 6
    assert min(sizes) < 6


def test_recombination_ends_after_so_many_generations_without_a_better_v():
    def generations(patience):
        return {
            row["generation"]
            for row in drive(crossed(generations=12, patience=patience), [DATA.A]).rows[-60:]
            if "generation" in row
        }

    assert len(generations(1)) < len(generations(4)) < 12


def test_children_have_components_of_their_parents_and_at_most_one_pattern():
    rng = np.random.default_rng(2)
    V = rng.random((5, 6, 30)) < 0.3
    inherited = {row.tobytes() for member in V for row in member}
    for _ in range(50):
        new = sum(row.tobytes() not in inherited for row in child(V, PATTERNS, rng))
        assert new <= 1


def test_a_population_keeps_the_best_of_different_members():
    V = np.random.default_rng(0).random((2, 3, 8)) < 0.5
    same = V[0][::-1]
    population = Population.of(
        [Solution(components=one, value=value) for one, value in ((V[0], 5.0), (V[1], 3.0), (same, 5.0))]
    )
    assert population.values.tolist() == [3.0, 5.0]
    np.testing.assert_array_equal(as_set(same), as_set(V[0]))


@pytest.mark.parametrize("bad", [{"generations": -1}, {"children": 0}, {"size": 0}, {"rounds": 0}])
def test_bad_recombinations_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        drive(crossed(**bad), [DATA.A])


def test_recombination_ends_where_many_children_reach_the_best():
    found = [Solution(components=DATA.V, value=0.0, counts=np.array([0, 0, 0, 3600]))] * 3
    driven = drive(recombine(found, np.zeros((0, 30), bool), generations=9), [DATA.signal])
    assert {row["generation"] for row in driven.rows} == {0}
