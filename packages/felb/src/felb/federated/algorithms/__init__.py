"""Federated algorithms, and what is said about their tasks in words."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from felb.federated.tasks import TaskSpec


@cache
def tasks_of(method: str) -> Mapping[str, TaskSpec]:
    """Return the tasks of a method by name, as they are declared beside their functions."""
    from felb.federated.algorithms.registry import make_algorithm

    return make_algorithm(method, 1, 1, {}, centralized=True).tasks


def find_tasks() -> Iterator[Mapping[str, TaskSpec]]:
    """Yield the tasks of the default method and then of the others; what a method needs is imported in its turn."""
    from felb.federated.algorithms.registry import FEDERATED

    for name in (*(entry.name for entry in FEDERATED), "asso+vote", "asso+aligned-vote"):
        yield tasks_of(name)
    from felb.federated.algorithms.private import PRIVATE_TASKS
    from felb.federated.tasks import declare

    yield declare(*PRIVATE_TASKS)


def all_tasks() -> dict[str, TaskSpec]:
    """Return the tasks of all methods of felb, by name."""
    return {name: spec for tasks in find_tasks() for name, spec in tasks.items()}


def phase_of(task: str) -> str:
    """Return the phase that a task belongs to; the name of one that felb does not have, in words.

    Examples
    --------
    >>> phase_of("gram_sketch"), phase_of("column_counts")
    ('initialisation', 'column counts')
    """
    found = next((tasks[task] for tasks in find_tasks() if task in tasks), None)
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
