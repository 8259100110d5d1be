"""The tasks of all algorithms in one table: the phase of a run each belongs to, and what a client tells in it.

A reviewer reads here what may leave a client at all. `tests/contracts/test_algorithm_contract.py` checks that no
algorithm asks for another task and that no task tells another array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.federated.protocol import Algorithm


class TaskEntry(NamedTuple):
    """A task in words.

    Parameters
    ----------
    phase : of a run, as it is shown to people
    arrays : all that an update of the task may hold; under a privacy specification only some of them leave
    """

    phase: str
    arrays: tuple[str, ...]


INITIALISATION, THRESHOLDS, RESEEDING, LOCAL_SEARCH, BELIEF, LOCAL_STEPS, ASSIGNMENT = (
    "initialisation",
    "threshold search",
    "reseeding",
    "local search",
    "belief propagation",
    "local steps",
    "assignment",
)

TASKS: dict[str, TaskEntry] = {
    # The default method, federated NMF and refinement: sums over rows of whole numbers.
    "gram_sketch": TaskEntry(INITIALISATION, ("sketch",)),
    "sign_norms": TaskEntry(INITIALISATION, ("positive", "negative")),
    "factor_statistics": TaskEntry("relaxed factorization", ("AtU", "UtU", "sums", "ones", "filled")),
    "threshold_counts": TaskEntry(THRESHOLDS, ("covered", "claimed", "members", "ones", "cells", "rows")),
    "cut_counts": TaskEntry(THRESHOLDS, ("counts",)),
    "flip_gains": TaskEntry("refinement", ("counts", "supports", "gains", "ones", "zeros")),
    "residual_counts": TaskEntry(RESEEDING, ("residual", "rows")),
    "pair_counts": TaskEntry(RESEEDING, ("pairs",)),
    "candidate_gains": TaskEntry(RESEEDING, ("ones", "zeros")),
    "shared_counts": TaskEntry("rank selection", ("shared",)),
    "stacked_gains": TaskEntry(LOCAL_SEARCH, ("counts", "supports", "gains", "ones", "zeros", "rows")),
    "exact_counts": TaskEntry("comparison of results", ("counts", "supports")),
    "centralized_search": TaskEntry(LOCAL_SEARCH, ("counts", "supports", "components")),
    "belief_statistics": TaskEntry(BELIEF, ("evidence", "members", "cells", "rows")),
    "belief_threshold_counts": TaskEntry(
        BELIEF, ("claimed", "expected", "covered", "members", "tp", "fp", "ones", "cells")
    ),
    # FELB and its competitors: factors on a grid.
    "local_factor": TaskEntry(LOCAL_STEPS, ("V", "curvature", "loss")),
    "fedprox": TaskEntry(LOCAL_STEPS, ("V", "curvature", "loss")),
    "scaffold": TaskEntry(LOCAL_STEPS, ("V", "control", "curvature", "curvature_change", "loss")),
    "proxskip": TaskEntry(LOCAL_STEPS, ("V", "curvature", "loss")),
    # Post-hoc methods: Boolean components.
    "local_components": TaskEntry("local factorization", ("V", "unfinished")),
    "aligned_components": TaskEntry("alignment", ("V", "unfinished")),
    # Private sums over records.
    "sizes": TaskEntry("record sizes", ("sizes",)),
    "columns": TaskEntry("column counts", ("columns",)),
    "cooccurrence": TaskEntry("co-occurrence", ("cooccurrence",)),
    "statistics": TaskEntry("noisy statistics", ("statistics",)),
    "choice": TaskEntry("choice of a candidate", ("choice",)),
    "scores": TaskEntry("scores", ("scores",)),
    # The end of every run.
    "assign": TaskEntry(ASSIGNMENT, ("counts", "supports")),
    "assign_by_belief": TaskEntry(ASSIGNMENT, ("counts", "supports")),
}


def phase_of(task: str) -> str:
    """Return the phase that a task belongs to; the name of one that is not in the table, in words.

    Examples
    --------
    >>> phase_of("gram_sketch"), phase_of("column_counts")
    ('initialisation', 'column counts')
    """
    return TASKS[task].phase if task in TASKS else task.replace("_", " ")


def rounds_by_phase(rounds: Mapping[str, int]) -> dict[str, int]:
    """Add up numbers of rounds by task to numbers by phase, in the order of the tasks.

    Examples
    --------
    >>> rounds_by_phase({"gram_sketch": 3, "sign_norms": 1, "local_factor": 8, "assign": 1})
    {'initialisation': 4, 'local steps': 8, 'assignment': 1}
    """
    counted: dict[str, int] = {}
    for task, count in rounds.items():
        phase = phase_of(task)
        counted[phase] = counted.get(phase, 0) + count
    return counted


def declared_arrays(algorithm: Algorithm) -> dict[str, tuple[str, ...]]:
    """Return what the clients of an algorithm may tell, by task; a task that is declared nowhere may tell nothing."""
    own = algorithm.arrays
    return {task: own[task] if task in own else TASKS[task].arrays if task in TASKS else () for task in algorithm.tasks}
