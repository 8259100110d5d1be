"""The outbound log: one line for everything that ever left a client, for that client's own reviewer."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from felb.privacy.cost import Cost


@dataclass(frozen=True, slots=True)
class OutboundRecord:
    """One array that left: which round and task, what, how large, under which mechanism, at what cost.

    A cost of None means unprotected, not free. `total` is what the client has spent so far, including all arrays of the
    same round, if it keeps a ledger.
    """

    client: str
    round: int
    task: str
    what: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    mechanism: str
    cost: Cost | None
    total: Mapping[str, Any] | None = None


class OutboundLog:
    """Appends records as JSON lines, each with the time it was written, and is flushed line by line."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, record: OutboundRecord) -> None:
        """Write one line."""
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(record)})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
