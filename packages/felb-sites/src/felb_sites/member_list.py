"""The coordinator's list of sites and the keys of their vaults, from which it proposes the roster of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from felb.errors import InputError
from felb.records import read_bounded, replacing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from felb.secure_sum.protocol import Member, Roster
    from felb_sites.authority import Authority

MOST_BYTES = 1 << 20
_ADVICE = "write it again with `felb federation roster FOLDER --authority FOLDER`"


def members_of(authority: Authority) -> list[Member]:
    """Return the sites that an authority has admitted and not revoked, with the keys that their vaults have told."""
    from felb.secure_sum.protocol import Member

    revoked = authority.revocations
    latest = {entry.name: entry for entry in authority.signed() if entry.signing}
    return [
        Member(entry.name, bytes.fromhex(entry.signing))
        for entry in latest.values()
        if not revoked.refuses(entry.name, entry.key)
    ]


def write_members(path: Path, members: Iterable[Member]) -> None:
    """Keep a list of sites where it is found without the authority."""
    with replacing(path) as partial:
        partial.write_bytes(msgspec.json.encode(sorted(members)))


def read_members(path: Path) -> list[Member]:
    """Read what `write_members` wrote; nobody if there is no such file."""
    from felb.secure_sum.protocol import Member

    try:
        return msgspec.json.decode(read_bounded(path, advice=_ADVICE, limit=MOST_BYTES), type=list[Member])
    except FileNotFoundError:
        return []
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InputError(f"{path} is damaged ({error}); {_ADVICE}") from error


def roster_of(members: Iterable[Member], sites: Sequence[str]) -> Roster:
    """Return the roster of a run over these sites."""
    from felb.secure_sum.protocol import Roster

    known = {member.name: member for member in members}
    missing = [name for name in sites if name not in known]
    if missing:
        raise InputError(
            f"the key of the vault of {missing[0]} is not known, so that its sums cannot be masked; let the site send "
            "a request by `felb site rotate` and approve it with --rotate, or set secure = false in [terms]",
            parameter="secure",
        )
    return Roster(tuple(known[name] for name in sites))
