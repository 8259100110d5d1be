"""The cryptography of a secure sum: key agreement, masks, sealed messages and shares of secrets.

Each function is a thin name for a primitive of `cryptography` or `pycryptodome`; the protocol is elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from felb.errors import missing_extra

try:
    from Crypto.Protocol.SecretSharing import Shamir
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:  # pragma: no cover - tested in a process without it
    missing_extra("secure aggregation", "secure", error)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

SECRET = 32
"""Bytes of a private key, a seed and a derived key."""
_HALF, _NONCE = 16, 12
SHARE = 2 * _HALF
"""Bytes of a share of a secret."""
_ZEROS = bytes(1 << 20)


def public_of(private: bytes) -> bytes:
    """Return the X25519 public key of a private one."""
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes(*raw)


def agreed_key(private: bytes, public: bytes, info: bytes) -> bytes:
    """Return HKDF-SHA256 of the X25519 secret that two parties share, for the purpose `info`.

    A public key of low order, with which the secret would not depend on the private key, is a `ValueError`.
    """
    secret = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    return derived_key(secret, info)


def usable(public: bytes) -> bool:
    """Tell whether a public key leads to secrets that depend on the private keys; those of low order do not."""
    try:
        agreed_key(bytes(range(SECRET)), public, b"")
    except ValueError:
        return False
    return True


def derived_key(secret: bytes, info: bytes) -> bytes:
    """Return HKDF-SHA256 of a secret, for the purpose `info`."""
    return HKDF(hashes.SHA256(), SECRET, None, info).derive(secret)


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
