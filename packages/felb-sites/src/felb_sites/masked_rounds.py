"""Rounds of a run whose sums are masked, at the coordinator: the trips of secure aggregation over any carrier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from felb.federated.journal import digest
from felb.federated.protocol import Sums
from felb.records import read_record
from felb.secure_sum.releases import from_vector
from felb.secure_sum.server import SecureServer, TooFewError, Trip
from felb_sites.hardening import write_json
from felb_sites.masked_session import sum_terms
from felb_sites.rounds import NOT_ANSWERED, QuorumError

if TYPE_CHECKING:
    from pathlib import Path

    from felb.federated.protocol import Request
    from felb.secure_sum.protocol import Roster
    from felb.secure_sum.server import SecureTotal
    from felb_sites.run_plan import Plan

Carry = Callable[[Trip], tuple[Mapping[str, bytes], Mapping[str, str]]]
"""Brings the messages of a trip to their sites; returns the replies, and why sites have not replied."""
NUMBERS_PER_ROUND = 4
"""Keys that a round may ask for: its own and those of the next one, twice."""
_ADVICE = "restore it from a backup; sites take no number of keys twice"


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a coordinator must know after a restart: the next number of keys, and the survivors named last."""

    next: int = 0
    round: int = -1
    survivors: tuple[str, ...] = ()


@dataclass
class MaskedRounds:
    """The coordinator's side of the masked sums of a run.

    Parameters
    ----------
    server : of secure aggregation
    path : of the file that keeps what a restart must not forget
    """

    server: SecureServer
    path: Path

    @classmethod
    def begin(cls, plan: Plan, roster: Roster, path: Path, *, rounds: int) -> MaskedRounds:
        """Go on with a run for at most so many rounds, under numbers of keys that were not used before."""
        kept = _read(path)
        made = cls(SecureServer(roster, sum_terms(plan, roster), first=kept.next), path)
        made._keep(msgspec.structs.replace(kept, next=kept.next + NUMBERS_PER_ROUND * (rounds + 1)))
        return made

    def play(self, request: Request, carry: Carry) -> tuple[Sums, dict[str, str]]:
        """Return the sum of a round, and why sites are not in it; a `QuorumError` if too few sites are left."""
        kept, reasons = _read(self.path), dict[str, str]()
        named = kept.survivors if kept.round == request.round else ()
        trips = self.server.aggregate(request.round, digest(request), named=named)
        try:
            trip = next(trips)
            while True:
                if trip.survivors:
                    self._keep(msgspec.structs.replace(_read(self.path), round=request.round, survivors=trip.survivors))
                replies, failed = carry(trip)
                reasons |= failed
                trip = trips.send(replies)
        except StopIteration as end:
            return _sums(end.value, request, reasons)
        except TooFewError as error:
            raise QuorumError(reasons, _told(str(error), reasons)) from error

    def _keep(self, kept: Kept) -> None:
        write_json(self.path, msgspec.to_builtins(kept))


def _read(path: Path) -> Kept:
    try:
        return read_record(path, Kept, advice=_ADVICE)
    except FileNotFoundError:
        return Kept()


def _sums(total: SecureTotal, request: Request, reasons: Mapping[str, str]) -> tuple[Sums, dict[str, str]]:
    missing = {site: reasons.get(site, NOT_ANSWERED) for site in total.missing}
    values = from_vector(total.vector, total.layout)
    return Sums(values, len(total.survivors), missing=missing, number=request.round), missing


def _told(what: str, reasons: Mapping[str, str]) -> str:
    return "; ".join((what, *(f"{site}: {reason}" for site, reason in sorted(reasons.items()))))
