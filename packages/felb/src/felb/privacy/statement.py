"""The privacy statement: the guarantee in words, for the person responsible for the data."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from felb.metrics.counts import History
    from felb.privacy.spec import PrivacyPlan

WEAK_EPSILON = 4.0

_RELEASES = {
    "sizes": "how many records have how many ones",
    "columns": "how often each feature occurs",
    "cooccurrence": "how often each pair of features occurs together",
    "statistics": "sums that relate the components to the features",
    "choice": "which of several candidate results fits better",
    "scores": "how many cells the result gets right and wrong",
    "V": "each client's own components",
}


def statement(plan: PrivacyPlan, *, row_bound: float | None = None) -> str:
    """Say in words what is guaranteed to whom, one subject a line; `row_bound` is B where it was found privately."""
    gaussian = "" if _bits(plan) else f"; Gaussian mu = {plan.mu:.4g}"
    released = [f"{_RELEASES[what]} ({100 * share:.3g}% of mu squared)" for what, share in plan.shares.items()]
    scores = "exact scores" if "scores" in plan.shares else "scores"
    subjects = {
        "Protected unit": _unit(plan),
        "Compared data": _neighbours(plan),
        "Guarantee": f"(epsilon, delta) = ({plan.privacy.epsilon:g}, {plan.delta:.3g}) in total, over the whole run"
        + gaussian,
        "": _meaning(plan),
        "Trust needed": _trust(plan),
        "What leaves": "with noise: " + "; ".join(released),
        "Bounds": _bounds(plan, row_bound),
        "Rounds": _rounds(plan),
        "Noise": _noise(plan),
        "What stays local": f"the records, which components each has (U), exact counts, losses and {scores}",
    }
    return "\n".join(["Privacy", *(f"  {subject:<19}{text}" for subject, text in subjects.items())])


def _bits(plan: PrivacyPlan) -> bool:
    return plan.uploads is not None and plan.uploads.boolean


def _rounds(plan: PrivacyPlan) -> str:
    if plan.uploads is not None:
        return f"at most {plan.uploads.rounds} by each client"
    rounds = plan.privacy.n_rounds
    if not rounds:
        return "one release of each"
    return f"{rounds} of statistics" + (", one release of everything else" if len(plan.shares) > 1 else "")


def _unit(plan: PrivacyPlan) -> str:
    if plan.privacy.unit == "record":
        return "one record (one row of the data, such as a patient); a person with several rows is protected less"
    return "one client, with all of its records; that it takes part is known"


def _neighbours(plan: PrivacyPlan) -> str:
    unit = plan.privacy.unit
    if plan.privacy.neighbours == "add_remove" and unit == "client":
        return "with that client's answers and with none from it (add or remove one)"
    if plan.privacy.neighbours == "add_remove":
        return f"with and without that {unit} (add or remove one)"
    return f"with that {unit} and with any other in its place (replace one)"


def _meaning(plan: PrivacyPlan) -> str:
    from scipy.special import ndtr

    epsilon = plan.privacy.epsilon
    if _bits(plan):  # with equal odds before, (ε, δ) allows to be right with probability (e^ε + δ)/(1 + e^ε)
        chance = 100 * (1 + plan.delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))
    else:  # the best guess from Gaussian noise of μ is right with probability Φ(μ/2)
        chance = 100 * float(ndtr(plan.mu / 2))
    guess = "whether the record took part" if plan.unit == "record" else "whether the answers are that client's"
    text = f"Who must guess {guess} is right in at most {chance:.0f} of 100 cases"
    if plan.privacy.epsilon > WEAK_EPSILON:
        text += f"; an epsilon above {WEAK_EPSILON:g} guarantees little"
    return text


def _trust(plan: PrivacyPlan) -> str:
    privacy = plan.privacy
    if privacy.noise == "client":
        return (
            "none: each client adds all the noise itself, so the guarantee holds against the server and other clients"
        )
    return (
        f"not the server, but most clients: by secure aggregation the server learns sums of at least "
        f"{plan.n_clients - privacy.dropouts} clients only. Each of {plan.n_clients} adds a part of the noise, enough "
        f"if at most {privacy.colluders} of them collude with the server and {privacy.dropouts} are missing"
    )


def _bounds(plan: PrivacyPlan, row_bound: float | None) -> str:
    privacy, parts = plan.privacy, []
    if _bits(plan):
        assert plan.uploads is not None
        parts.append(f"an upload is {plan.uploads.size} bits, all of which may depend on the client")
    elif plan.uploads is not None:
        parts.append(f"each upload is shortened to the length theta = {privacy.theta:g}")
    if "cooccurrence" in plan.shares:
        bound = privacy.row_bound if row_bound is None else row_bound
        known = "their median number, found with noise," if bound is None else f"B = {bound:g}"
        parts.append(f"records with more ones than {known} count for less")
        if "columns" in plan.shares and privacy.row_bound is None:
            parts.append("for pairs, B shrinks to what the frequent features hold of the ones")
    if "statistics" in plan.shares:
        parts.append(
            f"a record's components are shortened to c = {privacy.norm_bound:g}, its data to s = {privacy.data_bound:g}"
            f"; weight w = {privacy.gram_weight:g}"
        )
    if "scores" in plan.shares:
        bound = privacy.score_bound
        known = "twice B, or s squared without B," if bound is None else f"{bound:g}"
        parts.append(f"records with more right and wrong cells than {known} count for less in the scores")
    return "; ".join(parts)


def _noise(plan: PrivacyPlan) -> str:
    if _bits(plan):
        return "each bit is flipped at random, by the operating system's randomness"
    share = "" if plan.noise_shares == 1 else f", 1/{math.sqrt(plan.noise_shares):.3g} of its scale at each client"
    return "discrete Gaussian on whole numbers, from the operating system's randomness" + share


def guarantee(plan: PrivacyPlan, history: History) -> dict[str, Any]:
    """Return what a run under `plan` guarantees: the specification, its noise, and ``text``, the same in words."""
    found = [float(row["row_bound"]) for row in history if "row_bound" in row]
    row_bound = found[0] if found else plan.privacy.row_bound
    return {
        **asdict(plan.privacy),
        "delta": plan.delta,
        "total_epsilon": plan.privacy.epsilon,
        "mu": plan.mu,
        "row_bound": row_bound,
        "rounds": len(history),
        "clients": plan.n_clients,
        "shares": dict(plan.shares),
        "text": statement(plan, row_bound=row_bound),
    }
