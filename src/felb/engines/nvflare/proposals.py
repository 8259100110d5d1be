"""What a site may tell about its raw data for a common schema: by its policy, and charged to its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from felb.data.bounded_counts import bounded_counts
from felb.engines.nvflare.site_budget import USUAL, Spent
from felb.engines.nvflare.site_policy import Policy, Refusal
from felb.errors import InputError
from felb.privacy.private_proposal import private_summary

if TYPE_CHECKING:
    from felb.data.summarize import Summary
    from felb.engines.nvflare.provisioning import Site
    from felb.privacy.private_proposal import CountNoise

PROPOSAL = "schema-proposal"
"""Beginning of the name under which a proposal is in the budget."""


def check_exact_proposal(site: Site) -> None:
    """Refuse counts without noise where the site asks for privacy, or has answered private runs."""
    policy = _policy(site)
    if policy.asks_for_privacy:
        raise Refusal(
            "this site's policy asks for privacy; give epsilon, or allow exact sums (felb site start --allow-exact)",
            code="privacy",
        )
    Spent(site.state).check_exact(allowed=policy.exact_after_private)


def propose_privately(
    site: Site, data: Any, *, epsilon: float, delta: float, bins: int = 4, **counting: Any
) -> tuple[Summary, CountNoise]:
    """Return what a site proposes with (ε, δ)-differential privacy of every record, and its noise.

    The cost is set down in the site's budget before noise is drawn, each proposal anew: two of them tell more than one.

    Parameters
    ----------
    site : its policy limits ε and δ, its budget is charged
    data : file, URL or frame
    epsilon, delta : of this proposal
    bins : of a column of numbers
    counting : min_count, max_events, roles, prefix_length and leave_out of `bounded_counts`
    """
    policy = _policy(site)
    if policy.unit not in (None, USUAL[0]):
        raise Refusal(f"this site asks for privacy of a {policy.unit}; a proposal hides a record", code="privacy")
    policy.check_size(epsilon, delta)
    counts = bounded_counts(data, **counting)
    if delta * counts.records >= 1:
        raise InputError(
            f"delta={delta:g} must be below 1 in the number of records: otherwise a record could be published as it is",
            parameter="delta",
        )
    Spent(site.state).charge(
        f"{PROPOSAL}-{uuid4().hex[:12]}",
        (epsilon, delta),
        kind=USUAL,
        limits=policy.total_limits(),
    )
    return private_summary(counts, epsilon=epsilon, delta=delta, bins=bins)


def _policy(site: Site) -> Policy:
    """Return the site's conditions; those of a new site if it has no settings yet."""
    return site.config().policy if site.configured else Policy()
