"""What a run would take from a site, in words and numbers, for the person who approves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb.privacy.accounting import UPLOADS, total_epsilon
from felb.privacy.statement import statement
from felb_sites import SHORT
from felb_sites.vault.session import planned_costs

if TYPE_CHECKING:
    from felb.federated.tasks import TaskSpec
    from felb.privacy.spec import PrivacyPlan
    from felb_sites.run_plan import Plan

DRAWN = (
    "The run is a refit, which measures the stability of components. This site takes part with a random half of its "
    "records. It draws the half itself and does not reveal which records are in it. Together with the sums of the "
    "original run, the sums over the other half can be computed."
)
REHEARSED = (
    "The run is a rehearsal: this site takes part with synthetic rows, which it draws at random. None of its records "
    "is read, and no privacy budget is spent. What leaves is what would leave in the run, computed from the synthetic "
    "rows; their number is that of the records of this site, rounded down to its first digit."
)


@dataclass(frozen=True, slots=True)
class Leaving:
    """One kind of thing that would leave.

    Parameters
    ----------
    what, meaning, size, times : its name, in words, its arrays with their sizes, how often
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
    for name, spec in algorithm.tasks.items():
        times = "once, at the end" if spec.assigns else "as often as the method asks"
        found.append(Leaving(name, spec.meaning, _sizes(spec, plan), times, "none", "not protected"))
    return found


def _private(plan: Plan, guaranteed: PrivacyPlan, what: str) -> Leaving:
    algorithm = plan.algorithm()
    spec = next(spec for spec in algorithm.tasks.values() if what in spec.outputs)
    count = guaranteed.rounds_of(what)
    costs = planned_costs(guaranteed, what if guaranteed.uploads is None else UPLOADS)
    epsilon = total_epsilon([next(iter(costs.values()))] * count, guaranteed.delta)
    cost = f"epsilon {epsilon:.3g} at delta {guaranteed.delta:.2g}"
    mechanism = "discrete Gaussian"
    if guaranteed.uploads is not None and guaranteed.uploads.boolean:
        mechanism = "randomized response"
    times = "once" if count == 1 else f"{count} times"
    return Leaving(what, spec.meaning, _sizes(spec, plan), times, mechanism, cost)


def _sizes(spec: TaskSpec, plan: Plan) -> str:
    """Return the arrays of a response with their sizes; letters stand for sizes that a request decides."""
    known = {"k": str(plan.most_components), "m": str(plan.n_features)}
    words = {
        name: " x ".join("n" if callable(size) else known.get(str(size), str(size)) for size in output.shape) or "1"
        for name, output in spec.outputs.items()
    }
    return ", ".join(f"{name} {size}" for name, size in words.items()) or "nothing"


def in_words(plan: Plan) -> str:
    """Say in a few sentences what taking part means."""
    guaranteed = plan.algorithm().privacy
    masks = masking(plan)
    if plan.rehearsal:
        return f"{REHEARSED} {masks}"
    if plan.resample:
        masks = f"{masks} {DRAWN}"
    if guaranteed is not None:
        return (
            f"Sums over this site's records leave with noise, as listed. {statement(guaranteed)} "
            f"{masks} The assignment of records to components stays here."
        )
    kinds = len(plan.algorithm().tasks)
    return (
        f"Exact sums over this site's records leave without noise, of {kinds} kinds, as listed. Nothing "
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
