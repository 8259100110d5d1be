"""Create a federation and join it. A private key is generated where it is used and never leaves that machine."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.records import read_record, replace_folder, replacing
from felb_sites import CERTIFICATE_DAYS, COORDINATOR_FILE
from felb_sites.authority import RESTORE, Authority, check_name, organisation
from felb_sites.certificates import CertificateRequest, key_fingerprint, signed_certificate
from felb_sites.flare import COORDINATOR_ORG, FlareError, flare, require_flare, server_command, site_command
from felb_sites.hardening import listen_on_loopback, lock_server, lock_site, write_json
from felb_sites.member_list import members_of, read_members, roster_of, write_members
from felb_sites.revocation import REVOCATIONS, Revocations
from felb_sites.site_policy import SITE_FILE, SiteConfig
from felb_sites.site_roster import SiteRosters
from felb_sites.vault_key import announce, vault_key
from felb_sites.vault_words import COURIER_FILE, SITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from felb.secure_sum.protocol import Member, Roster

FEDERATION, INVITATION, MEMBERS = "federation.json", "invitation.json", "members.json"
REQUEST, ROTATION = "request", "rotation"
PERSON = "coordinator@federation.local"


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
            return read_record(path, cls, advice="ask the coordinator for invitation.json")
        except (FileNotFoundError, InputError) as error:
            raise InputError(f"{path} is not an invitation ({error})") from error


class Coordinator:
    """A coordinator's folder: server, the coordinator's own access, runs, and where its authority is."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.server, self.person, self.runs = self.folder / "server", self.folder / "person", self.folder / "runs"

    @classmethod
    def found(
        cls,
        folder: str | os.PathLike[str],
        *,
        name: str,
        host: str,
        port: int,
        loopback: bool = False,
        authority: str | os.PathLike[str] | None = None,
    ) -> Coordinator:
        """Make the authority, the server's and the coordinator's kits with locked-down policies, and an invitation.

        With `loopback`, the server listens on this machine alone, for a tunnel or proxy that takes the connections of
        sites to it; otherwise on all of its interfaces. The authority is made in a folder of its own, which may be
        taken away afterwards; by default it is ``authority`` in this one.
        """
        require_flare()
        check_name("federation", name)
        if not 1 <= port <= 65535:
            raise InputError(f"port must lie between 1 and 65535, got {port}")
        made = cls(folder)
        if made.folder.exists() and any(made.folder.iterdir()):
            raise InputError(f"{folder} is not empty; choose another folder")
        made.folder.mkdir(parents=True, exist_ok=True)
        made.folder.chmod(0o700)
        place = made.folder / "authority" if authority is None else Path(authority).resolve()
        signer, fingerprint = Authority.found(place, name=name, host=host, port=port)
        invitation = Invitation(name, host, port, fingerprint)
        write_json(made.folder / INVITATION, asdict(invitation))
        for kit, participant in (
            (made.server, {"name": host, "type": "server", "org": COORDINATOR_ORG}),
            (made.person, {"name": PERSON, "type": "admin", "role": "lead", "org": COORDINATOR_ORG}),
        ):
            with tempfile.TemporaryDirectory(dir=made.folder) as scratch:
                request = _request(Path(scratch), name, participant, home=made._home)
                signed = signer.sign(CertificateRequest.read(request), Path(scratch) / "own.signed.zip")
                _package(signed, request.parent, invitation, kit=kit, home=made._home)
        lock_server(made.server, storage=made.folder / "storage")
        if loopback:
            listen_on_loopback(made.server, port)
        made.runs.mkdir()
        write_json(made.server / "local" / COORDINATOR_FILE, {"runs": str(made.runs)})
        write_json(made.folder / FEDERATION, {"name": name, "person": PERSON, "authority": str(place)})
        made.install_revocations(signer.folder / REVOCATIONS)
        return made

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Coordinator:
        """Return the coordinator of an existing folder."""
        opened = cls(folder)
        if not (opened.folder / FEDERATION).is_file():
            raise InputError(f"{folder} is not the folder of a coordinator; create one with `felb federation init`")
        return opened

    @property
    def invitation(self) -> Invitation:
        """What sites are sent."""
        return Invitation.read(self.folder / INVITATION)

    @property
    def authority(self) -> Authority:
        """The certificate authority, if it is at hand."""
        said = read_record(self.folder / FEDERATION, dict[str, Any], advice=RESTORE)
        return Authority.open(said.get("authority", self.folder / "authority"))

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
        """Sign a site's request as `Authority.approve` does; a key that it replaces is refused from now on."""
        signer = self.authority
        made = signer.approve(
            request, out, name=name, key_fingerprint=key_fingerprint, valid_days=valid_days, rotate=rotate
        )
        if rotate:
            self.install_revocations(signer.folder / REVOCATIONS)
        self.note_members(signer)
        return made

    def note_members(self, authority: Authority) -> None:
        """Keep the sites of an authority, with the keys of their vaults, where runs find them without it."""
        write_members(self.folder / MEMBERS, members_of(authority))

    def members(self) -> list[Member]:
        """Return the sites whose vaults have told their keys."""
        return read_members(self.folder / MEMBERS)

    def roster(self, sites: Sequence[str]) -> Roster:
        """Return the roster that is proposed to the sites of a run."""
        return roster_of(self.members(), sites)

    @property
    def revocations(self) -> Revocations:
        """The list that the server goes by."""
        return Revocations.read(self.server / REVOCATIONS, self._root)

    def revoke(self, *, names: tuple[str, ...] = (), keys: tuple[str, ...] = ()) -> Revocations:
        """Accept these sites and keys no more; a server that runs knows it within seconds."""
        signer = self.authority
        signer.revoke(names=names, keys=keys)
        return self.install_revocations(signer.folder / REVOCATIONS)

    def readmit(self, *, names: tuple[str, ...] = (), keys: tuple[str, ...] = ()) -> Revocations:
        """Accept sites and keys that were revoked again."""
        signer = self.authority
        signer.readmit(names=names, keys=keys)
        return self.install_revocations(signer.folder / REVOCATIONS)

    def install_revocations(self, path: Path) -> Revocations:
        """Put a signed list where the server reads it; one that is older, or of another federation, is refused."""
        new = Revocations.read(path, self._root)
        if new.federation != self.invitation.federation:
            raise InputError(f"{path} is the list of the federation {new.federation!r}")
        place = self.server / REVOCATIONS
        if place.is_file() and new.number < self.revocations.number:
            raise InputError(f"{path} is list {new.number}, and list {self.revocations.number} is in force already")
        with replacing(place) as partial:
            shutil.copyfile(path, partial)
        return new

    def command(self) -> list[str]:
        """Return the command that runs the server."""
        return server_command(self.server)

    @property
    def _root(self) -> bytes:
        return (self.server / "startup" / "rootCA.pem").read_bytes()

    @property
    def _home(self) -> Path:
        return self.folder / "home"


class Site:
    """A site's folder: its key, its kit, its policy, and what it remembers of runs."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.kit, self.state = self.folder / "kit", self.folder / "state"

    @classmethod
    def join(cls, folder: str | os.PathLike[str], invitation: Invitation, *, name: str) -> tuple[Site, Path]:
        """Make a key and the request to send to the coordinator."""
        require_flare()
        check_name("site", name)
        made = cls(folder)
        if made.folder.exists() and any(made.folder.iterdir()):
            raise InputError(f"{folder} is not empty; choose another folder")
        made.folder.mkdir(parents=True, exist_ok=True)
        made.folder.chmod(0o700)
        participant = {"name": name, "type": "client", "org": organisation(name)}
        request = _request(made.folder, invitation.federation, participant, home=made._home)
        write_json(made.folder / SITE, {"name": name, "invitation": asdict(invitation)})
        made._announce(request)
        return made, request

    def rotate(self) -> Path:
        """Make a new key and the request for it; the old key is used until the approval has arrived."""
        place = self.folder / ROTATION
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(mode=0o700)
        participant = {"name": self.name, "type": "client", "org": organisation(self.name)}
        request = _request(place, self.invitation.federation, participant, home=self._home)
        self._announce(request)
        return request

    def _announce(self, request: Path) -> None:
        """Tell the coordinator the public key of the vault with a request."""
        whose = {"federation": self.invitation.federation, "name": self.name}
        announce(request, vault_key(self.vault), **whose, certificate_key=CertificateRequest.read(request).key)

    @property
    def rosters(self) -> SiteRosters:
        """The rosters of secure aggregation that this site knows, and its own key."""
        return SiteRosters(self.vault, self.name)

    def key_fingerprint(self, *, rotated: bool = False) -> str:
        """Return the fingerprint of this site's key, or of the one made by `rotate`, to be read out."""
        base = self.folder / ROTATION if rotated else self.folder
        return CertificateRequest.read(base / REQUEST / f"{self.name}.request.zip").key

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
        rotated = self.folder / ROTATION / REQUEST
        new = rotated.is_dir() and self.key_fingerprint(rotated=True) == key_fingerprint(
            signed_certificate(approval).public_key()
        )
        place = rotated if new else self.folder / REQUEST
        _package(Path(approval), place, self.invitation, kit=self.kit, home=self._home)
        if new:
            replace_folder(rotated, self.folder / REQUEST)
            shutil.rmtree(self.folder / ROTATION)
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
        return [sys.executable, "-m", "felb_sites.site_processes", str(self.folder)]

    def courier_command(self) -> list[str]:
        """Return the command that runs the courier alone, FLARE's client."""
        self.check_admitted()
        return site_command(self.kit, name=self.name, org=organisation(self.name))

    def check_admitted(self) -> None:
        """Raise unless the coordinator's approval has arrived."""
        if not self.admitted:
            raise InputError(f"{self.name} is not admitted yet; give the coordinator's approval with --approval")

    @property
    def configured(self) -> bool:
        """Whether the site has settings."""
        return self._settings_file.is_file()

    @property
    def courier_file(self) -> Path:
        """Tells the courier where the vault listens; it knows nothing else of the site."""
        return self.kit / "local" / COURIER_FILE

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
        return read_record(self.folder / SITE, dict[str, Any], advice=RESTORE)

    @property
    def _settings_file(self) -> Path:
        return self.vault / SITE_FILE

    @property
    def _settings(self) -> dict[str, Any]:
        return read_record(self._settings_file, dict[str, Any], advice=RESTORE)

    @property
    def _home(self) -> Path:
        return self.folder / "home"


def _request(folder: Path, federation: str, participant: dict[str, Any], *, home: Path) -> Path:
    """Make a key and a request under ``folder/request``; return the file to send."""
    definition = folder / "participant.yaml"
    write_json(definition, {"name": federation, "participants": [participant]})
    made = flare("cert", "request", "-p", definition, "--out", folder / REQUEST, home=home)
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
