"""The signed, numbered list of members, the invitation to a federation, and the request of a site to join.

The coordinator has two keys. The offline key signs invitations and member lists; the run key, which the list names,
signs what a run sends. A list replaces the one before if its number is higher. A site that is not on it is nobody, from
the moment on at which the relay and the vaults have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import msgspec

from felb.errors import FederationError, InputError
from felb.records import read_record, replacing
from felb.secure_sum.keys import usable
from felb_sites.envelopes import COORDINATOR, Envelope, Header, Id, Name, Number, read_envelope, seal_nothing
from felb_sites.keys.identity import Identity, fingerprint_of, write_fingerprint

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from felb.secure_sum.protocol import Roster

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
RESERVED = {COORDINATOR, "relay", "all", "none"}
MOST_BYTES = 1 << 18
"""Of a list: 1,000 members need a half of it."""
_ADVICE = "ask the coordinator for it again"


def check_name(what: str, name: str) -> None:
    """Raise unless a name can stand in paths and messages."""
    if not SITE_NAME.fullmatch(name) or name.casefold() in RESERVED:
        raise InputError(f"the name of a {what} consists of letters, digits, - and _, at most 40; got {name!r}")


class Member(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A site: the keys of its vault that sign and open, and the key with which its courier opens sessions."""

    name: Name
    sign: Key
    seal: Key
    transport: Key

    @property
    def fingerprint(self) -> str:
        """Over the name and all three keys, as it is told by telephone."""
        return write_fingerprint(fingerprint_of(b"member", self.name.encode(), self.sign, self.seal, self.transport))


class MemberList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who takes part in a federation.

    Parameters
    ----------
    federation : its identifier
    number : lists are numbered from 1
    run_sign, run_seal : keys of the coordinator's runs
    members : in the order of their names
    """

    federation: Id
    number: Number
    run_sign: Key
    run_seal: Key
    members: Annotated[tuple[Member, ...], msgspec.Meta(max_length=1000)] = ()

    def find(self, name: str) -> Member | None:
        """Return a member by its name."""
        return next((member for member in self.members if member.name == name), None)

    def key_of(self, sender: str) -> bytes | None:
        """Return the key by which envelopes of a sender are recognised."""
        if sender == COORDINATOR:
            return self.run_sign
        found = self.find(sender)
        return None if found is None else found.sign

    def roster(self, sites: Sequence[str]) -> Roster:
        """Return the roster of secure sums among some of the members."""
        from felb.secure_sum.protocol import Member as Rostered
        from felb.secure_sum.protocol import Roster  # with NumPy, which the relay does without

        unknown = sorted(set(sites) - {member.name for member in self.members})
        if unknown:
            raise InputError(f"{unknown[0]} is not a member of the federation")
        keys = {member.name: member.sign for member in self.members}
        return Roster(tuple(Rostered(name, _der(keys[name])) for name in sites))


def _der(public: bytes) -> bytes:
    """Return an Ed25519 key as rosters hold it."""
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return Ed25519PublicKey.from_public_bytes(public).public_bytes(encoding, form)


@dataclass(frozen=True)
class SignedMembers:
    """A member list in its envelope, as it travels and is stored.

    Parameters
    ----------
    data : the envelope
    listed : what it holds
    """

    data: bytes
    listed: MemberList

    @cached_property
    def digest(self) -> str:
        """By which plans and consents name the list."""
        return fingerprint_of(b"members", msgspec.msgpack.encode(self.listed)).hex()

    @classmethod
    def sign(cls, listed: MemberList, authority: Identity) -> SignedMembers:
        """Sign a list with the offline key."""
        header = Header(listed.federation, "", 0, COORDINATOR, (), "members", listed.number)
        return cls(seal_nothing(header, msgspec.msgpack.encode(listed), authority).to_bytes(), listed)

    @classmethod
    def read(cls, data: bytes, *, federation: str, authority: bytes) -> SignedMembers:
        """Read a list; a `FederationError` unless the offline key of the federation has signed it."""
        envelope = read_envelope(data, limit=MOST_BYTES)
        return cls.open(envelope, data, federation=federation, authority=authority)

    @classmethod
    def open(cls, envelope: Envelope, data: bytes, *, federation: str, authority: bytes) -> SignedMembers:
        """Read the list of an envelope that was read."""
        header = envelope.header
        if (header.kind, header.federation, header.sender) != ("members", federation, COORDINATOR):
            raise FederationError("no member list of this federation")
        if envelope.sealed or not envelope.is_signed_by(authority):
            raise FederationError("a member list that the coordinator has not signed")
        try:
            listed = msgspec.msgpack.decode(envelope.payload, type=MemberList)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise FederationError("a member list that cannot be read") from error
        check_list(listed)
        if (listed.federation, listed.number) != (federation, header.number):
            raise FederationError("a member list that contradicts its envelope")
        return cls(data, listed)


def check_list(listed: MemberList) -> None:
    """Raise a `FederationError` unless names and keys of a list are different and of use."""
    names = [member.name for member in listed.members]
    if names != sorted(names) or len({name.casefold() for name in names}) != len(names):
        raise FederationError("a member list with a name twice, or out of order")
    if any(name.casefold() in RESERVED for name in names):
        raise FederationError("a member list with a reserved name")
    keys = [key for member in listed.members for key in (member.sign, member.seal, member.transport)]
    if len(set(keys)) != len(keys):
        raise FederationError("a member list with a key twice")
    if not all(usable(key) for key in (listed.run_seal, *(member.seal for member in listed.members))):
        raise FederationError("a member list with a key that does not seal")


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site needs to join, signed by the offline key, so that a changed port is noticed.

    Parameters
    ----------
    name, federation : of the federation
    url : of the relay, ``https://host:port``
    trust : how its TLS is trusted: "pinned" (the certificate below), "authority" (certificates of the authority below)
        or "system"
    certificate : in PEM; empty for "system"
    key : the coordinator's offline key, in hexadecimal
    signature : in hexadecimal
    """

    name: str
    federation: Id
    url: str
    trust: str
    certificate: str
    key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    signature: str = ""

    @property
    def fingerprint(self) -> str:
        """Of the offline key, as the coordinator tells it by telephone."""
        return write_fingerprint(fingerprint_of(b"federation", self.federation.encode(), self.authority))

    @property
    def authority(self) -> bytes:
        """The offline key."""
        return bytes.fromhex(self.key)

    def signed(self, authority: Identity) -> Invitation:
        """Return the invitation with its signature."""
        return msgspec.structs.replace(self, signature=authority.sign(self._text()).hex())

    def write(self, path: Path) -> None:
        """Write the file."""
        with replacing(path) as partial:
            partial.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Invitation:
        """Read the file; one that was changed after it was signed is an error."""
        try:
            found = read_record(path, cls, advice=_ADVICE)
        except FileNotFoundError as error:
            raise InputError(f"{path} does not exist; give the invitation file of the coordinator") from error
        if found.trust not in ("pinned", "authority", "system") or not found.url.startswith("https://"):
            raise InputError(f"{path} is no invitation of felb; {_ADVICE}")
        if not _verifies(found.authority, found.signature, found._text()):
            raise InputError(f"{path} was changed after the coordinator signed it; {_ADVICE}")
        return found

    def _text(self) -> bytes:
        said = (self.name, self.federation, self.url, self.trust, self.certificate, self.key)
        return b"felb invitation 1" + fingerprint_of(*(part.encode() for part in said))


class JoinRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site asks to be put on the list, signed by the key of its vault.

    Parameters
    ----------
    federation : identifier of the federation
    member : name and keys
    signature : by the key that signs, in hexadecimal
    previous : signature by the key that is replaced, if one is
    """

    federation: Id
    member: Member
    signature: str = ""
    previous: str = ""

    def signed(self, vault: Identity, *, old: Identity | None = None) -> JoinRequest:
        """Return the request with its signatures."""
        text = self._text()
        previous = "" if old is None else old.sign(text).hex()
        return msgspec.structs.replace(self, signature=vault.sign(text).hex(), previous=previous)

    def write(self, path: Path) -> None:
        """Write the file."""
        with replacing(path) as partial:
            partial.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, federation: str) -> JoinRequest:
        """Read the file; it must be of this federation and signed by its own key."""
        try:
            found = read_record(path, cls, advice="ask the site for it again")
        except FileNotFoundError as error:
            raise InputError(f"{path} does not exist; give the request file of the site") from error
        check_name("site", found.member.name)
        if found.federation != federation:
            raise InputError(f"{path} is a request to join another federation")
        if not _verifies(found.member.sign, found.signature, found._text()) or not usable(found.member.seal):
            raise InputError(f"{path} was changed after the site signed it; ask the site for it again")
        return found

    def replaces(self, member: Member) -> bool:
        """Return whether the key that a member has now has signed the request."""
        return _verifies(member.sign, self.previous, self._text())

    def _text(self) -> bytes:
        m = self.member
        parts = (self.federation.encode(), m.name.encode(), m.sign, m.seal, m.transport)
        return b"felb join 1" + fingerprint_of(*parts)


def _verifies(public: bytes, signature: str, text: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True
