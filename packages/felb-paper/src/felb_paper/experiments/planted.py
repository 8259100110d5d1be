"""Experiments on planted data: noise, more and more clients, aggregations, convergence, client drift."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
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
from felb_paper.study import Metric, View, beats_at, claim, holds_if_any, listed, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from felb_paper.study import Claim, StudyRecord


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


QUICK: dict[str, Any] = {"form": "quick", "trials": 3, "time_limit": 60.0, "columns": 100, "components": 5}
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
            for trial in range(self.trials)
            for level in self.levels
            for use in self.methods
        )

    def view(self) -> View:
        """Four figures over the level."""
        note = (
            f"{self.rows} × {self.columns}, {self.components} planted tiles, {self.clients} clients. Post-hoc "
            "methods aggregate by majority vote; Asso uses the published threshold of 1 (a grid of thresholds gives "
            "far better results). F1 compares with the noisy data, F1* with the planted signal."
        )
        return View(
            "lines", "flipped cells", (RMSD, F1, F1_STAR, SECONDS), labels(self.methods), percent=True, note=note
        )

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold the order of the methods against the paper's."""
        places = [float(place) for place in record.places()]
        felb = (FELB, FELB_MU)
        rivals = _post_hoc_of(record)
        found = []
        for says, metric, high, chosen in (
            ("FELB and FELB-MU find the signal better (F1*) than every post-hoc method under moderate noise",
             "f1_star", True, [place for place in places if place < HIGH_NOISE]),
            ("They still do under high noise, from 30% on", "f1_star", True,
             [place for place in places if HIGH_NOISE <= place < 0.5]),
            ("They reconstruct the data best (lowest RMSD) at every level of noise", "rmsd", False,
             [place for place in places if place < 0.5]),
            ("They agree best with the data (F1) at every level of noise", "f1", True,
             [place for place in places if place < 0.5]),
        ):  # fmt: skip
            won, seen = beats_at(record, metric, felb, rivals, high=high, places=chosen)
            numbers = shares(won, seen, "noise levels", percent=True)
            if seen:
                last = seen[-1]
                numbers += f"; at {float(last):.0%}: {listed(record, metric, [*felb, *rivals], last)}"
            found.append(claim(says, holds_if_any(seen, len(won) == len(seen)), numbers))
        slower = [
            place
            for place in places
            if all(
                (other := record.mean("seconds_per_client", rival, place)) is not None
                and (mine := record.mean("seconds_per_client", FELB, place)) is not None
                and other < mine
                for rival in rivals
            )
        ]
        timed = [place for place in places if record.mean("seconds_per_client", FELB, place) is not None]
        numbers = shares(slower, timed, "noise levels", percent=True)
        if timed:
            numbers += (
                f"; seconds at {timed[0]:.0%}: {listed(record, 'seconds_per_client', [*felb, *rivals], timed[0])}"
            )
        found.append(
            claim("Post-hoc methods take less time than FELB", holds_if_any(timed, len(slower) == len(timed)), numbers)
        )
        return found


# -- more and more clients ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ManyClients(Study):
    """Planted tiles, over 2² to 2⁹ clients. How wide the data is, and its noise, the paper leaves open."""

    columns: int = 200
    components: int = 10
    noise: float = 0.05
    clients: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512)

    @property
    @abstractmethod
    def rows_in_words(self) -> str:
        """How many rows there are, for the note below figures."""

    @abstractmethod
    def rows_of(self, clients: int) -> int:
        """Return the rows of so many clients together."""

    def planted(self, clients: int) -> PlantedData:
        """Return what so many clients share."""
        return PlantedData(self.rows_of(clients), self.columns, self.components, noise=self.noise)

    @property
    def note(self) -> str:
        """The data in words."""
        return f"{self.rows_in_words}, {self.components} planted tiles, {self.noise:.0%} of the cells flipped"


@dataclass(frozen=True, slots=True)
class ScalingStudy(ManyClients):
    """All methods over the number of clients."""

    methods: tuple[MethodUse, ...] = all_methods()

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of clients and method."""
        return tuple(
            Cell(use, self.planted(count), count, float(count), trial)
            for trial in range(self.trials)
            for count in self.clients
            for use in self.methods
        )

    def view(self) -> View:
        """Three figures over the number of clients."""
        note = f"{self.note}. Post-hoc methods aggregate by majority vote."
        return View("lines", "clients", (RMSD, F1_STAR, SECONDS), labels(self.methods), scale="log2", note=note)


def _judge_rmsd(record: StudyRecord, says: str, winners: tuple[str, ...]) -> Claim:
    """Hold some methods' RMSD against that of all post-hoc methods."""
    places, others = _common_places(record), _post_hoc_of(record)
    won, seen = beats_at(record, "rmsd", winners, others, high=False, places=places)
    numbers = shares(won, seen, "numbers of clients")
    if seen:
        numbers += f"; at {seen[-1]:g} clients: {listed(record, 'rmsd', [FELB, FELB_MU, *others], seen[-1])}"
    return claim(says, holds_if_any(seen, len(won) == len(seen)), numbers)


def _post_hoc_of(record: StudyRecord) -> list[str]:
    """Return the post-hoc methods of a record."""
    return [method for method in record.methods() if method not in (FELB, FELB_MU, OURS)]


def _common_places(record: StudyRecord) -> list[float]:
    """Return the numbers of clients where FELB and FELB-MU both have figures."""
    return [
        float(place)
        for place in record.places()
        if all(record.mean("rmsd", method, place) is not None for method in (FELB, FELB_MU))
    ]


def _say_pairs(record: StudyRecord, metric: str, places: Sequence[float]) -> str:
    """Say FELB / FELB-MU at each number of clients."""
    parts = []
    for place in places:
        felb, mu = (record.mean(metric, method, place) for method in (FELB, FELB_MU))
        if felb is not None and mu is not None:
            parts.append(f"{place:.0f} clients {felb:.3g} / {mu:.3g}")
    return "FELB / FELB-MU: " + ", ".join(parts)


def _judge_times(record: StudyRecord, places: Sequence[float]) -> Claim:
    """Hold the time of post-hoc methods against that of FELB and FELB-MU."""
    pairs = [
        (place, rival, other, min(ours))
        for place in places
        for rival in _post_hoc_of(record)
        if (other := record.mean("seconds_per_client", rival, place)) is not None
        and (ours := [x for m in (FELB, FELB_MU) if (x := record.mean("seconds_per_client", m, place)) is not None])
    ]
    won = [pair for pair in pairs if pair[2] < pair[3]]
    slow = sorted({pair[1] for pair in pairs if pair not in won})
    numbers = f"in {len(won)} of {len(pairs)} comparisons" + (f"; slower somewhere: {', '.join(slow)}" if slow else "")
    holds = None if not pairs else len(won) == len(pairs)
    return claim("Post-hoc methods take less time per client, as clients work only once", holds, numbers)


@dataclass(frozen=True, slots=True)
class ScarcityStudy(ScalingStudy):
    """2¹⁶ rows split over 2² to 2⁹ clients. How wide the data is, and its noise, the paper leaves open."""

    name = "scarcity"
    title = "Scarce data"
    question = "How does quality change if the same rows are split among more and more clients?"

    rows: int = 2**16

    @property
    def rows_in_words(self) -> str:
        """How many rows there are, for the note below figures."""
        return f"{self.rows} × {self.columns} in all"

    def rows_of(self, clients: int) -> int:  # noqa: ARG002
        """Return the rows of all clients together, which are the same for any number of them."""
        return self.rows

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold FELB-MU against the others, and times against each other."""
        places = _common_places(record)
        found = [_judge_rmsd(record, "FELB-MU has a lower RMSD than every post-hoc method", (FELB_MU,))]
        many = places[len(places) // 2 :]
        better = [place for place in many if _ratio(record, "rmsd", place) < 1]
        found.append(
            claim(
                "With many clients FELB-MU has a lower RMSD than FELB",
                holds_if_any(many, len(better) == len(many)),
                _say_pairs(record, "rmsd", places),
            )
        )
        faster = [place for place in places if _ratio(record, "seconds_per_client", place) <= 0.9]
        found.append(
            claim(
                "FELB-MU is notably faster than FELB (by a tenth or more)",
                holds_if_any(places, 2 * len(faster) > len(places)),
                _say_pairs(record, "seconds_per_client", places),
            )
        )
        return [*found, _judge_times(record, places)]


def _ratio(record: StudyRecord, metric: str, place: float) -> float:
    """Return the mean of FELB-MU over that of FELB, at a place where both have figures."""
    felb, mu = record.mean(metric, FELB, place), record.mean(metric, FELB_MU, place)
    return 1.0 if not felb or mu is None else mu / felb


SIMILAR = 2.0
"""Times within this factor are called comparable."""


@dataclass(frozen=True, slots=True)
class AbundanceStudy(ScalingStudy):
    """500 rows a client, 2² to 2⁹ clients."""

    name = "abundance"
    title = "Abundant data"
    question = "How does quality change if every additional client contributes new rows?"

    rows_per_client: int = 500

    @property
    def rows_in_words(self) -> str:
        """How many rows there are, for the note below figures."""
        return f"{self.rows_per_client} rows a client × {self.columns}"

    def rows_of(self, clients: int) -> int:
        """Return the rows of so many clients together."""
        return clients * self.rows_per_client

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold the order of the methods, and times, against the paper's."""
        places = _common_places(record)
        found = [_judge_rmsd(record, "FELB and FELB-MU have a lower RMSD than every post-hoc method", (FELB, FELB_MU))]
        many = places[len(places) // 2 :]
        means = [(record.mean("rmsd", FELB, place), record.mean("rmsd", FELB_MU, place)) for place in many]
        found.append(
            claim(
                "With more data FELB has a slightly lower RMSD than FELB-MU",
                holds_if_any(many, all(felb < mu for felb, mu in means if felb is not None and mu is not None)),
                _say_pairs(record, "rmsd", places),
            )
        )
        ratios = [
            felb / mu
            for place in places
            if (felb := record.mean("seconds_per_client", FELB, place))
            and (mu := record.mean("seconds_per_client", FELB_MU, place))
        ]
        found.append(
            claim(
                "FELB and FELB-MU take comparable time (within a factor of two)",
                holds_if_any(ratios, all(1 / SIMILAR <= ratio <= SIMILAR for ratio in ratios)),
                _say_pairs(record, "seconds_per_client", places),
            )
        )
        return [*found, _judge_times(record, places)]


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

    rows_per_client: int = 500
    iterations: int = 1000

    @property
    def rows_in_words(self) -> str:
        """How many rows there are, for the note below figures."""
        return f"{self.rows_per_client} rows a client × {self.columns}"

    def rows_of(self, clients: int) -> int:
        """Return the rows of so many clients together."""
        return clients * self.rows_per_client

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of clients, aggregation and method."""
        return tuple(
            Cell(use, self.planted(count), count, float(count), trial, panel=panel)
            for trial in range(self.trials)
            for count in self.clients
            for panel, word in WORDS.items()
            for use in post_hoc_methods(word, iterations=self.iterations)
        )

    def view(self) -> View:
        """RMSD over the number of clients, a panel for each aggregation."""
        note = f"{self.note}. If half of the clients have an entry, the vote keeps it and the mean does not."
        return View(
            "lines",
            "clients",
            (RMSD, F1_STAR),
            labels(post_hoc_methods()),
            panels=tuple(WORDS),
            scale="log2",
            note=note,
        )

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare aggregations method by method and count by count."""
        means = {
            (panel, method, place): mean
            for panel in WORDS
            for method in record.methods(panel)
            for place in record.places(panel)
            if (mean := record.mean("rmsd", method, place, panel)) is not None
        }
        pairs = [
            (means[VOTE, method, place], means[MEAN, method, place], means[OR, method, place])
            for panel, method, place in means
            if panel == VOTE and (MEAN, method, place) in means and (OR, method, place) in means
        ]
        gap = sum(abs(vote - mean) for vote, mean, _ in pairs) / max(1, len(pairs))
        average = [sum(column) / max(1, len(pairs)) for column in zip(*pairs, strict=True)] if pairs else [0.0] * 3
        worse = sum(union > max(vote, mean) for vote, mean, union in pairs)
        numbers = f"mean RMSD: vote {average[0]:.3f}, mean {average[1]:.3f}, or {average[2]:.3f}"
        return [
            claim(
                "Rounded mean and majority vote perform alike",
                holds_if_any(pairs, gap <= ALIKE),
                f"mean difference in RMSD {gap:.4f}; {numbers}",
            ),
            claim(
                "Both are clearly better than the logical or",
                holds_if_any(pairs, worse > 0.5 * len(pairs) and average[2] > max(average[:2]) + ALIKE),
                f"or is worse than both in {worse} of {len(pairs)} comparisons; {numbers}",
            ),
        ]


# -- convergence, round by round ---------------------------------------------------------------------------------------

EARLY, RISE, CLOSED = 25, 0.25, 0.05
"""Rounds that are early; relative rise of the loss that is small; gap that is as good as none."""

USUAL = 100
"""Rounds that the methods play by default."""


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
            for trial in range(self.trials)
            for use in federated_methods(max_iter=self.rounds)
        )

    def view(self) -> View:
        """Figures over the rounds."""
        metrics = (
            Metric("loss", "loss", "low", digits=0),
            Metric("f1", "F1", "high"),
            Metric("f1_star", "F1*", "high"),
            Metric("integrality_gap", "integrality gap", "low"),
        )
        note = (
            f"{self.data_in_words}, ten local steps per round, until V converges or for {self.rounds} rounds. The "
            "loss is that of the clients' relaxed factors, Σ ‖A_i − U_iV_i‖²; F1 is that of the shared components "
            "thresholded at ½ after the round. Tables show the last round."
        )
        return View("rounds", "round", metrics, (FELB, FELB_MU), scale="names", note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Look for the fall, the small rise and the closing gap in every run."""
        found = []
        for method in (FELB, FELB_MU):
            losses = [_numbers(cell.curves.get("loss", ())) for cell in record.done(method)]
            gaps = [_numbers(cell.curves.get("integrality_gap", ())) for cell in record.done(method)]
            losses = [loss for loss in losses if len(loss) > 1]
            gaps = [gap for gap in gaps if gap]
            early = [_fall(loss) for loss in losses]
            rises = [(loss[-1] - min(loss)) / min(loss) for loss in losses]
            mean_early, mean_rise = _mean(early), _mean(rises)
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
                    holds_if_any(gaps, _mean([gap[-1] for gap in gaps]) <= CLOSED),
                    f"from {_at(gaps, 0):.3f} over {_at(gaps, USUAL - 1):.3f} after {USUAL} rounds to "
                    f"{_mean([gap[-1] for gap in gaps]):.3f} at the end, after {_mean([len(gap) for gap in gaps]):.0f}",
                ),
            ]
        return found


def _fall(loss: Sequence[float]) -> float:
    """Return which share of the fall from the first round to the minimum happens early."""
    whole = loss[0] - min(loss)
    return 1.0 if whole <= 0 else (loss[0] - min(loss[: EARLY + 1])) / whole


def _at(curves: Sequence[Sequence[float]], number: int) -> float:
    """Return the mean after a round; a run that ended before stays as it was."""
    return _mean([curve[min(number, len(curve) - 1)] for curve in curves])


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


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
            for trial in range(self.trials)
            for steps in self.steps
            for use in federated_methods(local_steps=steps)
        )

    def view(self) -> View:
        """Four figures over the number of local steps."""
        metrics = (
            Metric("loss", "loss", "low", digits=0),
            F1,
            F1_STAR,
            Metric("integrality_gap", "integrality gap", "low"),
        )
        note = (
            f"{self.data_in_words}, at most 100 rounds. The loss is that of the clients' relaxed factors in "
            "the last round."
        )
        return View("lines", "local steps between synchronisations", metrics, (FELB, FELB_MU), note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare the change of the loss before and after 25 steps, and look at F1*."""
        places = [float(place) for place in record.places()]
        found = []
        for method in (FELB, FELB_MU):
            losses = {place: loss for place in places if (loss := record.mean("loss", method, place)) is not None}
            known = bool(losses) and min(places) in losses and max(places) in losses and FLAT_FROM in losses
            numbers, flat = "", None
            if known:
                before = losses[FLAT_FROM] - losses[min(places)]
                after = losses[max(places)] - losses[FLAT_FROM]
                flat = abs(after) <= FLAT * abs(before)
                numbers = f"loss {losses[min(places)]:.0f} → {losses[FLAT_FROM]:.0f} → {losses[max(places)]:.0f}"
                numbers += f" at {min(places):.0f}, {FLAT_FROM:.0f}, {max(places):.0f} steps"
            found.append(claim(f"{method}: the loss flattens after about 25 local steps", flat, numbers))
            stars = [star for place in places if (star := record.mean("f1_star", method, place)) is not None]
            found.append(
                claim(
                    f"{method}: F1* stays high (0.8 or more) with rare synchronisations",
                    holds_if_any(stars, min(stars, default=0.0) >= HIGH_F1),
                    f"F1* between {min(stars, default=0.0):.3f} and {max(stars, default=0.0):.3f}",
                )
            )
        return found


QUICK_METHODS = all_methods(iterations=QUICK_ITERATIONS)
FEW = (4, 8, 16, 32)
NOISE = NoiseStudy(), NoiseStudy(**QUICK, rows=1000, levels=(0.0, 0.1, 0.2, 0.3, 0.4), methods=QUICK_METHODS)
SCARCITY = ScarcityStudy(), ScarcityStudy(**QUICK, clients=FEW, rows=2**11, methods=QUICK_METHODS)
ABUNDANCE = AbundanceStudy(), AbundanceStudy(**QUICK, clients=FEW, rows_per_client=200, methods=QUICK_METHODS)
AGGREGATION = (
    AggregationStudy(),
    AggregationStudy(**QUICK, clients=FEW[:3], rows_per_client=200, iterations=QUICK_ITERATIONS),
)
CONVERGENCE = ConvergenceStudy(), ConvergenceStudy(**QUICK, rows=1000)
DRIFT = DriftStudy(), DriftStudy(**{**QUICK, "time_limit": 90.0}, rows=1000, clients=5, steps=(1, 5, 10, 25, 50))
