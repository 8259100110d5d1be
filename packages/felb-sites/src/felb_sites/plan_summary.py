"""What a run would take from a site, in words and numbers, for the person who approves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb.federated.steps.assignment import ASSIGN
from felb.privacy.accounting import total_epsilon
from felb.privacy.spec import UPLOADS
from felb_sites.approvals import SHORT
from felb_sites.attempts import planned_costs
from felb_sites.run_plan import DEFAULT_MAX_COMPONENTS

if TYPE_CHECKING:
    from felb.privacy.spec import PrivacyPlan
    from felb_sites.run_plan import Plan

IN_WORDS = {
    "exact_counts": ("counts of right and wrong cells, and records of components", "4 and k", "up to 3 times"),
    "assign": ("counts of right and wrong cells, and how many records have each component", "4 and k", "once"),
    "assign_by_belief": ("the same, for rows assigned by the recovered noise model", "4 and k", "once, or not at all"),
    "local_factor": ("the site's own relaxed V, and its loss", "k x m", "every round"),
    "fedprox": ("the site's own relaxed V, its curvature and loss", "k x m", "every round"),
    "scaffold": ("the site's own relaxed V, its gradient, curvature and loss", "2 k x m", "every round"),
    "proxskip": ("the site's own relaxed V, its curvature and loss", "k x m", "every round"),
    "local_components": ("the components of the site's own rows", "k x m", "once"),
    "aligned_components": ("the components of the site's own rows, reordered", "k x m", "a few times"),
    "gram_sketch": ("AᵀA times k+10 public vectors", "m x (k+10)", "3 times"),
    "sign_norms": ("squared norms of parts of left singular vectors", "2 k", "once"),
    "factor_statistics": ("AᵀU and UᵀU for the U of the site's rows", "m x k and k x k", "every round of the start"),
    "threshold_counts": ("cells covered, and ones among them, for 81 pairs of thresholds", "2 x 81", "once a start"),
    "cut_counts": ("right and wrong cells for 8 cuts of V", "8 x 4", "once"),
    "flip_gains": ("what switching each entry of V would gain", "k x m", "every round of refinement"),
    "stacked_gains": ("the same for up to 48 proposals at once", "48 x k x m", "every round of the search"),
    "residual_counts": ("ones of each column that the components leave", "m", "once a try"),
    "pair_counts": ("how often columns are left together with up to 256 seed columns", "256 x m", "once a try"),
    "candidate_gains": ("ones and zeros that each candidate would cover", "2 x candidates", "once a try"),
    "shared_counts": ("how many records have both of two components", "k x k", "once a turn of rank selection"),
    "belief_statistics": ("what the rows say about V under a noise model", "k x m", "up to 100 times"),
    "belief_threshold_counts": ("right and wrong cells for 9 thresholds", "9", "once"),
    "sizes": ("how many records have how many ones", "m", "once"),
    "columns": ("how often each feature occurs", "m", "once, if there are very many features"),
    "cooccurrence": ("how often pairs of features occur together", "m (m+1) / 2", "once"),
    "statistics": ("how the records relate components to features", "k x m", "every round"),
    "choice": ("how much the records gain by each candidate", "candidates", "once"),
    "scores": ("how many cells are right and wrong", "3", "once"),
    UPLOADS: ("the site's own components, with noise", "k x m", "every round"),
}
"""For each task: what leaves, its size for k components of m features, and how often."""

DRAWN = (
    "The run is a refit, which measures the stability of components. This site takes part with a random half of its "
    "records. It draws the half itself and does not reveal which records are in it. Together with the sums of the "
    "original run, the sums over the other half can be computed."
)


@dataclass(frozen=True, slots=True)
class Leaving:
    """One kind of thing that would leave.

    Parameters
    ----------
    what, meaning, size, times : its name, in words, its size, how often
    noise, cost : the mechanism, and what all of it costs; "none" and "not protected" without
    """

    what: str
    meaning: str
    size: str
    times: str
    noise: str
    cost: str


def leaving(plan: Plan) -> list[Leaving]:
    """Return what would leave a site that takes part in a run."""
    algorithm = plan.algorithm()
    guaranteed = algorithm.privacy
    if guaranteed is not None:
        return [_private(plan, guaranteed, what) for what in guaranteed.shares]
    found = []
    for task in algorithm.tasks:
        meaning, size, times = IN_WORDS.get(task, (task.replace("_", " "), "?", "?"))
        found.append(Leaving(task, meaning, _sized(size, plan), times, "none", "not protected"))
    return found


def _private(plan: Plan, guaranteed: PrivacyPlan, what: str) -> Leaving:
    meaning, size, _ = IN_WORDS[what]
    count = guaranteed.rounds_of(what)
    costs = planned_costs(guaranteed, what if guaranteed.uploads is None else UPLOADS)
    epsilon = total_epsilon([next(iter(costs.values()))] * count, guaranteed.delta)
    cost = f"epsilon {epsilon:.3g} at delta {guaranteed.delta:.2g}"
    mechanism = "discrete Gaussian"
    if guaranteed.uploads is not None and guaranteed.uploads.boolean:
        mechanism = "randomized response"
    times = "once" if count == 1 else f"{count} times"
    return Leaving(what, meaning, _sized(size, plan), times, mechanism, cost)


def _sized(size: str, plan: Plan) -> str:
    most: Any = plan.n_components
    if not isinstance(most, int):
        most = plan.parameters.get("max_components", DEFAULT_MAX_COMPONENTS)
    words = size.replace("k+10", str(int(most) + 10)).replace("(m+1)", f"({plan.n_features + 1})").split()
    return " ".join({"k": str(most), "m": str(plan.n_features)}.get(word, word) for word in words)


def in_words(plan: Plan) -> str:
    """Say in a few sentences what taking part means."""
    guaranteed = plan.algorithm().privacy
    masks = masking(plan)
    if plan.resample:
        masks = f"{masks} {DRAWN}"
    if guaranteed is not None:
        return (
            f"Sums over this site's records leave with noise, as listed. {guaranteed.statement()} "
            f"{masks} The assignment of records to components stays here."
        )
    tasks = [task for task in plan.algorithm().tasks if task != ASSIGN]
    return (
        f"Exact sums over this site's records leave without noise, of {len(tasks) + 1} kinds, as listed. Nothing "
        f"bounds what can be learnt from them about single records. {masks} The assignment of records to components "
        "stays here."
    )


def masking(plan: Plan) -> str:
    """Say who gets the sums of a site by itself."""
    if plan.roster is None:
        return "They are not masked: the coordinator gets the sums of this site by themselves."
    present = f"{plan.dropouts} of which at most may be missing" if plan.dropouts else "all of them"
    return (
        f"They are masked: the coordinator gets the sums over the {plan.sites} sites of the roster "
        f"{plan.roster[:SHORT]}, {present}, and no site's own."
    )
