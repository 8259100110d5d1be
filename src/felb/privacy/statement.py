"""The privacy statement: what was promised to whom, for somebody who answers for the data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felb.privacy.policy import PrivacyPlan

WEAK_EPSILON = 4.0

_RELEASES = {
    "sizes": "how many records have how many ones",
    "columns": "how often each feature occurs",
    "cooccurrence": "how often each pair of features occurs together",
    "statistics": "sums that relate the components to the features",
    "choice": "which of several candidate results fits better",
    "V": "each client's own components",
}


def statement(plan: PrivacyPlan, *, row_bound: float | None = None) -> str:
    """Return the statement, one subject a line."""
    privacy = plan.privacy
    title = "Noise as in the paper, for reproduction; not meant to protect anybody" if _paper(plan) else "Privacy"
    lines = [
        title,
        f"  Protected unit     {_unit(plan)}",
        f"  Compared data      {_neighbours(plan)}",
        f"  Promise            (epsilon, delta) = ({privacy.epsilon:g}, {plan.delta:.3g}) in total, over the whole run;"
        f" Gaussian mu = {plan.mu:.4g}",
        f"                     {_meaning(plan)}",
        f"  Trust needed       {_trust(plan)}",
        "  What leaves        with noise: " + "; ".join(_released(plan)),
        f"  Bounds             {_bounds(plan, row_bound)}",
        f"  Rounds             {privacy.n_rounds or 'one release of each'}",
        f"  Noise              {_noise(plan)}",
        f"  What stays local   {_local(plan)}",
    ]
    return "\n".join(lines)


def _paper(plan: PrivacyPlan) -> bool:
    return plan.privacy.mechanism == "paper"


def _unit(plan: PrivacyPlan) -> str:
    if plan.privacy.unit == "record":
        return "one record (one row of the data, such as a patient); a person with several rows is protected less"
    return "one client, with all of its records"


def _neighbours(plan: PrivacyPlan) -> str:
    unit = plan.privacy.unit
    if plan.privacy.neighbours == "add_remove":
        return f"with and without that {unit} (add or remove one)"
    return f"with that {unit} and with any other in its place (replace one)"


def _meaning(plan: PrivacyPlan) -> str:
    from scipy.special import ndtr

    # With equal odds before, the best guess from Gaussian noise of μ is right with probability Φ(μ/2).
    chance = 100 * float(ndtr(plan.mu / 2))
    text = f"Who must guess whether the {plan.privacy.unit} took part is right in at most {chance:.0f} of 100 cases"
    if plan.privacy.epsilon > WEAK_EPSILON:
        text += f"; an epsilon above {WEAK_EPSILON:g} promises little"
    return text


def _trust(plan: PrivacyPlan) -> str:
    privacy = plan.privacy
    if privacy.noise == "client":
        return "none: each client adds all the noise itself, so the promise holds against the server and other clients"
    return (
        "that the server, or a secure sum, shows nobody a single client's answer; each of "
        f"{plan.n_clients} clients adds a part of the noise, enough if at most {privacy.colluders} reveal theirs and "
        f"{privacy.dropouts} fail to add it"
    )


def _released(plan: PrivacyPlan) -> list[str]:
    return [f"{_RELEASES[what]} ({100 * share:.3g}% of mu squared)" for what, share in plan.shares.items()]


def _bounds(plan: PrivacyPlan, row_bound: float | None) -> str:
    privacy, parts = plan.privacy, []
    if "V" in plan.shares:
        parts.append(f"each upload is shortened to the length theta = {privacy.theta:g}")
    if "cooccurrence" in plan.shares:
        bound = privacy.row_bound if row_bound is None else row_bound
        known = "their median number, found with noise," if bound is None else f"B = {bound:g}"
        parts.append(f"records with more ones than {known} count for less")
    if "statistics" in plan.shares:
        parts.append(
            f"a record's components are shortened to c = {privacy.norm_bound:g}, its data to s = {privacy.data_bound:g}"
            f"; weight w = {privacy.gram_weight:g}"
        )
    return "; ".join(parts)


def _noise(plan: PrivacyPlan) -> str:
    if _paper(plan):
        return "drawn in floating point, which an attentive receiver can see through"
    share = "" if plan.noise_shares == 1 else f", 1/{math.sqrt(plan.noise_shares):.3g} of its scale at each client"
    return "discrete Gaussian on whole numbers, from the operating system's randomness" + share


def _local(plan: PrivacyPlan) -> str:
    if _paper(plan):
        return "the records and which components each has; other numbers (losses, counts) must not leave either"
    return "the records, which components each has (U), exact counts, losses and scores"
