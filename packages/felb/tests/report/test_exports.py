"""Tables and figures of a report as files."""

from __future__ import annotations

import csv
import dataclasses
import sys

import numpy as np
import pytest
from PIL import Image

from felb.errors import InputError, MissingExtraError
from felb.report import gather, write_figures, write_tables


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def evidence(run):
    return gather(run.folder)


def test_tables_hold_the_numbers_of_the_page(run, evidence, tmp_path):
    names = write_tables(evidence, str(tmp_path / "new"))
    assert names == ["components.csv", "scores.csv", "history.csv", "overlap.csv", "clients.csv"]
    assert sorted(names) == sorted(path.name for path in (tmp_path / "new").iterdir())
    components = read(tmp_path / "new" / "components.csv")
    assert [int(row["component"]) for row in components] == [c.number for c in run.result.described()]
    assert [int(row["support"]) for row in components] == [c.support for c in run.result.described()]
    A, V = run.matrix.toarray(), run.result.components
    for row in components:
        tile = A[run.U[:, int(row["component"])]][:, V[int(row["component"])]]
        assert float(row["filled"]) == pytest.approx(tile.mean())
    scores = {row["score"]: row for row in read(tmp_path / "new" / "scores.csv")}
    assert float(scores["f1"]["value"]) == run.result.scores["f1"]
    assert float(scores["f1"]["low"]) < run.result.scores["f1"] < float(scores["f1"]["high"])
    assert len(read(tmp_path / "new" / "history.csv")) == len(run.result.history)
    assert len(read(tmp_path / "new" / "overlap.csv")) == 20 * 19 // 2
    clients = read(tmp_path / "new" / "clients.csv")
    assert sum(int(row["component 0"]) for row in clients) == run.result.supports[0]


def test_figures_are_pictures(evidence, tmp_path):
    names = write_figures(evidence, str(tmp_path))
    assert names == ["data.png", "reconstruction.png", "residual.png", "overlap.png", "rounds.png"]
    for name in names:
        with Image.open(tmp_path / name) as image:
            assert image.format == "PNG"
            assert min(image.size) > 200
            assert len(np.unique(np.asarray(image.convert("L")))) > 1


def test_without_data_there_are_fewer_figures(evidence, tmp_path):
    bare = dataclasses.replace(evidence, measured=None, absent="gone", assignments=None)
    assert write_figures(bare, str(tmp_path)) == ["overlap.png", "rounds.png"]
    assert "clients.csv" not in write_tables(bare, str(tmp_path))
    assert {row["records"] for row in read(tmp_path / "overlap.csv")} == {""}


def test_without_matplotlib_the_error_names_the_extra(evidence, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"felb\[report\]"):
        write_figures(evidence, str(tmp_path / "figures"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(evidence, tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match="folder"):
        write_tables(evidence, str(tmp_path / "taken"))
