"""The messages of a secure sum: typed records in MessagePack, bounded in size, with nothing in them that runs.

A trip to a site carries a part for the sum that is being made, a part for the keys of the next one, or both. The site
answers both parts in one reply, so that a sum takes three trips as long as no site is lost.

==============  ==================================  ===================================
trip            from the server                     from the site
==============  ==================================  ===================================
keys            `Opening`                           `KeyOffer`
shares          `KeyList`                           `SealedShares`
masked input    `MaskOrder`                         `MaskedInput`
consistency     `SurvivorList`                      `Confirmation`
unmask          `Confirmations`                     `Unmasking`
==============  ==================================  ===================================
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from felb.errors import FederationError, shortened
from felb.privacy.quorum import MOST_SITES
from felb.privacy.secure_masks import SECRET, SHARE
from felb.privacy.secure_roster import LONGEST_NAME

MOST_BYTES = 1 << 30
"""Of a message with a masked vector."""
MOST_SMALL_BYTES = 1 << 20
"""Of any other message: 50 sites with keys, signatures and sealed shares need a tenth of it."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_SITES)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Key = Annotated[bytes, msgspec.Meta(min_length=SECRET, max_length=SECRET)]
Share = Annotated[bytes, msgspec.Meta(min_length=SHARE, max_length=SHARE)]
Signature = Annotated[bytes, msgspec.Meta(max_length=1024)]
Sealed = Annotated[bytes, msgspec.Meta(max_length=256)]

T = TypeVar("T")


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """A part of a message."""


# -- keys and shares -------------------------------------------------------------------------------------------------


class Opening(Part, frozen=True):
    """Make keys for the sum of this number; numbers of a run only grow."""

    setup: Number


class KeyOffer(Part, frozen=True):
    """A site's fresh public keys: of its channel to other sites and of its masks, and the commitment to its seed."""

    setup: Number
    site: Name
    channel: Key
    masks: Key
    seed: Key
    signature: Signature


class KeyList(Part, frozen=True):
    """The offers of all sites that take part."""

    setup: Number
    offers: Annotated[tuple[KeyOffer, ...], msgspec.Meta(max_length=MOST_SITES)]


class SealedShares(Part, frozen=True):
    """For each other site its shares of this site's seed and private mask key, which only that site can read."""

    setup: Number
    site: Name
    sealed: Annotated[dict[Name, Sealed], msgspec.Meta(max_length=MOST_SITES)]


# -- the sum ---------------------------------------------------------------------------------------------------------


class MaskOrder(Part, frozen=True):
    """Answer this request of this round, masked with the keys of a setup; with the shares that the others have sent."""

    setup: Number
    round: Number
    request: Digest
    sealed: Annotated[dict[Name, Sealed], msgspec.Meta(max_length=MOST_SITES)]


class MaskedInput(Part, frozen=True):
    """A site's input plus its masks, little-endian and mod 2^64; `layout` says what the numbers are."""

    context: Digest
    site: Name
    layout: Annotated[bytes, msgspec.Meta(max_length=1 << 16)]
    vector: bytes
    signature: Signature


class SurvivorList(Part, frozen=True):
    """The sites whose masked inputs are in the sum."""

    context: Digest
    survivors: Names


class Confirmation(Part, frozen=True):
    """A site's signature on the survivors of a sum; it gives one for a run and round, ever."""

    context: Digest
    site: Name
    signature: Signature


class Confirmations(Part, frozen=True):
    """The signatures of all survivors that have answered."""

    context: Digest
    signatures: Annotated[dict[Name, Signature], msgspec.Meta(max_length=MOST_SITES)]


class Unmasking(Part, frozen=True):
    """A site's shares: of the seeds of survivors, of the private mask keys of the others, never both of one site."""

    context: Digest
    site: Name
    seeds: Annotated[dict[Name, Share], msgspec.Meta(max_length=MOST_SITES)]
    keys: Annotated[dict[Name, Share], msgspec.Meta(max_length=MOST_SITES)]
    signature: Signature


class ToSite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trip to a site."""

    setup: Opening | KeyList | None = None
    sum: MaskOrder | SurvivorList | Confirmations | None = None


class FromSite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reply."""

    setup: KeyOffer | SealedShares | None = None
    sum: MaskedInput | Confirmation | Unmasking | None = None


def encode(message: ToSite | FromSite) -> bytes:
    """Return a message as bytes."""
    return msgspec.msgpack.encode(message)


def decode(data: bytes, kind: type[T], *, limit: int = MOST_BYTES) -> T:
    """Read a message of a kind from at most `limit` bytes; anything else is a `FederationError`."""
    if len(data) > limit:
        raise FederationError(f"a message of {len(data)} bytes came where at most {limit} are allowed")
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FederationError(f"a message of a secure sum could not be read ({shortened(error)})") from error
