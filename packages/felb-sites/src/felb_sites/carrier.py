"""What a courier and a vault say to each other: bytes of envelopes, and nothing about what is in them."""

from __future__ import annotations

from typing import Annotated

import msgspec

MOST_AT_ONCE = 64
"""Envelopes in one message."""


CONNECTED, NOT_MEMBER = "connected", "not-member"
CONNECTIONS = {
    CONNECTED: "connected",
    NOT_MEMBER: "the relay does not accept this site: it is not admitted yet, was revoked, or its keys were replaced",
    "certificate": "the certificate of the relay is not one that the invitation names; is a proxy in between?",
    "unreachable": "the relay cannot be reached; check the network, the proxy, and that the coordinator's relay runs",
}
"""What a courier says of its connection, and what people are told."""
NOT_CONNECTED = "not connected"


class Deliver(msgspec.Struct, frozen=True, tag="deliver", forbid_unknown_fields=True):
    """From the courier: envelopes that came for this site, in the relay's order."""

    envelopes: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Fetch(msgspec.Struct, frozen=True, tag="fetch", forbid_unknown_fields=True):
    """From the courier: what is to be sent? It waits up to so many seconds for something.

    Parameters
    ----------
    sent : the last number that the relay has taken; what is up to there is not given again
    seconds : to wait
    """

    sent: Annotated[int, msgspec.Meta(ge=0, le=1 << 60)] = 0
    seconds: Annotated[float, msgspec.Meta(ge=0, le=30)] = 0.0


class Tell(msgspec.Struct, frozen=True, tag="tell", forbid_unknown_fields=True):
    """From the courier: how the connection is, a word that the vault shows to its operator and does not rely on."""

    state: Annotated[str, msgspec.Meta(max_length=32)]


class Outgoing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To the courier: envelopes to be sent, each with its number."""

    envelopes: Annotated[tuple[tuple[int, bytes], ...], msgspec.Meta(max_length=MOST_AT_ONCE)] = ()


ToVault = Deliver | Fetch | Tell
