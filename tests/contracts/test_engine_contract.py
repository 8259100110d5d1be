"""What every engine must do with a recipe; a new engine is one line in the list."""

import numpy as np
import pytest

from felb.datasets import partition, planted
from felb.datasets.shards import split
from felb.engines import run
from felb.federated.recipes.felb import felb, felb_mu
from felb.metrics import confusion

ENGINES = {
    "local": run,
    "local, two threads": lambda *args, **kwargs: run(*args, workers=2, **kwargs),
}
RECIPES = {"felb": felb, "felb-mu": felb_mu}
DATA = planted(300, 50, 4, noise=0.05, seed=1)
LABELS = partition.uneven(300, 6, seed=1)


@pytest.fixture(params=ENGINES.values(), ids=ENGINES.keys())
def engine(request):
    return request.param


@pytest.fixture(params=RECIPES.values(), ids=RECIPES.keys())
def recipe(request):
    return request.param(50, 4, max_rounds=12)


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
    np.testing.assert_array_equal(finished.outcome.relaxed, expected.relaxed)
    assert finished.outcome.counts == expected.counts


def test_a_seed_fixes_everything(engine, recipe):
    first, again, other = (engine(recipe, shards(), seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(first.outcome.relaxed, again.outcome.relaxed)
    assert first.history == again.history
    assert not np.array_equal(first.outcome.relaxed, other.outcome.relaxed)


def test_shuffled_clients_give_the_same_result(engine, recipe):
    named = shards()
    renamed = {f"z{9 - i}": shard for i, shard in enumerate(named.values())}
    a, b = engine(recipe, named, seed=3), engine(recipe, renamed, seed=3)
    np.testing.assert_allclose(a.outcome.relaxed, b.outcome.relaxed, atol=1e-6)
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
        factorize = [record for record in records if record.task == "factorize"]
        assert [(r.round, r.what) for r in factorize] == [
            (t, what) for t in range(finished.outcome.n_iter) for what in ("V", "loss", "ones")
        ]
        assert [(r.what, r.shape) for r in records if r.task == "assign"] == [("counts", (4,)), ("supports", (4,))]
        assert {record.shape for record in records} == {(4, 50), (), (4,)}
        assert all(record.mechanism == "none" and record.cost is None for record in records)
        assert all(record.bytes == np.prod(record.shape) * np.dtype(record.dtype).itemsize for record in records)
