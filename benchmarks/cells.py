"""The measured cells of a benchmark in one JSON file, so that an interrupted benchmark continues where it stopped."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.records import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator

MEASURED = Path(__file__).with_name("measured")
"""Folder of the files of all benchmarks."""

Key = tuple[str | int | float, ...]


class Cells:
    """A JSON file with one line for each measured cell, sorted by key.

    Several processes may add cells to one file: each addition reads the file again while it holds a lock on the folder,
    and the file is replaced as a whole.

    Parameters
    ----------
    path : the file, which need not exist
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> dict[str, Any]:
        """Return all cells by the name of their key."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}

    def get(self, key: Key) -> Any:
        """Return a cell, or None if it has not been measured."""
        return self.all().get(name_of(key))

    def put(self, key: Key, cell: Any) -> None:
        """Add a cell, or replace the one with the same key."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path.parent):
            cells = {**self.all(), name_of(key): cell}
            lines = (f"{json.dumps(name)}: {json.dumps(cells[name])}" for name in sorted(cells))
            with replacing(self.path) as partial:
                partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def name_of(key: Key) -> str:
    """Return the words of a key, separated by spaces."""
    return " ".join(f"{word:g}" if isinstance(word, float) else str(word) for word in key)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process holds the folder, and hold it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
