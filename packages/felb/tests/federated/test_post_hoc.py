"""Post-hoc federation: one round, aggregated by number, the same loop as every algorithm."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import felb
from felb.centralized.base import Factors
from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import Participation, run
from felb.federated.aggregate import BOOLEAN_AGGREGATIONS
from felb.federated.algorithms.post_hoc import post_hoc
from felb.sklearn.base import CentralizedFactorization

pytestmark = pytest.mark.filterwarnings("ignore:PostHoc collapsed")
DATA = planted(120, 24, 3, noise=0.05, seed=2)
GROUPS = partition.even(120, 4)


class Copycat(CentralizedFactorization):
    """Returns the first rows as components; may claim to have run out of time."""

    def __init__(self, n_components=3, *, hurried=False, time_limit=None, binarize_threshold=None, random_state=None):
        self.n_components = n_components
        self.hurried = hurried
        self.time_limit = time_limit
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

    def factorize(self, A, k, *, seed, deadline):
        V = A.rows(0, k).toarray().astype(bool)
        return Factors(np.eye(A.shape[0], k, dtype=bool), V, complete=not self.hurried)


def expected(aggregation):
    shards, _ = split(DATA.A, GROUPS)
    return BOOLEAN_AGGREGATIONS[aggregation](
        sum(shard.rows(0, 3).toarray().astype(int) for shard in shards.values()), len(shards)
    )


@pytest.mark.parametrize("aggregation", BOOLEAN_AGGREGATIONS)
def test_the_aggregate_is_a_function_of_the_sum_of_the_clients_components(aggregation):
    model = felb.PostHoc(Copycat(3), aggregation, random_state=0).fit(DATA.A, groups=GROUPS)
    np.testing.assert_array_equal(model.components_, expected(aggregation))
    assert [row["task"] for row in model.history_] == ["local_components", "assign"]
    assert model.relaxed_components_ is None
    assert model.complete_
    assert model.counts_.cells == DATA.A.shape[0] * DATA.A.shape[1]


def test_rows_are_assigned_for_the_aggregate():
    model = felb.PostHoc(Copycat(3), "or", random_state=0)
    U = model.fit_transform(DATA.A, groups=GROUPS)
    np.testing.assert_array_equal(U, model.transform(DATA.A))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), aggregation=st.sampled_from(sorted(BOOLEAN_AGGREGATIONS)))
def test_the_order_of_clients_changes_nothing(seed, aggregation):
    shards, _ = split(DATA.A, GROUPS)
    names, order = list(shards), np.random.default_rng(seed).permutation(4)
    algorithm = post_hoc(Copycat(3), aggregation, 24)
    first = run(algorithm, shards).outcome
    second = run(algorithm, {names[i]: shards[names[j]] for i, j in enumerate(order)}).outcome
    np.testing.assert_array_equal(first.components, second.components)
    assert first.counts == second.counts


def test_what_leaves_a_client_is_boolean_components_and_counts():
    records = []
    shards, _ = split(DATA.A, GROUPS)
    run(post_hoc(Copycat(3), "vote", 24), shards, outbound=lambda _: records.append)
    assert {record.what: (record.shape, record.dtype) for record in records} == {
        "V": ((3, 24), "uint8"),
        "unfinished": ((), "int64"),
        "counts": ((4,), "int64"),
        "supports": ((3,), "int64"),
    }


def test_a_client_out_of_time_marks_the_result():
    with pytest.warns(felb.ConvergenceWarning, match="time limit of 2 s"):
        model = felb.PostHoc(Copycat(3, hurried=True, time_limit=2), random_state=0).fit(DATA.A, groups=GROUPS)
    assert not model.complete_
    assert model.history_[0]["unfinished"] == 4


def test_a_sample_of_clients_may_play_but_all_assign():
    shards, _ = split(DATA.A, GROUPS)
    found = run(post_hoc(Copycat(3), "or", 24), shards, participation=Participation(fraction=0.5))
    assert [row["clients"] for row in found.history] == [2, 4]
    assert set(found.assignments) == set(shards)


def test_a_model_that_needs_fewer_components_sends_empty_ones():
    ones = np.ones((40, 6), dtype=int)
    model = felb.PostHoc(felb.GreConD(4), random_state=0).fit(ones, groups=np.arange(40) % 2)
    assert model.components_.sum(axis=1).tolist() == [6, 0, 0, 0]


def test_clients_of_a_random_method_draw_their_own_start():
    shards, _ = split(DATA.A, GROUPS)
    seeds = []

    class Noting(Copycat):
        def factorize(self, A, k, *, seed, deadline):
            seeds.append(seed)
            return super().factorize(A, k, seed=seed, deadline=deadline)

    run(post_hoc(Noting(2), "vote", 24), shards, seed=5)
    run(post_hoc(Noting(2), "vote", 24), shards, seed=5)
    assert len(set(seeds)) == 4
    assert seeds[:4] == seeds[4:]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: felb.PostHoc(felb.Asso(3), "median"), "unknown aggregation 'median'; use one of mean, vote, or"),
        (lambda: felb.PostHoc(felb.FELB(3)), "model must be"),
        (lambda: felb.PostHoc(felb.Asso(0)), "n_components must be at least 1"),
        (lambda: felb.PostHoc(felb.Asso(3, tau=1.5)), "tau"),
        (lambda: felb.PostHoc(felb.Asso(3, time_limit=0)), "time_limit must be a positive number"),
    ],
)
def test_wrong_parameters_are_refused(build, message):
    with pytest.raises(felb.InputError, match=message):
        build().fit(DATA.A, groups=GROUPS)
