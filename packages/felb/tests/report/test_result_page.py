"""The page of a result tells what there is, and says what there is not."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from stored_runs import EVIL

from felb.metrics.counts import History
from felb.report import gather, result_page
from felb.report.result_page import summed


def text_of(page):
    return re.sub(r"<[^>]*>", " ", re.sub(r"<(style|script)>.*?</\1>", "", page.html(), flags=re.DOTALL))


def changed(evidence, **fields):
    return dataclasses.replace(evidence, result=dataclasses.replace(evidence.result, **fields))


@pytest.fixture(scope="module")
def evidence(run):
    return gather(run.folder)


@pytest.fixture
def without_data(evidence):
    return dataclasses.replace(evidence, measured=None, absent="The data of the run (data.felb) was not found.")


def test_the_page_tells_of_the_run(run, evidence):
    told = text_of(result_page(evidence))
    made = run.result.provenance
    for fact in (
        "20 components of data.felb",
        made.felb,
        made.machine["python"],
        "client-04",
    ):
        assert fact in told
    assert made.data["fingerprint"] not in told, "a page is passed on, and a hash of the data tells whose it is"
    for part in ("Scores", "Components", "Data and reconstruction", "Overlap", "Clients", "Rounds", "Privacy", "Run"):
        assert part in told
    assert f"{run.result.scores['f1']:.3f}" in told


def test_every_feature_of_every_component_is_on_the_page(run, evidence):
    page = result_page(evidence).html()
    table = page[page.index('id="components"') : page.index('id="data-and-reconstruction"')]
    rows = re.findall(r"<tr><th scope=\"row\".*?</tr>", table, re.DOTALL)
    assert len(rows) == 20
    for row, component in zip(rows, run.result.described(), strict=True):
        assert len(re.findall("<b>", row)) == len(component.features)
        assert f">{component.number}<" in row


def test_names_are_shown_not_run(evidence):
    page = result_page(evidence).html()
    assert EVIL not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<script>") == 1


def test_pictures_are_in_the_page_in_both_themes(evidence):
    page = result_page(evidence).html()
    assert len(re.findall('src="data:image/png;base64,', page)) == 6
    assert page.count('class="on-dark"') == 3


def test_twenty_components_stay_far_below_five_megabytes(evidence):
    assert len(result_page(evidence).html().encode()) < 1_000_000


def test_intervals_say_how_they_were_made(evidence, without_data):
    assert "95% bootstrap intervals over records" in text_of(result_page(evidence))
    told = text_of(result_page(without_data))
    assert "95% Wilson intervals" in told
    assert "too narrow" in told


def test_without_data_the_page_says_how_to_get_pictures(without_data):
    told = text_of(result_page(without_data))
    assert "data.felb) was not found. With --data FILE" in told
    assert "data:image" not in result_page(without_data).html()


def test_a_run_without_noise_is_plainly_called_so(evidence):
    told = text_of(result_page(evidence))
    assert "This run was not differentially private" in told
    assert "12 arrays" in told
    assert "none had noise" in told


def test_a_private_run_shows_its_statement_and_no_scores(without_data):
    guarantee = {"text": "Privacy\n  Guarantee   (epsilon, delta) = (1, 1e-05) in <total>"}
    hidden = changed(without_data, scores={}, supports=(None,) * 20, privacy=guarantee)
    private = dataclasses.replace(hidden, assignments=None)
    told = text_of(result_page(private))
    assert "(1, 1e-05) in &lt;total&gt;" in told
    assert "not differentially private" not in told
    assert "Scores are not part of what this run releases" in told
    assert "known to the clients alone" in told
    assert "how many records have each is not part of what this run releases" in told


def test_exact_figures_of_a_private_run_come_with_a_warning(evidence):
    private = dataclasses.replace(changed(evidence, privacy={"text": "Privacy"}), assignments=None)
    assert "not covered by its guarantee" in " ".join(text_of(result_page(private)).split())


def test_an_agreement_without_a_statement_is_shown(evidence):
    parameters = {"privacy": {"epsilon": 0.5, "unit": "record"}}
    made = dataclasses.replace(evidence.result.provenance, parameters=parameters)
    told = text_of(result_page(changed(evidence, provenance=made)))
    assert "This run was private" in told
    assert "0.5" in told


def test_a_centralized_run_says_that_nothing_was_sent(evidence):
    centralized = dataclasses.replace(changed(evidence, clients={"centralized": 400}), outbound=())
    told = text_of(result_page(centralized))
    assert "nothing was sent" in told
    assert "client-04" not in told


def test_a_run_of_real_sites_says_where_its_logs_are(without_data):
    sites = dataclasses.replace(changed(without_data, clients={"a": None, "b": None}), assignments=None, outbound=())
    told = text_of(result_page(sites))
    assert "every client keeps its own" in told
    assert "records are not shown" in told
    assert "not recorded" in told


def test_a_method_without_history_has_no_curves(evidence):
    assert "keeps no record of its steps" in text_of(result_page(changed(evidence, history=History())))
    short = History([{"round": 0, "task": "local_components", "unfinished": 0}])
    assert "no curve to draw" in text_of(result_page(changed(evidence, history=short)))


def test_features_without_names_are_counted(evidence):
    told = text_of(result_page(changed(evidence, columns=None)))
    assert "x0 is the first column" in told
    assert "x119" in told


def test_unfinished_business_is_told(evidence):
    told = text_of(result_page(changed(evidence, complete=False, converged=False, integrality_gap=0.25)))
    assert "A time limit ended the search" in told
    assert "before it converged" in told
    assert "up to a gap of 0.25" in told


@pytest.mark.parametrize("k", [0, 1, 2])
def test_few_components_and_empty_ones_are_no_trouble(without_data, k):
    few = changed(
        without_data,
        components=np.zeros((k, 120), dtype=bool),
        supports=(0,) * k,
        scores={},
        clients={"centralized": 400},
    )
    told = text_of(result_page(dataclasses.replace(few, assignments={"centralized": np.zeros((400, k), dtype=bool)})))
    assert f"{k} component{'' if k == 1 else 's'} of" in told
    assert ("No two components share a feature" in told) == (k == 2)


def test_lines_of_logs_are_summed_by_kind():
    lines = [
        {"task": "t", "what": "w", "shape": [2, i], "dtype": "int64", "bytes": 16 * i, "mechanism": "none", "round": i}
        for i in (1, 3)
    ] + [{"task": "t", "what": "w", "dtype": "f8", "mechanism": "dg", "round": 0, "total": {"epsilon": 0.5}}]
    first, second = summed(lines)
    assert (first["arrays"], first["rounds"], first["bytes"], first["largest"]) == (2, 2, 64, (2, 3))
    assert second["total"] == ", total ε up to 0.5"
