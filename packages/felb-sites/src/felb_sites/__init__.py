"""Federations of real sites: signed and sealed envelopes over HTTPS, and nothing that runs.

Folders name processes: `relay`, `coordinator` (``felb run``), `vault`, `courier`. What several of them share is beside
the folders: `envelopes`, `messages`, `carrier`, `sockets`, `run_plan`, `reasons`, `terms` and `keys`.
"""

SHORT = 32
"""Characters of a digest that a person compares. Two plans that agree in 16 of them, one to be shown and one to be put
in its place, are found by 2³² tries of a seed; in 32, by 2⁶⁴."""
