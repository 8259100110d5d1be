"""Aligned aggregation: components are matched at the clients, the server sees sums only."""

import itertools

import numpy as np
import pytest
from driving import resumed
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import felb
from felb.centralized.base import Factors
from felb.data import BinaryMatrix, partition, planted
from felb.engines.local import Participation, run
from felb.errors import InputError
from felb.federated.aggregate import BOOLEAN_AGGREGATIONS, agreement, align, anchor, sorted_rows
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.algorithms.post_hoc import ALIGNED_COMPONENTS, aligned, post_hoc
from felb.federated.client import compute_update
from felb.metrics import confusion
from felb.sklearn.base import CentralizedFactorization

pytestmark = pytest.mark.filterwarnings("ignore:PostHoc collapsed")
K, M = 4, 24
MATRICES = hnp.arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 9)))


class FirstRows(CentralizedFactorization):
    """Takes the first rows of its data for components, so that a test can say what each client finds."""

    def __init__(self, n_components=K, *, hurried=False, time_limit=None, binarize_threshold=None, random_state=None):
        self.n_components = n_components
        self.hurried = hurried
        self.time_limit = time_limit
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

    def factorize(self, A, k, *, seed, deadline):
        V = A.rows(0, k).toarray().astype(bool)
        return Factors(np.eye(A.shape[0], k, dtype=bool), V, complete=not self.hurried)


def clients(*components):
    """Return shards whose clients find these components."""
    return {f"client-{i}": BinaryMatrix.of(V) for i, V in enumerate(components)}


def as_set(V):
    return sorted(map(tuple, np.asarray(V, dtype=int).tolist()))


def components(seed=0, k=K, m=M):
    return np.random.default_rng(seed).random((k, m)) < 0.3


def noisy_orders(seed, n_clients=8, noise=0.05):
    """Return the same components for all clients, each in its own order and with its own errors."""
    rng = np.random.default_rng(seed)
    V = components(seed)
    return [rng.permutation(V ^ (rng.random(V.shape) < noise)) for _ in range(n_clients)]


def algorithm(word="vote", **options):
    return aligned(post_hoc(FirstRows(K), word, M), M, **options)


# -- the matching -------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(V=MATRICES, data=st.data())
def test_rows_are_permuted_never_changed(V, data):
    reference = data.draw(hnp.arrays(np.int64, V.shape, elements=st.integers(-50, 50)))
    before = V.copy()
    assert as_set(align(V, reference)) == as_set(V)
    np.testing.assert_array_equal(V, before)


@settings(max_examples=60)
@given(V=hnp.arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 6))), data=st.data())
def test_no_other_order_overlaps_more(V, data):
    """The slow twin: all permutations."""
    reference = data.draw(hnp.arrays(np.int64, V.shape, elements=st.integers(-5, 5)))
    best = max((V[list(order)] * reference).sum() for order in itertools.permutations(range(len(V))))
    assert (align(V, reference) * reference).sum() == best


@settings(max_examples=60)
@given(V=MATRICES, seed=st.integers(0, 99), data=st.data())
def test_the_order_that_components_were_found_in_does_not_show(V, seed, data):
    reference = data.draw(hnp.arrays(np.int64, V.shape, elements=st.integers(0, 2)))  # with many ties
    other = np.random.default_rng(seed).permutation(V)
    np.testing.assert_array_equal(sorted_rows(V), sorted_rows(other))
    np.testing.assert_array_equal(align(V, reference), align(other, reference))
    np.testing.assert_array_equal(align(V, 7 * reference), align(V, reference))


@settings(max_examples=60)
@given(V=MATRICES)
def test_components_match_themselves(V):
    """A single client has settled after one pass, with duplicates and empty components too."""
    np.testing.assert_array_equal(align(V, V.astype(int)), V)


def test_an_empty_component_goes_where_it_costs_least():
    reference = np.array([[9, 9, 0, 0], [0, 0, 1, 1], [5, 0, 0, 5]])
    V = np.array([[0, 0, 0, 0], [1, 0, 0, 1], [1, 1, 0, 0]], bool)
    np.testing.assert_array_equal(align(V, reference), V[[2, 0, 1]])


def test_agreement_is_the_share_of_clients_that_agree():
    assert agreement(np.array([[4, 0], [4, 4]]), 4) == 1.0
    assert agreement(np.array([[1, 1], [1, 1]]), 4) == 0.25
    assert agreement(np.zeros((2, 2), int), 4) == 1.0


def test_the_anchor_follows_from_the_seed():
    np.testing.assert_array_equal(anchor(3, (K, M)), anchor(3, (K, M)))
    assert not np.array_equal(anchor(3, (K, M)), anchor(4, (K, M)))


# -- the algorithm ------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), word=st.sampled_from(sorted(BOOLEAN_AGGREGATIONS)))
def test_equal_sets_in_any_order_are_recovered_exactly(seed, word):
    V = components(seed)
    shards = clients(*(np.random.default_rng([seed, i]).permutation(V) for i in range(6)))
    found = run(algorithm(word), shards, seed=seed)
    assert as_set(found.outcome.components) == as_set(V)
    assert found.outcome.n_iter == 2, "the second sum is the first"
    assert [row.get("agreement") for row in found.history] == [1.0, 1.0, None]


def test_row_by_row_the_same_sets_are_lost():
    V = components(1)
    shards = clients(*(np.roll(V, i, axis=0) for i in range(K)))
    assert as_set(run(algorithm(), shards).outcome.components) == as_set(V)
    by_row = run(post_hoc(FirstRows(K), "vote", M), shards).outcome.components
    assert len(set(as_set(by_row))) == 1, "every order once: the vote on all components is the same"


@pytest.mark.parametrize("seed", range(5))
def test_passes_find_components_that_clients_have_with_errors(seed):
    found = run(algorithm(), clients(*noisy_orders(seed)), seed=seed)
    assert as_set(found.outcome.components) == as_set(components(seed))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), word=st.sampled_from(sorted(BOOLEAN_AGGREGATIONS)))
def test_neither_the_order_of_clients_nor_that_of_their_components_matters(seed, word):
    found, rng = noisy_orders(seed, noise=0.2), np.random.default_rng(seed)
    first = run(algorithm(word), clients(*found), seed=3)
    shuffled = run(algorithm(word), clients(*(found[i] for i in rng.permutation(len(found)))), seed=3)
    np.testing.assert_array_equal(first.outcome.components, shuffled.outcome.components)
    assert first.outcome.counts == shuffled.outcome.counts
    permuted = [rng.permutation(found[0]), *found[1:]]
    again = run(algorithm(word), clients(*permuted), seed=3)
    np.testing.assert_array_equal(first.outcome.components, again.outcome.components)
    assert list(first.history) == list(again.history)


def test_one_client_keeps_its_own_components():
    data = planted(120, M, K, noise=0.05, seed=2)
    own = felb.Asso(K).fit(data.A).components_
    for word in BOOLEAN_AGGREGATIONS:
        model = felb.PostHoc(felb.Asso(K), f"aligned-{word}", random_state=0).fit(data.A, groups=np.zeros(120))
        assert as_set(model.components_) == as_set(own)
        assert model.n_iter_ == 2


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_agreement_grows_until_nothing_changes(seed):
    found = run(algorithm(passes=50), clients(*noisy_orders(seed, noise=0.3)), seed=seed)
    agreed = [row["agreement"] for row in found.history if row["task"] == ALIGNED_COMPONENTS]
    assert all(a < b for a, b in itertools.pairwise(agreed[:-1]))
    assert agreed[-1] == agreed[-2]
    assert len(agreed) < 51


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_no_more_passes_than_asked_for(passes):
    found = run(algorithm(passes=passes), clients(*noisy_orders(4, 40, noise=0.4)), seed=1)
    assert [row["task"] for row in found.history] == [ALIGNED_COMPONENTS] * (1 + passes) + ["assign"]
    assert found.outcome.n_iter == 1 + passes
    model = felb.PostHoc(FirstRows(K), "aligned-vote", alignment_passes=passes)
    assert model.max_rounds == 1 + passes
    assert felb.PostHoc(FirstRows(K), "vote", alignment_passes=passes).max_rounds == 1


def test_empty_components_of_some_clients_leave_the_others_in_place():
    V = components(5)
    short = V.copy()
    short[2] = False
    found = run(algorithm(), clients(V, V[::-1], np.roll(V, 1, axis=0), short), seed=0)
    assert as_set(found.outcome.components) == as_set(V)


def test_a_client_factorizes_once_also_if_it_comes_late():
    asked = []

    class Counting(FirstRows):
        def factorize(self, A, k, *, seed, deadline):
            asked.append(A.toarray().tobytes())
            return super().factorize(A, k, seed=seed, deadline=deadline)

    V = noisy_orders(7, 6, noise=0.3)
    method = aligned(post_hoc(Counting(K), "vote", M), M, passes=6)
    some = Participation(fraction=0.5, dropout=0.3)
    found = run(method, clients(*V), participation=some, seed=2)
    assert 1 < len(asked) == len(set(asked)) <= 6
    assert set(found.assignments) == set(clients(*V)), "also those who never were asked for components"


@pytest.mark.parametrize("finished", [1, 2, 3])
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, finished):
    shards = clients(*noisy_orders(9, noise=0.3))
    whole = run(algorithm(), shards, seed=5)
    again = resumed(algorithm(), shards, tmp_path, after=finished, seed=5)
    np.testing.assert_array_equal(again.outcome.components, whole.outcome.components)
    assert list(again.history) == list(whole.history)
    assert all(np.array_equal(again.assignments[name], U) for name, U in whole.assignments.items())


def test_what_leaves_a_client_is_a_permutation_of_its_components():
    records = []
    run(algorithm(), clients(*noisy_orders(1)), outbound=lambda _: records.append)
    assert {record.what: (record.shape, record.dtype) for record in records} == {
        "V": ((K, M), "uint8"),
        "unfinished": ((), "int64"),
        "counts": ((4,), "int64"),
        "supports": ((K,), "int64"),
    }
    V = components(1)
    request = next(algorithm().server(0))
    _, update = compute_update(algorithm(), None, BinaryMatrix.of(V), request, name="a", seed=0)
    assert as_set(update.values["V"]) == as_set(V)


def test_a_client_out_of_time_marks_the_result():
    model = felb.PostHoc(FirstRows(K, hurried=True, time_limit=2), "aligned-vote", random_state=0)
    with pytest.warns(felb.ConvergenceWarning, match="time limit of 2 s"):
        model.fit(list(clients(*noisy_orders(1)).values()))
    assert not model.complete_


def test_real_components_of_many_clients_are_found_only_when_aligned():
    zoo = felb.data.load("zoo")
    groups = partition.even(len(zoo), 20, seed=0)
    for model in (felb.GreConD(8), felb.Asso(8)):
        by_row, matched = (
            felb.PostHoc(model, word, random_state=0).fit(zoo, groups=groups).counts_.f1
            for word in ("vote", "aligned-vote")
        )
        assert matched > by_row + 0.03


def test_planted_components_of_many_clients_are_found_only_when_aligned():
    data = planted(1000, 60, 5, noise=0.02, seed=3)
    groups, scores = partition.even(1000, 10, seed=0), {}
    for word in ("vote", "aligned-vote"):
        model = felb.PostHoc(felb.Asso(5, tau="auto"), word, random_state=0)
        scores[word] = confusion(data.signal, model.fit_transform(data.A, groups=groups), model.components_).f1
    assert scores["aligned-vote"] > 0.98
    assert scores["aligned-vote"] > scores["vote"] + 0.05


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: felb.PostHoc(felb.Asso(3), "aligned-median"),
            "'aligned-median'; use one of .*, aligned-vote, aligned",
        ),
        (lambda: felb.PostHoc(felb.Asso(3), "aligned-vote", alignment_passes=-1), "alignment_passes must be"),
        (lambda: felb.PostHoc(felb.Asso(3), "aligned-vote", alignment_passes=1.5), "alignment_passes must be"),
    ],
)
def test_wrong_parameters_are_refused(build, message):
    with pytest.raises(InputError, match=message):
        build().fit(components(k=8), groups=np.arange(8) % 2)


def test_only_post_hoc_algorithms_can_be_aligned():
    with pytest.raises(InputError, match="Boolean components"):
        aligned(federated_bmf(M, K), M)
