"""Small data files, and what is in a folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_csv(path: Path, rows, columns=None, clients=None, client_column="hospital") -> Path:
    """Write rows of cells as a CSV file, with a client column at the end if `clients` are given."""
    table = [list(row) for row in rows]
    header = list(columns) if columns is not None else None
    if clients is not None:
        header = [*(header or [f"f{i}" for i in range(len(table[0]))]), client_column]
        table = [[*row, f'"{client}"'] for row, client in zip(table, clients, strict=True)]
    lines = [header] if header is not None else []
    path.write_text("\n".join(",".join(str(cell) for cell in line) for line in lines + table) + "\n", encoding="utf-8")
    return path


def leftovers(folder: Path) -> list[str]:
    """Names of everything in a folder, hidden files included."""
    return sorted(path.name for path in folder.iterdir())


def read_log(path: Path) -> list[dict]:
    """Lines of an outbound log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
