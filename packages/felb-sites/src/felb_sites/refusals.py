"""The log of refused runs and requests of a site."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.privacy.outbound_log import read_log

if TYPE_CHECKING:
    import os

REFUSALS = "refusals.jsonl"
MOST_BYTES, MOST_WORDS = 1 << 20, 64
"""A coordinator that asks for ever must not fill the disk: the latest refusals are kept, and as many before them."""
OLD = ".1"


def note_refusal(state: str | os.PathLike[str], plan: Any, reason: str) -> None:
    """Write a line about a run that was refused; `plan` is what came, whatever that is."""
    path = Path(state) / REFUSALS
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        path.replace(path.with_name(REFUSALS + OLD))
    named = plan.get("run_id") if isinstance(plan, dict) else None
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"time": now, "run": str(named)[:MOST_WORDS], "reason": reason}) + "\n")


def read_refusals(state: str | os.PathLike[str], *, run_id: str | None = None) -> list[dict[str, Any]]:
    """Return the lines, of one run or of all."""
    paths = (Path(state) / f"{REFUSALS}{end}" for end in (OLD, ""))
    lines = [line for path in paths if path.is_file() for line in read_log(path)]
    return [line for line in lines if run_id is None or line.get("run") == run_id]
