"""Why a site does not answer: a closed list of sentences, so that nothing of its data or machine can be in them.

What a coordinator is told is one of these words and its sentence. The details are in the site's own log.
"""

from __future__ import annotations

REASONS = {
    "plan": "the plan is not one that this site understands; are all on the same version of felb?",
    "method": "the site does not run this method",
    "privacy": "the site takes part only in runs with a privacy guarantee that satisfies its policy",
    "epsilon": "the plan's epsilon is more than the site spends on a run",
    "delta": "the plan's delta is more than the site accepts",
    "budget": "the site's privacy budget for all runs does not suffice",
    "disclosure": "the plan does not satisfy the site's disclosure rules",
    "rows": "the site has fewer rows than its policy asks for",
    "columns": "the site's columns are not those of the plan",
    "unknown": "the site has unknown cells, which this run does not take",
    "data": "the site's data cannot be read",
    "changed": "the site's data has changed since the run began; begin another run",
    "pending": "the run waits for approval at the site: `felb site pending`, then `felb site approve`",
    "roster": "the roster waits for confirmation at the site: `felb site roster show`, then `felb site roster confirm`",
    "members": "the site has another list of members; start the run again",
    "sites": "the site takes part only in exact runs of more sites than that",
    "unavailable": "the site is not available at the moment",
    "secure": "the site takes part only if sums are masked: secure = true in [terms]",
    "denied": "the site has denied the run",
    "revoked": "the site is not on the member list any more: it was revoked, or its keys were replaced",
    "known": "the site knows another run of this name; give the run another id",
    "request": "the request is not one that the approved plan asks",
    "behind": "the site misses the sums of earlier rounds",
    "policy": "the site's policy does not allow it",
    "failed": "the site could not answer",
    "full": "too many runs wait at the site, which has to decide about some of them first: `felb site pending`",
}
"""What each word means to a coordinator."""

WAITING = frozenset({"pending", "roster", "full", "unavailable"})
"""Reasons that may pass by themselves or by a decision; the others would come again."""


def sentence(word: object) -> str:
    """Return the sentence of a word; of anything else, that the site could not answer."""
    return REASONS.get(word, REASONS["failed"]) if isinstance(word, str) else REASONS["failed"]
