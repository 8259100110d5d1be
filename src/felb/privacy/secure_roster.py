"""The roster of a secure sum: which sites take part, and the public keys by which each recognises the others.

Every site pins the roster itself. A certificate that a coordinator shows counts for nothing here: a coordinator that
signs certificates could otherwise invent sites, and the sum over one real and two invented sites is that site's data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from felb.errors import InputError, missing_extra
from felb.privacy.quorum import LEAST_SITES, MOST_SITES, most_dropouts, threshold

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError as error:  # pragma: no cover - tested in a process without it
    missing_extra("secure aggregation", "secure", error)

if TYPE_CHECKING:
    from collections.abc import Callable

    Sign = Callable[[bytes], bytes]
    SigningKey = Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

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
