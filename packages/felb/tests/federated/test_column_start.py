"""The start from columns: one sum, the same for any split, and it finds what groups of columns explain."""

import numpy as np
from driving import cut, drive

from felb.data import planted
from felb.federated.algorithms.bmf import BooleanFit, Effort
from felb.federated.steps.starts import COLUMNS_AT_A_TIME, choose_columns
from felb.federated.steps.state import Cost
from felb.kernels.cooccurrence import columns_as_components

DATA = planted(120, 30, 4, noise=0.1, seed=3)


def test_the_choice_is_that_of_summed_cooccurrence_for_any_split():
    A = DATA.A.toarray().astype(np.int64)
    expected = columns_as_components(A.T @ A, 9, weight_zero=-2.0)
    for shards in ([DATA.A], cut(DATA.A, 1, 17, 80)):
        driven = drive(choose_columns(30, 9, Cost(2.0, 1.0)), shards)
        np.testing.assert_array_equal(driven.solution.components, expected)
        assert len(driven.requests) == 1


def test_many_columns_are_asked_for_in_parts():
    data = planted(40, COLUMNS_AT_A_TIME + 9, 4, noise=0.1, seed=3)
    A = data.A.toarray().astype(np.int64)
    driven = drive(choose_columns(A.shape[1], 12), [data.A])
    np.testing.assert_array_equal(driven.solution.components, columns_as_components(A.T @ A, 12))
    assert [len(request.values["seeds"]) for request in driven.requests] == [COLUMNS_AT_A_TIME, 9]


def test_wide_data_is_started_from_columns_only_if_components_are_many():
    def groups(n_features, k):
        return BooleanFit(n_features, k, Cost(), "hamming", Effort()).groups_columns

    assert groups(200, 2)
    assert not groups(900, 20)
    assert groups(900, 100)


def test_with_many_components_columns_are_also_grouped_without_covered_zeros():
    A = planted(90, 40, 10, noise=0.05, seed=3).A

    def driven(n_features, number, shards):
        fit = BooleanFit(n_features, 10, Cost(), "hamming", Effort())
        return drive(fit.column_starts(0)[number], shards)

    assert len(BooleanFit(41, 10, Cost(), "hamming", Effort()).column_starts(0)) == 1
    for number, from_below in enumerate((False, True, True)):
        one, split = (driven(40, number, shards) for shards in ([A], cut(A, 13, 50)))
        np.testing.assert_array_equal(one.solution.components, split.solution.components)
        weights = {tuple(request.values["weights"]) for request in one.requests}
        assert ((1.0, -41.0) in weights) == from_below, "a zero costs more than a row can gain"
        assert one.solution.value == split.solution.value
        assert one.solution.weights.tolist() == [1.0, -1.0], "refined by the cost of the fit in the end"
