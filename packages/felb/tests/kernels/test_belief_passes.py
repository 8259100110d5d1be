"""Belief propagation in the rows, against the same messages written down cell by cell in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.kernels import belief
from felb.kernels import belief as belief_kernels
from felb.kernels.belief import LEAST_RATE, MOST_CELLS, MOST_ROWS, UNIT, count_cover, infer_rows


def sigmoid(x):
    return 1 / (1 + np.exp(-np.clip(x, -25, 25)))


def draw(n, m, k, *, seed=0, inside=0.7, outside=0.2):
    """Return data, log-odds of rows and columns, and the rest of the model."""
    rng = np.random.default_rng(seed)
    theta = np.where(rng.random((k, m)) < 0.4, rng.normal(1, 2, (k, m)), rng.normal(-8, 2, (k, m)))
    model = {"inside": inside, "outside": outside, "row_rates": rng.uniform(0.02, 0.6, k)}
    return rng.random((n, m)) < 0.4, rng.normal(-1, 2, (n, k)).astype(np.float32), theta, model


def slow_row(a, L, theta, *, inside, outside, row_rates, settled=True):
    """Return the next L, the addends to evidence and members, and P(covered) of one row, with dense k × m messages."""
    k, m = theta.shape
    difference = inside - outside
    c = np.where(a, outside, 1 - outside)
    s = np.where(a, difference, -difference)
    active = sigmoid(theta) > LEAST_RATE
    L, Ru, Rv = L.astype(float), np.ones((k, m)), np.ones((k, m))
    odds = np.exp(np.clip(theta, -25, 25))

    def cavities():
        e = np.exp(np.clip(L, -25, 25))[:, None]
        return e / (e + Ru), np.where(active, odds / (odds + Rv), 0)

    def ratios(component):
        u, v = cavities()
        z = np.delete(1 - u * v, component, axis=0).prod(axis=0)
        return u[component], v[component], s * z / (c + s * (1 - z))

    for order in (range(k), reversed(range(k))):
        for component in order:
            u, v, q = ratios(component)
            Ru[component] = 1 + v * q
            if settled:
                Rv[component] = 1 + u * q
            L[component] = np.log(row_rates[component] / (1 - row_rates[component])) + np.log(Ru[component]).sum()
    evidence = np.zeros((k, m))
    for component in range(k):
        u, _, q = ratios(component)
        if sigmoid(L[component]) >= LEAST_RATE:
            evidence[component] = np.log(1 + u * q)
    u, v = cavities()
    z = 1 - (1 - u * v).prod(axis=0)
    return L, evidence, sigmoid(L), z * (c + s) / (z * (c + s) + (1 - z) * c)


def slow_round(A, L, theta, **model):
    """Return what `infer_rows` returns, as floats."""
    k, m = theta.shape
    new, evidence, members, cells = np.zeros((len(A), k)), np.zeros((k, m)), np.zeros(k), np.zeros(4)
    for r, row in enumerate(A):
        new[r], more, shares, covered = slow_row(row, L[r], theta, **model)
        evidence += more
        members += shares
        cells += [covered[row].sum(), covered.sum(), (1 - covered)[row].sum(), (1 - covered).sum()]
    return new, evidence, members, cells


def check(A, L, theta, model, *, settled=True):
    fast = infer_rows(sparse(A), L, theta, settled=settled, **model)
    slow = slow_round(A, L, theta, settled=settled, **model)
    np.testing.assert_allclose(fast.L, slow[0], rtol=1e-3, atol=5e-3)
    for got, expected in zip(fast[1:], slow[1:], strict=True):
        assert got.dtype == np.int64
        np.testing.assert_allclose(got * UNIT, expected, rtol=1e-3, atol=1e-3 * max(1, len(A)))


def equal(one, other):
    for x, y in zip(one, other, strict=True):
        np.testing.assert_array_equal(x, y)


@given(
    st.integers(0, 6),
    st.integers(1, 140),
    st.integers(1, 9),
    st.sampled_from([(0.7, 0.2), (0.55, 0.4), (0.36, 0.001), (0.999, 0.3)]),
    st.booleans(),
    st.integers(0, 999),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_round_agrees_with_the_plain_messages(n, m, k, noise, settled, seed):
    A, L, theta, model = draw(n, m, k, seed=seed, inside=noise[0], outside=noise[1])
    check(A, L, theta, model, settled=settled)


def test_hundreds_of_components():
    A, L, theta, model = draw(3, 60, 210, seed=1)
    check(A, L - 3, theta - 2, model)


@pytest.mark.parametrize("fill", [0, 1])
def test_rows_and_columns_without_a_one_and_without_a_zero(fill):
    A, L, theta, model = draw(9, 40, 4)
    A[3] = A[:, 5] = fill
    check(A, L, theta, model)
    check(np.full_like(A, fill), L, theta, model)


def test_no_column_can_be_active():
    A, L, theta, model = draw(9, 40, 4)
    fast = infer_rows(sparse(A), L, np.full_like(theta, -20), **model)
    prior = np.log(model["row_rates"] / (1 - model["row_rates"]))
    np.testing.assert_allclose(fast.L, np.tile(prior, (9, 1)), rtol=1e-6)
    np.testing.assert_array_equal(fast.cells * UNIT, [0, 0, A.sum(), A.size])
    check(A, L, np.full_like(theta, -20), model)


def test_extreme_beliefs_stay_finite():
    A, L, theta, model = draw(9, 70, 5)
    sure = infer_rows(sparse(A), np.sign(L) * 1e6, np.sign(theta) * 1e6, **model)
    assert np.isfinite(sure.L).all()
    # A cell that certain components cover has nothing to say about them.
    again = infer_rows(sparse(A), np.full_like(L, 1e6), np.full_like(theta, 1e6), **model)
    assert np.isfinite(again.L).all()
    assert np.abs(again.evidence * UNIT).max() < 9 * np.log(1 / LEAST_RATE)


@pytest.mark.parametrize("cuts", [[7], [0, 1, 1, 30], list(range(41))])
def test_any_split_of_the_rows_gives_the_same_sums(cuts):
    A, L, theta, model = draw(41, 90, 6, seed=3)
    data = sparse(A)
    whole = infer_rows(data, L, theta, **model)
    cover = count_cover(L, theta, thresholds=[0.1, 0.5])
    bounds = [0, *cuts, 41]
    spans = list(pairwise(bounds))
    parts = [infer_rows(data.rows(a, b), L[a:b], theta, **model) for a, b in spans]
    equal(
        whole,
        [np.concatenate([p.L for p in parts]), *(sum(sums) for sums in zip(*(p[1:] for p in parts), strict=True))],
    )
    covers = [count_cover(L[a:b], theta, thresholds=[0.1, 0.5]) for a, b in spans]
    equal(cover, [sum(counts) for counts in zip(*covers, strict=True)])


def test_any_number_of_threads_gives_the_same_result():
    A, L, theta, model = draw(50, 70, 5, seed=4)
    one = infer_rows(sparse(A), L, theta, threads=1, **model)
    for threads in (2, 3, 64):
        equal(one, infer_rows(sparse(A), L, theta, threads=threads, **model))
        equal(
            count_cover(L, theta, thresholds=[0.2], threads=1), count_cover(L, theta, thresholds=[0.2], threads=threads)
        )


def test_the_order_of_rows_does_not_matter():
    A, L, theta, model = draw(50, 70, 5, seed=5)
    order = np.random.default_rng(0).permutation(50)
    straight, shuffled = (
        infer_rows(sparse(A), L, theta, **model),
        infer_rows(sparse(A[order]), L[order], theta, **model),
    )
    equal([straight.L[order], *straight[1:]], shuffled)


def test_arguments_are_left_alone():
    A, L, theta, model = draw(5, 20, 3)
    before = L.copy(), theta.copy()
    for array in (L, theta):
        array.flags.writeable = False
    infer_rows(sparse(A), L, theta, **model)
    count_cover(L, theta, thresholds=[0.5])
    equal(before, (L, theta))


def test_the_kernels_run_in_the_interpreter(monkeypatch):
    interpret(monkeypatch, belief_kernels)
    check(*draw(4, 70, 3))
    check_cover(*draw(4, 30, 3)[1:3])


def check_cover(L, theta):
    taus = np.array([0.1, 0.3, 0.5])
    got = count_cover(L, theta, thresholds=taus)
    u, v = sigmoid(L.astype(float)), sigmoid(theta)
    truth = 1 - (1 - u[:, :, None] * np.where(v > LEAST_RATE, v, 0)).prod(axis=1)
    V = (theta > 0).astype(int)
    for i, tau in enumerate(taus):
        R = ((u > tau).astype(int) @ V) > 0
        assert got.claimed[i] == R.sum()
        np.testing.assert_allclose(got.expected[i] * UNIT, truth[R].sum(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got.covered * UNIT, truth.sum(), rtol=1e-4, atol=1e-4)
    assert got.members == (u > 0.5).sum()


@given(st.integers(0, 20), st.integers(1, 60), st.integers(1, 7), st.integers(0, 999))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_cover_counts_agree_with_the_definition(n, m, k, seed):
    check_cover(*draw(n, m, k, seed=seed)[1:3])


def test_a_matrix_that_is_mapped_from_a_file(tmp_path):
    A, L, theta, model = draw(20, 30, 3)
    sparse(A).save(tmp_path / "data")
    equal(infer_rows(sparse(A), L, theta, **model), infer_rows(BinaryMatrix.open(tmp_path / "data"), L, theta, **model))


def test_what_cannot_be_used_is_refused():
    A, L, theta, model = draw(5, 20, 3)
    data = sparse(A)
    with pytest.raises(InputError, match="theta has shape"):
        infer_rows(data, L, theta[:, 1:], **model)
    with pytest.raises(InputError, match="L has shape"):
        infer_rows(data, L[1:], theta, **model)
    with pytest.raises(InputError, match="NaN"):
        infer_rows(data, L * np.nan, theta, **model)
    with pytest.raises(InputError, match="outside < inside"):
        infer_rows(data, L, theta, **{**model, "outside": 0.8})
    with pytest.raises(InputError, match="row_rates"):
        infer_rows(data, L, theta, **{**model, "row_rates": [0.1]})
    with pytest.raises(InputError, match="threads"):
        infer_rows(data, L, theta, threads=0, **model)
    with pytest.raises(InputError, match="ascending"):
        count_cover(L, theta, thresholds=[0.5, 0.1])


def test_sums_of_the_largest_data_fit_64_bits():
    limit = np.iinfo(np.int64).max
    assert limit > MOST_CELLS / UNIT
    assert MOST_ROWS * np.log(1 / LEAST_RATE) / UNIT < limit
    A, _, theta, model = draw(2, 30, 1, inside=1 - LEAST_RATE, outside=LEAST_RATE)
    A[0], A[1] = True, False
    # Sure of the row, and no other component to explain it: nothing can say more about V than these cells.
    for row in (0, 1):
        said = infer_rows(sparse(A[[row]]), np.full((1, 1), 30.0), np.full_like(theta, -5), **model).evidence * UNIT
        assert np.abs(said).max() <= np.log(1 / LEAST_RATE) + UNIT


def test_too_large_data_is_refused(monkeypatch):
    A, L, theta, model = draw(5, 20, 3)
    monkeypatch.setattr(belief, "MOST_CELLS", 99)
    with pytest.raises(InputError, match="99 cells"):
        infer_rows(sparse(A), L, theta, **model)
    with pytest.raises(InputError, match="99 cells"):
        count_cover(L, theta, thresholds=[0.5])
