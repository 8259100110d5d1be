"""Refinement after any recipe: never a larger summed loss, the same loop, nothing lost by an interruption."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import felb
from felb.datasets import partition, planted
from felb.datasets.shards import split
from felb.engines import Participation, run
from felb.engines.checkpoint import load_snapshot, save_snapshot
from felb.federated.phases.base import Known
from felb.federated.phases.pipeline import pipeline
from felb.federated.phases.refine import Refine
from felb.federated.recipes.aligned import aligned
from felb.federated.recipes.felb import felb as felb_recipe
from felb.federated.recipes.felb import felb_mu
from felb.federated.recipes.felb_setting import LITERAL
from felb.federated.recipes.posthoc import posthoc
from felb.federated.recipes.refined import refined
from felb.federated.recipes.sums import federated_bmf
from felb.metrics import confusion

pytestmark = pytest.mark.filterwarnings("ignore::felb.ConvergenceWarning")
DATA = planted(240, 40, 4, noise=0.2, seed=3)
SHARDS, _ = split(DATA.A, partition.uneven(240, 5, seed=1))
RECIPES = {
    "felb": felb_recipe(40, 4, max_rounds=8),
    "felb-mu": felb_mu(40, 4, max_rounds=8),
    "felb, own starts": felb_recipe(40, 4, max_rounds=8, setting=LITERAL),
    "asso+vote": posthoc(40, felb.Asso(4), "vote"),
    "asso+aligned-vote": aligned(posthoc(40, felb.Asso(4), "vote")),
    "elbmf+or": posthoc(40, felb.ELBMF(4, max_iter=20), "or"),
    "sums": federated_bmf(40, 4, objective="hamming", effort="fast"),
    "belief": federated_bmf(40, 4, objective="recover"),
}


@pytest.fixture(params=RECIPES.values(), ids=RECIPES.keys())
def recipe(request):
    return request.param


def test_the_summed_loss_is_never_larger_than_without(recipe):
    plain, better = run(recipe, SHARDS, seed=2), run(refined(recipe), SHARDS, seed=2)
    assert better.outcome.counts.errors <= plain.outcome.counts.errors
    # Up to the assignment, the same rounds with the same figures.
    common = [row for row in plain.history if row["task"] != "assign"]
    assert list(better.history)[: len(common)] == common


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([0.0, 0.1, 0.3]), clients=st.integers(1, 6))
def test_the_summed_loss_is_never_larger_on_any_data(seed, noise, clients):
    data = planted(60, 15, 3, noise=noise, seed=seed)
    shards, _ = split(data.A, partition.even(60, clients, seed=seed))
    recipe = posthoc(15, felb.GreConD(3), "or")
    plain, better = (run(r, shards, seed=seed).outcome for r in (recipe, refined(recipe)))
    assert better.counts.errors <= plain.counts.errors


def test_it_is_the_refinement_of_the_recipes_components(recipe):
    """The same V as the phase alone, started from what the recipe has found."""
    found = run(recipe, SHARDS, seed=2).outcome
    alone = run(pipeline("alone", Refine(), known=Known(components=found.components)), SHARDS, seed=2)
    both = run(refined(recipe), SHARDS, seed=2)
    np.testing.assert_array_equal(both.outcome.components, alone.outcome.components)
    assert both.outcome.counts == alone.outcome.counts
    assert all(np.array_equal(both.assignments[name], U) for name, U in alone.assignments.items())


def test_counts_supports_and_assignments_belong_together(recipe):
    both = run(refined(recipe), SHARDS, seed=2)
    V = both.outcome.components
    pairs = [confusion(SHARDS[name], U, V) for name, U in both.assignments.items()]
    assert set(both.assignments) == set(SHARDS)
    assert both.outcome.counts.errors == sum(c.errors for c in pairs)
    np.testing.assert_array_equal(both.outcome.supports, sum(U.sum(axis=0) for U in both.assignments.values()))
    assert [row["round"] for row in both.history] == list(range(len(both.history)))
    assert both.outcome.n_iter == len(both.history) - 1


def test_what_the_recipe_says_of_itself_is_kept():
    plain, both = (run(r, SHARDS, seed=2).outcome for r in (RECIPES["felb"], refined(RECIPES["felb"])))
    np.testing.assert_array_equal(plain.relaxed, both.relaxed)
    assert (plain.integrality_gap, plain.converged) == (both.integrality_gap, both.converged)


@pytest.mark.parametrize("name", ["felb", "asso+vote", "sums"])
def test_a_run_goes_on_from_disk_as_if_undisturbed(tmp_path, name):
    recipe, snapshots = refined(RECIPES[name]), []
    whole = run(recipe, SHARDS, seed=2, on_round=snapshots.append)
    assert {"gains", "assign"} <= {row["task"] for row in whole.history}
    for snapshot in snapshots:
        save_snapshot(tmp_path / "c.npz", snapshot)
        # A recipe built anew, as another process would.
        again = refined(RECIPES[name])
        resumed = run(again, SHARDS, seed=2, resume=load_snapshot(tmp_path / "c.npz", again))
        assert resumed.history == whole.history
        np.testing.assert_array_equal(resumed.outcome.components, whole.outcome.components)
        assert resumed.outcome.counts == whole.outcome.counts
        assert all(np.array_equal(resumed.assignments[client], U) for client, U in whole.assignments.items())


def test_a_run_that_was_stopped_tells_the_best_so_far():
    recipe, snapshots = refined(RECIPES["asso+vote"]), []
    run(recipe, SHARDS, seed=2, on_round=snapshots.append)
    own = run(RECIPES["asso+vote"], SHARDS, seed=2).outcome
    outcomes = [recipe.server.outcome(snapshot.server) for snapshot in snapshots]
    np.testing.assert_array_equal(outcomes[0].components, own.components)
    losses = [outcome.counts.errors for outcome in outcomes[1:]]
    assert losses == sorted(losses, reverse=True)


def test_the_split_among_clients_does_not_change_the_refinement():
    recipe = refined(pipeline("given", Refine(rounds=0), known=Known(components=DATA.V)))
    pooled = run(recipe, {"all": DATA.A}, seed=2).outcome
    apart = run(recipe, SHARDS, seed=2).outcome
    np.testing.assert_array_equal(pooled.components, apart.components)
    assert pooled.counts == apart.counts


def test_only_counts_leave_a_client_while_it_refines():
    records = []
    run(refined(RECIPES["felb"]), SHARDS, seed=2, outbound=lambda _: records.append)
    assert {(r.what, r.shape, r.dtype) for r in records if r.task in ("gains", "assign")} == {
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
    assert "gains" in [row["task"] for row in better.history_]
    assert better.n_iter_ <= better.max_rounds
    assert plain.n_iter_ <= plain.max_rounds < better.max_rounds
    np.testing.assert_array_equal(better.transform(rows), U)
    with pytest.raises(felb.errors.InputError, match="refine must be True or False, got 'please'"):
        make(refine="please").fit(shards)


def test_a_sample_of_clients_may_refine_but_all_assign():
    model = felb.FELBMU(4, max_iter=8, refine=True, participation=Participation(fraction=0.4), random_state=0)
    model.fit(list(SHARDS.values()))
    players = {row["task"]: row["clients"] for row in model.history_}
    assert players == {"sketch": 5, "signs": 5, "factorize": 2, "gains": 2, "assign": 5}
    assert model.refinement.memory > 0


def test_refinement_finds_what_noise_has_hidden():
    data = planted(600, 60, 4, noise=0.25, heights=(0.2, 0.4), widths=(0.2, 0.4), seed=1)
    found = {}
    for refine in (False, True):
        model = felb.FELB(4, max_iter=40, refine=refine, random_state=1)
        U = model.fit_transform(data.A, groups=partition.even(600, 10, seed=1))
        found[refine] = confusion(data.signal, U, model.components_).f1
    assert found[True] > found[False]
