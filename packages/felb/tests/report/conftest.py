"""Stored runs, for every test of reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from results import reseal
from stored_runs import Stored, store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Stored:
    """A run of twenty components at four clients; do not change it."""
    return store(tmp_path_factory.mktemp("stored"))


@pytest.fixture
def rewrite():
    """Change result.json of a run folder, and seal it anew."""

    def change(folder: Path, **fields: Any) -> None:
        path = folder / "result.json"
        raw = json.loads(path.read_text(encoding="utf-8"))
        for name, value in fields.items():
            target = raw
            *parents, last = name.split("__")
            for parent in parents:
                target = target[parent]
            target[last] = value
        path.write_text(json.dumps(raw), encoding="utf-8")
        reseal(folder)

    return change


@pytest.fixture
def make_run():
    """Write a run of one's own."""
    return store
