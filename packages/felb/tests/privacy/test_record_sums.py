"""Record-level statistics: right values, bounded and isolated records, additivity over clients."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.privacy.audit import isolation
from felb.privacy.mechanisms import capped_weights
from felb.privacy.releases import (
    DEFAULT_ROW_BOUND,
    NoisyCooccurrence,
    StatisticsBounds,
    choose,
    clipped_gains,
    clipped_statistics,
    columns_to_pair,
    cooccurrence_sensitivity,
    fit_rows,
    gain_bound,
    gain_differences,
    heavy_columns,
    improve_components,
    read_statistics,
    row_bound_from_histogram,
    row_gains,
    row_size_histogram,
    select_columns,
    size_edges,
    weighted_column_counts,
    weighted_cooccurrence,
)

M, K = 23, 9
V = np.random.default_rng(5).random((K, M)) * (np.random.default_rng(6).random((K, M)) < 0.4)
CANDIDATES = [np.random.default_rng(seed).random((3, M)) < 0.4 for seed in range(4)]
BOUNDS = StatisticsBounds(c=1.3, s=2.5, w=0.7)

STATISTICS = {
    "sizes": row_size_histogram,
    "cooccurrence": lambda A: weighted_cooccurrence(A, 6),
    "cooccurrence, all rows in full": lambda A: weighted_cooccurrence(A, M),
    "columns": lambda A: weighted_column_counts(A, 4),
    "statistics": lambda A: clipped_statistics(A, fit_rows(A, V), BOUNDS),
    "choice": lambda A: clipped_gains(A, CANDIDATES, 3.7),
}


def data(seed=0, n=20):
    rng = np.random.default_rng(seed)
    dense = rng.random((n, M)) < rng.choice([0.05, 0.3, 0.9], (n, 1))
    dense[0], dense[1] = True, False
    return BinaryMatrix.of(dense)


@pytest.fixture(params=STATISTICS)
def statistic(request):
    return STATISTICS[request.param]


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("name", STATISTICS)
def test_records_are_isolated_and_bounded_exactly(name, seed):
    A, statistic = data(seed), STATISTICS[name]
    audit = isolation(lambda rows: statistic(rows).values, A, sensitivity=statistic(A).sensitivity)
    assert audit.residual == 0
    assert audit.largest <= 1


def test_sums_over_clients_are_sums_over_all_and_integers(statistic):
    A = data(n=50)
    parts = [statistic(A.rows(start, start + 10)) for start in range(0, 50, 10)]
    whole = statistic(A)
    assert whole.values.dtype == np.int64
    np.testing.assert_array_equal(sum(part.values for part in parts), whole.values)
    assert {part.sensitivity for part in parts} == {whole.sensitivity}
    assert np.all(statistic(A.rows(0, 0)).values == 0)


def test_exchanging_a_record_moves_the_sum_by_no_more_than_said(statistic):
    A = data(3)
    records = [statistic(A.rows(r, r + 1)) for r in range(A.shape[0])]
    bound = records[0].sensitivity_for("replace")
    assert bound == pytest.approx(records[0].sensitivity * (2 if records[0].signed else math.sqrt(2)))
    for one in records:
        for other in records:
            assert np.linalg.norm(one.values - other.values) <= bound
    assert records[0].signed or min(record.values.min() for record in records) >= 0


def test_the_bounds_are_nearly_attained():
    # A looser bound would be safe as well, but would cost noise.
    for name in ("sizes", "cooccurrence", "columns"):
        A = data(1)
        audit = isolation(
            lambda rows, f=STATISTICS[name]: f(rows).values, A, sensitivity=STATISTICS[name](A).sensitivity
        )
        assert audit.largest > 0.97


# -- co-occurrence -----------------------------------------------------------------------------------------------------


def test_without_a_bite_of_the_bound_it_is_the_plain_co_occurrence():
    A = data(2)
    total = weighted_cooccurrence(A, M)
    read = NoisyCooccurrence.of(total.values, M, grid=total.grid, sigma=0.0)
    dense = A.toarray().astype(int)
    np.testing.assert_array_equal(read.M, dense.T @ dense)
    assert A.shape[0] == read.N


def test_weights_follow_the_formula_up_to_the_grid():
    A, B = data(2), 6
    total = weighted_cooccurrence(A, B, bits=20)
    read = NoisyCooccurrence.of(total.values, M, grid=total.grid, sigma=0.0)
    dense, r = A.toarray().astype(float), A.row_sums()
    w = np.minimum(1, math.sqrt(B * (B + 1) / 2 + 1) / np.sqrt(r * (r + 1) / 2 + 1))
    np.testing.assert_allclose(read.M, (dense * w[:, None]).T @ dense, atol=A.shape[0] * 2.0**-20)
    assert pytest.approx(w.sum(), abs=A.shape[0] * 2.0**-20) == read.N
    assert cooccurrence_sensitivity(B) == math.sqrt(22)
    np.testing.assert_array_equal(read.of_columns(np.array([2, 5])).M, read.M[np.ix_([2, 5], [2, 5])])


@given(norm=st.floats(1e-3, 1e6), bound=st.floats(1e-2, 1e4), bits=st.integers(0, 30))
def test_weights_never_let_a_record_exceed_its_bound(norm, bound, bits):
    (weight,) = capped_weights(np.array([norm]), bound, bits)
    assert 0 <= weight <= 1 << bits
    assert weight * norm <= math.ldexp(bound, bits)


def test_histogram_counts_sizes_in_public_bins():
    edges = size_edges(100)
    assert edges[:33].tolist() == list(range(33))
    assert edges[-1] == 100
    assert np.all(np.diff(edges) >= 1)
    assert size_edges(3).tolist() == [0, 1, 2, 3]
    A = data()
    total = row_size_histogram(A)
    assert (total.values * total.grid).tolist() == np.bincount(A.row_sums(), minlength=M + 1).tolist()


def test_the_row_bound_is_the_median_of_what_stands_out():
    counts = np.zeros(M + 1)
    counts[[4, 7, 9]] = 100, 250, 120
    counts[20] = 15
    assert row_bound_from_histogram(counts, M, sigma=10.0) == 7
    assert row_bound_from_histogram(counts, M, sigma=1e3) == DEFAULT_ROW_BOUND
    counts[:] = 0
    counts[0] = 9
    assert row_bound_from_histogram(counts, M, sigma=1.0) == 1
    with pytest.raises(InputError, match="bins"):
        row_bound_from_histogram(counts[1:], M, sigma=1.0)


def test_records_that_stand_out_only_together_still_give_a_row_bound():
    """A hundred records a bin under noise of 118: no bin is certain, their sum is; rather too small than too large."""
    edges = size_edges(200)
    counts = np.where((edges >= 1) & (edges <= 50), 4000 / np.count_nonzero((edges >= 1) & (edges <= 50)), 0.0)
    median = edges[np.searchsorted(np.cumsum(counts), 2000)]
    rng = np.random.default_rng(0)
    found = [
        row_bound_from_histogram(counts + 118 * rng.standard_normal(counts.size), 200, sigma=118) for _ in range(200)
    ]
    assert median / 3 <= np.quantile(found, 0.05)
    assert np.quantile(found, 0.95) <= 1.3 * median


def test_columns_are_counted_and_the_heavy_ones_kept():
    A = data(4)
    total = weighted_column_counts(A, M)
    np.testing.assert_array_equal(total.values * total.grid, A.column_sums())
    counts = np.array([0.0, 50, 7, 90, -3, 40, 2, 1])
    assert heavy_columns(counts, sigma=10.0, least=1).tolist() == [1, 3, 5]
    assert heavy_columns(counts, sigma=10.0, most=2, least=1).tolist() == [1, 3]
    assert heavy_columns(counts, sigma=1e3, least=5).tolist() == [1, 2, 3, 5, 6]
    kept = select_columns(A, np.array([3, 1]))
    np.testing.assert_array_equal(kept.toarray(), A.toarray()[:, [3, 1]])


def test_pairs_of_wide_data_are_bounded_by_the_ones_in_the_columns_asked_for():
    counts = np.full(3000, 10.0)
    counts[:100] = 600.0
    columns, bound = columns_to_pair(counts, sigma=0.0, row_bound=30, least=100)
    assert (columns.size, bound) == (1000, math.ceil(30 * 69_000 / 89_000))  # nothing hides the others
    columns, bound = columns_to_pair(counts, sigma=5.0, row_bound=30, least=100)
    assert columns.tolist() == list(range(100))
    assert bound == math.ceil(30 * 100 * 590 / counts.sum())
    # Columns that are kept for their noise alone do not raise it, and no bound is raised above the one there was.
    noise = np.random.default_rng(0).normal(0, 50.0, 3000)
    columns, bound = columns_to_pair(noise + 20, sigma=50.0, row_bound=30, least=200)
    assert (columns.size, bound) == (200, 2)
    assert columns_to_pair(-counts, sigma=5.0, row_bound=30)[1] == 30
    assert columns_to_pair(counts, sigma=0.0, row_bound=1)[1] == 1


# -- statistics --------------------------------------------------------------------------------------------------------


def test_statistics_are_what_they_say_up_to_the_grid():
    A = data(7)
    U = fit_rows(A, V)
    total = clipped_statistics(A, U, BOUNDS, bits=30)
    S, G = read_statistics(total.values, K, M, grid=total.grid, bounds=BOUNDS)
    clipped = U * np.minimum(1, BOUNDS.c / np.maximum(np.linalg.norm(U, axis=1), 1e-12))[:, None]
    X = A.toarray() * np.minimum(1, BOUNDS.s / np.sqrt(np.maximum(A.row_sums(), 1)))[:, None]
    np.testing.assert_allclose(S, clipped.T @ X, atol=1e-6)
    np.testing.assert_allclose(G, clipped.T @ clipped, atol=1e-6)
    assert BOUNDS.sensitivity == pytest.approx(math.sqrt(1.3**2 * 2.5**2 + 0.7**2 * 1.3**4))


def test_rows_fit_the_components_they_were_made_of():
    truth = np.eye(4, 12, dtype=bool) | np.eye(4, 12, 4, dtype=bool) | np.eye(4, 12, 8, dtype=bool)
    U = np.random.default_rng(0).random((30, 4)) < 0.5
    A = BinaryMatrix.of((U.astype(int) @ truth) > 0)
    np.testing.assert_array_equal(fit_rows(A, truth, steps=60) > 0.5, U)
    warm = fit_rows(A, truth, U=U.astype(float), steps=1)
    np.testing.assert_allclose(warm, U, atol=1e-9)


def test_the_server_finds_the_components_that_explain_exact_statistics():
    rng = np.random.default_rng(1)
    U, truth = rng.random((400, 3)) < 0.4, rng.random((3, 15)) < 0.4
    S, G = U.T.astype(float) @ (U @ truth.astype(float)), U.T.astype(float) @ U
    found = improve_components(np.full((3, 15), 0.5), S, G, lam=0.0, steps=500)
    np.testing.assert_allclose(found, truth, atol=1e-3)
    indefinite = improve_components(found, S, G - 500 * np.eye(3), lam=0.1)
    assert np.all((indefinite >= 0) & (indefinite <= 1))


def test_what_does_not_fit_is_refused():
    A = data()
    with pytest.raises(InputError, match="columns"):
        fit_rows(A, V[:, 1:])
    with pytest.raises(InputError, match="non-negative"):
        clipped_statistics(A, -np.ones((A.shape[0], K)), BOUNDS)
    with pytest.raises(InputError, match="no statistics"):
        read_statistics(np.zeros(5), K, M, grid=1.0, bounds=BOUNDS)
    with pytest.raises(InputError, match="no co-occurrence"):
        NoisyCooccurrence.of(np.zeros(5), M, grid=1.0, sigma=1.0)
    with pytest.raises(InputError, match="row_bound"):
        weighted_cooccurrence(A, 0)
    with pytest.raises(InputError, match="c must"):
        StatisticsBounds(c=math.nan)


# -- choice ------------------------------------------------------------------------------------------------------------


def test_gains_are_covered_ones_minus_covered_zeros():
    from felb.kernels.assign import assign_rows

    A, components = data(8), CANDIDATES[0]
    cover = (assign_rows(A, components).astype(int) @ components) > 0
    expected = (cover & A.toarray()).sum(axis=1) - (cover & ~A.toarray()).sum(axis=1)
    np.testing.assert_array_equal(row_gains(A, components), expected)
    assert gain_differences(A, CANDIDATES).shape == (A.shape[0], 3)


def test_a_candidate_is_chosen_only_if_it_stands_out():
    assert choose(np.array([3.0, 9.0, -2.0]), sigma=5.0) == 2
    assert choose(np.array([3.0, 4.9]), sigma=5.0) == 0
    with pytest.raises(InputError, match="nothing to choose"):
        gain_differences(data(), CANDIDATES[:1])


def test_the_bound_of_gains_is_met_by_nearly_all_rows():
    A = data(9, n=200)
    bound = gain_bound(A, CANDIDATES)
    assert np.mean(np.linalg.norm(gain_differences(A, CANDIDATES), axis=1) <= bound) >= 0.98
    assert gain_bound(A, [CANDIDATES[0], CANDIDATES[0]]) == 1.0
