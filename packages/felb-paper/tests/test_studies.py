"""The experiments as they are written down: complete, repeatable, small where they say so."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
import scipy.sparse

from felb.data import BinaryMatrix
from felb.errors import InputError
from felb_paper.cells import Cell, MethodUse, Noise, PlantedData, SourceData, cell_of
from felb_paper.experiments import NAMES, find_study
from felb_paper.experiments import real as published

POST_HOC = ("Asso", "GreConD", "MEBF", "Zhang", "ELBMF")
OWN_TRIALS = {"realworld": (10, 600), "clients": (5, 600)}
"""Trials and seconds a cell of full forms that are not as the paper's."""

SEVEN = {*POST_HOC, "FELB", "FELB-MU"}
PUBLISHED = {"FELB literal", "FELB-MU literal", "ELBMF published"}


@pytest.mark.parametrize("name", NAMES)
def test_the_full_form_has_ten_trials_and_the_quick_one_is_small(name):
    full, quick = find_study(name), find_study(name, quick=True)
    assert (full.trials, full.time_limit) == OWN_TRIALS.get(name, (10, 12 * 3600))
    assert quick.trials == 5  # fewer decide nothing
    assert quick.time_limit <= 90
    assert len(quick.cells()) < len(full.cells())
    for cell in quick.cells():
        assert cell.clients <= 32
        if isinstance(cell.data, PlantedData):
            assert cell.data.rows * cell.data.columns <= 640_000


@pytest.mark.parametrize("name", ["noise", "scarcity", "abundance", "realworld"])
def test_all_seven_methods_stand_beside_the_default_one(name):
    expected = SEVEN | PUBLISHED | {"FederatedBMF"}
    if name == "realworld":
        others = {
            *(f"{label} aligned" for label in (*POST_HOC, "ELBMF published")),
            "FedNMF",
            "FedProx",
            "SCAFFOLD",
            "ProxSkip",
        }
        assert expected <= set(find_study(name).view().methods) <= expected | others
        assert set(find_study(name, quick=True).view().methods) == expected
    else:
        assert set(find_study(name).view().methods) == expected


def test_published_settings():
    by_label = {cell.use.label: cell.use for cell in find_study("noise").cells()}
    # Of the paper's methods the synchronisation is that of the evaluation; weights and rounds are those of the setting.
    assert by_label["FELB"].parameters == by_label["FELB-MU"].parameters == {"local_steps": 10}
    elbmf = {"l1": 0.01, "l2": 0.01, "l2_rate": 1.02, "inertia": 0.01, "max_iter": 1000}
    assert by_label["ELBMF"].parameters == elbmf
    assert by_label["ELBMF published"].parameters == {**elbmf, "setting": "published"}
    for method in ("FELB", "FELB-MU"):
        assert by_label[f"{method} literal"].parameters == {"local_steps": 10, "setting": "literal"}
    assert by_label["Zhang"].parameters == {"max_iter": 1000}
    assert by_label["Asso"].parameters == {"tau": 1.0, "bonus": 1.0, "penalty": 1.0}
    assert by_label["MEBF"].parameters == {"threshold": 0.5, "uncovered": 0.05}
    assert find_study("noise").clients == 10
    assert find_study("noise").levels[0] == 0
    assert find_study("noise").levels[-1] == 0.5
    assert find_study("scarcity").rows == 2**16
    assert find_study("scarcity").clients == find_study("abundance").clients == tuple(2**i for i in range(2, 10))
    assert find_study("abundance").rows_per_client == 500
    assert find_study("realworld").clients == 50
    assert {cell.use.parameters["local_steps"] for cell in find_study("sync").cells()} == {1, 10, 50}
    assert (min(find_study("drift").steps), max(find_study("drift").steps)) == (1, 50)


def test_studies_are_frozen():
    with pytest.raises(FrozenInstanceError):
        find_study("noise").rows = 3


def test_fewer_trials_are_a_part_of_more():
    some, more = ({cell.key for cell in find_study("noise", trials=count).cells()} for count in (2, 4))
    assert some < more


def test_an_unknown_experiment_is_refused_with_those_there_are():
    with pytest.raises(InputError, match="invader, noise, scarcity"):
        find_study("nois")


CELL = Cell(MethodUse("FELB", "felb", {"max_iter": 3}), PlantedData(60, 12, 2, noise=0.1), 3, 0.1, 0)
CHANGES = [
    {"use": MethodUse("FELB", "felb", {"max_iter": 4})},
    {"use": MethodUse("FELB", "felb-mu", {"max_iter": 3})},
    {"data": PlantedData(60, 12, 2, noise=0.2)},
    {"data": PlantedData(61, 12, 2, noise=0.1)},
    {"data": SourceData("zoo", 2)},
    {"clients": 4},
    {"trial": 1},
    {"watch": "rounds"},
    {"noise": Noise("gaussian", 0.1)},
    {"split": "uneven"},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_other_parameters_are_another_cell(changes):
    assert replace(CELL, **changes).key.split(".")[-1] != CELL.key.split(".")[-1]


def test_the_same_parameters_are_the_same_cell_whatever_it_is_called():
    other = replace(CELL, use=replace(CELL.use, label="ours"))
    assert other.key == CELL.key
    assert CELL.key == "felb.0.1.0.2906f00d96c4ec63"  # cells that were stored stay valid


def test_every_field_of_a_cell_that_is_measured_is_in_its_parameters():
    shown_only = {"place", "panel"}
    told = {"use": ("method", "method_parameters"), "trial": ("seed",)}
    names = {field.name for field in fields(Cell)} - shown_only
    written = set(replace(CELL, split="uneven").parameters)
    assert {word for name in names for word in told.get(name, (name,))} | {"measure"} == written


# -- the published tables ----------------------------------------------------------------------------------------------

F1 = """
acs-income   .388 .108 .690 0    0    .585 .328
acs-poverty  .692 –    .797 0    .217 .638 .517
cs.LG        –    0    .068 0    0    .057 .006
goodreads    –    0    .017 –    0    .125 .059
hpa-brain    –    .642 –    0    0    .007 0
movielens    –    .017 –    –    0    .193 .163
netflix      –    .010 –    –    0    .197 .144
tcga         .039 .055 .007 0    0    .414 .402
"""
RMSD = """
acs-income   4.583 4.929  3.485 5.005  5.005  3.962  4.560
acs-poverty  5.822 –      4.785 7.734  7.190  7.576  7.588
cs.LG        –     3.398  3.350 3.398  3.398  3.372  3.396
goodreads    –     1.669  1.668 –      1.669  1.641  1.660
hpa-brain    –     19.537 –     24.434 24.434 24.409 24.433
movielens    –     1.956  –     –      1.962  1.914  1.925
netflix      –     4.075  –     –      4.084  3.982  4.009
tcga         6.858 6.834  6.871 6.872  6.872  6.346  6.420
"""


@pytest.mark.parametrize(("text", "metric"), [(F1, "f1"), (RMSD, "rmsd_table")])
def test_published_tables(text, metric):
    shown = find_study("realworld").view().published[metric]
    lines = [line.split() for line in text.strip().splitlines()]
    assert list(shown) == [name for name, *_ in lines]
    for name, *values in lines:
        expected = [None if value == "–" else float(value) for value in values]
        assert [shown[name][method] for method in published.METHODS] == expected


def test_where_nothing_was_found_the_rmsd_is_that_of_the_ones():
    compared = 0
    for row in published.TABLE:
        nothing = 50 * math.sqrt(row.back_computed_density)  # every one of the data is wrong
        for f1, rmsd in zip(row.f1, row.rmsd, strict=True):
            if f1 == 0:
                assert rmsd == pytest.approx(nothing, abs=0.002)
                compared += 1
            elif f1 is not None and f1 > 0.05:
                assert rmsd < nothing
    assert compared == 15


def test_published_data_is_in_the_catalogue():
    from felb_paper.data import find

    for row in published.TABLE:
        assert find(row.name).shape == row.shape
        assert find(row.name).density == pytest.approx(row.back_computed_density, abs=5.1e-4)


SHIPPED = {"zoo", "soybean", "sc_10x_brain_10k"}


def places(**options):
    return {cell.place for cell in find_study("realworld", **options).cells()}


@pytest.fixture
def matrices(tmp_path):
    """A folder with two matrices, a data set of the paper as raw files and one as a matrix, and other files."""
    folder = tmp_path / "matrices"
    folder.mkdir()
    rng = np.random.default_rng(0)
    scipy.sparse.save_npz(folder / "visits.npz", scipy.sparse.csr_array((rng.random((60, 12)) < 0.3).astype(np.uint8)))
    BinaryMatrix.of(rng.random((200, 40)) < 0.2).save(folder / "tcga.felb")
    (folder / "netflix").mkdir()
    (folder / "zoo.npz").touch()  # comes with felb, so nobody reads it
    (folder / "README.md").touch()
    return folder


@pytest.mark.parametrize("quick", [True, False])
def test_real_data_in_the_folder_is_run_and_other_is_not(matrices, tmp_path, monkeypatch, quick):
    monkeypatch.setenv("FELB_DATA", str(tmp_path))
    assert places(quick=quick) == SHIPPED
    assert places(quick=quick, data=matrices) == SHIPPED | {"visits", "tcga", "netflix"}
    monkeypatch.setenv("FELB_DATA", str(matrices))
    assert places(quick=quick) == SHIPPED | {"visits", "tcga", "netflix"}
    cells = {cell.place: cell for cell in find_study("realworld", quick=quick).cells()}
    assert cells["tcga"].data.components == 33
    assert cells["visits"].data.components == 12  # it has no more columns
    assert cells["visits"].clients == 6


def test_cheap_data_comes_first_and_large_data_has_one_trial(matrices):
    cells = find_study("realworld", data=matrices).cells()
    order = list(dict.fromkeys(cell.place for cell in cells))
    assert order == ["visits", "zoo", "tcga", "soybean", "sc_10x_brain_10k", "netflix"]
    trials = {place: {cell.trial for cell in cells if cell.place == place} for place in order}
    assert trials["zoo"] == set(range(10))
    assert trials["netflix"] == {0}


def test_another_file_of_the_same_name_is_another_cell(matrices):
    def key():
        return next(cell.key for cell in find_study("realworld", data=matrices).cells() if cell.place == "visits")

    before = key()
    matrix = scipy.sparse.load_npz(matrices / "visits.npz").toarray()
    moved = matrices.parent / "moved"
    shutil.copytree(matrices, moved)
    cells = find_study("realworld", data=moved).cells()
    assert before in {cell.key for cell in cells}  # wherever the folder is
    matrix[0, 0] ^= 1
    scipy.sparse.save_npz(matrices / "visits.npz", scipy.sparse.csr_array(matrix))
    assert key() != before


def test_a_file_that_is_no_matrix_is_left_out_with_a_warning(matrices):
    (matrices / "weights.npz").touch()
    with pytest.warns(UserWarning, match=r"weights.npz"):
        assert "weights" not in places(data=matrices)


def test_a_data_folder_is_refused_where_it_is_absent_or_of_no_use(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        find_study("realworld", data=tmp_path / "nowhere")
    with pytest.raises(InputError, match="own data"):
        find_study("noise", data=tmp_path)


def test_a_matrix_of_the_folder_is_measured(matrices):
    from felb_paper.measuring import measure

    cell = next(c for c in find_study("realworld", data=matrices).cells() if c.place == "visits")
    found = measure(cell_of(json.loads(json.dumps(cell.parameters))), folder=matrices).figures
    assert (found["rows"], found["columns"]) == (60, 12)
    assert 0 < found["f1"] <= 1


def test_no_client_of_real_data_has_fewer_than_ten_rows():
    clients = {cell.place: cell.clients for cell in find_study("realworld", trials=1).cells()}
    assert clients["zoo"] == 10
    assert clients["soybean"] == clients["sc_10x_brain_10k"] == 50
