"""The words between a courier and a vault; all that a courier needs to know of it, and free of compiled code.

A courier may run as a user who has no home and may write nowhere, where compiled code cannot be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

SITE, COURIER_FILE = "site.json", "courier.json"
"""In the folder of a site: who it is; in its kit: where its vault listens."""
READY, ANSWER, MASK, TRIP = "ready", "answer", "mask", "trip"
"""Whether a plan may be run; a request; a request whose answer is masked; another message of secure aggregation."""
WORDS = frozenset({"verb", "plan", "round", "task", "all_clients", "size", "sums", "trip"})
"""What a message may say."""
OK = "ok"


@dataclass(frozen=True, slots=True)
class Reply:
    """What leaves the vault.

    Parameters
    ----------
    code : "ok" or a word of `felb_sites.reasons`
    values : the arrays of an answer, packed; or a message of secure aggregation
    have : rounds whose sums the site has, so that the coordinator sends those it misses
    """

    code: str = OK
    values: bytes = b""
    have: int | None = None
