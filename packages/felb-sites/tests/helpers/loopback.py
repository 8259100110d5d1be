"""A federation without its network: real vaults, and a coordinator that seals and opens real envelopes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from felb.data.storage import save_matrix
from felb.federated.journal import digest as request_digest
from felb.federated.journal import pack, unpack
from felb.federated.loop import play
from felb.federated.protocol import Release, Sums
from felb.federated.tasks import ResponseValidator
from felb.secure_sum.protocol import Terms
from felb.secure_sum.releases import from_vector
from felb.secure_sum.server import SecureServer
from felb_sites import messages
from felb_sites.envelopes import COORDINATOR, Header, read_envelope, seal, unseal
from felb_sites.keys.identity import Identity
from felb_sites.keys.members import Member, MemberList, SignedMembers
from felb_sites.run_plan import fingerprint, plan_digest
from felb_sites.vault.policy import Policy, SiteConfig
from felb_sites.vault.snapshot import write_snapshot
from felb_sites.vault.store import Store
from felb_sites.vault.vault import Vault

FEDERATION = "f" * 32
OPEN = {"auto_approve": ("all",), "require_privacy": False, "disclosure": "none", "min_rows": 5}
"""A policy that approves by itself and takes exact runs, under no disclosure rules."""
KINDS = {
    "consent": messages.Consent,
    "refusal": messages.Refusal,
    "response": messages.Response,
    "secure": messages.SecureTrip,
}


class Loopback:
    """Vaults of sites in one process, and their coordinator.

    Parameters
    ----------
    folder : of the whole federation
    shards : rows of the sites by name
    policy : of the sites, beside `OPEN`
    """

    def __init__(self, folder, shards, **policy):
        self.folder, self.shards = folder, shards
        self.authority, self.run_key = Identity.create(), Identity.create()
        self.keys = {name: Identity.create() for name in shards}
        self.configs, self.events = {}, []
        for name, shard in shards.items():
            self.configs[name] = SiteConfig("data.npz", policy=Policy(**{**OPEN, **policy}))
            self.refresh(name, shard)
        self.vaults, self.read_up_to = {}, {}
        self.restart()
        self.members = self.sign_members()
        self.deliver(self.members.data)
        for vault in self.vaults.values():
            vault.confirm([name for name in shards if name != vault.name], by="a person")

    def sign_members(self, number=1, *, without=(), replaced=None):
        keys = {**self.keys, **(replaced or {})}
        listed = tuple(
            Member(name, key.sign_public, key.seal_public, Identity(key.derive(b"transport")).sign_public)
            for name, key in sorted(keys.items())
            if name not in without
        )
        made = MemberList(FEDERATION, number, self.run_key.sign_public, self.run_key.seal_public, listed)
        return SignedMembers.sign(made, self.authority)

    def restart(self, *names):
        """Processes of vaults die and come back: only what is on disk is left."""
        for name in names or self.shards:
            if name in self.vaults:
                self.vaults[name].close()
            self.vaults[name] = Vault(
                name,
                self.keys[name],
                federation=FEDERATION,
                authority=self.authority.sign_public,
                store=Store(self.folder / name / "vault", name=name),
                config=lambda name=name: self.configs[name],
                on_event=self.events.append,
            )
            self.read_up_to[name] = 0

    def refresh(self, name, rows):
        """Take a snapshot of other rows of a site."""
        vault = self.folder / name / "vault"
        vault.mkdir(parents=True, exist_ok=True)
        names = None if rows.columns is None else fingerprint(rows.columns)
        write_snapshot(vault, rows, columns=names, settings=self.configs[name].data_digest, save=save_matrix)

    # -- envelopes -------------------------------------------------------------------------------------------------

    def seal(self, kind, run, number, message, *, round=0, sites=None, key=None):  # noqa: A002
        sites = tuple(sorted(self.shards)) if sites is None else tuple(sites)
        header = Header(FEDERATION, run, round, COORDINATOR, sites, kind, number)
        receivers = {name: self.keys[name].seal_public for name in sites}
        data = message if isinstance(message, bytes) else messages.write_message(message)
        return seal(header, data, key or self.run_key, receivers=receivers).to_bytes()

    def deliver(self, data, *, to=None):
        for name in self.vaults if to is None else to:
            self.vaults[name].deliver([data])

    def read(self, name):
        """Return what a vault has set down to be sent since the last time, as (header, message)."""
        found = []
        for seq, data in self.vaults[name].fetch(self.read_up_to[name], 0.0).envelopes:
            self.read_up_to[name] = seq
            envelope = read_envelope(data)
            assert envelope.is_signed_by(self.keys[name].sign_public)
            if envelope.header.kind in KINDS:
                payload = unseal(envelope, COORDINATOR, self.run_key)
                found.append((envelope.header, messages.read_message(payload, KINDS[envelope.header.kind])))
        return found

    def last(self, name, kind):
        """Return the last message of a kind among those that are new."""
        return next((message for header, message in reversed(self.read(name)) if header.kind == kind), None)

    # -- runs ------------------------------------------------------------------------------------------------------

    def propose(self, plan, *, number=0, sites=None):
        """Propose a plan and return what each site says."""
        sites = tuple(sorted(self.shards)) if sites is None else sites
        proposal = messages.Proposal(plan.to_json(), sites, self.members.digest)
        self.deliver(self.seal("proposal", plan.run_id, number, proposal), to=sites)
        return {name: self.read(name)[-1][1] for name in sites}

    def masked(self, plan):
        """Return a plan with the roster of all sites."""
        roster = self.members.listed.roster(tuple(sorted(self.shards)))
        return replace(plan, roster=roster.digest, sites=len(self.shards))

    def transport(self, plan):
        return (ClearTransport if plan.roster is None else MaskedTransport)(self, plan)

    def play(self, plan, **options):
        """Propose a plan, which policies approve, and play it."""
        said = self.propose(plan)
        assert all(isinstance(m, messages.Consent) and m.status == "approved" for m in said.values()), said
        return play(plan.algorithm(), self.transport(plan), seed=plan.seed, **options)

    def lines(self, name):
        return self.vaults[name].store.log_lines()


class ClearTransport:
    """Asks sites in the clear; `lose` names sites whose answers are lost in a round, `before` is called first."""

    states = None

    def __init__(self, loopback, plan):
        self.loopback, self.plan, self.algorithm = loopback, plan, plan.algorithm()
        self.validator, self.sums, self.away = ResponseValidator(self.algorithm), None, {}
        self.before = lambda request: None

    def restore(self, states):
        raise AssertionError("sites keep their own states")

    def broadcast(self, request):
        sums = b"" if self.sums is None else pack(dict(self.sums))
        clients = 0 if self.sums is None else self.sums.clients
        told = messages.RoundSums(clients, sums, real_fields(request))
        return self.loopback.seal("sums", self.plan.run_id, request.round, told, round=request.round)

    def ask(self, request):
        self.before(request)
        data, releases = self.broadcast(request), {}
        for name in sorted(self.loopback.shards):
            if name in self.away.get(request.round, ()):
                continue
            self.loopback.deliver(data, to=[name])
            message = self.loopback.last(name, "response")
            assert message is not None, self.loopback.vaults[name].store.rows("select * from refusals")[-1]["reason"]
            values = widened(unpack(message.values))
            self.validator.check(values, request, client=name)
            releases[name] = Release(values)
        self.sums = Sums.of(releases.values(), number=request.round)
        return self.sums


class MaskedTransport(ClearTransport):
    """Asks sites for masked sums."""

    def __init__(self, loopback, plan):
        super().__init__(loopback, plan)
        roster = loopback.members.listed.roster(tuple(sorted(loopback.shards)))
        self.server = SecureServer(roster, Terms(plan.run_id, plan_digest(plan), roster.digest, plan.dropouts or 0))
        self.number = 0
        self.lost = lambda trip, name: False

    def ask(self, request):
        self.before(request)
        self.loopback.deliver(self.broadcast(request))
        trips = self.server.aggregate(request.round, request_digest(request))
        trip = next(trips)
        try:
            while True:
                trip = trips.send(self.carry(request, trip))
        except StopIteration as end:
            total = end.value
        self.sums = Sums(from_vector(total.vector, total.layout), len(total.survivors), number=request.round)
        self.validator.check_sum(self.sums, request)
        return self.sums

    def carry(self, request, trip):
        replies = {}
        for name, message in trip.messages.items():
            if self.lost(trip, name):
                continue
            self.number += 1
            told = messages.SecureTrip(message)
            run = self.plan.run_id
            self.loopback.deliver(
                self.loopback.seal("secure", run, self.number, told, round=request.round, sites=[name]), to=[name]
            )
            reply = self.loopback.last(name, "secure")
            if reply is not None:
                replies[name] = reply.message
        return replies


def real_fields(request):
    found = {
        f"p{index}.{name}": np.asarray(value)
        for index, part in enumerate(request.parts)
        for name, value in part.values.items()
        if np.asarray(value).dtype.kind == "f"
    }
    return pack(found) if found else b""


def widened(values):
    return {n: a if a.dtype.kind == "f" else a.astype(np.int64) for n, a in values.items()}
