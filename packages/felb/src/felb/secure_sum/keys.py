"""Key agreement and key derivation, for secure sums and for the envelopes of a federation; without NumPy."""

from __future__ import annotations

from felb.errors import missing_extra

try:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:  # pragma: no cover - tested in a process without it
    missing_extra("secure aggregation", "secure", error)

SECRET = 32
"""Bytes of a private key, a seed and a derived key."""


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
