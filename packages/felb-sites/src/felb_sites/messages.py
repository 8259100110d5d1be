"""What is inside of envelopes: typed records in MessagePack, arrays as safetensors, nothing that runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from felb.errors import FederationError

T = TypeVar("T")
_Word = Annotated[str, msgspec.Meta(max_length=32)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From the coordinator: a run that a site is asked to take part in.

    Parameters
    ----------
    plan : of the run, as `Plan.to_json` writes it
    sites : that take part
    members : digest of the coordinator's member list
    """

    plan: dict[str, Any]
    sites: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)]
    members: str


class Consent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From a site: it waits for a person's decision, or it takes part.

    Parameters
    ----------
    status : "waiting" or "approved"
    plan, members : digests of what the site agrees to
    code : what it waits for, a word of `felb_sites.reasons`
    """

    status: Literal["waiting", "approved"]
    plan: str
    members: str
    code: _Word = ""


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From a site: it does not take part, or not any more; or it cannot answer a round.

    Parameters
    ----------
    code : a word of `felb_sites.reasons`
    needs : the number that is missing, where it follows from plan and rules alone
    """

    code: _Word
    needs: _Count | None = None


class RoundSums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From the coordinator: the sums of the round before, from which every site derives the request of this one.

    Parameters
    ----------
    clients : how many sites are in the sums; 0 in the first round, which has none before it
    sums : packed arrays
    real : packed real-valued fields of the request of this round, named ``part/field``, for machines whose linear
        algebra rounds in another way; a site takes them if they are close to its own
    """

    clients: _Count = 0
    sums: bytes = b""
    real: bytes = b""


class Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From a site: what its gate has released for a round.

    Parameters
    ----------
    values : packed arrays, in the narrowest types that hold them
    """

    values: bytes


class SecureTrip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of secure aggregation, in either direction."""

    message: bytes


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From the coordinator: the run is over, for good.

    Parameters
    ----------
    status : "finished" or "stopped"
    """

    status: Literal["finished", "stopped"] = "finished"


def write_message(message: msgspec.Struct) -> bytes:
    """Return a message as bytes."""
    return msgspec.msgpack.encode(message)


def read_message(data: bytes, kind: type[T]) -> T:
    """Read a message of one kind; anything else is a `FederationError`."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
        raise FederationError("a message of another form") from error
