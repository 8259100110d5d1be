"""FELB, FELB-MU and ELBMF as a data scientist meets them."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import felb
from felb.data import BinaryMatrix, partition, planted
from felb.metrics import confusion

# Short runs stop before the components are Boolean; the tests of that warning ask for it explicitly.
pytestmark = pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")

DATA = planted(600, 80, 5, noise=0.05, seed=7)
GROUPS = partition.even(600, 6, seed=7)


@pytest.mark.parametrize("grid", [False, True])
def test_one_client_without_proximity_and_with_identity_aggregation_is_elbmf(grid, monkeypatch):
    """To the last bit, but for the grid that uploads are rounded to."""
    if not grid:
        monkeypatch.setattr("felb.federated.algorithms.felb.on_grid", lambda values, bits=0: values)
    same = {"l1": 0.01, "l2": 0.01, "l2_rate": 1.02, "inertia": 0.01, "max_iter": 300, "tol": 0.0, "random_state": 3}
    setting = felb.FelbSetting(
        start="random", order="alternating", step="factor", units="absolute", average="equal", aggregation="mean"
    )
    one = felb.FELB(5, local_steps=1, proximity=0.0, setting=setting, **same).fit(DATA.A)
    central = felb.ELBMF(5, **same).fit(DATA.A)
    np.testing.assert_array_equal(one.components_, central.components_)
    if grid:
        np.testing.assert_allclose(one.relaxed_components_, central.relaxed_components_, atol=1e-6)
        np.testing.assert_allclose(one.history_["loss"][:300], central.history_["loss"], rtol=1e-6)
    else:
        np.testing.assert_array_equal(one.relaxed_components_, central.relaxed_components_)
        np.testing.assert_array_equal(one.history_["loss"][:300], central.history_["loss"])


@pytest.mark.parametrize("method", [felb.FELB, felb.FELBMU, felb.ELBMF])
def test_planted_components_are_found(method):
    federated = method is not felb.ELBMF
    model = method(5, random_state=0)
    U = model.fit_transform(DATA.A, **({"groups": GROUPS} if federated else {}))
    assert confusion(DATA.signal, U, model.components_).f1 >= 0.97
    assert model.converged_
    assert model.integrality_gap_ <= 0.25
    if not federated:
        return  # centralized optimisation from this start finds four of the five and covers the signal all the same
    matched = (model.components_.astype(int) @ DATA.V.T.astype(int)).argmax(1)
    assert sorted(matched) == [0, 1, 2, 3, 4]


def test_groups_and_list_of_matrices_are_the_same_federation():
    parts = [DATA.A.take(np.flatnonzero(c == GROUPS)) for c in range(6)]
    by_label = felb.FELBMU(5, random_state=1, max_iter=20).fit(DATA.A, groups=GROUPS)
    by_list = felb.FELBMU(5, random_state=1, max_iter=20).fit(parts)
    np.testing.assert_array_equal(by_label.components_, by_list.components_)
    shuffled = felb.FELBMU(5, random_state=1, max_iter=20).fit(parts[::-1])
    np.testing.assert_array_equal(by_label.components_, shuffled.components_)


def test_row_order_does_not_matter():
    order = np.random.default_rng(0).permutation(600)
    a = felb.FELB(5, random_state=1, max_iter=20).fit(DATA.A, groups=GROUPS)
    b = felb.FELB(5, random_state=1, max_iter=20).fit(DATA.A.take(order), groups=GROUPS[order])
    # The printed operator jumps by a little at 0 and 1, which makes more of a difference in rounding.
    np.testing.assert_allclose(a.relaxed_components_, b.relaxed_components_, atol=1e-3)
    np.testing.assert_array_equal(a.components_, b.components_)


def test_fit_transform_keeps_the_order_of_rows_and_equals_transform():
    model = felb.FELBMU(5, random_state=0, max_iter=30)
    U = model.fit_transform(DATA.A, groups=GROUPS)
    np.testing.assert_array_equal(U, model.transform(DATA.A))
    assert model.counts_ == confusion(DATA.A, U, model.components_)
    assert model.score(DATA.A) == pytest.approx(model.counts_.f1)
    parts = [DATA.A.take(np.flatnonzero(c == GROUPS)) for c in range(6)]
    np.testing.assert_array_equal(
        felb.FELBMU(5, random_state=0, max_iter=30).fit_transform(parts), U[np.argsort(GROUPS, kind="stable")]
    )


def test_every_form_of_the_same_data_gives_the_same_answer():
    dense = DATA.A.toarray()
    names = [f"f{i}" for i in range(80)]
    forms = [
        dense, dense.astype(int), dense.astype(np.float32), sp.csr_array(dense), sp.coo_matrix(dense.astype(int)),
        pd.DataFrame(dense.astype(int), columns=names), pl.DataFrame(dense.astype(int), schema=names),
        BinaryMatrix.of(dense, columns=names), dense.astype(int).tolist(),
    ]  # fmt: skip
    fits = [felb.FELBMU(3, random_state=0, max_iter=10).fit(X) for X in forms]
    for model in fits[1:]:
        np.testing.assert_array_equal(model.relaxed_components_, fits[0].relaxed_components_)
    assert [hasattr(model, "feature_names_in_") for model in fits] == [False] * 5 + [True] * 3 + [False]
    assert fits[5].component_features()[0] == tuple(np.array(names)[fits[5].components_[0]])
    assert all(name.startswith("x") for name in fits[0].component_features()[0])


def test_float64_agrees_with_float32():
    fits = [felb.FELB(5, random_state=0, dtype=t).fit(DATA.A, groups=GROUPS) for t in ("float32", "float64")]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    np.testing.assert_allclose(fits[0].relaxed_components_, fits[1].relaxed_components_, atol=5e-3)


@pytest.mark.parametrize("method", [felb.FELBMU, felb.FederatedBMF])
def test_a_fit_can_be_watched_and_stopped(method):
    seen = []
    model = method(5, random_state=0).fit(DATA.A, groups=GROUPS, on_round=lambda now: seen.append(len(now.history)))
    assert seen == list(range(1, len(model.history_) + 1))

    def stop(now):
        raise KeyboardInterrupt(len(now.history))

    with pytest.raises(KeyboardInterrupt, match="1"):
        method(5, random_state=0).fit_transform(DATA.A, groups=GROUPS, on_round=stop)


def test_inverse_transform_is_the_boolean_product():
    model = felb.FELBMU(5, random_state=0, max_iter=20)
    U = model.fit_transform(DATA.A)
    dense = (U.astype(int) @ model.components_) > 0
    np.testing.assert_array_equal(model.inverse_transform(U), dense)
    np.testing.assert_array_equal(model.inverse_transform(U, sparse_output=True).toarray(), dense)
    with pytest.raises(felb.InputError, match=r"2 components.* 5"):
        model.inverse_transform(U[:, :2])


def test_transform_of_new_rows_needs_no_refit():
    model = felb.FELBMU(5, random_state=0).fit(DATA.A.rows(0, 500), groups=GROUPS[:500])
    new = DATA.A.rows(500, 600)
    assert confusion(DATA.signal.rows(500, 600), model.transform(new), model.components_).f1 > 0.9
    np.testing.assert_array_equal(model.transform(new.rows(3, 4)), model.transform(new)[3:4])


def test_collapse_is_said_out_loud():
    lonely = np.zeros((400, 100), dtype=bool)
    lonely.flat[np.random.default_rng(0).choice(40_000, 60, replace=False)] = True
    groups = partition.even(400, 20)
    with pytest.warns(felb.ConvergenceWarning, match=r"collapsed.*try"):
        model = felb.FELB(4, random_state=0, setting="unweighted").fit(lonely, groups=groups)
    assert not model.components_.any()
    # Weighted by curvature, clients without a component do not outvote the one that has it.
    assert felb.FELB(4, random_state=0).fit(lonely, groups=groups).supports_.any()


def test_a_result_that_is_not_boolean_yet_is_said_out_loud():
    with pytest.warns(felb.ConvergenceWarning, match=r"Boolean.*max_iter"):
        model = felb.FELB(5, max_iter=2, random_state=0).fit(DATA.A, groups=GROUPS)
    assert not model.converged_
    assert model.integrality_gap_ > 0.25
    assert model.n_iter_ == 4 + 2  # of the start, of local steps


def test_history_tells_the_rounds():
    model = felb.FELBMU(5, random_state=0, max_iter=25).fit(DATA.A, groups=GROUPS)
    assert [row["task"] for row in model.history_] == ["gram_sketch"] * 3 + ["sign_norms"] + ["local_factor"] * 25 + [
        "assign"
    ]
    assert model.history_["loss"].size == 25
    assert model.history_["integrality_gap"][-1] == pytest.approx(model.integrality_gap_)
    assert model.history_[-1]["f1"] == model.counts_.f1


def test_literal_setting_runs_and_differs():
    literal = felb.FELB(5, setting="literal", random_state=0, max_iter=5).fit(DATA.A, groups=GROUPS)
    recommended = felb.FELB(5, random_state=0, max_iter=5).fit(DATA.A, groups=GROUPS)
    assert not np.array_equal(literal.components_, recommended.components_)


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.full((4, 3), 0.5), {}, r"row 0, column 0 holds 0.5; .*binarize_threshold"),
        (pd.DataFrame({"a": [0, 1], "b": [1, 7]}), {}, r"row 1, column 1 \('b'\) holds 7"),
        (np.array([[0, np.nan]]), {}, "NaN"),
        (np.zeros((0, 3)), {}, "0 sample"),
        (np.zeros((3, 0)), {}, "0 feature"),
        (np.eye(3), {"n_components": 0}, "n_components must be at least 1"),
        (np.eye(3), {"n_components": 2.5}, "whole number"),
        (np.eye(3), {"setting": "verbatim"}, "setting .*'verbatim'"),
        (np.eye(3), {"local_steps": 0}, "local_steps"),
        ([np.eye(3), np.eye(4)], {}, "client-02 has 4 .*client-01 has 3"),
        ([np.eye(3), np.zeros((0, 3))], {}, "client-02 has no rows"),
    ],
)
def test_bad_input_says_what_is_wrong(X, options, message):
    with pytest.raises(felb.InputError, match=message):
        felb.FELB(**({"n_components": 2, "max_iter": 2} | options)).fit(X)


def test_a_list_of_matrices_has_no_groups():
    with pytest.raises(felb.InputError, match="either a list"):
        felb.FELB(2).fit([np.eye(3), np.eye(3)], groups=[0, 1])


def test_more_components_than_rows_or_columns_is_allowed_with_a_warning():
    X = np.random.default_rng(0).random((30, 4)) < 0.5
    with pytest.warns(UserWarning, match="n_components=6"):
        model = felb.FELBMU(6, max_iter=60, random_state=0).fit(X)
    assert model.components_.shape == (6, 4)


@pytest.mark.parametrize("method", [felb.FELB, felb.FELBMU, felb.ELBMF])
def test_empty_rows_and_columns_and_constant_data(method):
    holes = DATA.A.toarray()[:100].copy()
    holes[5] = False
    holes[:, 3] = False
    model = method(3, random_state=0, max_iter=40).fit(holes)
    assert not model.transform(holes)[5].any()
    assert not model.components_[:, 3].any()
    for constant in (np.zeros((20, 6)), np.ones((20, 6))):
        model = method(2, random_state=0, max_iter=40).fit(constant)
        assert model.score(constant) == 1.0


def test_random_state_may_be_anything_scikit_learn_takes():
    X = DATA.A.rows(0, 80)
    a = felb.FELB(2, max_iter=5, random_state=np.random.RandomState(0)).fit(X)
    b = felb.FELB(2, max_iter=5, random_state=np.random.RandomState(0)).fit(X)
    np.testing.assert_array_equal(a.relaxed_components_, b.relaxed_components_)
    c = felb.FELB(2, max_iter=5, random_state=None).fit(X)
    assert not np.array_equal(a.relaxed_components_, c.relaxed_components_)
