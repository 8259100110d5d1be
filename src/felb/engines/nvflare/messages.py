"""Requests and responses as FLARE messages: strings, integers and bytes only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.errors import FederationError
from felb.federated.protocol import Request
from felb.federated.wire import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

TASK = "felb"
"""The one task FLARE knows of; which of the algorithm's tasks it is says the request."""
RUN, ROUND, NAME, ALL_CLIENTS, VALUES, REASON = "run", "round", "task", "all_clients", "values", "reason"
MAX_REASON = 300


def write_request(run_id: str, request: Request) -> dict[str, Any]:
    """Return the content of a request."""
    return {
        RUN: run_id,
        ROUND: int(request.round),
        NAME: request.task,
        ALL_CLIENTS: bool(request.all_clients),
        VALUES: pack(request.values),
    }


def read_request(content: Mapping[str, Any], *, run_id: str) -> Request:
    """Read a request of the run a site takes part in."""
    number, task = content.get(ROUND), content.get(NAME)
    if content.get(RUN) != run_id:
        raise FederationError("a request of another run")
    if type(number) is not int or number < 0 or not isinstance(task, str):
        raise FederationError("a request without a round and a task")
    return Request.numbered(number, task, unpack(content.get(VALUES)), all_clients=content.get(ALL_CLIENTS) is True)


def reason_of(content: Mapping[str, Any], otherwise: str) -> str:
    """Return why a site did not answer, as one printable line."""
    text = content.get(REASON)
    text = text if isinstance(text, str) and text else otherwise
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_REASON]
