"""The outbound logs of a site, one for each run, as its own commands read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.privacy.outbound_log import Head, read_outbound_log, verify

if TYPE_CHECKING:
    from pathlib import Path

OUTBOUND = "outbound.jsonl"
"""In the folder of a run."""


def read_outbound(state: Path, *, run_id: str | None = None) -> list[dict[str, Any]]:
    """Return the lines of a site's outbound logs, each with its run; a line that was cut short is left out."""
    lines = []
    for log in sorted(state.glob(f"*/{OUTBOUND}")):
        if run_id is not None and log.parent.name != run_id:
            continue
        lines += [{"run": log.parent.name, **line} for line in read_outbound_log(log)]
    return lines


def verify_outbound(state: Path, *, run_id: str | None = None) -> dict[str, Head]:
    """Return where the chain of each run's outbound log ends, or raise an error that names the first wrong line."""
    logs = [log for log in sorted(state.glob(f"*/{OUTBOUND}")) if run_id in (None, log.parent.name)]
    if run_id is not None and not logs:
        raise InputError(f"there is no log of a run {run_id!r}; `felb site log` shows those there are")
    return {log.parent.name: verify(log) for log in logs}
