"""Pages tell what there is and what there is not, and whatever is put into them is shown, not run."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_runs import EVIL

from felb import Asso, FederatedBMF
from felb.data import load, partition
from felb.errors import InputError
from felb.metrics.counts import History
from felb.report import build_result_page, gather, pages
from felb.report.pages import Column, Page, PageCell, Section, fill, make_table, summarize_logs
from felb.report.tables import MarkedTable, TableCell

ZOO = load("zoo")


class Reader(HTMLParser):
    """Collects the elements and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.attributes, self.texts = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append(name)
        self.attributes.extend(attributes)

    def handle_data(self, data):
        self.texts.append(data)


TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=40)

PARTS = {
    "facts": lambda names: [dict.fromkeys(names, names[0])],
    "names": lambda names: [names],
    "items": lambda names: [names],
    "note": lambda names: names[:1],
    "legend": lambda names: [dict.fromkeys(names, names[0])],
    "headlines": lambda names: [[{"name": n, "value": n, "interval": [n, n], "meaning": n} for n in names]],
    "heat_map": lambda names: [pages.HeatMap(None, [[0.5] * len(names)], names[:1], names), names[0]],
    "charts": lambda names: [[pages.Chart(names[0], None, names[0], dict.fromkeys([*names, ""], names[0]))]],
    "marked_tables": lambda names: [
        [MarkedTable(names[0], names[:2], [(names[0], [TableCell(names[0])] * (len(names[:2]) - 1))])],
        names[0],
    ],
}


@pytest.mark.parametrize("part", PARTS)
@given(names=st.lists(TEXT, min_size=1, max_size=5))
def test_no_part_lets_a_name_become_markup(part, names):
    plain = ["x" * len(name) for name in names]
    shown, expected = (Reader(fill("parts.html", part, *PARTS[part](values))) for values in (names, plain))
    assert set(shown.elements) <= set(expected.elements)
    assert {name for name, _ in shown.attributes} <= {name for name, _ in expected.attributes}


@given(TEXT, TEXT)
def test_text_and_attributes_come_back_as_they_were(content, attribute):
    read = Reader(make_table([Column("a", "words", attribute or None)], [[content]], caption=attribute))
    assert content.strip() in "".join(read.texts)
    assert ("aria-label", attribute) in read.attributes


def test_what_html_cannot_hold_is_replaced():
    assert fill("parts.html", "paragraph", "a\x00b\ud800") == "<p>a\ufffdb?</p>\n"
    assert fill("parts.html", "paragraph", "tab\tand\nline") == "<p>tab\tand\nline</p>\n"


@pytest.fixture
def page():
    content = fill("parts.html", "paragraph", "text")
    return Page("A <title>", [Section("First & foremost", content), Section("Second", content)], lead="lead")


def test_the_page_loads_nothing(page):
    text = page.html()
    read = Reader(text)
    for name, value in read.attributes:
        if name in ("src", "href", "action", "srcset"):
            assert value.startswith(("#", "data:")), value
    assert not re.search(r"https?://|url\(|@import", text)
    assert "link" not in read.elements
    assert "iframe" not in read.elements


def test_the_policy_admits_the_one_script(page):
    text = page.html()
    policy = re.search(r'Policy" content="([^"]*)"', text)[1]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"sha256-{digest}" in policy
    assert "default-src &#39;none&#39;" in policy


def test_the_bar_links_every_section(page):
    read = Reader(page.html())
    targets = {value for name, value in read.attributes if name == "id"}
    assert {"main", "first-foremost", "second"} <= targets
    assert {"#first-foremost", "#second", "#main"} <= {value for name, value in read.attributes if name == "href"}


def test_writing_replaces_pages_of_felb_only(page, tmp_path):
    path = tmp_path / "new" / "page.html"
    assert page.write(path) == path.stat().st_size
    assert page.write(path) == path.stat().st_size
    path.write_text("my diary")
    with pytest.raises(InputError, match="page"):
        page.write(path)
    assert path.read_text() == "my diary"
    page.write(path, force=True)
    assert path.read_text(encoding="utf-8") == page.html()
    assert [entry.name for entry in path.parent.iterdir()] == ["page.html"]


def test_a_folder_is_no_page(page, tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        page.write(tmp_path)


def test_numbers_for_people():
    assert pages.number(float("nan")) == "–"
    assert pages.number(1234.5, 1) == "1\u202f234.5"
    assert pages.significant(1e20) == "1.00e+20"
    assert pages.significant(-0.5) == "\u22120.5"
    assert pages.percent(0.256) == "26\u202f%"
    assert (pages.counted(1, "record"), pages.counted(2000, "record")) == ("1 record", "2\u202f000 records")


def test_rows_that_do_not_fit_the_columns_are_refused():
    with pytest.raises(ValueError, match="zip"):
        make_table([Column("a"), Column("b")], [[1]], caption="")


def test_a_cell_is_sorted_by_its_order_and_has_a_bar():
    table = make_table([Column("a")], [[PageCell("1 234", order=1234, bar=0.5)]], caption="", sortable=True)
    assert 'data-order="1234">1 234<i class="share" style="--share:0.5"></i></th>' in table
    assert 'data-sort="number"' in table


def text_of(page):
    return re.sub(r"<[^>]*>", " ", re.sub(r"<(style|script)>.*?</\1>", "", page.html(), flags=re.DOTALL))


def changed(inputs, **fields):
    result = inputs.result
    found = {name: fields.pop(name) for name in list(fields) if hasattr(result.outcome, name)}
    outcome = dataclasses.replace(result.outcome, **found)
    return dataclasses.replace(inputs, result=dataclasses.replace(result, outcome=outcome, **fields))


@pytest.fixture(scope="module")
def inputs(run):
    return gather(run.folder)


@pytest.fixture
def without_data(inputs):
    return dataclasses.replace(inputs, measured=None, absent="The data of the run (data.felb) was not found.")


def test_the_page_tells_of_the_run(run, inputs):
    told = text_of(build_result_page(inputs))
    made = run.result.provenance
    for fact in (
        "20 components of data.felb",
        made.felb,
        made.machine["python"],
        "client-04",
    ):
        assert fact in told
    assert made.data["fingerprint"] not in told, "L2: a page is passed on, and a hash of the data tells whose it is"
    for part in ("Scores", "Components", "Data and reconstruction", "Overlap", "Clients", "Rounds", "Privacy", "Run"):
        assert part in told
    assert f"{run.result.scores['f1']:.3f}" in told


def test_every_feature_of_every_component_is_on_the_page(run, inputs):
    page = build_result_page(inputs).html()
    table = page[page.index('id="components"') : page.index('id="data-and-reconstruction"')]
    rows = re.findall(r"<tr><th scope=\"row\".*?</tr>", table, re.DOTALL)
    assert len(rows) == 20
    for row, component in zip(rows, run.result.described(), strict=True):
        assert len(re.findall("<b>", row)) == len(component.features)
        assert f">{component.number}<" in row


def test_names_are_shown_not_run(inputs):
    page = build_result_page(inputs).html()
    assert EVIL not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<script>") == 1


def test_pictures_are_in_the_page_in_both_themes(inputs):
    page = build_result_page(inputs).html()
    assert len(re.findall('src="data:image/png;base64,', page)) == 6
    assert page.count('class="on-dark" src="data:image/png') == 3


def test_twenty_components_stay_far_below_five_megabytes(inputs):
    assert len(build_result_page(inputs).html().encode()) < 1_000_000


def test_intervals_say_how_they_were_made(inputs, without_data):
    assert "95% bootstrap intervals over records" in text_of(build_result_page(inputs))
    told = text_of(build_result_page(without_data))
    assert "95% Wilson intervals" in told
    assert "too narrow" in told


def test_without_data_the_page_says_how_to_get_pictures(without_data):
    told = text_of(build_result_page(without_data))
    assert "data.felb) was not found. With --data FILE" in told
    assert "data:image/png" not in build_result_page(without_data).html()


def test_a_run_without_noise_is_plainly_called_so(inputs):
    told = text_of(build_result_page(inputs))
    assert "This run was not differentially private" in told
    assert "12 arrays" in told
    assert "none had noise" in told


def test_a_private_run_shows_its_statement_and_no_scores(without_data):
    guarantee = {"text": "Privacy\n  Guarantee   (epsilon, delta) = (1, 1e-05) in <total>"}
    hidden = changed(without_data, scores={}, supports=None, privacy=guarantee)
    private = dataclasses.replace(hidden, assignments=None)
    told = text_of(build_result_page(private))
    assert "(1, 1e-05) in &lt;total&gt;" in told
    assert "not differentially private" not in told
    assert "Scores are not part of what this run releases" in told
    assert "known to the clients alone" in told
    assert "how many records have each is not part of what this run releases" in told


def test_exact_figures_of_a_private_run_come_with_a_warning(inputs):
    private = dataclasses.replace(changed(inputs, privacy={"text": "Privacy"}), assignments=None)
    assert "not covered by its guarantee" in " ".join(text_of(build_result_page(private)).split())


def test_an_agreement_without_a_statement_is_shown(inputs):
    parameters = {"privacy": {"epsilon": 0.5, "unit": "record"}}
    made = dataclasses.replace(inputs.result.provenance, parameters=parameters)
    told = text_of(build_result_page(changed(inputs, provenance=made)))
    assert "This run was private" in told
    assert "0.5" in told


def test_a_centralized_run_says_that_nothing_was_sent(inputs):
    centralized = dataclasses.replace(changed(inputs, clients={"centralized": 400}), outbound=())
    told = text_of(build_result_page(centralized))
    assert "nothing was sent" in told
    assert "client-04" not in told


def test_a_run_of_real_sites_says_where_its_logs_are(without_data):
    sites = dataclasses.replace(changed(without_data, clients={"a": None, "b": None}), assignments=None, outbound=())
    told = text_of(build_result_page(sites))
    assert "every client keeps its own" in told
    assert "records are not shown" in told
    assert "not recorded" in told


def test_a_method_without_history_has_no_curves(inputs):
    assert "keeps no record of its steps" in text_of(build_result_page(changed(inputs, history=History())))
    short = History([{"round": 0, "task": "local_components", "unfinished": 0}])
    assert "no curve to draw" in text_of(build_result_page(changed(inputs, history=short)))


def test_features_without_names_are_counted(inputs):
    told = text_of(build_result_page(changed(inputs, columns=None)))
    assert "x0 is the first column" in told
    assert "x119" in told


def test_unfinished_business_is_told(inputs):
    told = text_of(build_result_page(changed(inputs, complete=False, converged=False, integrality_gap=0.25)))
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
    told = text_of(
        build_result_page(dataclasses.replace(few, assignments={"centralized": np.zeros((400, k), dtype=bool)}))
    )
    assert f"{k} component{'' if k == 1 else 's'} of" in told
    assert ("No two components share a feature" in told) == (k == 2)


def test_lines_of_logs_are_summed_by_kind():
    lines = [
        {"task": "t", "what": "w", "shape": [2, i], "dtype": "int64", "bytes": 16 * i, "mechanism": "none", "round": i}
        for i in (1, 3)
    ] + [
        {
            "task": "t",
            "what": "w",
            "shape": [],
            "dtype": "f8",
            "bytes": 8,
            "mechanism": "dg",
            "round": 0,
            "total": {"epsilon": 0.5},
        }
    ]
    first, second = summarize_logs(lines)
    assert (first["arrays"], first["rounds"], first["bytes"], first["largest"]) == (2, 2, 64, [2, 3])
    assert second["total"] == ", total ε up to 0.5"


def test_without_matplotlib_the_page_has_its_tables_and_names_the_extra(inputs, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    html = build_result_page(inputs).html()
    assert "felb[report]" in html
    assert "<img" not in html
    assert "As a table" in html


def test_the_best_and_the_second_best_of_a_table_are_marked():
    cells = (("a", (TableCell("0.9 ±0.1", "best"),)), ("d", (TableCell("–", "second", "0.8"),)))
    html = fill("parts.html", "marked_tables", [MarkedTable("F1", ("method", "k = 5"), cells)], "told")
    assert "<strong>0.9 ±0.1</strong>" in html
    assert "<u>–</u> / 0.8" in html


def test_a_notebook_shows_the_components_and_escapes_names():
    model = FederatedBMF(4, effort="fast", random_state=0).fit(ZOO, groups=partition.even(101, 3))
    html = model._repr_mimebundle_()["text/html"]
    assert html == (model._repr_html_() if callable(model._repr_html_) else model._repr_html_)
    for features in model.component_features():
        assert ", ".join(features).replace("<", "&lt;").replace(">", "&gt;") in html
    assert "F1" in html
    assert model._repr_mimebundle_()["text/plain"] == repr(model)
    hostile = Asso(2).fit(ZOO.with_columns([f"<script>{i}" for i in range(17)]))
    assert "<script>" not in hostile._repr_mimebundle_()["text/html"]


def test_before_the_fit_a_notebook_shows_what_scikit_learn_shows():
    assert "sk-top-container" in Asso(3)._repr_mimebundle_()["text/html"]


def test_progress_is_shown_on_request_only(capsys):
    seen = []
    quick = FederatedBMF(3, effort="fast", random_state=0)
    quick.fit(ZOO, on_round=lambda progress: seen.append(len(progress.history)))
    assert capsys.readouterr().err == ""
    U = quick.fit_transform(ZOO, on_round=lambda progress: seen.append(len(progress.history)), verbose=True)
    told = capsys.readouterr().err
    assert "rounds" in told
    assert f"{len(quick.history_)}/{len(quick.history_)}" in told
    assert seen == [*range(1, len(quick.history_) + 1)] * 2
    np.testing.assert_array_equal(U, quick.transform(ZOO))
