"""Federated algorithms, and what is said about their tasks in words."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.federated.tasks import TaskSpec


@cache
def all_tasks() -> dict[str, TaskSpec]:
    """Return the tasks of all methods of felb, by name, as they are declared beside their functions."""
    from felb.federated.algorithms.private import PRIVATE_TASKS
    from felb.federated.algorithms.registry import FEDERATED, make_algorithm
    from felb.federated.tasks import declare

    found = declare(*PRIVATE_TASKS)
    for name in (*(entry.name for entry in FEDERATED), "asso+vote", "asso+aligned-vote"):
        found |= make_algorithm(name, 1, 1, {}, centralized=True).tasks
    return found


def phase_of(task: str) -> str:
    """Return the phase that a task belongs to; the name of one that felb does not have, in words.

    Examples
    --------
    >>> phase_of("gram_sketch"), phase_of("column_counts")
    ('initialisation', 'column counts')
    """
    found = all_tasks().get(task)
    return task.replace("_", " ") if found is None else found.phase


def count_rounds_by_phase(rounds: Mapping[str, int]) -> dict[str, int]:
    """Add up numbers of rounds by task to numbers by phase, in the order of the tasks.

    Examples
    --------
    >>> count_rounds_by_phase({"gram_sketch": 3, "sign_norms": 1, "local_factor": 8, "assign": 1})
    {'initialisation': 4, 'local steps': 8, 'assignment': 1}
    """
    counted: dict[str, int] = {}
    for task, count in rounds.items():
        phase = phase_of(task)
        counted[phase] = counted.get(phase, 0) + count
    return counted
