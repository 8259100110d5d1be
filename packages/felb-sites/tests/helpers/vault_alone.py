"""A site's vault in this process, asked as its courier would."""

import scipy.sparse as sp

from felb.federated.loop import Execution
from felb_sites.messages import vault_message, write_question, write_request
from felb_sites.site_policy import Policy, SiteConfig
from felb_sites.vault import Vault

OPEN = {"auto_approve": ("all",), "require_privacy": False, "min_rows": 5, "disclosure": "none"}
"""The policy of a site that approves every run."""


class VaultAlone:
    """A vault that holds `rows` under a policy, with what it tells a person."""

    def __init__(self, folder, rows, **policy):
        self.state, data = folder / "state", folder / "data.npz"
        folder.mkdir(parents=True, exist_ok=True)
        sp.save_npz(data, rows.to_scipy(bool))
        self.config = SiteConfig(str(data), str(self.state), policy=Policy(**{"min_rows": 5, **policy}))
        self.events = []
        self.vault = Vault("site-0", lambda: self.config, on_event=self.events.append)

    def ready(self, plan):
        """Return the vault's word about a plan."""
        return self.vault.handle(*vault_message(write_question(), plan.to_json())).code

    def first(self, plan):
        """Return the first request of a run, as it is sent."""
        request = Execution(plan.algorithm(), seed=plan.seed).request
        return vault_message(write_request(request), plan.to_json())

    def ask(self, plan):
        """Return the vault's word about the first request of a run."""
        return self.vault.handle(*self.first(plan)).code

    def kinds(self):
        """Return what sort of events a person was told."""
        return [event.kind for event in self.events]
