"""Planted data has the structure and the noise it guarantees."""

import numpy as np
import pytest

import felb.data.synthetic as synthetic
from felb.data import partition, planted
from felb.errors import InputError


def test_signal_is_the_boolean_product_and_tiles_have_the_asked_sizes():
    data = planted(400, 100, 6, heights=(0.1, 0.2), widths=(0.05, 0.1), seed=2)
    np.testing.assert_array_equal(data.signal.toarray(), (data.U.astype(int) @ data.V) > 0)
    assert data.U.sum(0).min() >= 40
    assert data.U.sum(0).max() <= 80
    assert data.V.sum(1).min() >= 5
    assert data.V.sum(1).max() <= 10


def test_density_thins_the_tiles_only():
    data = planted(500, 200, 5, density=0.9, seed=1)
    A, S = data.A.toarray(), data.signal.toarray()
    assert not (A & ~S).any()
    assert A[S].mean() == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [("xor", 0.9 * 0.8 + 0.1 * 0.2, 0.2), ("additive", 1 - 0.1 * 0.8, 0.2), ("destructive", 0.9 * 0.8, 0.0)],
)
def test_noise_hits_with_its_probability(kind, inside, outside):
    data = planted(800, 200, 5, noise=0.2, kind=kind, seed=1)
    A, S = data.A.toarray(), data.signal.toarray()
    assert A[S].mean() == pytest.approx(inside, abs=0.02)
    assert A[~S].mean() == pytest.approx(outside, abs=0.02)


def test_a_seed_fixes_everything_and_blocks_do_not_show(monkeypatch):
    whole = planted(300, 50, 4, noise=0.1, seed=5)
    monkeypatch.setattr(synthetic, "BLOCK_CELLS", 700)
    assert planted(300, 50, 4, noise=0.1, seed=5).A == whole.A
    assert planted(300, 50, 4, noise=0.1, seed=6).A != whole.A


def test_noise_does_not_move_the_planted_factors():
    clean, noisy = planted(100, 30, 3, seed=5), planted(100, 30, 3, noise=0.3, seed=5)
    np.testing.assert_array_equal(clean.U, noisy.U)
    np.testing.assert_array_equal(clean.V, noisy.V)


def test_contiguous_tiles_are_blocks():
    data = planted(100, 60, 5, contiguous=True, seed=0)
    for lines in (*data.U.T, *data.V):
        ones = np.flatnonzero(lines)
        assert ones.size == ones[-1] - ones[0] + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n must be"),
        ({"k": 0}, "k must be"),
        ({"noise": 1.5}, "noise"),
        ({"density": -0.1}, "density"),
        ({"kind": "salt"}, "xor, additive, destructive"),
        ({"heights": (0.5, 0.1)}, "heights"),
        ({"widths": (0.5, 1.1)}, "widths"),
    ],
)
def test_wrong_parameters_are_named(change, message):
    with pytest.raises(InputError, match=message):
        planted(**({"n": 10, "m": 10, "k": 2} | change))


def test_even_partition_differs_by_one_row_at_most():
    labels = partition.even(103, 10, seed=1)
    sizes = np.bincount(labels)
    assert sizes.size == 10
    assert sizes.max() - sizes.min() <= 1
    assert not np.array_equal(labels, np.sort(labels))


def test_uneven_partition_leaves_nobody_empty_and_spreads_with_concentration():
    sizes = [np.bincount(partition.uneven(5000, 50, concentration=c, seed=1), minlength=50) for c in (0.3, 1000)]
    assert sizes[0].min() >= 1
    assert sizes[0].std() > 5 * sizes[1].std()


def test_component_partition_is_not_iid():
    U = planted(2000, 40, 5, seed=0).U

    def spread(labels):
        return np.std([U[labels == c].mean(axis=0) for c in range(10)], axis=0).mean()

    assert spread(partition.by_component(U, 10)) > 4 * spread(partition.even(2000, 10))
    assert spread(partition.by_component(U, 10, skew=0)) < 2 * spread(partition.even(2000, 10))
    sizes = np.bincount(partition.by_component(U, 7), minlength=7)
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("clients", [0, 11])
def test_impossible_partitions_are_refused(clients):
    for make in (lambda: partition.even(10, clients), lambda: partition.uneven(10, clients)):
        with pytest.raises(InputError, match="client"):
            make()


def test_wrong_partition_parameters():
    with pytest.raises(InputError, match="concentration"):
        partition.uneven(10, 2, concentration=0)
    with pytest.raises(InputError, match="skew"):
        partition.by_component(np.ones((10, 2)), 2, skew=2)


@pytest.mark.parametrize(
    ("shape", "wrong"),
    [
        ((2.5, 5, 2), {}),
        (("a", 5, 2), {}),
        ((None, 5, 2), {}),
        ((10**12, 5, 2), {}),
        ((10**6, 10**6, 2), {}),
        ((20, 5, 2), {"seed": -1}),
        ((20, 5, 2), {"seed": "x"}),
        ((20, 5, 2), {"heights": (0.1,)}),
        ((20, 5, 2), {"heights": "ab"}),
        ((20, 5, 2), {"widths": (float("nan"), 1)}),
    ],
)
def test_wrong_parameters_of_planted_data_are_named(shape, wrong):
    with pytest.raises(InputError, match=next(iter(wrong), "whole number|too many")):
        planted(*shape, **wrong)
