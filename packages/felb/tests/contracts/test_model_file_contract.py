"""Every estimator as a file: loaded again, it assigns new records to the same bits."""

import numpy as np
import pandas as pd
import pytest
from test_estimator_contract import ESTIMATORS

import felb
from felb.data import planted

DATA = planted(80, 12, 3, noise=0.05, seed=4).A.toarray()
FRAME = pd.DataFrame(DATA.astype(int), columns=[f"feature {i}" for i in range(12)])
NEW = pd.DataFrame((planted(50, 12, 3, noise=0.2, seed=5).A.toarray()).astype(int), columns=FRAME.columns)
VARIANTS = {
    **ESTIMATORS,
    "FederatedBMF, recover": lambda **options: felb.FederatedBMF(objective="recover", **_own(options)),
    "FederatedBMF, f1": lambda **options: felb.FederatedBMF(objective="f1", **_own(options)),
    "FederatedBMF, costs": lambda **options: felb.FederatedBMF(false_positive_cost=3.0, **_own(options)),
    "FederatedBMF, mdl": lambda **options: felb.FederatedBMF(**{**_own(options), "n_components": "mdl"}),
    "FederatedBMF, effort": lambda **options: felb.FederatedBMF(effort=_effort(), **_own(options)),
    "FELB, refined": lambda **options: felb.FELB(refine=True, setting=felb.FelbSetting(start="random"), **options),
    "PostHoc, default": lambda **options: felb.PostHoc(random_state=options["random_state"]),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:n_components=:UserWarning"),
]


def _own(options):
    return {name: value for name, value in options.items() if name != "max_iter"}


def _effort():
    from felb.federated.algorithms.bmf import Effort

    return Effort(relaxed_rounds=5, tries=2, generations=1)


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def model(request):
    """Return a fitted estimator."""
    return request.param(n_components=3, max_iter=8, random_state=7).fit(FRAME)


def test_a_loaded_model_gives_the_same_bits(model, tmp_path):
    path = tmp_path / "model.felbmodel"
    model.save(path)
    again = felb.load(path)
    assert type(again) is type(model)
    assert str(again.get_params()) == str(model.get_params()) or isinstance(model, felb.PostHoc)
    assert again.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    np.testing.assert_array_equal(again.components_, model.components_)
    np.testing.assert_array_equal(again.supports_, model.supports_)
    for name in ("n_iter_", "converged_", "complete_", "integrality_gap_", "n_records_"):
        assert getattr(again, name) == getattr(model, name)
    assert [dict(row) for row in again.history_] == [dict(row) for row in model.history_]
    assert getattr(again, "counts_", None) == getattr(model, "counts_", None)
    for rows in (FRAME, NEW):
        np.testing.assert_array_equal(again.transform(rows), model.transform(rows))
        assert again.score(rows) == model.score(rows)
    less = NEW.drop(columns="feature 3")
    np.testing.assert_array_equal(again.transform(less, align="name"), model.transform(less, align="name"))
    again.save(tmp_path / "again.felbmodel")
    if getattr(model, "model", model) is not None:  # otherwise the model that it stands for is named in the file
        assert (tmp_path / "again.felbmodel").read_bytes() == path.read_bytes()


def test_a_loaded_model_is_fitted_again_to_the_same_components(model, tmp_path):
    model.save(tmp_path / "model.felbmodel")
    again = felb.load(tmp_path / "model.felbmodel").fit(FRAME)
    np.testing.assert_array_equal(again.components_, model.components_)
