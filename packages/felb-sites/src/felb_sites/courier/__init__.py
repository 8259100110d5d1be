"""The courier of a site: moves envelopes between the relay and the socket of the vault, and nothing else."""
