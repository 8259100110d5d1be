"""Refinement after any algorithm: never a larger summed loss, the same loop, nothing lost by an interruption."""

import numpy as np
import pytest
from driving import algorithm_of, resumed
from hypothesis import given, settings
from hypothesis import strategies as st

import felb
from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import Participation, run
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.algorithms.felb import LITERAL, felb_mu
from felb.federated.algorithms.felb import felb as felb_algorithm
from felb.federated.algorithms.post_hoc import aligned, post_hoc
from felb.federated.algorithms.wrappers import refined
from felb.federated.steps.refine import refine
from felb.federated.steps.state import Solution
from felb.metrics import confusion

pytestmark = pytest.mark.filterwarnings("ignore::felb.ConvergenceWarning")
DATA = planted(240, 40, 4, noise=0.2, seed=3)
SHARDS, _ = split(DATA.A, partition.uneven(240, 5, seed=1))
ALGORITHMS = {
    "felb": felb_algorithm(40, 4, max_rounds=8),
    "felb-mu": felb_mu(40, 4, max_rounds=8),
    "felb, own starts": felb_algorithm(40, 4, max_rounds=8, setting=LITERAL),
    "asso+vote": post_hoc(felb.Asso(4), "vote", 40),
    "asso+aligned-vote": aligned(post_hoc(felb.Asso(4), "vote", 40), 40),
    "elbmf+or": post_hoc(felb.ELBMF(4, max_iter=20), "or", 40),
    "sums": federated_bmf(40, 4, objective="hamming", effort="fast"),
    "belief": federated_bmf(40, 4, objective="recover"),
}


@pytest.fixture(params=ALGORITHMS.values(), ids=ALGORITHMS.keys())
def algorithm(request):
    return request.param


def test_the_summed_loss_is_never_larger_than_without(algorithm):
    plain, better = run(algorithm, SHARDS, seed=2), run(refined(algorithm), SHARDS, seed=2)
    assert better.outcome.counts.errors <= plain.outcome.counts.errors
    # Up to the assignment, the same rounds with the same figures.
    common = [row for row in plain.history if row["task"] != "assign"]
    assert list(better.history)[: len(common)] == common


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([0.0, 0.1, 0.3]), clients=st.integers(1, 6))
def test_the_summed_loss_is_never_larger_on_any_data(seed, noise, clients):
    data = planted(60, 15, 3, noise=noise, seed=seed)
    shards, _ = split(data.A, partition.even(60, clients, seed=seed))
    algorithm = post_hoc(felb.GreConD(3), "or", 15)
    plain, better = (run(r, shards, seed=seed).outcome for r in (algorithm, refined(algorithm)))
    assert better.counts.errors <= plain.counts.errors


def test_it_is_the_refinement_of_the_algorithms_components(algorithm):
    """The same V as the step alone, started from what the algorithm has found."""
    found = run(algorithm, SHARDS, seed=2).outcome
    alone = run(algorithm_of(lambda seed: refine(Solution(components=found.components), seed=seed), 40), SHARDS, seed=2)
    both = run(refined(algorithm), SHARDS, seed=2)
    np.testing.assert_array_equal(both.outcome.components, alone.outcome.components)
    assert both.outcome.counts == alone.outcome.counts
    assert all(np.array_equal(both.assignments[name], U) for name, U in alone.assignments.items())


def test_counts_supports_and_assignments_belong_together(algorithm):
    both = run(refined(algorithm), SHARDS, seed=2)
    V = both.outcome.components
    pairs = [confusion(SHARDS[name], U, V) for name, U in both.assignments.items()]
    assert set(both.assignments) == set(SHARDS)
    assert both.outcome.counts.errors == sum(c.errors for c in pairs)
    np.testing.assert_array_equal(both.outcome.supports, sum(U.sum(axis=0) for U in both.assignments.values()))
    assert [row["round"] for row in both.history] == list(range(len(both.history)))
    assert both.outcome.n_iter == len(both.history) - 1


def test_what_the_algorithm_says_of_itself_is_kept():
    plain, both = (run(r, SHARDS, seed=2).outcome for r in (ALGORITHMS["felb"], refined(ALGORITHMS["felb"])))
    np.testing.assert_array_equal(plain.relaxed, both.relaxed)
    assert (plain.integrality_gap, plain.converged) == (both.integrality_gap, both.converged)


@pytest.mark.parametrize("name", ["felb", "asso+vote", "asso+aligned-vote", "sums"])
def test_a_run_goes_on_from_disk_as_if_undisturbed(tmp_path, name):
    whole = run(refined(ALGORITHMS[name]), SHARDS, seed=2)
    assert {"flip_gains", "assign"} <= {row["task"] for row in whole.history}
    for after in range(1, len(whole.history) + 1):
        # An algorithm built anew, as another process would.
        again = resumed(refined(ALGORITHMS[name]), SHARDS, tmp_path / str(after), after=after, seed=2)
        assert again.history == whole.history
        np.testing.assert_array_equal(again.outcome.components, whole.outcome.components)
        assert again.outcome.counts == whole.outcome.counts
        assert all(np.array_equal(again.assignments[client], U) for client, U in whole.assignments.items())


def test_the_loss_of_the_rounds_never_rises():
    rows = run(refined(ALGORITHMS["asso+vote"]), SHARDS, seed=2).history
    losses = [row["loss"] for row in rows if row["task"] == "flip_gains"]
    assert losses == sorted(losses, reverse=True)


def test_the_split_among_clients_does_not_change_the_refinement():
    algorithm = refined(algorithm_of(lambda seed: refine(Solution(components=DATA.V), rounds=0, seed=seed), 40))
    centralized = run(algorithm, {"all": DATA.A}, seed=2).outcome
    apart = run(algorithm, SHARDS, seed=2).outcome
    np.testing.assert_array_equal(centralized.components, apart.components)
    assert centralized.counts == apart.counts


def test_only_counts_leave_a_client_while_it_refines():
    records = []
    run(refined(ALGORITHMS["felb"]), SHARDS, seed=2, outbound=lambda _: records.append)
    assert {(r.what, r.shape, r.dtype) for r in records if r.task in ("flip_gains", "assign")} == {
        ("gains", (4, 40), "int64"),
        ("counts", (4,), "int64"),
        ("supports", (4,), "int64"),
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda **p: felb.FELB(4, max_iter=8, random_state=0, **p),
        lambda **p: felb.FELBMU(4, max_iter=8, random_state=0, **p),
        lambda **p: felb.PostHoc(felb.Asso(4), random_state=0, **p),
    ],
    ids=["FELB", "FELBMU", "PostHoc"],
)
def test_the_parameter_of_the_estimators(make):
    shards = list(SHARDS.values())
    rows = felb.BinaryMatrix.vstack(shards)
    plain, better = make().fit(shards), make(refine=True)
    U = better.fit_transform(shards)
    assert better.counts_.errors <= plain.counts_.errors
    assert "flip_gains" in [row["task"] for row in better.history_]
    assert better.n_iter_ <= better.max_rounds
    assert plain.n_iter_ <= plain.max_rounds < better.max_rounds
    np.testing.assert_array_equal(better.transform(rows), U)
    with pytest.raises(felb.errors.InputError, match=r"refine .*'please'"):
        make(refine="please").fit(shards)


def test_a_sample_of_clients_may_refine_but_all_assign():
    model = felb.FELBMU(4, max_iter=8, refine=True, participation=Participation(fraction=0.4), random_state=0)
    model.fit(list(SHARDS.values()))
    players = {row["task"]: row["clients"] for row in model.history_}
    assert players == {"gram_sketch": 5, "sign_norms": 5, "local_factor": 2, "flip_gains": 2, "assign": 5}
    assert model.memory > 0


def test_refinement_finds_what_noise_has_hidden():
    data = planted(600, 60, 4, noise=0.25, heights=(0.2, 0.4), widths=(0.2, 0.4), seed=1)
    found = {}
    for wanted in (False, True):
        model = felb.FELB(4, max_iter=40, refine=wanted, random_state=1)
        U = model.fit_transform(data.A, groups=partition.even(600, 10, seed=1))
        found[wanted] = confusion(data.signal, U, model.components_).f1
    assert found[True] > found[False]
