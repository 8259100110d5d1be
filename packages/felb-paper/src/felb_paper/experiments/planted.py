"""Experiments on planted data: noise, more and more clients, aggregations, convergence, client drift."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from felb_paper.cells import (
    F1,
    F1_STAR,
    FELB,
    FELB_MU,
    OURS,
    QUICK_ITERATIONS,
    RMSD,
    SECONDS,
    Cell,
    MethodUse,
    PlantedData,
    Study,
    all_methods,
    federated_methods,
    labels,
    post_hoc_methods,
)
from felb_paper.study import Metric, View, average, beats_at, claim, holds_if_any, listed, shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from felb_paper.study import Claim, StudyRecord


BOTH = (FELB, FELB_MU)
LOSS = Metric("loss", "loss", "low", digits=0)
GAP = Metric("integrality_gap", "integrality gap", "low")


@dataclass(frozen=True, slots=True)
class PlantedStudy(Study):
    """Planted tiles, some cells of which are flipped, over a few clients."""

    rows: int = 2000
    columns: int = 200
    components: int = 10
    noise: float = 0.05
    clients: int = 10

    def planted(self) -> PlantedData:
        """Return the data."""
        return PlantedData(self.rows, self.columns, self.components, noise=self.noise)

    @property
    def data_in_words(self) -> str:
        """The data and its clients, for the note below figures."""
        return (
            f"{self.rows} × {self.columns}, {self.components} planted tiles, {self.noise:.0%} of the cells flipped, "
            f"{self.clients} clients"
        )


QUICK: dict[str, Any] = {"form": "quick", "trials": 5, "time_limit": 60.0, "columns": 100, "components": 5}
"""Of the quick forms."""


# -- noise in the data -------------------------------------------------------------------------------------------------

HIGH_NOISE = 0.3
"""From here on, noise is called high."""


@dataclass(frozen=True, slots=True)
class NoiseStudy(Study):
    """Planted tiles, each cell flipped with a probability of 0 to ½."""

    name = "noise"
    title = "Robustness against noise"
    question = "How well is a planted signal found if more and more matrix cells are flipped?"

    rows: int = 2000
    columns: int = 200
    components: int = 10
    clients: int = 10
    levels: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
    methods: tuple[MethodUse, ...] = all_methods()

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, level and method."""
        return tuple(
            Cell(use, PlantedData(self.rows, self.columns, self.components, noise=level), self.clients, level, trial)
            for trial, level, use in product(range(self.trials), self.levels, self.methods)
        )

    def view(self) -> View:
        """Four figures over the level."""
        note = (
            f"{self.rows} × {self.columns}, {self.components} planted tiles, {self.clients} clients. Post-hoc "
            "methods aggregate by majority vote; Asso uses the published threshold of 1 (a grid of thresholds gives "
            "far better results). F1 compares with the noisy data, F1* with the planted signal."
        )
        shown = (RMSD, F1, F1_STAR, SECONDS)
        return View("lines", "flipped cells", shown, labels(self.methods), percent=True, note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold the order of the methods against the paper's."""
        places = [float(place) for place in record.places()]
        rivals, found = _post_hoc_of(record), []
        below_half = [place for place in places if place < 0.5]
        for says, metric, high, chosen in (
            ("FELB and FELB-MU find the signal better (F1*) than every post-hoc method under moderate noise",
             "f1_star", True, [place for place in places if place < HIGH_NOISE]),
            ("They still do under high noise (from 30% on)", "f1_star", True,
             [place for place in below_half if place >= HIGH_NOISE]),
            ("They reconstruct the data best (lowest RMSD) at every level of noise", "rmsd", False, below_half),
            ("They agree best with the data (F1) at every level of noise", "f1", True, below_half),
        ):  # fmt: skip
            won, seen = beats_at(record, metric, BOTH, rivals, high=high, places=chosen)
            numbers = shares(won, seen, "noise levels", percent=True)
            if seen:
                numbers += f"; at {float(seen[-1]):.0%}: {listed(record, metric, [*BOTH, *rivals], seen[-1])}"
            found.append(claim(says, holds_if_any(seen, len(won) == len(seen)), numbers))
        times = {
            place: [record.mean("seconds_per_client", method, place) for method in (FELB, *rivals)] for place in places
        }
        timed = {place: (mine, others) for place, (mine, *others) in times.items() if mine is not None}
        slower = [p for p, (mine, others) in timed.items() if all(x is not None and x < mine for x in others)]
        numbers = shares(slower, list(timed), "noise levels", percent=True)
        if timed:
            first = next(iter(timed))
            numbers += f"; seconds at {first:.0%}: {listed(record, 'seconds_per_client', [*BOTH, *rivals], first)}"
        says = "Post-hoc methods take less time than FELB"
        return [*found, claim(says, holds_if_any(timed, len(slower) == len(timed)), numbers)]


# -- more and more clients ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ManyClients(Study):
    """Planted tiles, over 2² to 2⁹ clients. How wide the data is, and its noise, the paper leaves open.

    Parameters
    ----------
    rows : of all clients together; None for `rows_per_client` of each
    """

    columns: int = 200
    components: int = 10
    noise: float = 0.05
    clients: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512)
    rows: int | None = None
    rows_per_client: int = 500

    def planted(self, clients: int) -> PlantedData:
        """Return what so many clients share."""
        rows = clients * self.rows_per_client if self.rows is None else self.rows
        return PlantedData(rows, self.columns, self.components, noise=self.noise)

    @property
    def note(self) -> str:
        """The data in words."""
        rows = f"{self.rows_per_client} rows a client × {self.columns}"
        if self.rows is not None:
            rows = f"{self.rows} × {self.columns} in all"
        return f"{rows}, {self.components} planted tiles, {self.noise:.0%} of the cells flipped"


@dataclass(frozen=True, slots=True)
class ScalingStudy(ManyClients):
    """All methods over the number of clients."""

    methods: tuple[MethodUse, ...] = all_methods()

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of clients and method."""
        return tuple(
            Cell(use, self.planted(count), count, float(count), trial)
            for trial, count, use in product(range(self.trials), self.clients, self.methods)
        )

    def view(self) -> View:
        """Three figures over the number of clients."""
        note = f"{self.note}. Post-hoc methods aggregate by majority vote."
        return View("lines", "clients", (RMSD, F1_STAR, SECONDS), labels(self.methods), scale="log2", note=note)


def _judge_rmsd(record: StudyRecord, says: str, winners: tuple[str, ...]) -> Claim:
    """Hold some methods' RMSD against that of all post-hoc methods."""
    places, others = list(_pairs(record, "rmsd")), _post_hoc_of(record)
    won, seen = beats_at(record, "rmsd", winners, others, high=False, places=places)
    numbers = shares(won, seen, "numbers of clients")
    if seen:
        numbers += f"; at {seen[-1]:g} clients: {listed(record, 'rmsd', [*BOTH, *others], seen[-1])}"
    return claim(says, holds_if_any(seen, len(won) == len(seen)), numbers)


def _post_hoc_of(record: StudyRecord) -> list[str]:
    """Return the post-hoc methods of a record."""
    return [method for method in record.methods() if method not in (*BOTH, OURS)]


def _pairs(record: StudyRecord, metric: str) -> dict[float, tuple[float, float]]:
    """Return the means of FELB and FELB-MU at the numbers of clients where both have figures."""
    found = {float(place): [record.mean(metric, method, place) for method in BOTH] for place in record.places()}
    return {place: (felb, mu) for place, (felb, mu) in found.items() if felb is not None and mu is not None}


def _say_pairs(pairs: Mapping[float, tuple[float, float]]) -> str:
    return "FELB / FELB-MU: " + ", ".join(f"{at:.0f} clients {felb:.3g} / {mu:.3g}" for at, (felb, mu) in pairs.items())


def _judge_times(record: StudyRecord) -> Claim:
    """Hold the time of post-hoc methods against that of FELB and FELB-MU."""
    pairs = [
        (rival, other < min(ours))
        for place in _pairs(record, "rmsd")
        for rival in _post_hoc_of(record)
        if (other := record.mean("seconds_per_client", rival, place)) is not None
        and (ours := [x for m in BOTH if (x := record.mean("seconds_per_client", m, place)) is not None])
    ]
    slow = sorted({rival for rival, faster in pairs if not faster})
    won = sum(faster for _, faster in pairs)
    numbers = f"in {won} of {len(pairs)} comparisons" + (f"; slower somewhere: {', '.join(slow)}" if slow else "")
    says = "Post-hoc methods take less time per client, as clients work only once"
    return claim(says, holds_if_any(pairs, won == len(pairs)), numbers)


@dataclass(frozen=True, slots=True)
class ScarcityStudy(ScalingStudy):
    """2¹⁶ rows split over 2² to 2⁹ clients. How wide the data is, and its noise, the paper leaves open."""

    name = "scarcity"
    title = "Scarce data"
    question = "How does quality change if the same rows are split among more and more clients?"

    rows: int | None = 2**16

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold FELB-MU against the others, and times against each other."""
        errors, times = _pairs(record, "rmsd"), _pairs(record, "seconds_per_client")
        many = list(errors.values())[len(errors) // 2 :]
        faster = [place for place in errors if place in times and times[place][1] <= 0.9 * times[place][0]]
        return [
            _judge_rmsd(record, "FELB-MU has a lower RMSD than every post-hoc method", (FELB_MU,)),
            claim(
                "With many clients FELB-MU has a lower RMSD than FELB",
                holds_if_any(many, all(mu < felb for felb, mu in many)),
                _say_pairs(errors),
            ),
            claim(
                "FELB-MU is notably faster than FELB (by a tenth or more)",
                holds_if_any(errors, 2 * len(faster) > len(errors)),
                _say_pairs(times),
            ),
            _judge_times(record),
        ]


SIMILAR = 2.0
"""Times within this factor are called comparable."""


@dataclass(frozen=True, slots=True)
class AbundanceStudy(ScalingStudy):
    """500 rows a client, 2² to 2⁹ clients."""

    name = "abundance"
    title = "Abundant data"
    question = "How does quality change if every additional client contributes new rows?"

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold the order of the methods, and times, against the paper's."""
        errors, times = _pairs(record, "rmsd"), _pairs(record, "seconds_per_client")
        many = list(errors.values())[len(errors) // 2 :]
        timed = [pair for place, pair in times.items() if place in errors and all(pair)]
        return [
            _judge_rmsd(record, "FELB and FELB-MU have a lower RMSD than every post-hoc method", BOTH),
            claim(
                "With more data FELB has a slightly lower RMSD than FELB-MU",
                holds_if_any(many, all(felb < mu for felb, mu in many)),
                _say_pairs(errors),
            ),
            claim(
                "FELB and FELB-MU take comparable time (within a factor of two)",
                holds_if_any(timed, all(1 / SIMILAR <= felb / mu <= SIMILAR for felb, mu in timed)),
                _say_pairs(times),
            ),
            _judge_times(record),
        ]


# -- aggregations of what clients found alone --------------------------------------------------------------------------

VOTE, MEAN, OR = "majority vote", "rounded mean", "logical or"
WORDS = {VOTE: "vote", MEAN: "mean", OR: "or"}
ALIKE = 0.01
"""Mean difference in RMSD up to which two aggregations are called similar."""


@dataclass(frozen=True, slots=True)
class AggregationStudy(ManyClients):
    """Abundant data, as in the study of that name, for the five methods that clients run alone."""

    name = "aggregation"
    title = "Post-hoc aggregations"
    question = "Which aggregation of local components gives the best reconstruction?"

    iterations: int = 1000

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of clients, aggregation and method."""
        return tuple(
            Cell(use, self.planted(count), count, float(count), trial, panel=panel)
            for trial, count, (panel, word) in product(range(self.trials), self.clients, WORDS.items())
            for use in post_hoc_methods(word, iterations=self.iterations)
        )

    def view(self) -> View:
        """RMSD over the number of clients, a panel for each aggregation."""
        note = f"{self.note}. If half of the clients have an entry, the vote keeps it and the mean does not."
        methods = labels(post_hoc_methods())
        return View("lines", "clients", (RMSD, F1_STAR), methods, panels=tuple(WORDS), scale="log2", note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare aggregations method by method and count by count."""
        found = [
            [record.mean("rmsd", method, place, panel) for panel in WORDS]
            for method, place in product(record.methods(VOTE), record.places(VOTE))
        ]
        pairs = [(a, b, c) for a, b, c in found if a is not None and b is not None and c is not None]
        gap = average([abs(vote - mean) for vote, mean, _ in pairs])
        average_of = [average([pair[at] for pair in pairs]) for at in range(3)]
        worse = sum(union > max(vote, mean) for vote, mean, union in pairs)
        numbers = "mean RMSD: vote {:.3f}, mean {:.3f}, or {:.3f}".format(*average_of)
        return [
            claim(
                "Rounded mean and majority vote perform alike",
                holds_if_any(pairs, gap <= ALIKE),
                f"mean difference in RMSD {gap:.4f}; {numbers}",
            ),
            claim(
                "Both are clearly better than the logical or",
                holds_if_any(pairs, worse > 0.5 * len(pairs) and average_of[2] > max(average_of[:2]) + ALIKE),
                f"or is worse than both in {worse} of {len(pairs)} comparisons; {numbers}",
            ),
        ]


# -- convergence, round by round ---------------------------------------------------------------------------------------

EARLY, RISE, CLOSED = 25, 0.25, 0.05
"""Rounds that are early; relative rise of the loss that is small; gap that is as good as none."""

USUAL = 100
"""Rounds of the published evaluation."""

CLOSED_AT = 0.01
"""Integrality gap at which runs end here; felb's own settings end at ¼, from where the cut at ½ is unambiguous."""


@dataclass(frozen=True, slots=True)
class ConvergenceStudy(PlantedStudy):
    """FELB and FELB-MU on planted data, watched after every round, until they settle."""

    name = "convergence"
    title = "Convergence"
    question = "How do loss, F1 and integrality gap develop over the rounds?"

    rounds: int = 300

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial and method."""
        return tuple(
            Cell(use, self.planted(), self.clients, "rounds", trial, watch="rounds")
            for trial, use in product(range(self.trials), federated_methods(max_iter=self.rounds, tol=CLOSED_AT))
        )

    def view(self) -> View:
        """Figures over the rounds."""
        note = (
            f"{self.data_in_words}, ten local steps per round, until the gap is {CLOSED_AT} or for {self.rounds} "
            "rounds. The loss is that of the clients' relaxed factors, Σ ‖A_i − U_iV_i‖²; F1 is that of the shared "
            "components thresholded at ½ after the round. Tables show the last round."
        )
        return View("rounds", "round", (LOSS, F1, F1_STAR, GAP), labels(federated_methods()), scale="names", note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Look for the fall, the small rise and the closing gap in every run."""
        found = []
        for method in BOTH:
            runs = [cell.curves for cell in record.done(method)]
            losses = [loss for curves in runs if len(loss := _numbers(curves.get("loss", ()))) > 1]
            gaps = [gap for curves in runs if (gap := _numbers(curves.get("integrality_gap", ())))]
            mean_early = average([_fall(loss) for loss in losses])
            mean_rise = average([(loss[-1] - min(loss)) / min(loss) for loss in losses])
            last = average([gap[-1] for gap in gaps])
            found += [
                claim(
                    f"{method}: the loss falls fast, within the first {EARLY} rounds",
                    holds_if_any(losses, mean_early >= 0.9),
                    f"{mean_early:.0%} of the whole fall by then, mean of {len(losses)} runs",
                ),
                claim(
                    f"{method}: afterwards it rises only slightly, as factors become Boolean (a quarter at most)",
                    holds_if_any(losses, 0 <= mean_rise <= RISE),
                    f"by {mean_rise:.1%} from its minimum to the end",
                ),
                claim(
                    f"{method}: the integrality gap closes",
                    holds_if_any(gaps, last <= CLOSED),
                    f"from {_at(gaps, 0):.3f} over {_at(gaps, USUAL - 1):.3f} after {USUAL} rounds to {last:.3f} at "
                    f"the end, after {average([len(gap) for gap in gaps]):.0f}",
                ),
            ]
        return found


def _fall(loss: Sequence[float]) -> float:
    """Return which share of the fall from the first round to the minimum happens early."""
    whole = loss[0] - min(loss)
    return 1.0 if whole <= 0 else (loss[0] - min(loss[: EARLY + 1])) / whole


def _at(curves: Sequence[Sequence[float]], number: int) -> float:
    """Return the mean after a round; a run that ended before stays as it was."""
    return average([curve[min(number, len(curve) - 1)] for curve in curves])


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


# -- client drift ------------------------------------------------------------------------------------------------------

FLAT_FROM, FLAT, HIGH_F1 = 25.0, 0.25, 0.8
"""Steps from which the loss is said to be flat; share of the earlier change that is flat; high F1*."""


@dataclass(frozen=True, slots=True)
class DriftStudy(PlantedStudy):
    """FELB and FELB-MU with 1 to 50 local steps."""

    name = "drift"
    title = "Client drift"
    question = "How do loss and F1* change if clients synchronise less often?"

    steps: tuple[int, ...] = (1, 2, 5, 10, 15, 20, 25, 30, 40, 50)

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of steps and method."""
        return tuple(
            Cell(use, self.planted(), self.clients, float(steps), trial)
            for trial, steps in product(range(self.trials), self.steps)
            for use in federated_methods(local_steps=steps)
        )

    def view(self) -> View:
        """Four figures over the number of local steps."""
        note = f"{self.data_in_words}. The loss is that of the clients' relaxed factors in the last round."
        return View(
            "lines",
            "local steps between synchronisations",
            (LOSS, F1, F1_STAR, GAP),
            labels(federated_methods()),
            note=note,
        )

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare the change of the loss before and after 25 steps, and look at F1*."""
        places = [float(place) for place in record.places()]
        ends, found = (min(places, default=0.0), FLAT_FROM, max(places, default=0.0)), []
        for method in BOTH:
            numbers, flat = "", None
            losses = [loss for place in ends if (loss := record.mean("loss", method, place)) is not None]
            if len(losses) == len(ends):
                first, middle, last = losses
                flat = abs(last - middle) <= FLAT * abs(middle - first)
                numbers = "loss {:.0f} → {:.0f} → {:.0f} at {:.0f}, {:.0f}, {:.0f} steps".format(*losses, *ends)
            stars = [star for place in places if (star := record.mean("f1_star", method, place)) is not None]
            lowest, highest = min(stars, default=0.0), max(stars, default=0.0)
            found += [
                claim(f"{method}: the loss flattens after about 25 local steps", flat, numbers),
                claim(
                    f"{method}: F1* stays high (0.8 or more) with rare synchronisations",
                    holds_if_any(stars, lowest >= HIGH_F1),
                    f"F1* between {lowest:.3f} and {highest:.3f}",
                ),
            ]
        return found


QUICK_METHODS = all_methods(iterations=QUICK_ITERATIONS)
FEW = (4, 8, 16)
HARD: dict[str, Any] = {**QUICK, "noise": HIGH_NOISE}
"""Quick forms in which methods differ: with little noise all of the federated ones find the planted signal."""
NOISE = NoiseStudy(), NoiseStudy(**QUICK, rows=1000, levels=(0.0, 0.2, 0.3, 0.4), methods=QUICK_METHODS)
SCARCITY = ScarcityStudy(), ScarcityStudy(**HARD, clients=FEW, rows=2**10, methods=QUICK_METHODS)
ABUNDANCE = AbundanceStudy(), AbundanceStudy(**HARD, clients=FEW, rows_per_client=100, methods=QUICK_METHODS)
AGGREGATION = (
    AggregationStudy(),
    AggregationStudy(**{**QUICK, "noise": 0.1}, clients=FEW[:2], rows_per_client=100, iterations=QUICK_ITERATIONS),
)
CONVERGENCE = ConvergenceStudy(), ConvergenceStudy(**{**QUICK, "noise": 0.2}, rows=1000)
DRIFT = DriftStudy(), DriftStudy(**{**QUICK, "noise": 0.2}, rows=1000, steps=(1, 5, 25, 50))
