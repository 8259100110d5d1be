"""Experiments with a user's own method."""

import sys
from dataclasses import replace

import pytest

from felb.errors import InputError
from felb.runs.cells import answered
from felb_paper.experiments import find_study
from felb_paper.measuring import make_any_federated, measured, with_own_methods
from study_records import made_up, tiny

OWN = """
from felb import Asso, FELB

class Mine(Asso):
    pass

class Shared(FELB):
    pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "mine.py"
    sys.modules.pop("mine", None)


def test_own_methods_are_measured_as_those_of_felb(own):
    study = with_own_methods(tiny(), ["mine:Mine+vote", "mine:Shared"])
    cells = {cell.use.label: cell for cell in study.cells() if cell.place == 0.1}
    assert set(cells) == {"FELB", "Asso", "Mine+vote", "Shared"}
    found = {label: answered(measured, {"parameters": cell.parameters}) for label, cell in cells.items()}
    assert found["Mine+vote"]["status"] == "done"
    assert found["Mine+vote"]["figures"]["f1"] == found["Asso"]["figures"]["f1"]
    shown = made_up(study, lambda cell: {"f1": 0.5, "f1_star": 0.5, "rmsd": 0.1})
    assert shown.methods()[-2:] == ["Mine+vote", "Shared"]


def test_an_edited_method_is_another_cell(own):
    def key():
        return [cell.key for cell in with_own_methods(tiny(), ["mine:Shared"]).cells()][-1]

    before = key()
    assert key() == before
    own.write_text(OWN + "# edited\n")
    assert key() != before


def test_what_does_not_run_over_clients_is_refused_before_anything_runs(own):
    for path, words in (
        ("mine:Mine", "does not run over clients"),
        ("asso", "no import path"),
        ("mine:No", "no class"),
    ):
        with pytest.raises(InputError, match=words):
            with_own_methods(tiny(), [path])
    with pytest.raises(InputError, match="list of methods"):
        with_own_methods(find_study("sync", quick=True), ["mine:Shared"])


def test_names_of_felb_are_made_as_ever():
    assert type(make_any_federated("felb", n_components=2)).__name__ == "FELB"
    assert with_own_methods(study := replace(tiny(), trials=2), ()) is study
