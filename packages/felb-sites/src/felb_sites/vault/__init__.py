"""The vault of a site: data, policy, approvals, budget, noise, masks and log; it has no network."""
