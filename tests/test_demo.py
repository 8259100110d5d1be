"""The demo runs, on less data than by default, and leaves what it says."""

from __future__ import annotations

import importlib.util
import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.fixture
def demo(monkeypatch):
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "console", Console(width=120, highlight=False))
    return module


def test_the_demo_prints_scores_and_components_and_writes_its_files(demo, tmp_path, capsys):
    filters = list(warnings.filters)
    demo.main(["--out", str(tmp_path), "--rows", "500"])
    assert warnings.filters == filters
    out, err = capsys.readouterr()
    assert err == ""
    assert {"FederatedBMF", "FELB", "FELB-MU", "Asso,", "ELBMF"} <= {
        line.split()[0] for line in out.splitlines() if line
    }
    planted_scores, zoo_scores = re.findall(r"^FederatedBMF +10 clients +(.*)$", out, re.MULTILINE)
    f1, rmsd, recovered, rounds, _ = map(float, planted_scores.split())
    assert f1 > 0.6
    assert rmsd < 0.4
    assert recovered > 0.85
    assert rounds <= 300
    assert float(zoo_scores.split()[0]) > 0.85
    for feature, animal in (("feathers", "dove"), ("milk", "antelope"), ("fins", "bass")):
        assert any(feature in line and animal in line for line in out.splitlines()), (feature, animal)
    assert str(tmp_path / "reconstruction.png") in out.replace("\n", "")
    assert (tmp_path / "zoo" / "components.csv").read_text().count("\n") == 7
    logs = sorted((tmp_path / "zoo" / "outbound").iterdir())
    assert len(logs) == 10
    tasks = [json.loads(line)["task"] for line in logs[0].read_text().splitlines()]
    assert tasks[0] == "gram_sketch"
    assert {"factor_statistics", "threshold_counts", "flip_gains"} < set(tasks)


def test_the_picture_alone(demo, tmp_path, capsys):
    demo.main(["--picture", str(tmp_path / "p.png")])
    assert capsys.readouterr().out.replace("\n", "") == f"wrote {tmp_path / 'p.png'}"
    assert [path.name for path in tmp_path.iterdir()] == ["p.png"]
    with Image.open(tmp_path / "p.png") as image:
        pixels = np.asarray(image.convert("L"))
    assert pixels.shape[1] > 1600
    quarter = pixels.shape[1] // 4
    panels = [pixels[120:, i * quarter : (i + 1) * quarter] for i in range(4)]
    ink = [float((panel < 64).mean()) for panel in panels]
    assert min(ink) > 0.02, "a panel is empty"
    assert abs(ink[3] - ink[0]) < 0.03, "the reconstruction is not the signal"
    # Noise breaks black into many short runs; the reconstruction has the long edges of the planted tiles again.
    edges = [int((np.abs(np.diff(panel.astype(int), axis=1)) > 128).sum()) for panel in panels]
    assert edges[1] > 5 * edges[0]
    assert edges[3] < 2 * edges[0]


def test_the_picture_of_the_readme_is_there():
    with Image.open(DEMO.parents[1] / "docs" / "images" / "reconstruction.png") as image:
        assert image.format == "PNG"
        assert image.width > 1600
