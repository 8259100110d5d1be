"""The folder of a coordinator, and that of the authority, which holds the offline key.

The authority decides who takes part: it signs member lists, and keeps what it has decided. Its folder may be on another
machine without a network, or on a medium that is plugged in to sign. The relay and runs need the signed list only.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import msgspec

from felb.errors import FederationError, InputError
from felb.records import read_bounded, read_record, read_text, replacing, sync_folder, try_lock
from felb_sites.keys.identity import Identity, read_fingerprint, write_fingerprint
from felb_sites.keys.members import (
    MOST_BYTES,
    Invitation,
    JoinRequest,
    Member,
    MemberList,
    SignedMembers,
    check_list,
    check_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FEDERATION, INVITATION, MEMBERS = "federation.json", "invitation.json", "members.felb"
AUTHORITY_KEY, RUN_KEY, DECISIONS = "authority.key", "run.key", "decisions.json"
RELAY, RELAY_SETTINGS, RELAY_SOCKET = "relay", "relay.json", "relay.sock"
TRUSTS = ("pinned", "authority", "system")
LISTENS = ("all", "loopback")
NOT_FOR_SITES = frozenset({"server", "admin", "root", "authority", "federation", "site"})
"""Words that people would take for something else; no site is called so."""
RESTORE = "restore it from a backup"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_Hex = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Admitted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site that was put on a list: when, and with which keys, in hexadecimal."""

    time: str
    name: str
    fingerprint: str
    sign: _Hex
    seal: _Hex
    transport: _Hex

    @classmethod
    def of(cls, member: Member) -> Admitted:
        """Note a member."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return cls(now, member.name, member.fingerprint, member.sign.hex(), member.seal.hex(), member.transport.hex())

    @property
    def member(self) -> Member:
        """Return the member as lists have it."""
        return Member(self.name, *map(bytes.fromhex, (self.sign, self.seal, self.transport)))


class Decisions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an authority has decided.

    Parameters
    ----------
    admitted : every site and key that was ever on a list, in order
    revoked_names : of sites
    revoked_fingerprints : of keys
    """

    admitted: tuple[Admitted, ...] = ()
    revoked_names: tuple[str, ...] = ()
    revoked_fingerprints: tuple[str, ...] = ()

    def last(self, name: str) -> Admitted | None:
        """Return how a site was admitted last."""
        return next((entry for entry in reversed(self.admitted) if entry.name == name), None)

    def refuses(self, member: Member) -> bool:
        """Return whether the name or the key of a member is revoked."""
        return member.name in self.revoked_names or member.fingerprint in self.revoked_fingerprints


class Authority:
    """The offline key, what it has signed last, and what it has decided.

    Parameters
    ----------
    folder : holds ``authority.key``, ``federation.json``, ``members.felb`` and ``decisions.json``
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.path.realpath(folder))

    @classmethod
    def create(cls, folder: str | os.PathLike[str]) -> Authority:
        """Make the key; the federation follows by `found`."""
        made = cls(folder)
        _make_empty(made.folder, shown=folder, what="the authority")
        Identity.create().write(made.folder / AUTHORITY_KEY)
        return made

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Authority:
        """Return the authority of an existing folder, with or without its key."""
        opened = cls(folder)
        if not (opened.folder / DECISIONS).is_file():
            raise InputError(f"{folder} is not the folder of an authority; if it is kept elsewhere, give that folder")
        return opened

    def found(self, invitation: Invitation, run: Identity) -> tuple[Invitation, SignedMembers]:
        """Sign the invitation and the first list, which is empty."""
        key = self.key
        signed = invitation.signed(key)
        signed.write(self.folder / FEDERATION)
        self._decide(Decisions())
        first = MemberList(invitation.federation, 1, run.sign_public, run.seal_public)
        return signed, self._keep(SignedMembers.sign(first, key))

    @property
    def key(self) -> Identity:
        """The offline key, or an error that says that it is kept elsewhere."""
        path = self.folder / AUTHORITY_KEY
        if not path.exists():
            raise InputError(
                f"the offline key is not in {self.folder}; sign where it is kept, and bring back {MEMBERS}"
            )
        return Identity.read(path)

    @property
    def invitation(self) -> Invitation:
        """What sites are sent."""
        return Invitation.read(self.folder / FEDERATION)

    @property
    def members(self) -> SignedMembers:
        """The list that was signed last."""
        return _read_list(self.folder / MEMBERS, self.invitation)

    @property
    def decisions(self) -> Decisions:
        """Who was admitted, and who is revoked."""
        path = self.folder / DECISIONS
        try:
            return read_record(path, Decisions, advice=RESTORE)
        except FileNotFoundError as error:
            raise InputError(f"there is no file {path}; {RESTORE}") from error

    def read_request(self, path: str | os.PathLike[str]) -> JoinRequest:
        """Read what a site asks."""
        return JoinRequest.read(path, federation=self.invitation.federation)

    def approve(self, request: str | os.PathLike[str], *, name: str, fingerprint: str, rotate: bool = False) -> Member:
        """Put a site on the list, if its request is for this name and these keys, as told by telephone.

        Parameters
        ----------
        request : file of the site
        name, fingerprint : what the site has said
        rotate : the site is known and gets new keys; the old ones are revoked
        """
        asked = self.read_request(request)
        member = asked.member
        if member.name != name:
            raise InputError(f"the request is for {member.name!r}, not for {name!r}; nothing was signed")
        told = read_fingerprint(fingerprint, name="the fingerprint")
        if told != read_fingerprint(member.fingerprint, name="the fingerprint"):
            raise InputError(
                f"the keys of the request are not those that {name} has read out; nothing was signed. "
                "The request was changed on its way, or is of somebody else"
            )
        with self._alone():
            decided, listed = self.decisions, self.members.listed
            self._check_name(name, decided, listed)
            old = listed.find(name)
            if old == member and not rotate:
                return member  # for example, after a crash
            self._check_keys(member, decided, listed)
            _check_place(asked, old, rotate=rotate)
            gone = () if old is None else (old.fingerprint,)
            self._decide(
                msgspec.structs.replace(
                    decided,
                    admitted=(*decided.admitted, Admitted.of(member)),
                    revoked_fingerprints=_joined(decided.revoked_fingerprints, gone),
                )
            )
            self._sign((*(other for other in listed.members if other.name != name), member))
        return member

    def revoke(self, names: Iterable[str] = (), fingerprints: Iterable[str] = ()) -> SignedMembers:
        """Sign a list without these sites and keys, and admit them no more."""
        wanted, keys = tuple(names), _written(fingerprints)
        for name in wanted:
            check_name("site", name)
        with self._alone():
            decided, listed = self.decisions, self.members.listed
            known = {entry.name for entry in decided.admitted} | {member.name for member in listed.members}
            for name in wanted:
                if name not in known:
                    raise InputError(f"{name} was never a member; members were {', '.join(sorted(known)) or 'none'}")
            decided = msgspec.structs.replace(
                decided,
                revoked_names=_joined(decided.revoked_names, wanted),
                revoked_fingerprints=_joined(decided.revoked_fingerprints, keys),
            )
            self._decide(decided)
            return self._sign(member for member in listed.members if not decided.refuses(member))

    def readmit(self, names: Iterable[str] = (), fingerprints: Iterable[str] = ()) -> SignedMembers:
        """Undo `revoke`: a site is on the next list with the keys that it had last, unless these are revoked."""
        wanted, keys = tuple(names), _written(fingerprints)
        with self._alone():
            decided, listed = self.decisions, self.members.listed
            revoked = (*decided.revoked_names, *decided.revoked_fingerprints)
            for entry in (*wanted, *keys):
                if entry not in revoked:
                    raise InputError(f"{entry} is not revoked; revoked are {', '.join(revoked) or 'none'}")
            decided = msgspec.structs.replace(
                decided,
                revoked_names=tuple(name for name in decided.revoked_names if name not in wanted),
                revoked_fingerprints=tuple(key for key in decided.revoked_fingerprints if key not in keys),
            )
            self._decide(decided)
            present = {member.name: member for member in listed.members}
            for name in {entry.name for entry in decided.admitted} - present.keys():
                last = decided.last(name)
                asked = last is not None and (name in wanted or last.fingerprint in keys)
                if last is not None and asked and not decided.refuses(last.member):
                    present[name] = last.member
            return self._sign(present.values())

    def install(self, path: str | os.PathLike[str]) -> SignedMembers:
        """Take a newer list that the same key has signed elsewhere."""
        return self._take(_read_list(Path(path), self.invitation), shown=str(path))

    def _take(self, new: SignedMembers, *, shown: str) -> SignedMembers:
        return _take(new, self.members, self._keep, shown=shown)

    def _check_name(self, name: str, decided: Decisions, listed: MemberList) -> None:
        """Refuse a name that is reserved, revoked, or taken for another one."""
        check_name("site", name)
        invitation = self.invitation
        host = urlsplit(invitation.url).hostname or ""
        if name.casefold() in NOT_FOR_SITES or any(_is_alike(name, other) for other in (invitation.name, host)):
            raise InputError(f"no site may be called {name!r}; ask it to join under another name")
        if any(_is_alike(name, other) for other in decided.revoked_names):
            raise InputError(
                f"{name} is revoked; undo that first with `felb federation revoke FOLDER {name} --undo`, or let the "
                "site join under another name"
            )
        taken = [*(entry.name for entry in decided.admitted), *(member.name for member in listed.members)]
        for other in taken:
            if other != name and _is_alike(name, other):
                raise InputError(f"{name!r} is too much like {other!r}, which is taken; choose another name")

    def _check_keys(self, member: Member, decided: Decisions, listed: MemberList) -> None:
        """Refuse keys that are revoked, or that somebody has or had."""
        if member.fingerprint in decided.revoked_fingerprints:
            raise InputError(f"the keys of {member.name} are revoked; the site must join again with new ones")
        keys = {member.sign, member.seal, member.transport}
        if len(keys) < 3:
            raise InputError(f"the request of {member.name} has a key twice; nothing was signed")
        for other in (*(entry.member for entry in decided.admitted), *listed.members):
            if other != member and keys & {other.sign, other.seal, other.transport}:
                raise InputError(f"a key of the request is one that {other.name!r} has or had; all must be new")
        if keys & {listed.run_sign, listed.run_seal, self.invitation.authority}:
            raise InputError("a key of the request is the coordinator's own; nothing was signed")

    def _sign(self, members: Iterable[Member]) -> SignedMembers:
        """Sign the next list, unless it would say the same."""
        known = self.members
        wanted = tuple(sorted(members))
        if wanted == known.listed.members:
            return known
        listed = msgspec.structs.replace(known.listed, number=known.listed.number + 1, members=wanted)
        try:
            check_list(listed)
        except FederationError as error:
            raise InputError(f"this would be {error}; nothing was signed") from error
        return self._keep(SignedMembers.sign(listed, self.key))

    def _decide(self, decided: Decisions) -> None:
        if self.decisions_exist and decided == self.decisions:
            return
        _ = self.key  # nothing is decided without it
        _write_json(self.folder / DECISIONS, decided)

    @property
    def decisions_exist(self) -> bool:
        """Whether anything was decided here."""
        return (self.folder / DECISIONS).is_file()

    def _keep(self, signed: SignedMembers) -> SignedMembers:
        _write(self.folder / MEMBERS, signed.data)
        return signed

    @contextmanager
    def _alone(self) -> Iterator[None]:
        held = try_lock(self.folder / ".lock")
        if held is None:
            raise InputError(f"{self.folder} is in use by another process; try again when it has ended")
        with held:
            yield


class Federation:
    """The folder of a coordinator: the relay, the run key, the member list, and runs.

    Parameters
    ----------
    folder : of the coordinator
    authority : folder of the authority; ``authority`` in the folder by default
    """

    def __init__(self, folder: str | os.PathLike[str], *, authority: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(os.path.realpath(folder))
        self._authority = self.folder / "authority" if authority is None else Path(os.path.realpath(authority))

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        *,
        name: str,
        host: str,
        port: int,
        listen: str = "all",
        authority: str | os.PathLike[str] | None = None,
        trust: str = "pinned",
        certificate: str | os.PathLike[str] | None = None,
        url: str | None = None,
    ) -> Federation:
        """Make keys, a certificate for the relay, the invitation, and the first member list.

        Parameters
        ----------
        folder : does not exist yet, or is empty
        name : of the federation
        host, port : where the relay listens, as sites reach it
        listen : "all" interfaces, or "loopback" for a tunnel or proxy on this machine
        authority : folder for the offline key, if it is to be kept elsewhere
        trust : "pinned" for the certificate that is made here, "authority" for certificates of `certificate`, "system"
            for those that a site's system trusts
        certificate : PEM file of an authority, with trust "authority"
        url : of the relay, if sites reach it under another one, for example a proxy
        """
        check_name("federation", name)
        _check_address(host, port, listen)
        pem = _check_trust(trust, certificate)
        address = _check_url(url) if url is not None else f"https://{_in_url(host)}:{port}"
        made = cls(folder, authority=authority)
        place = made._authority
        if authority is not None and (place == made.folder or made.folder in place.parents):
            raise InputError(f"{authority} lies in {folder}; choose a folder elsewhere, or leave out --authority")
        fresh = not made.folder.exists(), not place.exists()
        _make_empty(made.folder, shown=folder, what="the federation")
        try:
            signer = Authority.create(place)
            made._fill(signer, name=name, host=host, port=port, listen=listen, trust=trust, pem=pem, url=address)
        except BaseException:
            _clear(made.folder, remove=fresh[0])
            if authority is not None and (place / AUTHORITY_KEY).exists() and not (place / DECISIONS).exists():
                _clear(place, remove=fresh[1])
            raise
        return made

    def _fill(
        self, signer: Authority, *, name: str, host: str, port: int, listen: str, trust: str, pem: str, url: str
    ) -> None:
        from felb_sites.relay.process import create_certificate

        self.relay_folder.mkdir(mode=0o700)
        self.runs.mkdir(mode=0o700)
        own = create_certificate(self.relay_folder, host)
        run = Identity.create()
        run.write(self.folder / RUN_KEY)
        _write_json(self.relay_folder / RELAY_SETTINGS, {"listen": listen, "port": port})
        shown = own if trust == "pinned" else pem
        asked = Invitation(name, os.urandom(16).hex(), url, trust, shown, signer.key.sign_public.hex())
        invitation, first = signer.found(asked, run)
        self._keep(first)
        invitation.write(self.folder / INVITATION)
        invitation.write(self.folder / FEDERATION)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, authority: str | os.PathLike[str] | None = None) -> Federation:
        """Return the federation of an existing folder."""
        opened = cls(folder, authority=authority)
        if not (opened.folder / FEDERATION).is_file():
            raise InputError(f"{folder} is not the folder of a coordinator; create one with `felb federation init`")
        return opened

    @property
    def invitation(self) -> Invitation:
        """What sites are sent."""
        return Invitation.read(self.folder / FEDERATION)

    @property
    def run_identity(self) -> Identity:
        """The key of the coordinator's runs."""
        return Identity.read(self.folder / RUN_KEY)

    @property
    def members(self) -> SignedMembers:
        """The list that the relay and runs go by."""
        return _read_list(self.folder / MEMBERS, self.invitation)

    @property
    def authority(self) -> Authority:
        """The authority, if it is at hand."""
        try:
            found = Authority.open(self._authority)
        except InputError as error:
            raise InputError(
                f"the authority is not in {self._authority}; give its folder with --authority, or sign there and "
                f"install {MEMBERS} here"
            ) from error
        if found.invitation.authority != self.invitation.authority:
            raise InputError(f"{self._authority} is the authority of another federation")
        return found

    @property
    def relay_folder(self) -> Path:
        """The folder of the relay."""
        return self.folder / RELAY

    @property
    def relay_socket(self) -> Path:
        """Where the relay listens for the coordinator."""
        return self.relay_folder / RELAY_SOCKET

    @property
    def runs(self) -> Path:
        """The folder of all runs."""
        return self.folder / "runs"

    def read_request(self, path: str | os.PathLike[str]) -> JoinRequest:
        """Read what a site asks."""
        return JoinRequest.read(path, federation=self.invitation.federation)

    def approve(self, request: str | os.PathLike[str], *, name: str, fingerprint: str, rotate: bool = False) -> Member:
        """Put a site on the list as `Authority.approve` does; a relay that runs knows it at once."""
        signer = self._signer()
        member = signer.approve(request, name=name, fingerprint=fingerprint, rotate=rotate)
        self._follow(signer)
        return member

    def revoke(self, names: Iterable[str] = (), fingerprints: Iterable[str] = ()) -> SignedMembers:
        """Take sites and keys from the list; a relay that runs refuses them at once."""
        signer = self._signer()
        signer.revoke(names, fingerprints)
        return self._follow(signer)

    def readmit(self, names: Iterable[str] = (), fingerprints: Iterable[str] = ()) -> SignedMembers:
        """Undo `revoke`."""
        signer = self._signer()
        signer.readmit(names, fingerprints)
        return self._follow(signer)

    def install(self, path: str | os.PathLike[str]) -> SignedMembers:
        """Take a newer list that was signed elsewhere."""
        found = _read_list(Path(path), self.invitation)
        taken = _take(found, self.members, self._keep, shown=str(path))
        self.publish()
        return taken

    def publish(self) -> bool:
        """Send the list to the relay; return whether one runs. One that starts later reads the file."""
        if not self.relay_socket.exists():
            return False
        from felb_sites.relay.client import RelayClient

        with RelayClient(self.relay_socket) as client:
            if not client.is_alive():
                return False
            client.put_members(self.members.data)
        return True

    def _signer(self) -> Authority:
        """Return the authority, which never signs a number that is in use here."""
        signer, known = self.authority, self.members
        if known.listed.number > signer.members.listed.number:
            signer._take(known, shown=str(self.folder / MEMBERS))
        return signer

    def _follow(self, signer: Authority) -> SignedMembers:
        """Take the list of the authority, also one whose taking was interrupted before."""
        taken = _take(signer.members, self.members, self._keep, shown=str(signer.folder / MEMBERS))
        self.publish()
        return taken

    def _keep(self, signed: SignedMembers) -> SignedMembers:
        _write(self.folder / MEMBERS, signed.data)
        return signed


def open_signer(
    folder: str | os.PathLike[str], *, authority: str | os.PathLike[str] | None = None
) -> Federation | Authority:
    """Return the federation of a coordinator's folder, or the authority of a folder of its own."""
    if authority is None and (Path(folder) / DECISIONS).is_file():
        return Authority.open(folder)
    return Federation.open(folder, authority=authority)


def _check_place(asked: JoinRequest, old: Member | None, *, rotate: bool) -> None:
    """Refuse a name that is taken, and a rotation that the old key has not signed."""
    name = asked.member.name
    if old is None:
        if rotate:
            raise InputError(f"{name} has no keys that could be rotated; leave out --rotate")
        return
    if not rotate:
        raise InputError(
            f"the name {name!r} is taken; if the site has new keys by `felb site rotate`, say --rotate; if it has lost "
            f"its keys, revoke these first (--key); otherwise let it join under another name"
        )
    if not asked.replaces(old):
        raise InputError(
            f"the request is not signed by the key that {name} has now; nothing was signed. If that key is lost, "
            "revoke it (--key) and let the site join again"
        )


def _take(
    new: SignedMembers, known: SignedMembers, keep: Callable[[SignedMembers], SignedMembers], *, shown: str
) -> SignedMembers:
    """Keep a list if its number is higher; the same one again changes nothing."""
    if new.digest == known.digest:
        return known
    if new.listed.number <= known.listed.number:
        raise InputError(f"{shown} is list {new.listed.number}, and list {known.listed.number} is in force already")
    return keep(new)


def _read_list(path: Path, invitation: Invitation) -> SignedMembers:
    try:
        data = read_bounded(path, advice=RESTORE, limit=MOST_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}; {RESTORE}") from error
    try:
        return SignedMembers.read(data, federation=invitation.federation, authority=invitation.authority)
    except FederationError as error:
        raise InputError(f"{path} cannot be used: {error}") from error


def _is_alike(one: str, other: str) -> bool:
    """Return whether names are taken for each other: they differ in case, or in - and _, at most."""
    return one.replace("-", "_").casefold() == other.replace("-", "_").casefold()


def _written(fingerprints: Iterable[str]) -> tuple[str, ...]:
    return tuple(write_fingerprint(read_fingerprint(text, name="--key")) for text in fingerprints)


def _joined(known: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *more)))


def _check_address(host: str, port: int, listen: str) -> None:
    if not 1 <= port <= 65535:
        raise InputError(f"port must lie between 1 and 65535, got {port}")
    if listen not in LISTENS:
        raise InputError(f"listen must be one of {', '.join(LISTENS)}, got {listen!r}")
    if not _HOST.fullmatch(host) and not _is_ipv6(host):
        raise InputError(f"host must be a host name or an address, got {host!r}; a URL is given by --url")


def _check_trust(trust: str, certificate: str | os.PathLike[str] | None) -> str:
    """Return the certificates that an invitation contains, in PEM."""
    if trust not in TRUSTS:
        raise InputError(f"trust must be one of {', '.join(TRUSTS)}, got {trust!r}")
    if (trust == "authority") != (certificate is not None):
        raise InputError("a certificate is given with trust 'authority', and only with it", parameter="certificate")
    if certificate is None:
        return ""
    pem = read_text(certificate, advice="give the certificate of an authority in PEM", limit=1 << 16)
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise InputError(f"{certificate} holds no certificate in PEM") from error
    if "PRIVATE KEY" in pem:
        raise InputError(f"{certificate} holds a private key, and sites would get it; give the certificate alone")
    return pem if found else ""


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    try:
        _ = parts.port
    except ValueError as error:
        raise InputError(f"url has no valid port: {url!r}") from error
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise InputError(f"url must be https://HOST[:PORT], got {url!r}")
    return url.rstrip("/")


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def _in_url(host: str) -> str:
    return f"[{host}]" if _is_ipv6(host) else host


def _make_empty(folder: Path, *, shown: str | os.PathLike[str], what: str) -> None:
    """Make a folder that only its owner can enter; one that holds something is an error."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{os.fspath(shown)} is not empty; choose another folder for {what}")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def _clear(folder: Path, *, remove: bool) -> None:
    """Remove what was made in a folder that was empty before."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if remove:
        folder.rmdir()


def _write_json(path: Path, data: Any) -> None:
    _write(path, msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as partial:
        partial.write_bytes(data)
    sync_folder(path.parent)
