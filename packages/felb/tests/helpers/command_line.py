"""What the tests of the command line share: running it in this process, small data files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cli_files import write_csv

from felb.cli import main
from felb.data import planted

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def felb(capsys):
    """Run ``felb ARGS`` in this process."""

    def run(*args) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Outcome(int(exit_.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def in_folder(tmp_path, monkeypatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def rows():
    """60 records x 12 features with three planted components."""
    return planted(60, 12, 3, noise=0.02, heights=(0.3, 0.4), widths=(0.25, 0.4), seed=3).A.toarray().astype(int)


@pytest.fixture
def table(in_folder, rows) -> Path:
    """The data as a CSV file with names."""
    return write_csv(in_folder / "table.csv", rows, [f"f{i}" for i in range(rows.shape[1])])


@pytest.fixture
def hospitals(in_folder, rows) -> Path:
    """The data as a CSV file with a column that names the hospital of each row."""
    return write_csv(in_folder / "hospitals.csv", rows, clients=np.resize(["north", "south", "west"], len(rows)))
