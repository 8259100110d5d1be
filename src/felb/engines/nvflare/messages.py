"""Requests and responses as FLARE messages: strings, integers and bytes only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.engines.nvflare.replay import pack_sums
from felb.engines.nvflare.vault import ANSWER, READY
from felb.federated.wire import pack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from felb.federated.protocol import Request, Sums

TASK = "felb"
"""The one task FLARE knows of; which of the algorithm's tasks it is says the request."""
VERB, ROUND, NAME, ALL_CLIENTS, VALUES, CODE = "verb", "round", "task", "all_clients", "values", "code"
SUMS, SUMS_TABLE, HAVE = "sums", "sums_table", "have"


def write_request(request: Request, sums: Sequence[Sums] = ()) -> dict[str, Any]:
    """Return the content of a request, with the sums of earlier rounds that a site may miss."""
    table, data = pack_sums(sums)
    return {
        VERB: ANSWER,
        ROUND: int(request.round),
        NAME: request.task,
        ALL_CLIENTS: bool(request.all_clients),
        VALUES: pack(request.values),
        SUMS_TABLE: table,
        SUMS: data,
    }


def write_question() -> dict[str, Any]:
    """Return the content of the question whether a site will take part."""
    return {VERB: READY, ROUND: -1}


def vault_message(content: Mapping[str, Any], plan: Any) -> tuple[dict[str, Any], bytes]:
    """Return a message of FLARE as a courier tells it to the vault, which checks every part of it."""
    words: dict[str, Any] = {"verb": content.get(VERB), "plan": plan}
    if content.get(VERB) != READY:
        words |= {"round": content.get(ROUND), "task": content.get(NAME), "all_clients": content.get(ALL_CLIENTS)}
    values, sums = (part if isinstance(part, bytes) else b"" for part in (content.get(VALUES), content.get(SUMS)))
    if content.get(VERB) != READY:
        words |= {"size": len(values), "sums": content.get(SUMS_TABLE)}
    return words, values + sums
