"""Federations over real networks on NVIDIA FLARE: one coordinator, many sites, mutual TLS.

FLARE moves messages and starts processes; the loop, its checkpoints and what a site agrees to are felb's own. This is
the only package that imports ``nvflare``, and only `controller`, `executor` and `session` do so.
"""

CERTIFICATE_DAYS = 730
"""Days that a certificate of a federation is valid."""
COORDINATOR_FILE = "felb.json"
SHORT = 32
"""Characters of a digest that a person compares. Two plans that agree in 16 of them, one to be shown and one to be put
in its place, are found by 2³² tries of a seed; in 32, by 2⁶⁴."""
