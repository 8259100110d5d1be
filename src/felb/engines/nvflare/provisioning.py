"""Founding a federation and joining one. A private key is made where it is used and never leaves that machine."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.engines.nvflare.flare import COORDINATOR_ORG, FlareError, flare, require_flare, server_command, site_command
from felb.engines.nvflare.hardening import listen_on_loopback, lock_server, lock_site, write_json
from felb.engines.nvflare.run_record import COORDINATOR_FILE
from felb.engines.nvflare.site_policy import SITE_FILE, SiteConfig
from felb.errors import InputError

if TYPE_CHECKING:
    import os

COURIER_FILE = "courier.json"
FEDERATION, INVITATION, SITE = "federation.json", "invitation.json", "site.json"
PERSON = "coordinator@federation.local"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
VALID_DAYS = 730
EXPELLED, _NAMES = "disabled_clients.json", "disabled_clients"
"""FLARE's own list; its server refuses these names when it was started with it."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a site needs to know to ask for admission; public, but its fingerprint must reach the site unchanged.

    Parameters
    ----------
    federation : name of the federation
    host, port : where the coordinator's server listens
    fingerprint : of the root certificate; compare it by telephone
    """

    federation: str
    host: str
    port: int
    fingerprint: str

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Invitation:
        """Read the file a coordinator sends."""
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"{path} is not an invitation ({error}); ask the coordinator for invitation.json"
            ) from error


class Coordinator:
    """A coordinator's folder: certificate authority, server, the coordinator's own access, runs."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()
        self.server, self.person, self.runs = self.folder / "server", self.folder / "person", self.folder / "runs"

    @classmethod
    def found(
        cls, folder: str | os.PathLike[str], *, name: str, host: str, port: int, loopback: bool = False
    ) -> Coordinator:
        """Make the authority, the server's and the coordinator's kits with locked-down policies, and an invitation.

        With `loopback`, the server listens on this machine alone, for a tunnel or proxy that takes the connections of
        sites to it; otherwise on all of its interfaces.
        """
        require_flare()
        _check_name("federation", name)
        if not 1 <= port <= 65535:
            raise InputError(f"port must lie between 1 and 65535, got {port}")
        made = cls(folder)
        if made.folder.exists() and any(made.folder.iterdir()):
            raise InputError(f"{folder} is not empty; choose another folder")
        made.folder.mkdir(parents=True, exist_ok=True)
        made.folder.chmod(0o700)
        profile = {
            "name": name,
            "scheme": "grpc",
            "connection_security": "mtls",
            "server": {"host": host, "fed_learn_port": port, "admin_port": port},
        }
        write_json(made._profile, profile)  # JSON is YAML
        authority = flare("cert", "init", "--profile", made._profile, "-o", made._authority, home=made._home)
        invitation = Invitation(name, host, port, authority["rootca_fingerprint_sha256"])
        write_json(made.folder / INVITATION, asdict(invitation))
        for kit, participant in (
            (made.server, {"name": host, "type": "server", "org": COORDINATOR_ORG}),
            (made.person, {"name": PERSON, "type": "admin", "role": "lead", "org": COORDINATOR_ORG}),
        ):
            with tempfile.TemporaryDirectory(dir=made.folder) as scratch:
                request = _request(Path(scratch), name, participant, home=made._home)
                signed = made.approve(request, Path(scratch) / "own.signed.zip")
                _package(signed, request.parent, invitation, kit=kit, home=made._home)
        lock_server(made.server, storage=made.folder / "storage")
        if loopback:
            listen_on_loopback(made.server, port)
        made.runs.mkdir()
        write_json(made.server / "local" / COORDINATOR_FILE, {"runs": str(made.runs)})
        write_json(made.folder / FEDERATION, {"name": name, "person": PERSON})
        return made

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Coordinator:
        """Return the coordinator of an existing folder."""
        opened = cls(folder)
        if not (opened.folder / FEDERATION).is_file():
            raise InputError(f"{folder} is not the folder of a coordinator; found one with `felb federation init`")
        return opened

    @property
    def invitation(self) -> Invitation:
        """What sites are sent."""
        return Invitation.read(self.folder / INVITATION)

    def approve(self, request: Path, out: Path, *, valid_days: int = VALID_DAYS) -> Path:
        """Sign a site's request; only the public half of its key is in there."""
        if not request.is_file():
            raise InputError(f"there is no file {request}; give the .request.zip a site has sent")
        options = ("--ca-dir", self._authority, "--profile", self._profile, "--valid-days", str(valid_days))
        flare("cert", "approve", request, *options, "--out", out, "--force", home=self._home)
        return out

    @property
    def revoked(self) -> list[str]:
        """Sites whose certificates are no longer accepted."""
        path = self.server / EXPELLED
        return list(json.loads(path.read_text(encoding="utf-8"))[_NAMES]) if path.is_file() else []

    def revoke(self, site: str) -> None:
        """Accept a site no more, whatever certificate it shows; the server reads it when it starts."""
        _check_name("site", site)
        write_json(self.server / EXPELLED, {_NAMES: sorted({*self.revoked, site})})

    def readmit(self, site: str) -> None:
        """Accept a site that was revoked again."""
        if site not in self.revoked:
            raise InputError(f"{site} is not revoked; revoked are {', '.join(self.revoked) or 'none'}")
        write_json(self.server / EXPELLED, {_NAMES: [name for name in self.revoked if name != site]})

    def command(self) -> list[str]:
        """Return the command that runs the server."""
        return server_command(self.server)

    @property
    def _profile(self) -> Path:
        return self.folder / "profile.yaml"

    @property
    def _authority(self) -> Path:
        return self.folder / "authority"

    @property
    def _home(self) -> Path:
        return self.folder / "home"


class Site:
    """A site's folder: its key, its kit, its policy, and what it remembers of runs."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()
        self.kit, self.state = self.folder / "kit", self.folder / "state"

    @classmethod
    def join(cls, folder: str | os.PathLike[str], invitation: Invitation, *, name: str) -> tuple[Site, Path]:
        """Make a key and the request to send to the coordinator."""
        require_flare()
        _check_name("site", name)
        made = cls(folder)
        if made.folder.exists() and any(made.folder.iterdir()):
            raise InputError(f"{folder} is not empty; choose another folder")
        made.folder.mkdir(parents=True, exist_ok=True)
        made.folder.chmod(0o700)
        participant = {"name": name, "type": "client", "org": _org(name)}
        request = _request(made.folder, invitation.federation, participant, home=made._home)
        write_json(made.folder / SITE, {"name": name, "invitation": asdict(invitation)})
        return made, request

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Site:
        """Return the site of an existing folder."""
        opened = cls(folder)
        if not (opened.folder / SITE).is_file():
            raise InputError(f"{folder} is not the folder of a site; make one with `felb site join`")
        return opened

    @property
    def name(self) -> str:
        """The site's name in the federation."""
        return str(self._facts["name"])

    @property
    def invitation(self) -> Invitation:
        """What the coordinator sent."""
        return Invitation(**self._facts["invitation"])

    @property
    def admitted(self) -> bool:
        """Whether the coordinator's approval has arrived."""
        return (self.kit / "startup" / "client.crt").is_file()

    def admit(self, approval: str | os.PathLike[str]) -> None:
        """Take the coordinator's approval, check it against the invitation's fingerprint, and lock the site down.

        A new approval replaces the certificate of an old one; the policy and what is remembered stay.
        """
        if not Path(approval).is_file():
            raise InputError(f"there is no file {approval}; give the .signed.zip the coordinator has sent")
        settings = self._settings if self._settings_file.is_file() else None
        _package(Path(approval), self.folder / "request", self.invitation, kit=self.kit, home=self._home)
        lock_site(self.kit)
        if settings is not None:
            write_json(self._settings_file, settings)

    def configure(self, **settings: Any) -> SiteConfig:
        """Change the site's settings; those not given stay."""
        known: dict[str, Any] = {"state": str(self.state), "policy": {}}
        if self._settings_file.is_file():
            known = self._settings
        policy = {**known.get("policy", {}), **(settings.pop("policy", None) or {})}
        raw = {**known, **settings, "policy": policy}
        config = SiteConfig.of(raw, source=str(self._settings_file))
        self.vault.mkdir(exist_ok=True, mode=0o700)
        write_json(self._settings_file, raw)
        return config

    def config(self) -> SiteConfig:
        """Return the site's settings."""
        return SiteConfig.load(self.vault)

    def command(self) -> list[str]:
        """Return the command that runs the site: its vault and its courier."""
        self.check_admitted()
        return [sys.executable, "-m", "felb.engines.nvflare.site_processes", str(self.folder)]

    def courier_command(self) -> list[str]:
        """Return the command that runs the courier alone, FLARE's client."""
        self.check_admitted()
        return site_command(self.kit, name=self.name, org=_org(self.name))

    def check_admitted(self) -> None:
        """Raise unless the coordinator's approval has arrived."""
        if not self.admitted:
            raise InputError(f"{self.name} is not admitted yet; give the coordinator's approval with --approval")

    @property
    def configured(self) -> bool:
        """Whether the site has settings."""
        return self._settings_file.is_file()

    def write_courier_file(self) -> None:
        """Tell the courier where the vault listens; it knows nothing else of the site."""
        write_json(self.kit / "local" / COURIER_FILE, {"socket": str(self.socket)})

    @property
    def vault(self) -> Path:
        """Folder of the settings and the policy."""
        return self.folder / "vault"

    @property
    def socket(self) -> Path:
        """Where the vault listens."""
        return self.folder / "run" / "vault.sock"

    @property
    def _facts(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / SITE).read_text(encoding="utf-8")))

    @property
    def _settings_file(self) -> Path:
        return self.vault / SITE_FILE

    @property
    def _settings(self) -> dict[str, Any]:
        return dict(json.loads(self._settings_file.read_text(encoding="utf-8")))

    @property
    def _home(self) -> Path:
        return self.folder / "home"


def _request(folder: Path, federation: str, participant: dict[str, Any], *, home: Path) -> Path:
    """Make a key and a request under ``folder/request``; return the file to send."""
    definition = folder / "participant.yaml"
    write_json(definition, {"name": federation, "participants": [participant]})
    made = flare("cert", "request", "-p", definition, "--out", folder / "request", home=home)
    return Path(made["request_zip"])


def _package(signed: Path, request: Path, invitation: Invitation, *, kit: Path, home: Path) -> None:
    """Put key and signed certificate together; FLARE checks that the root is the one of the invitation."""
    with tempfile.TemporaryDirectory(dir=kit.parent) as scratch:
        try:
            options = ("--request-dir", request, "--fingerprint", invitation.fingerprint)
            made = flare("package", signed, "-w", scratch, *options, home=home)
        except FlareError as error:
            raise InputError(f"{signed} does not fit this folder: {error}") from error
        if kit.exists():
            shutil.rmtree(kit)
        shutil.move(made["output_dir"], kit)
    kit.chmod(0o700)


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise InputError(f"the name of a {what} consists of letters, digits, - and _, at most 40; got {name!r}")


def _org(name: str) -> str:
    return name.replace("-", "_")
