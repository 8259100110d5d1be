"""A deployed federation without its network: sites and a coordinator in one process."""

from __future__ import annotations

import scipy.sparse as sp

from felb.federated.journal import pack
from felb.federated.loop import play
from felb.metrics.counts import History
from felb_sites.messages import vault_message, write_request
from felb_sites.replay import unpack_sums
from felb_sites.response_validation import ResponseValidator
from felb_sites.rounds import summed
from felb_sites.run_record import RunRecord
from felb_sites.site_budget import Spent
from felb_sites.site_logs import read_outbound
from felb_sites.site_policy import Policy, SiteConfig
from felb_sites.site_session import SiteSession
from felb_sites.vault import request_of

OPEN = {"auto_approve": ("all",), "require_privacy": False, "require_replay": False, "disclosure": "none"}
"""A policy that approves by itself and takes exact runs, under no disclosure rules."""


class Loopback:
    """A transport over sites; everything that would be sent is packed and unpacked, only what is on disk is kept.

    Parameters
    ----------
    folder : of the whole federation
    plan, shards : what is run on which rows
    policy : of the sites
    """

    states = None

    def __init__(self, folder, plan, shards, **policy):
        self.plan, self.algorithm, self.folder = plan, plan.algorithm(), folder
        self.record = RunRecord(folder / "runs", plan.run_id)
        self.record.begin(plan)
        self.configs, self.absent = {}, {}
        for name, shard in shards.items():
            (folder / name).mkdir(exist_ok=True, parents=True)
            sp.save_npz(folder / name / "data.npz", shard.to_scipy(bool))
            if shard.columns is not None:
                (folder / name / "data.columns.txt").write_text("\n".join(shard.columns))
            data, state = folder / name / "data.npz", folder / name / "state"
            self.configs[name] = SiteConfig(str(data), str(state), policy=Policy(**{**OPEN, "min_rows": 5, **policy}))
        self.desks = {}
        self.restart()

    def restart(self):
        """All processes die and come back: only what is on disk is left."""
        for session in self.desks.values():
            session.close()
        self.desks = {name: SiteSession(name, self.plan.to_json(), config) for name, config in self.configs.items()}
        self.validator = ResponseValidator(self.algorithm)
        self.record.journal()

    # -- the transport -----------------------------------------------------------------------------------------------

    def ask(self, request):
        """Ask all sites that are not absent."""
        releases = {
            name: self.validator.admit(self.ask_site(name, request), request, site=name)
            for name in self.desks
            if name not in self.absent
        }
        sums = summed(request, releases, dict(self.absent))
        self.record.sums().keep(request, sums)
        return sums

    def restore(self, states):
        raise AssertionError("sites keep their own states")

    def ask_site(self, name, request):
        session = self.desks[name]
        told = [] if session.have is None else self.record.sums().between(session.have, request.round)
        words, content = vault_message(write_request(request, told), self.plan.to_json())
        size = words["size"]
        return pack(session.answer(request_of(words, content[:size]), unpack_sums(words["sums"], content[size:])))

    # -- the coordinator ---------------------------------------------------------------------------------------------

    @property
    def request(self):
        """What is asked next, as the journal on disk tells."""
        return self.record.execution().request

    @property
    def history(self):
        return History(self.record.execution().rows)

    @property
    def outcome(self):
        return self.record.execution().outcome

    def round(self, *, save=True):
        """Play a round from what is on disk; False if the run is over. Without `save`, it is lost with its process."""
        if self.request is None:
            return False
        journal = self.record.journal()
        if not save:
            journal.folder = None
        play(self.algorithm, self, seed=self.plan.seed, journal=journal, most_rounds=1)
        return True

    def finish(self):
        """Play to the end in one process."""
        return play(self.algorithm, self, seed=self.plan.seed, journal=self.record.journal()).outcome

    # -- what sites have ---------------------------------------------------------------------------------------------

    def state(self, name):
        return self.folder / name / "state"

    def lines(self, name):
        return read_outbound(self.state(name))

    def spent(self, name):
        return Spent(self.state(name))

    def assignment(self, name):
        return sp.load_npz(self.state(name) / self.plan.run_id / "assignment.npz").toarray()
