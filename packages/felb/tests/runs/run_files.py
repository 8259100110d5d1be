"""What a result folder holds, in a form that can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import scipy.sparse as sp


def contents(folder: str | Path) -> dict[str, Any]:
    """Everything in a result folder except the times at which something left a client."""
    held: dict[str, Any] = {}
    for path in sorted(Path(folder).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".npz":
            matrix = sp.load_npz(path)
            held[name] = (matrix.shape, matrix.toarray().tolist())
        elif path.suffix == ".jsonl":
            held[name] = [
                {key: value for key, value in json.loads(line).items() if key not in ("time", "previous", "hash")}
                for line in path.read_text(encoding="utf-8").splitlines()
            ]
        elif path.suffix == ".safetensors":
            held[name] = path.read_bytes()
        elif path.is_file():
            held[name] = path.read_text(encoding="utf-8")
            if path.name == "result.json":  # logs tell the time, and so do their digests and that of the whole
                record = json.loads(held[name])
                record["files"] = {
                    file: sha for file, sha in record["files"].items() if not file.startswith("outbound")
                }
                held["result.json"] = {key: value for key, value in record.items() if key != "digest"}
    return held
