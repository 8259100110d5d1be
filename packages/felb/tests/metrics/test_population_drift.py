"""Counts of features and components against sums written out, and drift against what was changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import felb
from felb.data import BinaryMatrix, planted
from felb.errors import InputError
from felb.metrics import confusion
from felb.metrics.comparison import Share, drift_between
from felb.metrics.counts import FeatureCounts, feature_counts


def written_out(A, unknown, U, V):
    """Count cell by cell."""
    R, known = (U.astype(int) @ V.astype(int)) > 0, ~unknown
    inside = [(U[:, [at]] & V[[at]]) & known for at in range(len(V))]
    found = (known, A & known, A & ~R & known, ~A & R & known)
    columns = [cells.sum(axis=0).tolist() for cells in found]
    return FeatureCounts(
        len(A),
        *(tuple(column) for column in columns),
        tuple(U.sum(axis=0).tolist()),
        tuple(int(cells.sum()) for cells in inside),
        tuple(int((cells & A).sum()) for cells in inside),
    )


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_counts_agree_with_loops_and_add_over_rows(seed, partly):
    rng = np.random.default_rng(seed)
    n, m, k = rng.integers(1, 30), rng.integers(1, 9), rng.integers(1, 5)
    A, U, V = rng.random((n, m)) < 0.4, rng.random((n, k)) < 0.4, rng.random((k, m)) < 0.4
    unknown = (rng.random((n, m)) < 0.2) & ~A & partly
    matrix = BinaryMatrix.of(A).with_unknown(unknown)
    counts = feature_counts(matrix, U, V)
    assert counts == written_out(A, unknown, U, V)
    assert counts.total == confusion(matrix, U, V)
    cut = int(rng.integers(0, n + 1))
    parts = [feature_counts(matrix.rows(a, b), U[a:b], V) for a, b in ((0, cut), (cut, n))]
    assert sum(parts) == counts
    assert FeatureCounts.of_json(counts.to_json(), m, source="here") == counts


def test_counts_that_do_not_fit_are_refused():
    counts = feature_counts(BinaryMatrix.of(np.eye(3)), np.eye(3)[:, :2], np.eye(3)[:2])
    for change in ({"ones": (1, 1)}, {"supports": (1,)}, {"missed": (-1, 0, 0)}, {"records": -3}, {"ones": "many"}):
        with pytest.raises(InputError, match="here is damaged"):
            FeatureCounts.of_json({**counts.to_json(), **change}, 3, source="here")


def test_a_share_is_compared_by_its_standard_error():
    assert Share.of((50, 100), (50, 100)) == Share(0.5, 0.5, 0.0)
    assert Share.of((10, 100), (20, 100)).z == pytest.approx(0.1 / np.sqrt(0.15 * 0.85 * 0.02))
    assert Share.of((0, 100), (0, 50)).z == 0
    assert Share.of((0, 0), (1, 2)) == Share(None, 0.5, 0.0)


def test_drift_marks_what_was_changed_and_nothing_else():
    data = planted(1600, 20, 3, noise=0.02, seed=0).A.toarray()
    fit, same = data[:800], data[800:]
    model = felb.FederatedBMF(3, random_state=0).fit(fit)
    quiet = felb.drift(model, same, fit)
    assert not any(entry.changed for entry in (*quiet.features, *quiet.components))
    flipped = same.copy()
    rows = np.random.default_rng(0).random(800) < 0.3
    flipped[rows, 7] ^= True
    found = felb.drift(model, flipped, fit)
    assert max(found.features, key=lambda entry: entry.wrong.z).name == "x7"
    assert found.features[7].changed
    assert found.f1[1] < found.f1[0]
    rare = same[~model.transform(same)[:, 0]]
    component = felb.drift(model, rare, fit).components[0]
    assert component.changed
    assert (component.records.new, component.ones.new) == (0.0, None)


def test_counts_of_other_components_are_not_compared():
    a = feature_counts(BinaryMatrix.of(np.eye(3)), np.eye(3)[:, :2], np.eye(3)[:2])
    b = feature_counts(BinaryMatrix.of(np.eye(3)), np.eye(3), np.eye(3))
    with pytest.raises(InputError, match="features or components"):
        drift_between(a, b, ["a", "b", "c"])
