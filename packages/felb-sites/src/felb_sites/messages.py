"""Requests and responses as FLARE messages: strings, integers and bytes only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.federated.journal import pack
from felb_sites.vault_words import ANSWER, MASK, READY, TRIP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from felb.federated.protocol import Request, Sums

TASK = "felb"
"""The one task FLARE knows of; which of the algorithm's tasks it is says the request."""
VERB, ROUND, NAME, ALL_CLIENTS, VALUES, CODE = "verb", "round", "task", "all_clients", "values", "code"
SUMS, SUMS_TABLE, HAVE, TRIPS = "sums", "sums_table", "have", "trips"


def write_request(request: Request, sums: Sequence[Sums] = ()) -> dict[str, Any]:
    """Return the content of a request, with the sums of earlier rounds that a site may miss."""
    from felb_sites.replay import pack_sums  # a courier, which carries messages, needs none of this

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


def write_question(roster: bytes = b"") -> dict[str, Any]:
    """Return the content of the question whether a site will take part, with the roster that is proposed to it."""
    return {VERB: READY, ROUND: -1, VALUES: roster}


def write_trip(messages: Mapping[str, bytes], number: int, order: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the content of a trip of secure aggregation: a message for each site, none of which is secret.

    Parameters
    ----------
    messages : by the names of the sites
    number : of the round
    order : what `write_request` wrote, in the trip that asks for masked inputs
    """
    told = {VERB: TRIP, ROUND: number} if order is None else {**order, VERB: MASK}
    return {**told, TRIPS: dict(messages)}


def vault_message(content: Mapping[str, Any], plan: Any, *, site: str = "") -> tuple[dict[str, Any], bytes]:
    """Return a message of FLARE as the courier of a site tells it to the vault, which checks every part of it."""
    verb, messages = content.get(VERB), content.get(TRIPS)
    words: dict[str, Any] = {"verb": verb, "plan": plan}
    values, sums, trip = (
        part if isinstance(part, bytes) else b""
        for part in (content.get(VALUES), content.get(SUMS), messages.get(site) if isinstance(messages, dict) else None)
    )
    if verb == READY:
        return words, values
    if verb == TRIP:
        return words, trip
    words |= {"round": content.get(ROUND), "task": content.get(NAME), "all_clients": content.get(ALL_CLIENTS)}
    words |= {"size": len(values), "sums": content.get(SUMS_TABLE)}
    if verb == MASK:
        words |= {"trip": len(values) + len(sums)}
    return words, values + sums + trip
