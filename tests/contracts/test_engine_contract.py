"""What every engine must do with a recipe; a new engine is one line in the list."""

import numpy as np
import pytest

from felb.datasets import partition, planted
from felb.datasets.shards import split
from felb.engines import run
from felb.federated.recipes.aligned import aligned
from felb.federated.recipes.competitors import fednmf, fedprox, proxskip, scaffold
from felb.federated.recipes.felb import felb, felb_mu
from felb.federated.recipes.posthoc import posthoc
from felb.metrics import confusion
from felb.models.grecond import GreConD

ENGINES = {
    "local": run,
    "local, two threads": lambda *args, **kwargs: run(*args, workers=2, **kwargs),
}
RECIPES = {
    "felb": felb(50, 4, max_rounds=12),
    "felb-mu": felb_mu(50, 4, max_rounds=12),
    "fednmf": fednmf(50, 4, max_rounds=12),
    "fedprox": fedprox(50, 4, max_rounds=12),
    "scaffold": scaffold(50, 4, max_rounds=12),
    "proxskip": proxskip(50, 4, max_rounds=12),
    "grecond+aligned-vote": aligned(posthoc(50, GreConD(4), "vote"), passes=3),
}
TOLD = {
    "factorize": ("V", "curvature", "loss"),
    "align": ("V", "unfinished"),
    "fedprox": ("V", "curvature", "loss"),
    "scaffold": ("V", "control", "curvature", "curvature_change", "loss"),
    "proxskip": ("V", "curvature", "loss"),
    "sketch": ("sketch",),
    "signs": ("positive", "negative"),
    "sweep": ("AtU", "UtU", "sums", "ones", "filled"),
    "cut": ("covered", "claimed", "members", "ones", "cells", "rows"),
}
"""What leaves a client, by task."""
SIZES = {(), (4,), (4, 4), (4, 50), (50, 4), (50, 14), (9,), (9, 9)}
"""Of scalars, statistics of 4 components and 50 features, a basis, and 9 thresholds; clients have 10 rows and more."""
DATA = planted(300, 50, 4, noise=0.05, seed=1)
LABELS = partition.uneven(300, 6, seed=1)


@pytest.fixture(params=ENGINES.values(), ids=ENGINES.keys())
def engine(request):
    return request.param


@pytest.fixture(params=RECIPES.values(), ids=RECIPES.keys())
def recipe(request):
    return request.param


def found(outcome):
    """Return V before it was cut; what is Boolean throughout, as it is."""
    return outcome.components if outcome.relaxed is None else outcome.relaxed


def shards():
    return split(DATA.A, LABELS)[0]


def test_same_result_as_the_reference_loop(engine, recipe):
    """The loop of the design, written out: step, gate, sum, combine, broadcast."""
    from felb.federated.gate import Gate
    from felb.federated.messages import Total

    state, clients, rng = recipe.server.start(3), {}, np.random.default_rng(0)
    while (broadcast := recipe.server.broadcast(state)) is not None:
        total = Total()
        for name, shard in sorted(shards().items()):
            clients[name], update = recipe.client.step(clients.get(name), shard, broadcast, rng=rng)
            total.add(Gate(name, lambda record: None).release(update, broadcast, rng=rng))
        state = recipe.server.combine(total.values, total.n_clients, state)
    expected = recipe.server.outcome(state)

    finished = engine(recipe, shards(), seed=3)
    np.testing.assert_array_equal(finished.outcome.components, expected.components)
    np.testing.assert_array_equal(found(finished.outcome), found(expected))
    assert finished.outcome.counts == expected.counts


def test_a_seed_fixes_everything(engine, recipe):
    first, again, other = (engine(recipe, shards(), seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(found(first.outcome), found(again.outcome))
    assert first.history == again.history
    assert not np.array_equal(found(first.outcome), found(other.outcome))


def test_shuffled_clients_give_the_same_result(engine, recipe):
    named = shards()
    renamed = {f"z{9 - i}": shard for i, shard in enumerate(named.values())}
    a, b = engine(recipe, named, seed=3), engine(recipe, renamed, seed=3)
    np.testing.assert_allclose(found(a.outcome), found(b.outcome), atol=1e-6)
    np.testing.assert_array_equal(a.outcome.components, b.outcome.components)
    assert a.outcome.counts == b.outcome.counts


def test_summed_scores_are_pooled_scores_and_every_client_has_its_assignment(engine, recipe):
    finished = engine(recipe, shards(), seed=3)
    pooled = sum(
        confusion(shard, finished.assignments[name], finished.outcome.components) for name, shard in shards().items()
    )
    assert finished.outcome.counts == pooled
    np.testing.assert_array_equal(finished.outcome.supports, sum(U.sum(axis=0) for U in finished.assignments.values()))
    assert pooled.cells == 300 * 50


def test_everything_that_leaves_is_logged_and_nothing_has_the_size_of_rows(engine, recipe):
    log = {}
    finished = engine(recipe, shards(), seed=3, outbound=lambda name: log.setdefault(name, []).append)
    assert log.keys() == shards().keys()
    for name, records in log.items():
        assert {record.client for record in records} == {name}
        asked = [record for record in records if record.task != "assign"]
        tasks = {record.round: record.task for record in asked}
        assert list(tasks) == list(range(finished.outcome.n_iter))
        assert [(r.round, r.what) for r in asked] == [(t, what) for t, task in tasks.items() for what in TOLD[task]]
        assert [(r.what, r.shape) for r in records if r.task == "assign"] == [("counts", (4,)), ("supports", (4,))]
        assert {record.shape for record in records} <= SIZES
        assert all(record.mechanism == "none" and record.cost is None for record in records)
        assert all(record.bytes == np.prod(record.shape) * np.dtype(record.dtype).itemsize for record in records)
