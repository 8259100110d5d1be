"""What estimators say about mistakes on purpose."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import felb

X = (np.random.default_rng(0).random((30, 6)) < 0.4).astype(int)


@pytest.mark.parametrize("number", [2.0, "auto", None])
def test_the_number_of_components_may_be_a_number_or_mdl(number):
    with pytest.raises(felb.InputError, match=r"whole number, or 'mdl'"):
        felb.FederatedBMF(number).fit(X)


@pytest.mark.parametrize("model", [felb.FederatedBMF(2), felb.Asso(2)])
@pytest.mark.parametrize("data", ["records.csv", {"a": [1, 0]}])
def test_names_and_dicts_lead_to_the_reader(model, data):
    with pytest.raises(felb.InputError, match=r"felb\.data\.read"):
        model.fit(data)


def test_data_without_a_known_cell_is_refused():
    with pytest.raises(felb.InputError, match="all cells of the data are unknown"):
        felb.FederatedBMF(2).fit(np.full((10, 5), np.nan))


@pytest.mark.parametrize("model", [felb.FederatedBMF(2), felb.Asso(2)])
def test_dates_are_shown_as_dates(model):
    frame = pd.DataFrame({"a": [1, 0], "day": pd.to_datetime(["2020-01-31", "2021-01-01"])})
    with pytest.raises(felb.InputError, match=r"'day'.*2020-01-31"):
        model.fit(frame)


def test_a_report_is_not_replaced_unless_asked_for(tmp_path):
    model = felb.Asso(2).fit(X)
    model.report(tmp_path / "page.html")
    with pytest.raises(felb.InputError, match="exists"):
        model.report(tmp_path / "page.html")
    model.report(tmp_path / "page.html", force=True)
