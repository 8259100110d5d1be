"""What every estimator must satisfy; a new one is one line in the list."""

import inspect
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

import felb
from felb.data import BinaryMatrix, planted
from felb.federated.algorithms.registry import CENTRALIZED, FEDERATED, METHODS
from felb.metrics import confusion
from felb.sklearn.base import CentralizedFactorization
from felb.sklearn.methods import estimator_of, make


def maker(estimator, **defaults):
    """Return what makes an estimator from those options that it has."""
    names = set(estimator._get_param_names())
    return lambda **options: estimator(**{name: x for name, x in (defaults | options).items() if name in names})


def post_hoc(aggregation):
    """Return what makes a post-hoc federation of GreConD."""

    def make_post_hoc(**options):
        outer = {name: options.pop(name) for name in ("binarize_threshold", "random_state") if name in options}
        return felb.PostHoc(maker(felb.GreConD)(**options), aggregation, **outer)

    return make_post_hoc


ESTIMATORS = {
    **{kind.__name__: maker(kind) for kind in (estimator_of(entry.name) for entry in FEDERATED + CENTRALIZED)},
    "FELB": maker(felb.FELB, max_iter=30),
    "FELBMU": maker(felb.FELBMU, max_iter=30),
    "FedNMF": maker(felb.FedNMF, max_iter=30),
    "FedProx": maker(felb.FedProx, max_iter=60),
    "Scaffold": maker(felb.Scaffold, max_iter=60),
    "ProxSkip": maker(felb.ProxSkip, max_iter=60),
    "ELBMF": maker(felb.ELBMF, max_iter=200),
    "Zhang": maker(felb.Zhang, max_iter=50),
    "FastStep": maker(felb.FastStep, max_iter=20),
    "Primp": maker(felb.Primp, max_iter=200),
    "PanPal": maker(felb.PanPal, max_iter=200),
    "PostHoc": post_hoc("vote"),
    "PostHoc, aligned": post_hoc("aligned-vote"),
}
DATA = planted(200, 40, 4, noise=0.05, seed=1)
SMALL = DATA.A.take(np.arange(0, 200, 8))

# scikit-learn's checks feed numbers of all kinds, so they run with binarize_threshold; what felb does otherwise:
EXEMPTED = {
    "check_dtype_object": "a cell that is no number is an InputError (a ValueError) naming the cell, not a TypeError",
}
OWN_ASSIGNMENT = "fit_transform returns the assignment that the algorithm found, transform assigns rows anew"
EXEMPTED_FOR = {
    ("Zhang", "check_transformer_general"): OWN_ASSIGNMENT,
    ("Zhang", "check_transformer_data_not_an_array"): OWN_ASSIGNMENT,
}

FITTED_LIKE = {
    **dict.fromkeys(("FELBMU", "FedNMF", "FedProx", "Scaffold", "ProxSkip"), "FELB"),
    **dict.fromkeys(("GreConD", "MEBF", "GreEss", "GreConDPlus"), "Asso"),
    "PanPal": "Primp",
    "PostHoc, aligned": "PostHoc",
}
"""Estimators that share the code which takes data with another, for which all of scikit-learn's checks are run.

Of them, only what depends on their own parameters and attributes is checked.
"""
OWN_CHECKS = frozenset(
    {
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_get_params_invariance",
        "check_set_params",
        "check_dict_unchanged",
        "check_dont_overwrite_parameters",
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_fit_idempotent",
        "check_methods_subset_invariance",
        "check_transformer_n_iter",
        "check_estimators_overwrite_params",
    }
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:n_components=:UserWarning"),
]


def pytest_generate_tests(metafunc):
    """Take the estimators of the module that asks, which may be one that has imported these tests."""
    table = metafunc.module.ESTIMATORS
    if "estimator" in metafunc.fixturenames:
        metafunc.parametrize("estimator", table.values(), ids=table.keys())
    if "check" in metafunc.fixturenames:
        metafunc.parametrize(("model", "check"), list(sklearn_checks(table)))


def sklearn_checks(estimators):
    for name, build in estimators.items():
        for model, check in estimator_checks_generator(
            build(n_components=2, max_iter=5, binarize_threshold=0.0, random_state=0), legacy=True
        ):
            check_name = check.func.__name__
            if name in FITTED_LIKE and check_name not in OWN_CHECKS:
                continue
            reason = EXEMPTED.get(check_name) or EXEMPTED_FOR.get((name, check_name))
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            yield pytest.param(model, check, id=f"{name}-{check_name}", marks=marks)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_conventions(model, check):
    check(model)


def test_a_seed_fixes_the_result(estimator):
    fits = [estimator(n_components=4, random_state=s).fit(DATA.A) for s in (0, 0, 1)]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    if getattr(fits[0], "relaxed_components_", None) is not None:  # the others draw nothing at random
        assert not np.array_equal(fits[0].relaxed_components_, fits[2].relaxed_components_)


def test_sparse_dense_and_packed_agree(estimator):
    dense = DATA.A.toarray()
    fits = [estimator(n_components=3, random_state=0).fit(X) for X in (dense, DATA.A.to_scipy(), DATA.A)]
    for model in fits[1:]:
        np.testing.assert_array_equal(model.components_, fits[0].components_)
        np.testing.assert_array_equal(model.transform(dense), fits[0].transform(DATA.A.to_scipy()))


def test_more_components_than_needed(estimator):
    data = planted(100, 20, 2, density=1.0, seed=0)
    model = estimator(n_components=8, random_state=0).fit(data.A)
    assert model.components_.shape == (8, 20)
    assert model.score(data.A) > 0.9


def test_all_zero_and_all_one(estimator):
    for constant in (np.zeros((15, 6), dtype=int), np.ones((15, 6), dtype=int)):
        model = estimator(n_components=2, random_state=0, max_iter=200).fit(constant)
        np.testing.assert_array_equal(model.inverse_transform(model.transform(constant)), constant.astype(bool))


def test_duplicate_rows_are_assigned_alike_and_duplicate_columns_belong_together(estimator):
    base = DATA.A.toarray()[:60, :20]
    doubled = np.hstack([np.vstack([base, base])] * 2)
    model = estimator(n_components=3, random_state=0).fit(doubled)
    U = model.transform(doubled)
    np.testing.assert_array_equal(U[:60], U[60:])


def test_column_names_come_back(estimator):
    names = [f"gene {i}" for i in range(40)]
    model = estimator(n_components=3, random_state=0).fit(BinaryMatrix.of(DATA.A.toarray(), columns=names))
    assert list(model.feature_names_in_) == names
    for row, features in zip(model.components_, model.component_features(), strict=True):
        assert features == tuple(np.array(names)[row])
    assert len(model.get_feature_names_out()) == 3
    with pytest.raises(felb.InputError, match=r"unseen at fit time:\n- other 0\n"):
        model.transform(BinaryMatrix.of(DATA.A.toarray(), columns=[f"other {i}" for i in range(40)]))
    with pytest.raises(felb.InputError, match="39 features"):
        model.transform(BinaryMatrix.of(DATA.A.toarray()[:, 1:]))
    assert not hasattr(model.fit(DATA.A), "feature_names_in_")


def test_transform_is_row_by_row(estimator):
    model = estimator(n_components=4, random_state=0).fit(DATA.A)
    U = model.transform(DATA.A)
    assert U.dtype == bool
    np.testing.assert_array_equal(np.vstack([model.transform(b) for b in DATA.A.row_blocks(7)]), U)
    assert model.score(DATA.A) == pytest.approx(confusion(DATA.A, U, model.components_).f1)


def test_attributes_of_the_result(estimator):
    model = estimator(n_components=4, random_state=0).fit(DATA.A)
    assert model.components_.dtype == bool
    assert isinstance(model.converged_, bool)
    assert 0 <= model.integrality_gap_ <= 0.5
    assert model.n_iter_ >= 1
    assert len(model.history_) >= model.n_iter_ or len(model.history_) == 0  # greedy methods keep none
    assert model.complete_
    assert model.supports_.shape == (4,)


def test_progress_is_shown_on_request_only(estimator, capsys):
    quiet = estimator(n_components=3, random_state=0, max_iter=20).fit(SMALL)
    assert capsys.readouterr().err == ""
    watched = estimator(n_components=3, random_state=0, max_iter=20).fit(SMALL, verbose=True)
    shown = re.search(r"(rounds|iterations|components) .*\b(\d+)/\d+", capsys.readouterr().err)
    assert shown is not None
    assert int(shown[2]) > 0 or not estimator.__module__.startswith("felb."), "a method of others may count no steps"
    np.testing.assert_array_equal(watched.components_, quiet.components_)
    assert set(vars(watched)) == set(vars(quiet))


def test_a_time_limit_ends_a_centralized_method_with_a_valid_result(estimator):
    model = estimator(n_components=4, random_state=0, time_limit=1e-9)
    if not isinstance(model, CentralizedFactorization):
        pytest.skip("not a centralized method")
    with pytest.warns(felb.ConvergenceWarning, match="time limit of 1e-09 s"):
        U = model.fit_transform(DATA.A)
    assert not model.complete_
    assert model.components_.shape == (4, 40)
    assert U.shape == (200, 4)
    assert confusion(DATA.A, U, model.components_).errors <= DATA.A.nnz  # no worse than nothing at all


def test_parameters_are_documented_and_keyword_only(estimator):
    cls = type(estimator())
    signature = inspect.signature(cls.__init__)
    positional = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in positional] in (["self", "n_components"], ["self", "model", "aggregation"])
    text = "".join(inspect.getdoc(base) or "" for base in cls.__mro__[:3])  # FELBMU has the parameters of FELB
    for name in signature.parameters:
        assert name == "self" or name in text, f"{name} is not in the docstring of {cls.__name__}"


def test_cloning_keeps_the_parameters(estimator):
    model = estimator(n_components=3, l1=0.5, tau=0.7, time_limit=60.0)
    assert str(clone(model).get_params()) == str(model.get_params())


@pytest.mark.parametrize("method", METHODS)
def test_the_registry_makes_every_method(method):
    assert type(make(method, n_components=3)) is estimator_of(method)
    with pytest.raises(felb.InputError, match=re.escape(f"method '{method}' has no parameter 'n_clusters'")):
        make(method, n_clusters=3)
