"""Secure aggregation: keys and masks, roster, messages, and how many sites a sum needs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import numpy as np

from felb.errors import FederationError, InputError, missing_extra, shortened
from felb.privacy.spec import LEAST_SITES, MOST_SITES, most_dropouts, threshold
from felb.secure_sum.keys import SECRET, agreed_key, derived_key, usable

try:
    from Crypto.Protocol.SecretSharing import Shamir
    from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
except ImportError as error:  # pragma: no cover - tested in a process without it
    missing_extra("secure aggregation", "secure", error)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Sign = Callable[[bytes], bytes]
    SigningKey = Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


# -- The cryptography of a secure sum: masks, sealed messages and shares of secrets ----------------------------------
#
# Each function is a thin name for a primitive of `cryptography` or `pycryptodome`; the protocol is elsewhere. Keys are
# agreed on and derived in `secure_sum.keys`.


_HALF, _NONCE = 16, 12
SHARE = 2 * _HALF
"""Bytes of a share of a secret."""
_ZEROS = bytes(1 << 20)


def add_mask_into(total: NDArray[np.uint64], key: bytes, *, sign: int) -> None:
    """Add (or subtract) PRG(key) mod 2^64: the key stream of AES-256-CTR, read as little-endian whole numbers.

    A key serves once, so the counter may begin at 0.
    """
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    step = len(_ZEROS) // 8
    buffer = bytearray(len(_ZEROS) + 15)
    numbers = np.frombuffer(buffer, "<u8", count=step)
    add = np.add if sign > 0 else np.subtract
    for first in range(0, total.size, step):
        part = total[first : first + step]
        stream.update_into(_ZEROS[: 8 * part.size] if part.size < step else _ZEROS, buffer)
        add(part, numbers[: part.size], out=part)


def sealed(key: bytes, message: bytes, *, context: bytes, nonce: bytes) -> bytes:
    """Return the nonce and the message under ChaCha20-Poly1305; `context` must be the same to open it."""
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, message, context)


def opened(key: bytes, data: bytes, *, context: bytes) -> bytes | None:
    """Return what was sealed, or None if it was made with another key or context or was changed."""
    try:
        return ChaCha20Poly1305(key).decrypt(data[:_NONCE], data[_NONCE:], context)
    except (InvalidTag, ValueError):
        return None


def split_secret(secret: bytes, threshold: int, shares: int) -> list[bytes]:
    """Return Shamir shares over GF(2^128) of a secret of 32 bytes, half by half; share i belongs to x = i + 1."""
    halves = [Shamir.split(threshold, shares, secret[at : at + _HALF]) for at in (0, _HALF)]
    return [first + second for (_, first), (_, second) in zip(*halves, strict=True)]


def joined_secret(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret from as many shares as its threshold says, by the positions of their owners from 0.

    Fewer, or wrong ones, give other bytes; whoever joins compares the result with what is public about the secret.
    """
    return b"".join(
        Shamir.combine([(at + 1, share[half : half + _HALF]) for at, share in shares.items()]) for half in (0, _HALF)
    )


# -- The roster of a secure sum: which sites take part, and the public keys by which each recognises the others ------
#
# Every site pins the roster itself. A certificate that a coordinator shows counts for nothing here: a coordinator that
# signs certificates could otherwise invent sites, and the sum over one real and two invented sites is that site's data.


LONGEST_NAME = 64
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


class Member(msgspec.Struct, frozen=True, order=True):
    """A site of the roster.

    Parameters
    ----------
    name : of the site, unique in the roster
    key : its public key as SubjectPublicKeyInfo in DER: Ed25519, RSA or an elliptic curve
    """

    name: str
    key: bytes

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key, as people compare it."""
        return hashlib.sha256(self.key).hexdigest().upper()


@dataclass(frozen=True)
class Roster:
    """The sites that may take part in secure sums, in the order of their names.

    Parameters
    ----------
    members : 3 to 50 sites with different names and different keys
    """

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        if not LEAST_SITES <= len(self.members) <= MOST_SITES:
            raise InputError(
                f"secure aggregation needs {LEAST_SITES} to {MOST_SITES} clients, and there are {len(self.members)}",
                parameter="secure",
            )
        if list(self.members) != sorted(self.members):
            object.__setattr__(self, "members", tuple(sorted(self.members)))
        for what in ("name", "key"):
            if len({getattr(member, what) for member in self.members}) != len(self.members):
                raise InputError(f"two sites of the roster have the same {what}")
        for member in self.members:
            if not 0 < len(member.name) <= LONGEST_NAME:
                raise InputError(f"a name in the roster has {len(member.name)} characters; 1 to {LONGEST_NAME} fit")
            _public_key(member)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(member.name for member in self.members)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over names and keys: two sites that confirm it mean the same sites."""
        return hashlib.sha256(msgspec.msgpack.encode(self.members)).hexdigest()

    @property
    def threshold(self) -> int:
        """Return t, the number of shares that open a secret, and of signatures that name survivors."""
        return threshold(len(self.members))

    @property
    def most_dropouts(self) -> int:
        """Return n − t, the most sites that a sum can do without."""
        return most_dropouts(len(self.members))

    def position(self, name: str) -> int:
        """Return where a site stands, from 0."""
        return self.names.index(name)

    def verifies(self, name: str, signature: bytes, message: bytes) -> bool:
        """Tell whether a message was signed by the site of that name."""
        if name not in self.names:
            return False
        key = self._keys[name]
        try:
            if isinstance(key, Ed25519PublicKey):
                key.verify(signature, message)
            elif isinstance(key, rsa.RSAPublicKey):
                key.verify(signature, message, _PSS, hashes.SHA256())
            else:
                key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True

    @cached_property
    def _keys(self) -> dict[str, Ed25519PublicKey | rsa.RSAPublicKey | ec.EllipticCurvePublicKey]:
        return {member.name: _public_key(member) for member in self.members}


def _public_key(member: Member) -> Ed25519PublicKey | rsa.RSAPublicKey | ec.EllipticCurvePublicKey:
    try:
        key = serialization.load_der_public_key(member.key)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"the key of {member.name} in the roster cannot be read") from error
    if not isinstance(key, Ed25519PublicKey | rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        raise InputError(f"the key of {member.name} in the roster cannot sign; use Ed25519, RSA or an elliptic curve")
    return key


def signer(key: SigningKey) -> Sign:
    """Return the function that signs messages with a private key, as `Roster.verifies` expects them."""
    if isinstance(key, Ed25519PrivateKey):
        return key.sign
    if isinstance(key, rsa.RSAPrivateKey):
        return lambda message: key.sign(message, _PSS, hashes.SHA256())
    return lambda message: key.sign(message, ec.ECDSA(hashes.SHA256()))


def member_of(name: str, key: SigningKey) -> Member:
    """Return the entry of the roster for the owner of a private key."""
    public = key.public_key()
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return Member(name, public.public_bytes(encoding, form))


def new_signing_key() -> Ed25519PrivateKey:
    """Make a key pair for a site that has no certificate, such as a simulated one."""
    return Ed25519PrivateKey.generate()


# -- The messages of a secure sum: typed records in MessagePack, bounded in size, with nothing in them that runs -----
#
# A trip to a site carries a part for the sum that is being made, a part for the keys of the next one, or both. The site
# answers both parts in one reply, so that a sum takes three trips as long as no site is lost.
#
# ==============  ==================================  ===================================
# trip            from the server                     from the site
# ==============  ==================================  ===================================
# keys            `Opening`                           `KeyOffer`
# shares          `KeyList`                           `SealedShares`
# masked input    `MaskOrder`                         `MaskedInput`
# consistency     `SurvivorList`                      `Confirmation`
# unmask          `Confirmations`                     `Unmasking`
# ==============  ==================================  ===================================

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


# -- Secure aggregation: the server learns the sum of the sites' whole numbers and no site's own ---------------------
#
# The protocol is that of Bonawitz et al. (CCS 2017) for a malicious server, with every site linked to every other. Site
# i has the input x_i, a vector mod 2^64, and makes for each sum fresh secrets: a seed b_i, an X25519 key s_i for masks
# and another one for a channel to each site. With PRG = AES-256-CTR and s_ij = HKDF(X25519(s_i, s_j)):
#
# 1. keys: each site signs its public keys; the others check them against their own roster.
# 2. shares: each site seals to each other one a share of b_i and one of s_i; t > 2n/3 shares give the secret back.
# 3. masked input: y_i = x_i + PRG(b_i) + Σ_{j>i} PRG(s_ij) − Σ_{j<i} PRG(s_ij).
# 4. consistency: the server names the survivors, whose y_i it has; each of them signs the list, once a run and round.
# 5. unmask: with t signatures on the same list, each site tells its shares of b_i of survivors and s_i of the others.
#
# In Σ y_i over the survivors the masks of pairs of survivors cancel. The server takes off PRG(b_i) and the masks that
# survivors share with lost sites. It never gets both secrets of one site, so a y_i alone stays random.
#
# Every signature and derived key is bound to the `Context`: version, run, plan, roster, keys, round, request and
# participants. A site that gets other values than the rest derives other masks, and nothing comes out. The keys and
# shares of the next sum travel with steps 3 to 5, before its request is known; they are bound to run, plan, roster and
# a number that only grows, and the request enters where masks are derived from them.
#
# A round that failed is asked again with new keys, which is a new context. A site that has confirmed the survivors of a
# round confirms no others for it, whatever the context: two sums of one round could be subtracted.
#
# `secure_sum.site` has the site and `secure_sum.server` the server. Here is what both sides compute.

VERSION = "felb-secure-sum-1"
Word = Annotated[str, msgspec.Meta(max_length=256)]


class Terms(msgspec.Struct, frozen=True):
    """What all secure sums of a run have in common; each site knows it before the first message.

    Parameters
    ----------
    run : name of the run
    plan : digest of the plan that the site has approved
    roster : digest of the roster that the site has confirmed
    dropouts : sites that may be missing in a sum; a site takes part in no sum of fewer than n − dropouts
    """

    run: Word
    plan: Word
    roster: Digest
    dropouts: Number = 0

    def key_context(self, setup: int) -> bytes:
        """Bind keys and shares, which are made before the next request is known, to the run and their number."""
        return bound("keys", self, setup)


class Context(msgspec.Struct, frozen=True):
    """What one sum is: it is part of every key that masks and of every signature.

    Parameters
    ----------
    terms : version, run, plan and roster
    setup : number of the keys; a repeated round has new ones
    round : number of the request in the run
    request : digest of the request
    offers : digest of all key offers that the site has seen
    participants : sites whose keys are in the masks
    """

    terms: Terms
    setup: Number
    round: Number
    request: Digest
    offers: Digest
    participants: Names

    def digest(self) -> str:
        """Return the SHA-256 by which messages name it."""
        return hashlib.sha256(bound("sum", self)).hexdigest()


def bound(purpose: str, *values: Any) -> bytes:
    """Return an unambiguous text of values for one purpose, to be signed or derived from."""
    return msgspec.msgpack.encode([VERSION, purpose, *values])


def offers_digest(offers: tuple[KeyOffer, ...]) -> str:
    """Return the SHA-256 of a list of offers."""
    return hashlib.sha256(bound("offers", offers)).hexdigest()


def check_terms(terms: Terms, roster: Roster) -> None:
    """Raise unless terms are for this roster and leave enough sites to open the sum."""
    if terms.roster != roster.digest:
        raise InputError("the terms of the run are for another roster; confirm the one of the run")
    if terms.dropouts > roster.most_dropouts:
        raise InputError(
            f"with {len(roster.names)} sites a sum can do without {roster.most_dropouts} of them at most, "
            f"not {terms.dropouts}",
            parameter="dropouts",
        )


def offer_text(terms: Terms, setup: int, site: str, *keys: bytes) -> bytes:
    """Return what a site signs for its keys."""
    return bound("offer", terms.key_context(setup), site, *keys)


def offer_holds(offer: KeyOffer, terms: Terms, roster: Roster) -> bool:
    """Tell whether the keys of an offer are those of a site of the roster, for this number."""
    text = offer_text(terms, offer.setup, offer.site, offer.channel, offer.masks, offer.seed)
    return usable(offer.channel) and usable(offer.masks) and roster.verifies(offer.site, offer.signature, text)


def commitment(seed: bytes, terms: Terms, setup: int) -> bytes:
    """Return what is public about a seed, so that the server can tell whether shares gave it back."""
    return hashlib.sha256(bound("commitment", terms.key_context(setup), seed)).digest()


def seed_key(seed: bytes, context: str) -> bytes:
    """Return the key of a site's own mask in a sum."""
    return derived_key(seed, bound("seed", context))


def pair_key(private: bytes, public: bytes, context: str) -> bytes:
    """Return the key of the mask that two sites share in a sum."""
    return agreed_key(private, public, bound("pair", context))


def pair_sign(site: str, other: str) -> int:
    """Return +1 where a site adds the mask that it shares with another, −1 where it subtracts it."""
    return 1 if site < other else -1


def input_text(context: str, site: str, layout: bytes, vector: bytes) -> bytes:
    """Return what a site signs for its masked input."""
    return bound("input", context, site, layout, hashlib.sha256(vector).digest())


def survivors_text(context: str, survivors: tuple[str, ...]) -> bytes:
    """Return what a site signs to confirm the survivors of a sum."""
    return bound("survivors", context, survivors)


def unmasking_text(context: str, site: str, seeds: dict[str, bytes], keys: dict[str, bytes]) -> bytes:
    """Return what a site signs for its shares."""
    return bound("unmasking", context, site, sorted(seeds.items()), sorted(keys.items()))
