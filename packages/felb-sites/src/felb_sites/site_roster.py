"""The rosters of secure aggregation that a site knows: what a coordinator proposes, and what a person has confirmed.

A roster is a list of names and public keys of vaults. A coordinator, or a courier, may propose any; masked sums are
made only under one that a person at this site has confirmed by its digest, after comparing it with the other sites by
telephone. The vault itself sees to it that its own key is in it. So if n people confirm one digest of n sites, every
key in it is one of theirs, and a site that the coordinator has invented would be one more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from felb.errors import InputError
from felb.records import read_bounded, replacing
from felb_sites import SHORT
from felb_sites.authority import check_name, organisation
from felb_sites.certificates import written
from felb_sites.vault_key import vault_key

if TYPE_CHECKING:
    from pathlib import Path

    from felb.secure_sum.protocol import Member, Roster, Sign

PROPOSED, CONFIRMED = "rosters/proposed", "rosters/confirmed"
MOST_BYTES = 1 << 16
"""Of a roster: 50 sites with names and keys need a tenth of it."""
MOST_PROPOSED = 10
"""A coordinator that proposes for ever must not fill the disk; the oldest proposal goes."""
OWN, SAME, NEW, CHANGED = "this site", "as confirmed before", "new", "KEY CHANGED"


def write_roster(roster: Roster) -> bytes:
    """Return a roster as JSON."""
    return msgspec.json.encode(roster.members)


def read_roster(data: bytes) -> Roster:
    """Read what `write_roster` wrote; anything else is an `InputError`."""
    from felb.secure_sum.protocol import Member, Roster

    if len(data) > MOST_BYTES:
        raise InputError(f"a roster of {len(data)} bytes, but at most {MOST_BYTES} are allowed")
    try:
        members = msgspec.json.decode(data, type=tuple[Member, ...])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"a roster that cannot be read ({error})") from error
    # They are shown to people: names that look alike, or that move the cursor, would hide a site.
    for member in members:
        check_name("site", member.name)
    if len({organisation(member.name).casefold() for member in members}) != len(members):
        raise InputError("two sites of the roster have names that are taken for each other")
    return Roster(members)


@dataclass(frozen=True, slots=True)
class Line:
    """A site of a roster, as a person reads it: its name, the fingerprint of its vault's key, and whether it is new."""

    name: str
    fingerprint: str
    state: str


class SiteRosters:
    """What one site knows about rosters, in the folder of its vault.

    Parameters
    ----------
    folder : of the vault
    name : of the site
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name

    @property
    def own(self) -> Member:
        """The entry of this site."""
        from felb.secure_sum.protocol import member_of

        return member_of(self._name, vault_key(self._folder))

    @property
    def sign(self) -> Sign:
        """Signs with the key of this vault."""
        from felb.secure_sum.protocol import signer

        return signer(vault_key(self._folder))

    def confirmed(self) -> list[Roster]:
        """Return the rosters that a person has confirmed."""
        return self._all(CONFIRMED)

    def proposed(self) -> list[Roster]:
        """Return those that wait for it, the oldest first."""
        return self._all(PROPOSED)

    def find(self, digest: str) -> Roster | None:
        """Return a confirmed roster by its digest."""
        return next((roster for roster in self.confirmed() if roster.digest == digest), None)

    def propose(self, data: bytes) -> Roster:
        """Set a roster down to be confirmed, unless it was; one without this site and its own key is refused."""
        roster = read_roster(data)
        if self.own not in roster.members:
            raise InputError(f"the roster does not hold {self._name} with the key of this vault")
        path = self._path(PROPOSED, roster)
        if self.find(roster.digest) is None and not path.is_file():
            self._write(PROPOSED, roster)
            for old in self._paths(PROPOSED)[:-MOST_PROPOSED]:
                old.unlink(missing_ok=True)
        return roster

    def confirm(self, digest: str) -> Roster:
        """Confirm a proposed roster by the beginning of its digest.

        Rosters that have another key for one of its names are confirmed no more.
        """
        start = digest.strip().lower()
        found = [roster for roster in self.proposed() if len(start) >= SHORT and roster.digest.startswith(start)]
        if len(found) != 1:
            raise InputError(
                f"{'several rosters' if found else 'no roster'} of this digest {'wait' if found else 'waits'} for "
                f"confirmation; read it again with `felb site roster show`, and give at least {SHORT} of its characters"
            )
        (roster,) = found
        self._write(CONFIRMED, roster)
        self._path(PROPOSED, roster).unlink(missing_ok=True)
        keys = {member.name: member.key for member in roster.members}
        for other in self.confirmed():
            if any(keys.get(member.name, member.key) != member.key for member in other.members):
                self._path(CONFIRMED, other).unlink(missing_ok=True)
        return roster

    def lines(self, roster: Roster) -> list[Line]:
        """Return the sites of a roster, and what is new about them."""
        known = {member.name: member.key for old in self.confirmed() for member in old.members}

        def state(member: Member) -> str:
            if member.name == self._name:
                return OWN
            if member.name not in known:
                return NEW
            return SAME if known[member.name] == member.key else CHANGED

        return [Line(member.name, written(member.fingerprint), state(member)) for member in roster.members]

    def _all(self, kind: str) -> list[Roster]:
        advice = "delete it; the coordinator proposes the roster again"
        return [read_roster(read_bounded(path, advice=advice, limit=MOST_BYTES)) for path in self._paths(kind)]

    def _paths(self, kind: str) -> list[Path]:
        return sorted((self._folder / kind).glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))

    def _path(self, kind: str, roster: Roster) -> Path:
        return self._folder / kind / f"{roster.digest}.json"

    def _write(self, kind: str, roster: Roster) -> None:
        path = self._path(kind, roster)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(path) as partial:
            partial.write_bytes(write_roster(roster))
