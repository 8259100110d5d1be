"""Stored runs, for every test of reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from stored_runs import Stored, store

from felb.runs.result import fingerprint_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Stored:
    """A run of twenty components at four clients; do not change it."""
    return store(tmp_path_factory.mktemp("stored"))


@pytest.fixture
def rewrite():
    """Change result.json of a run folder, and let its private.json belong to the changed one."""

    def change(folder: Path, **fields: Any) -> None:
        path = folder / "result.json"
        raw = json.loads(path.read_text(encoding="utf-8"))
        for name, value in fields.items():
            target = raw
            *parents, last = name.split("__")
            for parent in parents:
                target = target[parent]
            target[last] = value
        content = json.dumps(raw).encode()
        path.write_bytes(content)
        if (folder / "private.json").is_file():  # still of this result
            own = json.loads((folder / "private.json").read_text(encoding="utf-8"))
            (folder / "private.json").write_text(
                json.dumps({**own, "result": fingerprint_of(content)}), encoding="utf-8"
            )

    return change


@pytest.fixture
def make_run():
    """Write a run of one's own."""
    return store
