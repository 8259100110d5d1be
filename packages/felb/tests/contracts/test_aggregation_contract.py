"""What every aggregation of client components must satisfy; a new one is one line in the list."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.federated.aggregate import (
    ALIGNED_AGGREGATIONS,
    BOOLEAN_AGGREGATIONS,
    align,
    anchor,
    logical_or,
    majority_vote,
    mean,
    rounded_mean,
)

AGGREGATIONS = {
    "mean": mean,
    "rounded mean": rounded_mean,
    "majority vote": majority_vote,
    "logical or": logical_or,
}
CLIENTS = st.integers(1, 7).flatmap(lambda c: hnp.arrays(bool, (c, 3, 5)))


def pytest_generate_tests(metafunc):
    """Take the aggregations of the module that asks, which may be one that has imported these tests."""
    if "aggregation" in metafunc.fixturenames:
        table = metafunc.module.AGGREGATIONS
        metafunc.parametrize("aggregation", table.values(), ids=table.keys())


@settings(max_examples=25)
@given(components=CLIENTS, order=st.randoms(use_true_random=False))
def test_permuting_clients_changes_nothing(aggregation, components, order):
    shuffled = list(components)
    order.shuffle(shuffled)
    c = len(components)
    np.testing.assert_array_equal(
        aggregation(components.sum(0), c), aggregation(np.sum(shuffled, axis=0), c), strict=True
    )


@settings(max_examples=25)
@given(component=hnp.arrays(bool, (3, 5)), clients=st.integers(1, 9))
def test_agreement_is_kept(aggregation, component, clients):
    np.testing.assert_array_equal(aggregation(component.astype(int) * clients, clients), component)


@settings(max_examples=25)
@given(components=CLIENTS)
def test_results_lie_between_none_and_all(aggregation, components):
    result = np.asarray(aggregation(components.sum(0), len(components)), dtype=float)
    assert result.shape == components.shape[1:]
    assert (result[~components.any(axis=0)] == 0).all()
    assert (result[components.all(axis=0)] == 1).all()
    assert ((result >= 0) & (result <= 1)).all()


@settings(max_examples=60)
@given(components=CLIENTS)
def test_vote_is_the_rounded_mean_except_at_ties_and_or_is_above_both(components):
    total, c = components.sum(0), len(components)
    vote, rounded, either = majority_vote(total, c), rounded_mean(total, c), logical_or(total, c)
    ties = 2 * total == c
    np.testing.assert_array_equal(vote[~ties], rounded[~ties])
    assert vote[ties].all()
    assert not rounded[ties].any()
    assert (either >= vote).all()


def test_the_words_of_the_command_line():
    assert set(BOOLEAN_AGGREGATIONS) == {"mean", "vote", "or"}
    assert ALIGNED_AGGREGATIONS == {"aligned-mean": "mean", "aligned-vote": "vote", "aligned-or": "or"}


@pytest.mark.parametrize("word", ALIGNED_AGGREGATIONS)
@settings(max_examples=25)
@given(component=hnp.arrays(bool, (3, 5)), clients=st.integers(1, 9), order=st.randoms(use_true_random=False))
def test_alignment_keeps_agreement_whatever_the_order_of_components(word, component, clients, order):
    shuffled = []
    for _ in range(clients):
        rows = list(component)
        order.shuffle(rows)
        shuffled.append(align(np.array(rows), anchor(0, (3, 5))))
    result = BOOLEAN_AGGREGATIONS[ALIGNED_AGGREGATIONS[word]](np.sum(shuffled, axis=0), clients)
    assert sorted(result.tolist()) == sorted(component.tolist())
