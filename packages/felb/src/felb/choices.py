"""Words that options offer, apart from what they name: help texts are printed without importing it.

tests/test_choices.py compares each list with the table of what it names.
"""

from __future__ import annotations

from typing import Literal

MechanismName = Literal["cooccurrence", "statistics", "hybrid", "uploads"]
"""What a private run releases, see `felb.privacy.Privacy`."""

NoisePlace = Literal["client", "distributed"]
"""Who adds the noise: each client all of it, or a share of it."""

DISCLOSURE_PRESETS = ("strict", "datashield", "ohdsi", "cms", "opensafely", "none")
"""Of `felb.privacy.disclosure`."""

SPLITS = ("even", "uneven", "consecutive")
"""How rows are split among clients, see `felb.data.partition`."""

FELB_SETTINGS = ("recommended", "unweighted", "literal")
"""Of FELB and FELB-MU, see `felb.federated.algorithms.felb`."""

AGGREGATIONS = ("mean", "vote", "or")
"""Of Boolean components, see `felb.federated.aggregate`; each also as aligned-WORD."""

MDL = "mdl"
"""In place of a number of components: the method finds it by minimum description length."""

CERTIFICATE_DAYS = 730
"""Days that a certificate of a federation is valid."""
