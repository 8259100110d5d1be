"""A client: knows some tasks by name, takes a step on its own rows when one is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import FederationError
from felb.federated.messages import Broadcast, Update
from felb.linalg.binary import BinaryMatrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

Task = Callable[[Any, BinaryMatrix, Broadcast, np.random.Generator], tuple[Any, Update]]
"""(state or None, shard, broadcast, randomness) -> (new state, update); pure."""


@dataclass(frozen=True, slots=True)
class Client:
    """What every client of a recipe can do.

    Parameters
    ----------
    tasks : the words a broadcast may use, and what they do
    state_type : frozen dataclass of the private state, so that engines can store it
    assignment : reads the Boolean U_i off a final state
    """

    tasks: Mapping[str, Task]
    state_type: type[Any]
    assignment: Callable[[Any], NDArray[np.bool_]]

    def step(
        self, state: Any, shard: BinaryMatrix, broadcast: Broadcast, *, rng: np.random.Generator
    ) -> tuple[Any, Update]:
        """Do the task the broadcast names; same inputs, same outputs, on every engine."""
        if broadcast.task not in self.tasks:
            raise FederationError(f"unknown task {broadcast.task!r}; this client knows {', '.join(sorted(self.tasks))}")
        return self.tasks[broadcast.task](state, shard, broadcast, rng)
