"""An effort of the default method for tests of what carries it: every task of a run, but few rounds of each.

What a test says of a transport, a journal or a crash holds for every round alike, so a few of each kind say as much as
the hundreds that the default effort plays on small data. ``contracts/test_brief_effort.py`` shows that none is missing.
"""

from __future__ import annotations

from dataclasses import replace

from felb.federated.algorithms.bmf import EFFORTS

BRIEF = replace(EFFORTS["default"], relaxed_rounds=3, refine_rounds=3, tries=4, patience=2, restarts=1, generations=1)
BRIEF_NAME = "brief"
"""For plans, which hold plain data."""
EFFORTS[BRIEF_NAME] = BRIEF
