"""`FederatedBMFCV` in the manner of scikit-learn."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

import felb
from felb.data import BinaryMatrix, planted

DATA = planted(200, 40, 3, noise=0.02, heights=(0.15, 0.3), widths=(0.15, 0.3), seed=1)
FAST = felb.FederatedBMF(effort="fast", objective="hamming", binarize_threshold=0.0)
SMALL = felb.FederatedBMFCV(FAST, n_components=[1, 2], cv=1, random_state=0)


def test_the_best_number_is_refitted_and_scores_are_told():
    search = felb.FederatedBMFCV(FAST, n_components=range(1, 6), random_state=0).fit(DATA.A)
    assert search.best_n_components_ == 3
    direct = clone(FAST).set_params(n_components=3, random_state=0).fit(DATA.A)
    np.testing.assert_array_equal(search.components_, direct.components_)
    np.testing.assert_array_equal(search.transform(DATA.A), direct.transform(DATA.A))
    assert search.score(DATA.A) == direct.score(DATA.A)
    results = search.cv_results_
    assert list(results["param_n_components"]) == [1, 2, 3, 4, 5]
    splits = [results[f"split{fold}_test_score"] for fold in range(3)]
    np.testing.assert_allclose(results["mean_test_score"], np.mean(splits, axis=0))
    assert results["rank_test_score"].min() == 1
    assert search.best_score_ == results["mean_test_score"][2]


def test_clients_do_not_change_the_answer():
    groups = felb.data.partition.even(200, 4)
    one, many = (
        felb.FederatedBMFCV(FAST, n_components=[2, 3, 4], cv=2, random_state=0).fit(DATA.A, groups=g)
        for g in (None, groups)
    )
    assert one.best_n_components_ == many.best_n_components_
    np.testing.assert_array_equal(one.components_, many.components_)


def test_it_is_a_step_of_a_pipeline_and_keeps_names():
    named = BinaryMatrix.of(DATA.A.toarray(), columns=[f"gene {i}" for i in range(40)])
    model = make_pipeline(clone(SMALL))
    assert model.fit_transform(named).shape[1] in (1, 2)
    assert model[0].feature_names_in_[0] == "gene 0"
    assert len(model.get_feature_names_out()) == model[0].best_n_components_


EXEMPTED = {"check_dtype_object": "a cell that is no number is an InputError (a ValueError), not a TypeError"}


CHECKS = [
    pytest.param(model, check, id=check.func.__name__)
    for model, check in estimator_checks_generator(clone(SMALL), legacy=True)
    if check.func.__name__ not in EXEMPTED
]


@pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:n_components=:UserWarning")
@pytest.mark.parametrize(("model", "check"), CHECKS)
def test_scikit_learn_conventions(model, check):
    check(model)
