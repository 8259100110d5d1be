"""Keys of a vault, of a coordinator's runs and of its authority, and of a courier: files of mode 0600.

An identity is an Ed25519 key that signs and an X25519 key by which sealed payloads are opened. Both are derived from
one secret of 32 bytes, which is all that a file holds.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from felb.errors import InputError
from felb.records import open_regular, replacing, sync_folder
from felb.secure_sum.keys import SECRET, derived_key, public_of

if TYPE_CHECKING:
    from pathlib import Path

_HEX = re.compile(r"[0-9A-F]{64}")
_RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw


@dataclass(frozen=True)
class Identity:
    """A secret, and the keys that follow from it.

    Parameters
    ----------
    secret : 32 random bytes
    """

    secret: bytes

    @classmethod
    def create(cls) -> Identity:
        """Make a new one."""
        return cls(os.urandom(SECRET))

    @classmethod
    def read(cls, path: Path) -> Identity:
        """Read the file of a key; only its owner may be able to."""
        try:
            with open_regular(path) as file:
                secret = bytes.fromhex(file.read(2 * SECRET + 2).decode("ascii").strip())
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise InputError(f"{path} can be read by others; take that right away: chmod 600 {path}")
        except FileNotFoundError as error:
            raise InputError(f"{path} is missing: the key of this folder is lost, and a new one must join") from error
        except (OSError, ValueError) as error:
            raise InputError(f"{path} does not hold a key; restore it from a backup") from error
        if len(secret) != SECRET:
            raise InputError(f"{path} does not hold a key; restore it from a backup")
        return cls(secret)

    def write(self, path: Path) -> None:
        """Write the file of the key, for its owner only."""
        with replacing(path) as partial:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.secret.hex().encode() + b"\n")
        sync_folder(path.parent)

    def derive(self, info: bytes) -> bytes:
        """Return a secret for one purpose."""
        return derived_key(self.secret, b"felb derive" + info)

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self.signing_key.sign(message)

    @cached_property
    def signing_key(self) -> Ed25519PrivateKey:
        """The key that signs."""
        return Ed25519PrivateKey.from_private_bytes(derived_key(self.secret, b"felb sign"))

    @cached_property
    def seal_secret(self) -> bytes:
        """The X25519 key that opens what was sealed."""
        return derived_key(self.secret, b"felb seal")

    @cached_property
    def sign_public(self) -> bytes:
        """By which others recognise signatures."""
        return self.signing_key.public_key().public_bytes(*_RAW)

    @cached_property
    def seal_public(self) -> bytes:
        """With which others seal."""
        return public_of(self.seal_secret)


def write_fingerprint(digest: bytes) -> str:
    """Return a SHA-256 digest as people read it out: groups of four."""
    text = digest.hex().upper()
    return "SHA256:" + "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def read_fingerprint(text: str, *, name: str) -> bytes:
    """Read what a person has typed; case, spaces and dashes do not matter."""
    plain = re.sub(r"[\s:-]", "", text.upper().strip().removeprefix("SHA256:"))
    if not _HEX.fullmatch(plain):
        raise InputError(f"{name} must be a SHA-256 fingerprint of 64 hexadecimal digits, got {text!r}")
    return bytes.fromhex(plain)


def fingerprint_of(*parts: bytes) -> bytes:
    """Return SHA-256 over parts, each with its length before it."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.digest()
