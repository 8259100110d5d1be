"""ELBMF as felb recommends it and as published."""

from __future__ import annotations

import numpy as np
import pytest

import felb
from felb.data import partition, planted
from felb.errors import InputError

DATA = planted(200, 40, 3, noise=0.05, seed=1)


@pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")
def test_as_published_factors_are_not_kept_below_one_and_rows_are_not_assigned_anew():
    ours, published = (
        felb.ELBMF(3, setting=setting, max_iter=60, random_state=0) for setting in ("recommended", "published")
    )
    U = published.fit_transform(DATA.A)
    assert published.relaxed_components_.max() > 1 >= ours.fit(DATA.A).relaxed_components_.max()
    assert not np.array_equal(U, published.transform(DATA.A))
    assert np.array_equal(ours.fit_transform(DATA.A), ours.transform(DATA.A))


def test_votes_of_the_published_setting_run():
    model = felb.PostHoc(felb.ELBMF(3, setting="published", max_iter=300), "vote", random_state=0)
    with np.errstate(all="raise"):
        model.fit(DATA.A, groups=partition.even(200, 4, seed=0))
    assert model.components_.shape == (3, 40)


def test_an_unknown_setting_is_refused():
    with pytest.raises(InputError, match="recommended, published"):
        felb.ELBMF(3, setting="literal").fit(DATA.A)
