"""What every experiment must satisfy; a new one is its name in the catalogue.

An experiment of another package is tested by a file with ``from test_experiment_contract import *`` and an
``EXPERIMENTS`` of its own, as docs/extend.md does.
"""

import json

from felb.federated.algorithms.registry import METHODS
from felb_paper.cells import cell_of
from felb_paper.experiments import NAMES, find_study
from felb_paper.study import StudyRecord

EXPERIMENTS = {
    f"{name}, {form}": find_study(name, quick=form == "quick") for name in NAMES for form in ("quick", "full")
}


def pytest_generate_tests(metafunc):
    """Take the experiments of the module that asks, which may be one that has imported these tests."""
    if "study" in metafunc.fixturenames:
        table = metafunc.module.EXPERIMENTS
        metafunc.parametrize("study", table.values(), ids=table.keys())


def test_cells_are_distinct_and_complete(study):
    cells = study.cells()
    assert study.form in ("quick", "full")
    assert study.name
    assert study.title
    assert study.question.endswith("?")
    assert len({cell.key for cell in cells}) == len(cells)
    assert {cell.trial for cell in cells} == set(range(study.trials))


def test_cells_are_plain_data_about_methods_that_there_are(study):
    for cell in study.cells():
        stored = json.loads(json.dumps(cell.parameters))
        assert cell_of(stored).parameters == cell.parameters
        assert stored["seed"] == cell.trial
        assert METHODS[cell.use.method].federated
        assert set(cell.use.parameters) <= set(METHODS[cell.use.method].parameters())


def test_the_view_shows_every_cell(study):
    view = study.view()
    assert {cell.use.label for cell in study.cells()} == set(view.methods)
    assert {cell.panel for cell in study.cells()} == set(view.panels)
    assert set(view.axes) <= set(view.panels)
    assert view.note


def test_settings_are_plain_data(study):
    assert json.loads(json.dumps(study.settings()))
    assert "form" not in study.settings()


def test_without_cells_nothing_is_claimed(study):
    planned = tuple(cell.planned() for cell in study.cells())
    record = StudyRecord(study.name, study.title, study.question, study.form, study.view(), planned)
    assert all(claim.verdict != "reproduced" for claim in study.judge(record))
