"""The key by which a vault signs in secure aggregation, and how its public half reaches the coordinator.

The key of a site's certificate is the courier's, which may turn; so the vault has a key of its own, which it makes and
which nobody else can read. Its public half travels with the site's request for a certificate, signed by itself together
with the name of the site and the fingerprint of the certificate's key. What a coordinator makes of it proves nothing to
other sites: they compare it by telephone, see `site_roster`.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from typing import TYPE_CHECKING, Any

from felb.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from felb.secure_sum.protocol import Member

KEY_FILE = "signing.key"
ANNOUNCED = "vault.json"
"""Member of a site's request that holds the public half."""
_PURPOSE = "felb vault key"


def vault_key(folder: Path) -> Ed25519PrivateKey:
    """Return the key in a vault's folder; it is made when it is asked for the first time."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = folder / KEY_FILE
    if not path.is_file():
        _write_new(path, Ed25519PrivateKey.generate())
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); restore it, or join the federation again") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} is not the key of a vault; restore it, or join the federation again")
    return key


def _write_new(path: Path, key: Ed25519PrivateKey) -> None:
    """Write a key that only its owner can read; the one that another process has written meanwhile stays."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(partial, path)
        except FileExistsError:
            return
    finally:
        partial.unlink(missing_ok=True)


def announce(request: Path, key: Ed25519PrivateKey, *, federation: str, name: str, certificate_key: str) -> None:
    """Put the public half of a vault's key into the site's request for a certificate."""
    from felb.secure_sum.protocol import member_of

    member = member_of(name, key)
    signature = key.sign(_statement(member, federation, certificate_key))
    content = json.dumps({"key": member.key.hex(), "signature": signature.hex()})
    with zipfile.ZipFile(request, "a") as archive:
        archive.writestr(ANNOUNCED, content)


def announced(content: bytes, *, federation: str, name: str, certificate_key: str) -> Member:
    """Read what `announce` wrote; a `ValueError` unless the key itself has signed it for this name and certificate."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    from felb.secure_sum.protocol import Member

    said: Any = json.loads(content)
    member = Member(name, bytes.fromhex(said["key"]))
    try:
        key = load_der_public_key(member.key)
    except UnsupportedAlgorithm as error:
        raise ValueError("the key of its vault is of an unknown kind") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("the key of its vault is of another kind")
    try:
        key.verify(bytes.fromhex(said["signature"]), _statement(member, federation, certificate_key))
    except InvalidSignature as error:
        raise ValueError("the key of its vault is not for this site") from error
    return member


def _statement(member: Member, federation: str, certificate_key: str) -> bytes:
    return json.dumps([_PURPOSE, federation, member.name, certificate_key, member.key.hex()]).encode()


def without_announcement(content: bytes) -> bytes:
    """Return a request as FLARE knows it."""
    stripped = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(stripped, "w") as copy:
        for info in archive.infolist():
            if info.filename != ANNOUNCED:
                copy.writestr(info, archive.read(info))
    return stripped.getvalue()
