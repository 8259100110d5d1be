"""Federated algorithms, and what is said about their tasks in words."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.federated.tasks import TaskSpec


@cache
def all_tasks() -> dict[str, TaskSpec]:
    """Return the tasks of all algorithms of felb, by name, as they are declared beside their functions."""
    from felb.centralized.asso import AssoMethod
    from felb.federated.algorithms.bmf import federated_bmf
    from felb.federated.algorithms.competitors import fedprox, proxskip, scaffold
    from felb.federated.algorithms.felb import felb
    from felb.federated.algorithms.post_hoc import aligned, post_hoc
    from felb.federated.algorithms.private import PRIVATE_TASKS
    from felb.federated.tasks import declare

    voting = post_hoc(AssoMethod(1), "vote", 1)
    others = (felb(1, 1), fedprox(1, 1), scaffold(1, 1), proxskip(1, 1), federated_bmf(1, 1, centralized=True))
    found = declare(*PRIVATE_TASKS)
    for algorithm in (voting, aligned(voting, 1), *others):
        found |= algorithm.tasks
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
