"""What an experiment is: cells to measure, how to show them, and what the paper says they should show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from felb.estimators.methods import METHODS
from felb.paper.claims import judged_with_missing
from felb.paper.experiment_cells import MethodUse
from felb.paper.study import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from felb.paper.experiment_cells import Cell
    from felb.paper.study import Claim, StudyRecord, View

FELB, FELB_MU, OURS = "FELB", "FELB-MU", "FederatedBMF"
ASSO, GRECOND, MEBF, ZHANG, ELBMF = "Asso", "GreConD", "MEBF", "Zhang", "ELBMF"
POST_HOC = (ASSO, GRECOND, MEBF, ZHANG, ELBMF)
SEVEN = (*POST_HOC, FELB, FELB_MU)
"""The methods that the paper compares."""

LOCAL_STEPS = {"local_steps": 10}
"""Of the evaluation; the other parameters of FELB and FELB-MU are those that felb recommends."""
PUBLISHED_ELBMF = {"l1": 0.01, "l2": 0.01, "l2_rate": 1.02, "inertia": 0.01}


def post_hoc_methods(aggregation: str = "vote", *, iterations: int = 1000) -> tuple[MethodUse, ...]:
    """Return the five methods that clients run alone, with the parameters of the evaluation."""
    return (
        MethodUse(ASSO, f"asso+{aggregation}", {"tau": 1.0, "bonus": 1.0, "penalty": 1.0}),
        MethodUse(GRECOND, f"grecond+{aggregation}"),
        MethodUse(MEBF, f"mebf+{aggregation}", {"threshold": 0.5, "uncovered": 0.05}),
        MethodUse(ZHANG, f"zhang+{aggregation}", {"max_iter": iterations}),
        MethodUse(ELBMF, f"elbmf+{aggregation}", {**PUBLISHED_ELBMF, "max_iter": iterations}),
    )


def federated_methods(**changes: Any) -> tuple[MethodUse, ...]:
    """Return FELB and FELB-MU as felb recommends them, with ten local steps."""
    parameters = {**LOCAL_STEPS, **changes}
    return MethodUse(FELB, "felb", parameters), MethodUse(FELB_MU, "felb-mu", parameters)


def aligned_methods(*, iterations: int = 1000) -> tuple[MethodUse, ...]:
    """Return the post-hoc methods with components that are matched across clients before the vote."""
    voting = post_hoc_methods("aligned-vote", iterations=iterations)
    return registered([replace(use, label=f"{use.label} aligned") for use in voting])


def competitors() -> tuple[MethodUse, ...]:
    """Return federated non-negative factorization and other federated optimisers, with ten local steps if any."""
    names = {"FedNMF": "fednmf", "FedProx": "fedprox", "SCAFFOLD": "scaffold", "ProxSkip": "proxskip"}
    uses = registered([MethodUse(label, method) for label, method in names.items()])
    return tuple(
        replace(use, parameters=LOCAL_STEPS) if "local_steps" in METHODS[use.method].parameters() else use
        for use in uses
    )


def registered(uses: Sequence[MethodUse]) -> tuple[MethodUse, ...]:
    """Return the uses of methods that felb has."""
    return tuple(use for use in uses if use.method in METHODS)


def all_methods(*, iterations: int = 1000) -> tuple[MethodUse, ...]:
    """Return the seven methods of the evaluation, and the default method of felb beside them."""
    return (*post_hoc_methods(iterations=iterations), *federated_methods(), MethodUse(OURS, "bmf"))


QUICK_ITERATIONS = 300
"""Of ELBMF and Zhang in quick forms; their λ grows by then as far as they need."""

RMSD = Metric("rmsd", "RMSD", "low")
F1 = Metric("f1", "F1", "high")
F1_STAR = Metric("f1_star", "F1*", "high")
SECONDS = Metric("seconds_per_client", "seconds per client", "low", log=True)


@dataclass(frozen=True, slots=True)
class Study(ABC):
    """A form, quick or full, of an experiment; a subclass adds its own settings.

    Parameters
    ----------
    form : "quick" or "full"
    trials : repetitions of each cell, with seeds 0, 1, …
    time_limit : seconds that a cell may take
    data : folder with data that does not come with felb; None for ``$FELB_DATA``
    """

    reads_data: ClassVar[bool] = False
    """Whether it runs on data of the data folder."""

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]

    form: str = "full"
    trials: int = 10
    time_limit: float = 12 * 3600.0
    data: str | None = None

    @abstractmethod
    def cells(self) -> tuple[Cell, ...]:
        """Return all cells, those first that give the first picture of the whole: trial by trial."""

    @abstractmethod
    def view(self) -> View:
        """Return how to show the cells."""

    @abstractmethod
    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold what the paper says against stored cells."""

    def judge(self, record: StudyRecord) -> list[Claim]:
        """Return the claims; while cells are missing, each says so and none counts as reproduced."""
        return judged_with_missing(record, self.claims(record))

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain data, for the manifest."""
        hidden = ("form",) if self.reads_data else ("form", "data")
        return {key: value for key, value in asdict(self).items() if key not in hidden}


def labels(methods: Sequence[MethodUse]) -> tuple[str, ...]:
    """Return what the methods are called, each once."""
    return tuple(dict.fromkeys(use.label for use in methods))
