"""Lift, coverage and gain against plain loops, and sums over clients."""

import numpy as np
import pytest

import felb
from felb.data import BinaryMatrix, planted
from felb.metrics.counts import confusion
from felb.metrics.interpretation import TIDY, profile_components

DATA = planted(150, 20, 3, noise=0.1, seed=2)
U = np.asarray(DATA.U, dtype=bool)
V = np.asarray(DATA.V, dtype=bool)


def test_counts_agree_with_loops():
    found, A = profile_components(DATA.A, U, V), DATA.A.toarray()
    for i in range(3):
        inside, outside = A[U[:, i]], A[~U[:, i]]
        assert found.supports[i] == len(inside)
        assert found.coverage[i] == pytest.approx(inside[:, V[i]].sum() / A.sum())
        for j in range(20):
            assert found.confidence[i, j] == pytest.approx(inside[:, j].mean())
            lift = ((inside[:, j].sum() + 0.5) / (len(inside) + 1)) / ((outside[:, j].sum() + 0.5) / (len(outside) + 1))
            assert found.lift[i, j] == pytest.approx(lift)
        order = found.order(i)
        assert sorted(order) == list(np.flatnonzero(V[i]))
        assert (np.diff(found.lift[i, order]) <= 0).all()


def test_the_exclusive_gain_is_what_leaving_a_component_out_costs():
    unknown = np.random.default_rng(0).random(DATA.A.shape) < 0.1
    A = BinaryMatrix.of(DATA.A.toarray() & ~unknown).with_unknown(unknown)
    found, errors = profile_components(A, U, V), confusion(A, U, V).errors
    for i in range(3):
        without = np.delete(U, i, axis=1), np.delete(V, i, axis=0)
        assert found.exclusive[i] == confusion(A, *without).errors - errors


def test_profiles_of_clients_add_up():
    whole = profile_components(DATA.A, U, V)
    parts = [profile_components(DATA.A.rows(a, b), U[a:b], V) for a, b in ((0, 40), (40, 150))]
    total = parts[0] + parts[1]
    for name in ("n_records", "supports", "feature_counts", "joint", "covered", "exclusive", "ones"):
        np.testing.assert_array_equal(getattr(total, name), getattr(whole, name))
    with pytest.raises(felb.InputError, match="different components"):
        _ = whole + profile_components(DATA.A, U[:, :2], V[:2])


def test_the_frame_of_a_model_is_tidy_and_named():
    import pandas as pd

    named = BinaryMatrix.of(DATA.A.toarray(), columns=[f"gene {j}" for j in range(20)])
    model = felb.FederatedBMF(3, effort="fast", random_state=0).fit(named)
    frame = model.to_frame(named)
    assert isinstance(frame, pd.DataFrame)
    assert tuple(frame.columns) == TIDY
    assert len(frame) == model.components_.sum()
    for number, features in enumerate(model.component_features()):
        part = frame[frame.component == number]
        assert set(part.feature) == set(features)
        assert (part["rank"] == np.arange(1, len(part) + 1)).all()


def test_without_pandas_the_frame_is_a_dict_of_columns(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    table = felb.GreConD(2).fit(DATA.A).to_frame(DATA.A)
    assert isinstance(table, dict)
    assert len({len(column) for column in table.values()}) == 1
