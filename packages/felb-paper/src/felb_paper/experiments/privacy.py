"""Noise on what clients send: the paper's mechanisms over their level, with what they cost in all beside it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

from felb_paper.cells import (  # fmt: skip
    F1,
    FELB,
    FELB_MU,
    OURS,
    QUICK_ITERATIONS,
    RMSD,
    Cell,
    Mechanism,
    MethodUse,
    Noise,
    federated_methods,
    labels,
    post_hoc_methods,
)
from felb_paper.experiments.planted import BOTH, QUICK, PlantedStudy
from felb_paper.study import Metric, View, average, claim, holds_if_any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from felb_paper.study import Claim, StudyRecord

AXES = {
    "Gaussian": "standard deviation σ",
    "Laplace": "scale b",
    "Gaussian, clipped": "standard deviation σ",
    "Laplace, clipped": "scale b",
    "XOR": "probability of a flip",
    "records": "total ε (less is more noise)",
}
*REAL, XOR, RECORD = AXES
PAPER_EPSILON = 2.0
"""The largest ε of the paper's figures."""

UNHARMED, STEEP = 0.1, 0.4
"""Share of the whole fall that is no deterioration; share that makes one step of the axis the steep one."""


@dataclass(frozen=True, slots=True)
class PrivacyStudy(PlantedStudy):
    """Gaussian and Laplace noise, clipped and not, on real V_i, flips on Boolean ones, on every upload.

    `theta` bounds ‖V_i‖ where uploads are clipped. FederatedBMF runs under its own specification on records, whose ε is
    that of the whole run; it is another guarantee to somebody else, and not to be compared point by point.
    """

    name = "privacy"
    title = "Noise for privacy"
    question = "How much noise on the uploads do the methods tolerate, and what does it guarantee?"

    noise: float = 0.02
    levels: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 4.0, 20.0, 40.0)
    flips: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45)
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    theta: float = 15.0
    iterations: int = 1000

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, mechanism, level and method."""
        uploads, flips = federated_methods(setting="unweighted"), post_hoc_methods(iterations=self.iterations)
        plans: list[tuple[Mechanism, float | None, Sequence[float], Sequence[MethodUse]]] = [
            ("gaussian", None, self.levels, uploads),
            ("laplace", None, self.levels, uploads),
            ("gaussian", self.theta, self.levels, uploads),
            ("laplace", self.theta, self.levels, uploads),
            ("xor", None, self.flips, flips),
            ("record", None, self.epsilons, (MethodUse(OURS, "bmf"),)),
        ]
        return tuple(
            Cell(use, self.planted(), self.clients, level, trial, panel=panel, noise=Noise(mechanism, level, theta))
            for trial in range(self.trials)
            for panel, (mechanism, theta, levels, methods) in zip(AXES, plans, strict=True)
            for level, use in product(levels, methods)
        )

    def view(self) -> View:
        """F1 and RMSD over the level of noise; what it costs stands in the table."""
        metrics = (
            F1,
            RMSD,
            Metric("epsilon_upload", "ε of one upload, by the paper's formula", digits=2),
            Metric("epsilon_total", "ε of a client's whole run", digits=1),
        )
        note = (
            f"{self.data_in_words}; uploads are clipped to ‖V_i‖ <= {self.theta:g}. The axis is the level of noise "
            "on each upload; its range was extended until the curves are flat at its end. For Gaussian noise, ε of one "
            "upload is at δ = 0.05. Without clipping, ε assumes a sensitivity of 1, which is not enforced; such a run "
            "has no guarantee, and its total is –. The paper's ε <= 2 for one clipped upload begins at σ = 1.27 θ. "
            "Totals are those of a client (Gaussian noise at δ = 1e-5, the "
            "others at δ = 0). Clients also report exact losses and counts, which no total includes, so none of these "
            "runs is called private. The last panel has another guarantee, for single records, by FederatedBMF (extra "
            "privacy)."
        )
        methods = (*labels(post_hoc_methods()), *labels(federated_methods()), OURS)
        return View("lines", "level of noise", metrics, methods, panels=tuple(AXES), axes=AXES, note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Look for the three phases, compare the two methods, the clips, and F1 with RMSD."""
        curves = {(panel, method): _curve(record, method, panel) for panel in REAL for method in BOTH}
        whole = {key: curve for key, curve in curves.items() if len(curve) >= 3}
        shaped = [key for key, curve in whole.items() if _three_phases(curve)]
        area = {
            method: average([average(curve) for (_, one), curve in whole.items() if one == method]) for method in BOTH
        }
        steps = {
            kind: [max(_falls(whole[key])) for key in product(panels, BOTH) if key in whole]
            for kind, panels in (("plain", REAL[:2]), ("clipped", REAL[2:]))
        }
        sharp = {kind: average(values) for kind, values in steps.items()}
        return [
            claim(
                "F1 has three phases: hardly any loss under little noise, a steep fall, a flat end",
                holds_if_any(whole, len(shaped) == len(whole)),
                f"in {len(shaped)} of {len(whole)} curves" + ("" if not whole else "; " + _told(whole)),
            ),
            claim(
                "FELB-MU stands noise better than FELB (mean F1 over all levels)",
                holds_if_any(whole, area[FELB_MU] > area[FELB]),
                f"mean F1 over all levels: FELB {area[FELB]:.3f}, FELB-MU {area[FELB_MU]:.3f}",
            ),
            claim(
                "Clipping makes the fall sharper",
                holds_if_any(steps["plain"] and steps["clipped"], sharp["clipped"] > sharp["plain"]),
                f"largest fall in one step of the axis: clipped {sharp['clipped']:.3f}, not {sharp['plain']:.3f}",
            ),
            _within_the_papers_range(record),
            _against_flips(record, whole),
            _flips_hurt_f1_more(record),
        ]


def _curve(record: StudyRecord, method: str, panel: str, metric: str = "f1") -> list[float]:
    means = [record.mean(metric, method, place, panel) for place in record.places(panel)]
    return [mean for mean in means if mean is not None]


def _falls(curve: Sequence[float]) -> list[float]:
    return [before - after for before, after in pairwise(curve)]


def _three_phases(curve: Sequence[float]) -> bool:
    falls = _falls(curve)
    whole = max(curve) - min(curve)
    return (
        whole > UNHARMED
        and falls[0] <= UNHARMED * whole
        and max(falls) >= STEEP * whole
        and (falls[-1] <= UNHARMED * whole)
    )


def _told(curves: dict[tuple[str, str], list[float]]) -> str:
    return "; ".join(
        f"{panel} {method} " + " ".join(f"{value:.2f}" for value in curve) for (panel, method), curve in curves.items()
    )


def _within_the_papers_range(record: StudyRecord) -> Claim:
    """Hold F1 under clipped Gaussian noise of the paper's ε, of one upload, against F1 without noise."""
    panel, changes, told = REAL[2], [], []
    for method, place in product(BOTH, record.places(panel)):
        epsilon = record.mean("epsilon_upload", method, place, panel)
        without, found = (record.mean("f1", method, at, panel) for at in (0.0, place))
        if epsilon is not None and epsilon <= PAPER_EPSILON and without is not None and found is not None:
            changes.append(without - found)
            told.append(f"{method} at ε = {epsilon:.2f}: {without:.3f} → {found:.3f}")
    says = "With ε <= 2 for each clipped upload F1 stays near that without noise (within 0.1)"
    return claim(says, holds_if_any(changes, max(changes, default=0.0) <= UNHARMED), "; ".join(told))


def _against_flips(record: StudyRecord, whole: dict[tuple[str, str], list[float]]) -> Claim:
    """At the smallest level that is not 0, the relaxed methods under real noise against Boolean ones under flips."""
    mine = [curve[1] for curve in whole.values()]
    rivals = [curve[1] for method in record.methods(XOR) if len(curve := _curve(record, method, XOR)) > 1]
    numbers = f"worst of FELB and FELB-MU {min(mine, default=0):.3f}, best other {max(rivals, default=0):.3f}"
    holds = holds_if_any(mine and rivals, min(mine, default=0.0) > max(rivals, default=0.0))
    return claim("Under little noise FELB and FELB-MU have a higher F1 than every other method", holds, numbers)


def _flips_hurt_f1_more(record: StudyRecord) -> Claim:
    changes = []
    for method in record.methods(XOR):
        f1, rmsd = _curve(record, method, XOR), _curve(record, method, XOR, "rmsd")
        if len(f1) > 1 and len(rmsd) > 1 and f1[0] > 0 and rmsd[0] > 0:
            changes.append(((f1[0] - f1[-1]) / f1[0], (rmsd[-1] - rmsd[0]) / rmsd[0]))
    f1_change, rmsd_change = (average([change[at] for change in changes]) for at in range(2))
    return claim(
        "Flips reduce F1 much more than they raise RMSD",
        holds_if_any(changes, f1_change > 2 * abs(rmsd_change)),
        f"from none to the most flips, F1 falls by {f1_change:.0%}, RMSD changes by {rmsd_change:+.0%}",
    )


PRIVACY = (
    PrivacyStudy(),
    PrivacyStudy(
        **QUICK,
        rows=1000,
        clients=5,
        levels=(0.0, 0.1, 0.6, 4.0, 10.0),
        flips=(0.0, 0.4),
        epsilons=(1.0, 4.0),
        theta=7.5,
        iterations=QUICK_ITERATIONS,
    ),
)
