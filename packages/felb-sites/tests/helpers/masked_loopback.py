"""A deployed federation with masked sums without its network: vaults and a coordinator in one process."""

from __future__ import annotations

from dataclasses import replace

from loopback import Loopback

from felb.secure_sum.protocol import Roster
from felb_sites.messages import vault_message, write_question, write_request, write_trip
from felb_sites.rounds import NOT_ANSWERED
from felb_sites.site_roster import SiteRosters, write_roster
from felb_sites.vault import OK, Vault


class MaskedLoopback(Loopback):
    """Vaults that are asked as a courier asks them; the coordinator gets masked vectors and their sums.

    Parameters
    ----------
    folder, plan, shards, policy : as of `Loopback`; the plan gets the roster of the sites
    confirm : whether a person at each site has confirmed it
    """

    def __init__(self, folder, plan, shards, *, confirm=True, **policy):
        self.rosters = {name: SiteRosters(folder / name / "vault", name) for name in shards}
        self.roster = Roster(tuple(site.own for site in self.rosters.values()))
        for site in self.rosters.values() if confirm else ():
            site.propose(write_roster(self.roster))
            site.confirm(self.roster.digest)
        self.lost, self.seen, self.interfere = set(), [], lambda trip, name, reply: reply
        super().__init__(folder, replace(plan, roster=self.roster.digest, sites=len(shards)), shards, **policy)

    def restart(self):
        """All processes die and come back: only what is on disk is left."""
        for vault in getattr(self, "vaults", {}).values():
            vault.close()
        super().restart()
        for session in self.desks.values():
            session.close()  # the vaults have their own
        self.vaults = {
            name: Vault(name, lambda config=config: config, rosters=self.rosters[name])
            for name, config in self.configs.items()
        }
        self.rounds = self.record.masked_rounds(self.plan, write_roster(self.roster), rounds=1000)

    def handle(self, name, content):
        """Return the reply of a vault to what a courier brings it."""
        return self.vaults[name].handle(*vault_message(content, self.plan.to_json(), site=name))

    def ready(self, name):
        """Return what a vault says to the plan."""
        return self.handle(name, write_question(write_roster(self.roster))).code

    def ask(self, request):
        """Play the trips of a round over the vaults that are not lost."""

        def carry(trip):
            replies, reasons = {}, {}
            for name in trip.messages:
                reply = None if name in self.lost else self.reply(trip, name, request)
                if reply is None:
                    reasons[name] = NOT_ANSWERED
                else:
                    replies[name] = reply
            return replies, reasons

        sums, _ = self.rounds.play(request, carry)
        self.validator.check_sum(sums, request)
        self.record.sums().keep(request, sums)
        return sums

    def reply(self, trip, name, request):
        """Return the reply of one site to a trip; None if it refuses."""
        order = None
        if trip.step == "masked input":
            order = write_request(request, self.record.sums().between(0, request.round))
        reply = self.handle(name, write_trip(trip.messages, request.round, order))
        self.seen.append((name, trip.step, reply))
        return self.interfere(trip, name, reply.values) if reply.code == OK else None
