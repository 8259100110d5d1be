"""Questions and answers in FLARE's envelopes: words, whole numbers and bytes, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.engines.nvflare.wire import pack, unpack
from felb.errors import FederationError
from felb.federated.messages import Broadcast

if TYPE_CHECKING:
    from collections.abc import Mapping

TASK = "felb"
"""The one task FLARE knows of; which of the recipe's tasks it is says the question."""
RUN, ROUND, WORD, EVERYONE, VALUES, REASON = "run", "round", "task", "everyone", "values", "reason"
MAX_REASON = 300


def question(run_id: str, broadcast: Broadcast) -> dict[str, Any]:
    """Return the content of a question."""
    return {
        RUN: run_id,
        ROUND: int(broadcast.round),
        WORD: broadcast.task,
        EVERYONE: bool(broadcast.everyone),
        VALUES: pack(broadcast.values),
    }


def read_question(content: Mapping[str, Any], *, run_id: str) -> Broadcast:
    """Read a question of the run a site takes part in."""
    number, word = content.get(ROUND), content.get(WORD)
    if content.get(RUN) != run_id:
        raise FederationError("a question of another run")
    if type(number) is not int or number < 0 or not isinstance(word, str):
        raise FederationError("a question without a round and a task")
    return Broadcast(word, number, unpack(content.get(VALUES)), everyone=content.get(EVERYONE) is True)


def reason_of(content: Mapping[str, Any], otherwise: str) -> str:
    """Return why a site did not answer, as one printable line."""
    text = content.get(REASON)
    text = text if isinstance(text, str) and text else otherwise
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_REASON]
