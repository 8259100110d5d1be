"""The number of components by description length."""

from math import comb, log2

import numpy as np
import pytest
from driving import cut, drive

from felb.data import planted
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms.bmf import Effort, federated_bmf
from felb.federated.steps.reseed import component_bits, description_length, merge_pairs, select_rank, subset_bits
from felb.federated.steps.state import Solution
from felb.metrics import Counts

DATA = planted(400, 60, 5, noise=0.05, heights=(0.1, 0.3), widths=(0.1, 0.3), seed=2)
FAST = Effort(relaxed_rounds=8, refine_rounds=6, tries=0, generations=1)


@pytest.mark.parametrize(("size", "chosen"), [(0, 0), (1, 0), (7, 3), (40, 40), (200, 17)])
def test_bits_of_a_subset(size, chosen):
    assert subset_bits(size, chosen) == pytest.approx(log2(size + 1) + log2(comb(size, chosen)))


def test_description_length_by_hand():
    V = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=bool)
    supports = np.array([2, 1, 0])
    counts = Counts(tp=4, fp=1, fn=2, cells=12)
    bits = [
        *(log2(5) + log2(comb(4, s)) + log2(4) + log2(3) for s in (2, 1)),
        log2(6) + log2(5),
        log2(8) + log2(comb(7, 2)),
    ]
    assert description_length(V, supports, counts, n_rows=4) == pytest.approx(sum(bits))
    assert component_bits(V, supports, n_rows=4)[2] == 0


def test_merges_join_the_pairs_that_are_most_alike():
    V = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]], dtype=bool)
    shared = np.array([[9, 9, 0], [9, 10, 1], [0, 1, 8]])
    first, second = merge_pairs(V, shared, most=2)
    np.testing.assert_array_equal(first, [[1, 1, 1, 0], [1, 0, 0, 1]])
    np.testing.assert_array_equal(second, [[1, 1, 0, 1], [0, 0, 1, 0]])


@pytest.mark.parametrize("seed", range(2))
def test_the_planted_number_is_found(seed):
    outcome = run(federated_bmf(60, "mdl", max_components=12, effort=FAST), {"a": DATA.A}, seed=seed).outcome
    assert len(outcome.components) == 5


def test_pieces_of_components_are_put_together():
    """Each planted component in two pieces of columns: dropping alone would lose half of it."""
    halves = np.arange(60) % 2 == 0
    pieces = np.vstack([DATA.V & halves, DATA.V & ~halves])
    assert len(drive(select_rank(Solution(components=pieces)), [DATA.A]).solution.components) == 5


def test_the_curve_is_in_the_history_and_does_not_depend_on_the_split():
    recipe = federated_bmf(60, "mdl", max_components=9, effort=FAST)
    runs = [run(recipe, dict(enumerate_names(shards))) for shards in ([DATA.A], cut(DATA.A, 3, 200))]
    curves = [
        [(r["n_components"], r["description_length"]) for r in h.history if "description_length" in r] for h in runs
    ]
    assert curves[0] == curves[1]
    sizes, lengths = zip(*curves[0], strict=True)
    assert list(sizes) == list(range(sizes[0], sizes[-1] - 1, -1))
    assert len(runs[0].outcome.components) == sizes[int(np.argmin(lengths))]


def enumerate_names(shards):
    return ((str(i), shard) for i, shard in enumerate(shards))


def test_noise_alone_has_hardly_a_component():
    noise = planted(200, 30, 1, noise=0.3, heights=(0.0, 0.01), widths=(0.0, 0.05), seed=0)
    assert len(run(federated_bmf(30, "mdl", max_components=6, effort=FAST), {"a": noise.A}).outcome.components) <= 1


def test_components_without_features_are_left_out():
    V = np.vstack([DATA.V, np.zeros((2, 60), dtype=bool)])
    assert len(drive(select_rank(Solution(components=V)), [DATA.A]).solution.components) == 5


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="give a number"):
        federated_bmf(60, "mdl", sampled=True)
    with pytest.raises(InputError, match="whole number or 'mdl'"):
        federated_bmf(60, "aic")
    with pytest.raises(InputError, match="patience"):
        drive(select_rank(Solution(components=DATA.V), patience=0), [DATA.A])
