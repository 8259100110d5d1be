"""The certificate authority of a federation: its key, the registry of what it has signed, and whom it has revoked.

All of it is in one folder, which may be kept on another machine or on a medium that is plugged in to sign; a server and
its sites run without it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.records import read_record, replacing, try_lock
from felb_sites import CERTIFICATE_DAYS
from felb_sites.certificates import (
    SITE_KIND,
    SITE_TYPE,
    CertificateRequest,
    key_fingerprint,
    read_fingerprint,
    signed_certificate,
    subject,
)
from felb_sites.flare import flare
from felb_sites.hardening import write_json
from felb_sites.revocation import REVOCATIONS, Revocations

if TYPE_CHECKING:
    from collections.abc import Iterator

REGISTRY, PROFILE, ROOT, KEY = "registry.json", "profile.yaml", "rootCA.pem", "rootCA.key"
RESTORE = "restore it from a copy"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
RESERVED = frozenset({"server", "coordinator", "admin", "relay", "root", "authority", "all"})
"""Words that FLARE or felb gives a meaning of its own; no site is called so."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A line of the registry: one certificate that the authority has signed, and the key of the site's vault."""

    name: str
    type: str
    key: str
    serial: str
    signed: str
    valid_until: str
    signing: str = ""


@dataclass(frozen=True, slots=True)
class _Registry:
    signed: tuple[Signed, ...]


class Authority:
    """What may sign for a federation.

    Parameters
    ----------
    folder : holds the root certificate, its private key, the registry and the list of revocations
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.path.realpath(folder))

    @classmethod
    def found(cls, folder: str | os.PathLike[str], *, name: str, host: str, port: int) -> tuple[Authority, str]:
        """Make the key and the root certificate; return the authority and the fingerprint of the root."""
        made = cls(folder)
        if made.folder.exists() and any(made.folder.iterdir()):
            raise InputError(f"{folder} is not empty; choose another folder for the authority")
        made.folder.mkdir(parents=True, exist_ok=True)
        made.folder.chmod(0o700)
        profile = {
            "name": name,
            "scheme": "grpc",
            "connection_security": "mtls",
            "server": {"host": host, "fed_learn_port": port, "admin_port": port},
        }
        write_json(made.folder / PROFILE, profile)  # JSON is YAML
        with made._home() as home:
            root = flare("cert", "init", "--profile", made.folder / PROFILE, "-o", made.folder, "--force", home=home)
        made._keep(())
        Revocations(name).write(made.folder / REVOCATIONS, made.private_key())
        return made, str(root["rootca_fingerprint_sha256"])

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Authority:
        """Return the authority in an existing folder, with or without its private key."""
        opened = cls(folder)
        if not (opened.folder / REGISTRY).is_file():
            raise InputError(f"{folder} holds no certificate authority; if it is kept elsewhere, give that folder")
        return opened

    @property
    def federation(self) -> str:
        """The name of the federation."""
        return str(self._profile["name"])

    @property
    def host(self) -> str:
        """The name of the server, which no site may have."""
        return str(self._profile["server"]["host"])

    @property
    def root(self) -> bytes:
        """The root certificate."""
        return (self.folder / ROOT).read_bytes()

    def private_key(self) -> Any:
        """Return the key that signs, or say that it is kept elsewhere."""
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            return load_pem_private_key((self.folder / KEY).read_bytes(), password=None)
        except FileNotFoundError as error:
            raise InputError(
                f"the authority's private key is not in {self.folder}; sign where it is kept, and bring back the file"
            ) from error

    # -- the registry ------------------------------------------------------------------------------------------------

    def signed(self) -> tuple[Signed, ...]:
        """Return everything that was ever signed, in order."""
        path = self.folder / REGISTRY
        try:
            return read_record(path, _Registry, advice=RESTORE).signed
        except FileNotFoundError as error:
            raise InputError(f"there is no file {path}; {RESTORE}") from error

    def current_key(self, name: str) -> str | None:
        """Return the key that was last signed for a site."""
        keys = [entry.key for entry in self.signed() if _same(entry.name, name)]
        return keys[-1] if keys else None

    @property
    def revocations(self) -> Revocations:
        """Who is revoked."""
        return Revocations.read(self.folder / REVOCATIONS, self.root)

    def revoke(self, *, names: tuple[str, ...] = (), keys: tuple[str, ...] = ()) -> Revocations:
        """Sign a list with these names and keys added."""
        for name in names:
            check_name("site", name)
        known = self.revocations
        return self._sign_list(names={*known.names, *names}, keys={*known.keys, *map(read_fingerprint, keys)})

    def readmit(self, *, names: tuple[str, ...] = (), keys: tuple[str, ...] = ()) -> Revocations:
        """Sign a list without these names and keys, all of which must be on it."""
        known = self.revocations
        fingerprints = set(map(read_fingerprint, keys))
        for entry in sorted({*names, *fingerprints} - {*known.names, *known.keys}):
            listed = ", ".join((*known.names, *known.keys)) or "none"
            raise InputError(f"{entry} is not revoked; revoked are {listed}")
        return self._sign_list(names=set(known.names) - set(names), keys=set(known.keys) - fingerprints)

    def _sign_list(self, *, names: set[str], keys: set[str]) -> Revocations:
        made = self.revocations.changed(names=names, keys=keys)
        made.write(self.folder / REVOCATIONS, self.private_key())
        return made

    # -- signing -----------------------------------------------------------------------------------------------------

    def approve(
        self,
        request: str | os.PathLike[str],
        out: Path,
        *,
        name: str,
        key_fingerprint: str,
        valid_days: int = CERTIFICATE_DAYS,
        rotate: bool = False,
    ) -> Path:
        """Sign a site's request, if it is for this name and this key, as the site has told on another way.

        Parameters
        ----------
        request : the file a site has sent; only the public half of its key is in there
        out : the file to send back
        name, key_fingerprint : what the site has said on the telephone
        valid_days : how long the certificate is valid
        rotate : the name is known and gets a new key; the old one is revoked
        """
        asked = CertificateRequest.read(request)
        with self._alone():
            self._check_site(asked, name=name, key=read_fingerprint(key_fingerprint), rotate=rotate)
            old = self.current_key(name)
            made = self.sign(asked, out, valid_days=valid_days)
            if rotate and old is not None and old != asked.key:
                self.revoke(keys=(old,))
        return made

    def sign(self, asked: CertificateRequest, out: Path, *, valid_days: int = CERTIFICATE_DAYS) -> Path:
        """Sign what was read and confirmed; what FLARE has made of it is checked before it is let out."""
        self.private_key()
        with self._home() as home:
            copy, made = home / f"{asked.name}.request.zip", home / f"{asked.name}.signed.zip"
            copy.write_bytes(asked.content)
            options = ("--ca-dir", self.folder, "--profile", self.folder / PROFILE, "--valid-days", str(valid_days))
            flare("cert", "approve", copy, *options, "--out", made, "--force", home=home)
            certificate = signed_certificate(made)
            found = subject(certificate.subject)
            if (found["name"], found["type"], key_fingerprint(certificate.public_key())) != (
                asked.name,
                asked.type,
                asked.key,
            ):
                raise InputError("the certificate is not the one that was confirmed; nothing was handed out")
            entry = Signed(
                asked.name,
                asked.type,
                asked.key,
                format(certificate.serial_number, "x"),
                datetime.now(UTC).isoformat(timespec="seconds"),
                certificate.not_valid_after_utc.isoformat(timespec="seconds"),
                asked.signing,
            )
            # Written down first: a certificate that nobody knows of must not exist.
            self._keep((*self.signed(), entry))
            with replacing(out) as partial:
                shutil.copyfile(made, partial)
        return out

    def _check_site(self, asked: CertificateRequest, *, name: str, key: str, rotate: bool) -> None:
        """Refuse all but a client certificate for an unused name, or a new one for a known site."""
        if (asked.kind, asked.type) != (SITE_KIND, SITE_TYPE):
            raise InputError(
                f"the request asks for a certificate of type {asked.type!r}, and only those of sites are signed; "
                "nothing was signed. Ask who has sent it"
            )
        if asked.federation != self.federation:
            raise InputError(f"the request is for the federation {asked.federation!r}, not {self.federation!r}")
        if asked.name != name:
            raise InputError(f"the request is for {asked.name!r}, not for {name!r}; nothing was signed")
        if asked.key != key:
            raise InputError(
                f"the key of the request is not the one that {name} has read out; nothing was signed. "
                "The request was changed on its way, or is of somebody else"
            )
        check_name("site", name)
        if name.casefold() in RESERVED | {self.host.casefold(), self.federation.casefold()}:
            raise InputError(f"no site may be called {name!r}; ask it to join under another name")
        if asked.org != organisation(name):
            raise InputError(f"the request is for the organisation {asked.org!r}, which is not that of {name!r}")
        self._check_unused(name, key, rotate=rotate)

    def _check_unused(self, name: str, key: str, *, rotate: bool) -> None:
        revoked = self.revocations
        if any(_same(name, other) for other in revoked.names):
            raise InputError(f"{name} is revoked; undo that first, or let the site join under another name")
        if key in revoked.keys:
            raise InputError(f"the key of {name} is revoked; the site must make a new one with `felb site rotate`")
        for entry in self.signed():
            if entry.key == key and entry.name != name:
                raise InputError(f"the key is that of {entry.name!r}; each site has its own")
            if _same(entry.name, name) and entry.name != name:
                raise InputError(f"{name!r} is too much like {entry.name!r}, which is taken; choose another name")
        known = self.current_key(name)
        if known is None and rotate:
            raise InputError(f"{name} has no certificate whose key could be rotated; leave out --rotate")
        if known is not None and known != key and not rotate:
            raise InputError(
                f"the name {name!r} is taken by the key {known}; if the site has a new key, say --rotate, which "
                "revokes the old one; otherwise let it join under another name"
            )

    # -- files -------------------------------------------------------------------------------------------------------

    @property
    def _profile(self) -> dict[str, Any]:
        return read_record(self.folder / PROFILE, dict[str, Any], advice=RESTORE)

    def _keep(self, entries: tuple[Signed, ...]) -> None:
        write_json(self.folder / REGISTRY, {"signed": [asdict(entry) for entry in entries]})

    @contextmanager
    def _home(self) -> Iterator[Path]:
        """Give FLARE a home folder for its bookkeeping, outside of the user's; nothing of it is kept."""
        with tempfile.TemporaryDirectory(prefix="felb-authority-") as home:
            yield Path(home)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        held = try_lock(self.folder / ".registry.lock")
        if held is None:
            raise InputError(f"{self.folder} is in use by another process; try again when it has ended")
        try:
            yield
        finally:
            held.close()


def check_name(what: str, name: str) -> None:
    """Raise unless a name is one that can stand in paths, certificates and FLARE's addresses."""
    if not NAME.fullmatch(name):
        raise InputError(f"the name of a {what} consists of letters, digits, - and _, at most 40; got {name!r}")


def organisation(name: str) -> str:
    """Return the organisation in a site's certificate, which FLARE allows no hyphens in."""
    return name.replace("-", "_")


def _same(one: str, other: str) -> bool:
    """Whether two names are taken for each other: they differ in case, or in - and _, at most."""
    return organisation(one).casefold() == organisation(other).casefold()
