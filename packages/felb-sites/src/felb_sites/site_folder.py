"""The folder of a site: the vault's key and settings, the courier's key, and the invitation.

Keys are made here and stay here. Nothing in the folder says where it lies, so that it can be moved.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from felb.errors import InputError
from felb.records import is_url, read_record, replacing, sync_folder
from felb_sites.keys.identity import Identity
from felb_sites.keys.members import Invitation, JoinRequest, Member, check_name

if TYPE_CHECKING:
    from felb_sites.keys.members import MemberList
    from felb_sites.vault.policy import SiteConfig

SITE, SETTINGS = "site.json", "settings.json"
VAULT_KEY, NEXT_VAULT_KEY = "vault.key", "vault.next.key"
TRANSPORT_KEY, NEXT_TRANSPORT_KEY = "transport.key", "transport.next.key"
PATHS = ("data", "schema")
"""Settings that name files."""


class _Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    invitation: Invitation


class Site:
    """A site of a federation.

    Parameters
    ----------
    folder : of the site
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.vault, self.courier = self.folder / "vault", self.folder / "courier"
        self.carrier_socket, self.operator_socket = self.vault / "carrier.sock", self.vault / "operator.sock"
        self.settings_path = self.vault / SETTINGS

    @classmethod
    def join(cls, folder: str | os.PathLike[str], invitation: Invitation, *, name: str) -> tuple[Site, Path]:
        """Make the keys of a site, and the request to send to the coordinator."""
        check_name("site", name)
        made = cls(folder)
        if made.folder.exists() and (not made.folder.is_dir() or any(made.folder.iterdir())):
            raise InputError(f"{os.fspath(folder)} is not empty; choose another folder")
        for place in (made.folder, made.vault, made.courier):
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o700)
        Identity.create().write(made.vault / VAULT_KEY)
        Identity.create().write(made.courier / TRANSPORT_KEY)
        request = made.folder / f"{name}.request.json"
        vault, transport = made.vault_identity, made.transport_identity
        JoinRequest(invitation.federation, _member(name, vault, transport)).signed(vault).write(request)
        _write_json(made.folder / SITE, _Named(name, invitation))
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
        """The name of the site in the federation."""
        return self._named.name

    @property
    def invitation(self) -> Invitation:
        """What the coordinator has sent."""
        return self._named.invitation

    @property
    def vault_identity(self) -> Identity:
        """The key of the vault."""
        return Identity.read(self.vault / VAULT_KEY)

    @property
    def transport_identity(self) -> Identity:
        """The key with which the courier opens sessions."""
        return Identity.read(self.courier / TRANSPORT_KEY)

    @property
    def member(self) -> Member:
        """The site as a member list names it."""
        return _member(self.name, self.vault_identity, self.transport_identity)

    @property
    def fingerprint(self) -> str:
        """Of name and keys, as it is told by telephone."""
        return self.member.fingerprint

    # -- rotation ----------------------------------------------------------------------------------------------------

    def rotate(self) -> Path:
        """Make new keys and a request that the old key has signed too; the old ones are used until the list changes.

        Called again before that, it writes the same request: the coordinator may have approved it already.
        """
        for path in (self.vault / NEXT_VAULT_KEY, self.courier / NEXT_TRANSPORT_KEY):
            if not path.exists():
                Identity.create().write(path)
        next_member = self.next_member
        assert next_member is not None
        request = self.folder / f"{self.name}.rotation.request.json"
        asked = JoinRequest(self.invitation.federation, next_member)
        asked.signed(Identity.read(self.vault / NEXT_VAULT_KEY), old=self.vault_identity).write(request)
        return request

    @property
    def next_member(self) -> Member | None:
        """The site with its new keys, while a rotation waits for the coordinator."""
        paths = self.vault / NEXT_VAULT_KEY, self.courier / NEXT_TRANSPORT_KEY
        if not all(path.exists() for path in paths):
            return None
        return _member(self.name, *map(Identity.read, paths))

    def adopt_rotation(self, listed: MemberList) -> bool:
        """Put the new keys in place if the list names them; return whether anything changed.

        Each key by itself, so that an interrupted call is completed by the next one.
        """
        member = listed.find(self.name)
        changed = False
        if member is None:
            return changed
        for folder, new, old, wanted in (
            (self.courier, NEXT_TRANSPORT_KEY, TRANSPORT_KEY, member.transport),
            (self.vault, NEXT_VAULT_KEY, VAULT_KEY, member.sign),
        ):
            path = folder / new
            if path.exists() and Identity.read(path).sign_public == wanted:
                path.replace(folder / old)
                sync_folder(folder)
                changed = True
        return changed

    # -- settings ----------------------------------------------------------------------------------------------------

    @property
    def configured(self) -> bool:
        """Whether the site has settings."""
        return self.settings_path.is_file()

    def configure(self, *, policy: dict[str, Any] | None = None, **changes: Any) -> SiteConfig:
        """Change settings; those not given stay. Wrong ones are an error, and nothing is written."""
        known = self._settings if self.configured else {}
        changes = {name: self._stored(value) if name in PATHS else value for name, value in changes.items()}
        raw = {**known, **changes, "policy": {**known.get("policy", {}), **(policy or {})}}
        config = self._config_of(raw)
        _write_json(self.settings_path, raw)
        return config

    def config(self) -> SiteConfig:
        """Return the settings, with the paths of files as they are now."""
        return self._config_of(self._settings)

    def _config_of(self, raw: dict[str, Any]) -> SiteConfig:
        from felb_sites.vault.policy import SiteConfig

        found = {name: self._found(raw[name]) for name in PATHS if raw.get(name) is not None}
        return SiteConfig.of({**raw, **found}, source=str(self.settings_path))

    def _stored(self, path: str | None) -> str | None:
        """Return a path relative to the folder if the file lies in it, otherwise absolute."""
        if path is None or is_url(path):
            return path
        where = Path(path).absolute()
        real = Path(os.path.realpath(where.parent)) / where.name
        return str(real.relative_to(self.folder)) if real.is_relative_to(self.folder) else str(where)

    def _found(self, path: str) -> str:
        return path if is_url(path) else str(self.folder / path)

    @property
    def _settings(self) -> dict[str, Any]:
        advice = "start the site with `felb site start --data`"
        try:
            return read_record(self.settings_path, dict[str, Any], advice=advice)
        except FileNotFoundError as error:
            raise InputError(f"{self.name} has no settings; {advice}") from error

    @property
    def _named(self) -> _Named:
        return read_record(self.folder / SITE, _Named, advice="restore it from a backup")


def _member(name: str, vault: Identity, transport: Identity) -> Member:
    return Member(name, vault.sign_public, vault.seal_public, transport.sign_public)


def _write_json(path: Path, data: Any) -> None:
    with replacing(path) as partial:
        partial.touch(0o600)  # the courier's user has no business with it
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
    sync_folder(path.parent)
