"""Find the outbound logs of a run, of a site, or of one client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from felb.engines.nvflare.site_logs import read_outbound
from felb.engines.nvflare.vault_words import SITE
from felb.errors import InputError
from felb.privacy.outbound_log import read_outbound_log
from felb.runs.result_places import OUTBOUND, RESULT

if TYPE_CHECKING:
    import os


def outbound_lines(place: str | os.PathLike[str], *, client: str | None = None) -> list[dict[str, Any]]:
    """Return the lines of everything that left.

    Parameters
    ----------
    place : a client's log (.jsonl), the folder of a simulated run, finished or not, or the folder of a site
    client : only what left this client
    """
    path = Path(place)
    if path.is_file():
        lines = read_outbound_log(path)
        if not lines and path.stat().st_size:
            raise InputError(f"{path} is no outbound log; give a log (.jsonl), the folder of a run or of a site")
    elif (path / SITE).is_file():
        from felb.engines.nvflare.provisioning import Site

        lines = read_outbound(Site.open(path).state)
    else:
        lines = [line for log in _logs(path) for line in read_outbound_log(log)]
    if client is None:
        return lines
    kept = [line for line in lines if line.get("client") == client]
    if not kept:
        known = sorted({str(line.get("client")) for line in lines})
        raise InputError(f"nothing of a client {client!r} is in {place}; it has {', '.join(known) or 'no lines'}")
    return kept


def _logs(path: Path) -> list[Path]:
    """Return the logs in the folder of a run; while it is under way, they are in the folder beside."""
    if not path.exists() and path.with_name(f"{path.name}.unfinished").is_dir():
        path = path.with_name(f"{path.name}.unfinished")
    if not path.exists():
        raise InputError(f"there is no {path}; give a log (.jsonl), the folder of a run, or the folder of a site")
    if (path / OUTBOUND).is_dir():
        return sorted((path / OUTBOUND).glob("*.jsonl"), key=lambda log: unquote(log.stem))
    if not (path / RESULT).is_file():
        raise InputError(
            f"{path} holds no outbound log; give a log (.jsonl), the folder of a run, or the folder of a site"
        )
    return []
