"""What a result says about itself: assumptions are told as such, and surprising choices are explained."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import felb
from felb.cli.output import describe
from felb.data import BinaryMatrix, planted
from felb.errors import ConvergenceWarning
from felb.report import ReportInputs, build_result_page
from felb.runs.result import AGREED, Result, records_in_words, remarks


@pytest.fixture(scope="module")
def result():
    model = felb.FederatedBMF(3, effort="fast", random_state=0).fit(felb.data.load("zoo"))
    return Result.from_model(model, felb.data.load("zoo"), source="zoo")


def private(result):
    """Return a result as a private federation leaves it: 3000 records were agreed on, nobody counted them."""
    data = {**result.provenance.data, "rows": None, AGREED: 3000}
    guarantee = {"text": "words", "mechanism": "cooccurrence", "epsilon": 1.0, "delta": 1e-5, "unit": "record"}
    return replace(
        result,
        clients={"north": None, "south": None},
        scores={},
        outcome=replace(result.outcome, supports=None, counts=None),
        privacy={**guarantee, "noise": "client"},
        provenance=replace(result.provenance, data=data),
    )


def test_an_agreed_number_of_records_is_told_as_an_assumption(result):
    found = private(result)
    assert records_in_words(result) == "101 records"
    assert "unknown" in records_in_words(found)
    [remark] = remarks(found)
    for word in ("3000", "assumption", "north, south", "not known"):
        assert word in remark
    shown = describe(found, "run")
    assert "unknown number of records" in shown["data"]
    assert shown["clients"] == "2: north, south"
    page = build_result_page(ReportInputs(Path("run"), found, None, (), None, "No data.")).html()
    assert "unknown number of records" in page
    assert "is an assumption" in page
    assert "in 3000 records" not in page.replace("\u2009", "").replace("\u202f", "")
    stored = json.loads(json.dumps(found.to_json()))["provenance"]["data"]
    assert (stored["rows"], stored[AGREED]) == (None, 3000)


def test_rank_selection_that_ends_at_the_limit_says_so():
    data = planted(200, 24, 6, noise=0.01, widths=(0.2, 0.25), seed=1).A
    with pytest.warns(ConvergenceWarning, match="max_components=3"):
        model = felb.FederatedBMF("mdl", max_components=3, effort="fast", random_state=0).fit(data)
    assert len(model.components_) == 3
    [remark] = remarks(Result.from_model(model))
    assert "max_components = 3" in remark
    wide = felb.FederatedBMF("mdl", max_components=20, effort="fast", random_state=0).fit(data)
    assert len(wide.components_) < 20
    assert remarks(Result.from_model(wide)) == []


def test_more_wrong_cells_than_ones_are_explained():
    """Few ones under a lot of added noise: what is likeliest covers more zeros than there are ones."""
    signal = planted(400, 40, 2, noise=0.0, heights=(0.5, 0.5), widths=(0.5, 0.5), seed=0).A.toarray()
    kept = np.random.default_rng(0).random(signal.shape) < 0.3
    A = BinaryMatrix.of(signal & kept)
    model = felb.FederatedBMF(2, objective="recover", random_state=0).fit(A)
    assert model.objective_ == "recover"
    result = Result.from_model(model, A)
    assert result.scores["coverage"] < 0
    [remark] = remarks(result)
    assert "more wrong cells than ones" in remark
    assert 'objective = "recover" asks' in remark
    found = replace(result, provenance=replace(result.provenance, parameters={"objective": "auto"}))
    assert '"auto" preferred' in remarks(found)[0]
    assert "Empty components" in remarks(replace(result, history=felb.metrics.History()))[0]
    fitted = felb.FederatedBMF(2, objective="auto", effort="fast", random_state=0).fit(felb.data.load("zoo"))
    assert fitted.objective_ in ("hamming", "recover")
