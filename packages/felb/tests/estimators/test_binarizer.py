"""The Binarizer: a schema as a step of a pipeline."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.decomposition import NMF
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import felb
from felb.errors import SchemaWarning


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(1)
    old = rng.random(200) < 0.5
    return pd.DataFrame(
        {
            "age": np.where(old, rng.integers(60, 90, 200), rng.integers(20, 40, 200)),
            "glasses": np.where(old ^ (rng.random(200) < 0.05), "yes", "no"),
            "town": rng.choice(["A", "B", None], 200),
        }
    )


def test_it_infers_and_applies_on_frames_of_three_packages(people):
    binarizer = felb.Binarizer(bins=2, output="matrix").fit(people)
    matrix = binarizer.transform(people)
    assert matrix.columns == tuple(binarizer.get_feature_names_out())
    assert matrix.unknown is not None
    for form in (pl.from_pandas(people), pa.Table.from_pandas(people)):
        assert clone(binarizer).fit(form).schema_.digest == binarizer.schema_.digest
        assert binarizer.transform(form) == matrix


def test_it_stands_before_felb_and_other_estimators(people):
    model = make_pipeline(felb.Binarizer(bins=2), felb.FederatedBMF(n_components=2, effort="fast", random_state=0))
    assert model.fit(people).transform(people).shape == (200, 2)
    names = model[0].get_feature_names_out()
    found = [set(names[row]) for row in model[-1].components_]
    assert any("glasses: yes" in features for features in found)
    assert model[-1].feature_names_in_.tolist() == names.tolist()
    assert model[0].transform(people).binary_matrix.unknown is not None
    for other in (NMF(2, init="nndsvd"), LogisticRegression(), MaxAbsScaler()):
        assert make_pipeline(felb.Binarizer(bins=2), other).fit(people, people["glasses"]) is not None


def test_it_follows_set_output(people):
    binarizer = felb.Binarizer(bins=2).set_output(transform="pandas").fit(people)
    frame = binarizer.transform(people)
    assert list(frame.columns) == list(binarizer.get_feature_names_out())
    assert frame["town: A"].isna().sum() == people["town"].isna().sum()
    plain = felb.Binarizer(bins=2, output="matrix").fit(people).transform(people)
    assert felb.FederatedBMF(2)._read(frame) == plain


def test_a_given_schema_is_applied_and_tells_what_is_new(people, tmp_path):
    schema = felb.Binarizer(missing="zero").fit(people[["glasses"]]).schema_
    schema.write(tmp_path / "s.toml")
    binarizer = felb.Binarizer(tmp_path / "s.toml").fit(people)
    new = pd.DataFrame({"glasses": ["yes", "monocle"]})
    with pytest.raises(felb.InputError, match=r"row 2: column 'glasses' holds 'monocle'"):
        binarizer.transform(new)
    from dataclasses import replace

    from felb.tables.schema import Handling

    lenient = replace(schema, columns={"glasses": Handling("zero", "ignore")})
    binarizer = felb.Binarizer(lenient).fit(people)
    with pytest.warns(SchemaWarning, match="'monocle'"):
        assert binarizer.transform(new).toarray().tolist() == [[False, True], [False, False]]
    assert binarizer.applied_.unlisted == {"glasses": {"monocle": 1}}


def test_wrong_use_is_named(people):
    with pytest.raises(NotFittedError):
        felb.Binarizer().transform(people)
    with pytest.raises(felb.InputError, match="output='dense'"):
        felb.Binarizer(output="dense").fit(people)
    with pytest.raises(felb.InputError, match="data frame"):
        felb.Binarizer().fit(np.zeros((3, 2)))
    with pytest.raises(felb.InputError, match=r"'a' .*once"):
        felb.Binarizer().fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
