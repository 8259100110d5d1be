"""Envelopes: the only thing that travels between a site and a coordinator.

An envelope has a header that says from whom, to whom, of which run and round, what kind and which number; and a
payload, which is sealed so that its receivers alone can read it. The signature covers all of it. Fields are signed with
their lengths before them, so that no two envelopes have the same text (as in DSSE).

A payload is sealed once: under a content key of its own (ChaCha20-Poly1305, with the header as associated data), which
is wrapped for each receiver (X25519 with an ephemeral key, HKDF-SHA256). All keys of an envelope are derived from the
sender's secret, the header and the payload. So the same message is the same bytes whenever it is sent again, and two
messages never share a key.

A receiver checks in this order: the size, the signature, the membership of the sender, the number, the content. The
first three are here and in `felb_sites.keys.members`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from felb.errors import FederationError
from felb.secure_sum.keys import agreed_key, derived_key, public_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from felb_sites.keys.identity import Identity

VERSION: Final = 1
COORDINATOR = "coordinator"
"""The name under which a run of the coordinator sends and receives; no site may have it."""
Kind = Literal["members", "proposal", "consent", "refusal", "sums", "response", "secure", "receipt", "end"]
KINDS = frozenset(get_args(Kind))
MOST_HEADER = 1 << 16
"""Bytes of an envelope beside its payload: 50 receivers and 64 receipts need a tenth of it."""
MOST_PAYLOAD = 1 << 30
_NONCE = bytes(12)
"""Every key seals one message."""
_TEXT = b"felb envelope 1"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=40, pattern="^[A-Za-z0-9][A-Za-z0-9_-]*$")]
RunName = Annotated[str, msgspec.Meta(max_length=64, pattern="^([A-Za-z0-9][A-Za-z0-9_-]*)?$")]
Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=1000)]


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What everybody on the way may read.

    Parameters
    ----------
    federation : its identifier
    run, round : of which run, and of which round of it; empty and 0 where it is of none
    sender, receivers : names of members, or `COORDINATOR`
    kind, number : numbers of one kind, sender and run only increase; the same number is the same envelope
    receipts : digests of envelopes that the sender has dealt with, so that they need not be kept for it any more
    """

    federation: Id
    run: RunName
    round: Number
    sender: Name
    receivers: Names
    kind: Kind
    number: Number
    receipts: Annotated[tuple[Digest, ...], msgspec.Meta(max_length=64)] = ()
    version: Literal[1] = VERSION


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A header, a payload that is sealed or in the clear, and a signature.

    Parameters
    ----------
    header : see `Header`
    payload : ciphertext; what is public, such as a member list, is in the clear
    ephemeral : public key with which content keys were wrapped; empty in the clear
    wraps : the content key for each receiver
    signature : of the sender, over everything else
    """

    header: Header
    payload: bytes
    ephemeral: bytes = b""
    wraps: dict[Name, bytes] = {}
    signature: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the envelope as it travels."""
        return msgspec.msgpack.encode(self)

    @property
    def sealed(self) -> bool:
        """Whether the payload is sealed."""
        return bool(self.ephemeral)

    def signed_text(self) -> bytes:
        """Return what the signature covers: every field with its length before it."""
        wraps = b"".join(_with_length(name.encode()) + _with_length(wrap) for name, wrap in sorted(self.wraps.items()))
        parts = (_TEXT, _header_text(self.header), self.ephemeral, wraps, hashlib.sha256(self.payload).digest())
        return b"".join(map(_with_length, parts))

    def is_signed_by(self, public: bytes) -> bool:
        """Return whether the owner of a public key has signed the envelope."""
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(self.signature, self.signed_text())
        except (InvalidSignature, ValueError):
            return False
        return True


def read_envelope(data: bytes, *, limit: int = MOST_PAYLOAD) -> Envelope:
    """Read an envelope; anything else, or one with a larger payload than the limit, is a `FederationError`."""
    if len(data) > limit + MOST_HEADER:
        raise FederationError("an envelope that is too large")
    try:
        return msgspec.msgpack.decode(data, type=Envelope)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FederationError("no envelope") from error


def digest(data: bytes) -> bytes:
    """Return the digest of an envelope as it travels, by which it is acknowledged."""
    return hashlib.sha256(data).digest()


def seal(header: Header, payload: bytes, sender: Identity, *, receivers: Mapping[str, bytes]) -> Envelope:
    """Seal a payload for the owners of X25519 keys, and sign it; the same message gives the same bytes."""
    text = _header_text(header)
    secret = sender.derive(b"envelope" + _with_length(text) + hashlib.sha256(payload).digest())
    private, content = derived_key(secret, b"ephemeral"), derived_key(secret, b"content")
    ephemeral = public_of(private)
    wraps = {
        name: ChaCha20Poly1305(agreed_key(private, public, _wrap_info(text, name))).encrypt(_NONCE, content, None)
        for name, public in receivers.items()
    }
    ciphertext = ChaCha20Poly1305(content).encrypt(_NONCE, payload, text)
    return _sign(Envelope(header, ciphertext, ephemeral, wraps), sender)


def seal_nothing(header: Header, payload: bytes, sender: Identity) -> Envelope:
    """Sign a payload that everybody may read."""
    return _sign(Envelope(header, payload), sender)


def unseal(envelope: Envelope, name: str, receiver: Identity) -> bytes:
    """Return the payload; a `FederationError` if it was not sealed for the receiver, or was changed."""
    if not envelope.sealed:
        return envelope.payload
    text = _header_text(envelope.header)
    try:
        wrap = envelope.wraps[name]
        key = agreed_key(receiver.seal_secret, envelope.ephemeral, _wrap_info(text, name))
        content = ChaCha20Poly1305(key).decrypt(_NONCE, wrap, None)
        return ChaCha20Poly1305(content).decrypt(_NONCE, envelope.payload, text)
    except (KeyError, ValueError, InvalidTag) as error:
        raise FederationError("an envelope that cannot be opened") from error


def _sign(envelope: Envelope, sender: Identity) -> Envelope:
    return msgspec.structs.replace(envelope, signature=sender.sign(envelope.signed_text()))


def _wrap_info(text: bytes, name: str) -> bytes:
    return b"wrap" + _with_length(name.encode()) + hashlib.sha256(text).digest()


def _header_text(header: Header) -> bytes:
    said: Iterable[bytes] = (
        str(header.version).encode(),
        header.federation.encode(),
        header.run.encode(),
        str(header.round).encode(),
        header.sender.encode(),
        b"".join(_with_length(name.encode()) for name in header.receivers),
        header.kind.encode(),
        str(header.number).encode(),
        b"".join(header.receipts),
    )
    return b"".join(map(_with_length, said))


def _with_length(part: bytes) -> bytes:
    return len(part).to_bytes(8, "big") + part
