"""Requests for certificates, and certificates, read by felb itself: what is confirmed is what is in the key file.

A fingerprint is SHA-256 of the public key (SubjectPublicKeyInfo, DER), so that it names the key and not one certificate
of it; the site reads it out before anything was signed.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.records import open_regular
from felb_sites.vault_key import ANNOUNCED, announced, without_announcement

if TYPE_CHECKING:
    import os

    from cryptography import x509

SITE_KIND, SITE_TYPE = "site", "client"
"""How FLARE names the only kind of request that a site may send, and its certificate."""
LEAST_KEY_BITS = 2048
MOST_BYTES = 1 << 20
UNREADABLE = (OSError, ValueError, KeyError, TypeError, RecursionError, NotImplementedError, zipfile.BadZipFile)
"""What an archive raises that is none, or not of a request."""
_HEX = re.compile(r"[0-9A-F]{64}")


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """What a request asks for, as it stands in the file.

    Parameters
    ----------
    federation, name, org : whom it is for
    kind, type : in FLARE's words; a site's are "site" and "client", all others have more rights
    key : fingerprint of the public key that would be certified
    content : the file as FLARE knows it, so that what was checked is what is signed
    signing : public key of the site's vault in hexadecimal DER; empty if the site has not told it
    """

    federation: str
    name: str
    org: str
    kind: str
    type: str
    key: str
    content: bytes
    signing: str = ""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> CertificateRequest:
        """Read a ``.request.zip``; its fields must be those of the signing request within it."""
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm

        try:
            content = _bounded(Path(path))
            members = _members(content)
            said = json.loads(members["request.json"])
            name = said["name"]
            csr = x509.load_pem_x509_csr(members[f"{name}.csr"])
            if not csr.is_signature_valid:
                raise ValueError("its signature is not of its own key")
            fields = subject(csr.subject)
            if (fields["name"], fields["org"], fields["type"]) != (name, said["org"], said["cert_type"]):
                raise ValueError("it contradicts itself about whom it is for")
            key, signing = key_fingerprint(csr.public_key()), ""
            if ANNOUNCED in members:
                whose = {"federation": said["project"], "name": name, "certificate_key": key}
                signing = announced(members[ANNOUNCED], **whose).key.hex()
                content = without_announcement(content)
            found = cls(said["project"], name, said["org"], said["kind"], said["cert_type"], key, content, signing)
        except FileNotFoundError as error:
            raise InputError(f"there is no file {path}; give the .request.zip a site has sent") from error
        except (*UNREADABLE, UnsupportedAlgorithm) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{path} is no request of a site ({reason}); ask for it again") from error
        if not all(isinstance(value, str) for value in (found.federation, found.name, found.org, found.kind)):
            raise InputError(f"{path} is no request of a site (names must be words); ask for it again")
        return found

    def facts(self) -> dict[str, str]:
        """Return what to show before anything is signed."""
        vault = {"vault key fingerprint": fingerprint_of(self.signing)} if self.signing else {}
        facts = {"name": self.name, "type": self.type, "federation": self.federation, "key fingerprint": self.key}
        return {**facts, **vault}


def signed_certificate(path: str | os.PathLike[str]) -> x509.Certificate:
    """Return the certificate of the site in a ``.signed.zip``; its key has a `key_fingerprint`."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        members = _members(_bounded(Path(path)))
        certificate = x509.load_pem_x509_certificate(members[json.loads(members["signed.json"])["cert_file"]])
        key_fingerprint(certificate.public_key())
    except (*UNREADABLE, UnsupportedAlgorithm) as error:
        raise InputError(f"{path} is no approval ({error}); give the .signed.zip the coordinator has sent") from error
    return certificate


def subject(name: x509.Name) -> dict[str, str | None]:
    """Return name, organisation and FLARE's type from the subject of a request or certificate."""
    from cryptography.x509.oid import NameOID

    oids = {"name": NameOID.COMMON_NAME, "org": NameOID.ORGANIZATION_NAME, "type": NameOID.UNSTRUCTURED_NAME}
    found: dict[str, str | None] = {}
    for word, oid in oids.items():
        values = [str(entry.value) for entry in name.get_attributes_for_oid(oid)]
        if len(values) > 1:
            raise ValueError(f"it states its {word} twice")
        found[word] = values[0] if values else None
    return found


def key_fingerprint(key: Any) -> str:
    """Return SHA256:AA:BB:… of a public key; a key that is too weak to be certified is an error."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    bits = getattr(key, "key_size", None)
    if hasattr(key, "public_numbers") and hasattr(key.public_numbers(), "n") and (bits or 0) < LEAST_KEY_BITS:
        raise ValueError(f"its RSA key has {bits} bits, and {LEAST_KEY_BITS} is the least")
    digest = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
    return written(digest)


def fingerprint_of(key: str) -> str:
    """Return SHA256:AA:BB:… of a public key in hexadecimal DER."""
    return written(hashlib.sha256(bytes.fromhex(key)).hexdigest())


def written(digest: str) -> str:
    """Return 64 hexadecimal digits as people read them out."""
    return "SHA256:" + ":".join(digest.upper()[i : i + 2] for i in range(0, len(digest), 2))


def read_fingerprint(text: str, *, name: str = "--key-fingerprint") -> str:
    """Return a fingerprint in one way of writing; colons, spaces, case and the word SHA256 do not matter.

    Examples
    --------
    >>> read_fingerprint("sha256 " + "ab" * 32)[:12]
    'SHA256:AB:AB'
    """
    digits = re.sub(r"[\s:]", "", text.strip().upper().removeprefix("SHA256"))
    if not _HEX.fullmatch(digits):
        raise InputError(f"{name} must be the 64 hexadecimal digits of a SHA-256 fingerprint, got {text[:80]!r}")
    return written(digits)


def _bounded(path: Path) -> bytes:
    with open_regular(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES} bytes")
    return content


def _members(content: bytes) -> dict[str, bytes]:
    """Return the few small files of an archive; a name that stands twice could be read in two ways."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = archive.infolist()
        if len({info.filename for info in infos}) != len(infos) or len(infos) > 8:
            raise ValueError("it holds other files than a request or an approval does")
        if sum(info.file_size for info in infos) > MOST_BYTES:
            raise ValueError(f"its files are larger than {MOST_BYTES} bytes")
        return {info.filename: archive.read(info) for info in infos}
