"""C-SALT: planted alterations of classes, and its objective."""

import numpy as np
import pytest

from felb.data import load
from felb.errors import InputError
from felb.sklearn.centralized import CSalt

RNG = np.random.default_rng(0)
V = np.zeros((3, 40), dtype=bool)
V[0, :8] = V[1, 8:16] = V[2, 16:24] = True
W = np.zeros((2, 3, 40), dtype=bool)
W[0, 0, 26:31] = W[1, 1, 33:38] = True
LABELS = np.array(["a", "b"])[np.arange(600) % 2]
U = RNG.random((600, 3)) < 0.35
X = np.array([(row @ (V | W[number % 2]).astype(int)) > 0 for number, row in enumerate(U)])
X ^= RNG.random(X.shape) < 0.02


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_components_and_alterations_of_classes_are_found(seed):
    model = CSalt(3, random_state=seed)
    rows = model.fit_transform(X, LABELS)
    order = [int(np.argmax(model.components_.astype(int) @ line)) for line in V.astype(int)]
    assert model.classes_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.components_[order], V)
    np.testing.assert_array_equal(model.alterations_[:, order], W)
    assert (rows[:, order] == U).mean() > 0.99


def test_the_objective_decreases():
    values = CSalt(3, random_state=0, tol=0.0, max_iter=30, dtype="float64").fit(X, LABELS).history_["objective"]
    assert np.all(np.diff(values) <= 1e-9 * values[0])


def test_alterations_are_disjoint_from_the_components_and_fewer_if_they_cost_more():
    labels = load("zoo").toarray()[:, 3]
    cheap, dear = (CSalt(5, alteration=weight, random_state=0).fit(load("zoo"), labels) for weight in (0.1, 50.0))
    assert not (cheap.alterations_ & cheap.components_).any()
    assert dear.alterations_.sum() <= cheap.alterations_.sum()


def test_without_labels_there_is_one_class_without_alterations():
    model = CSalt(3, random_state=0).fit(X)
    assert len(model.classes_) == 1
    assert not model.alterations_.any()


def test_labels_must_be_one_for_each_record():
    with pytest.raises(InputError, match="label for each of the 600 records"):
        CSalt(3).fit(X, LABELS[:5])
