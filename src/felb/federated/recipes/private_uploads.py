"""A method that uploads components, under an agreement: V leaves with noise, and nothing else does.

Any recipe whose clients upload V and then report their assignment can be played so. Losses, time that ran out and
counts stay at the clients; the server sees the sum of noisy V only. What it makes of that, including when to stop,
costs nothing more, as long as there are no more uploads than planned.
"""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.client import Client
from felb.federated.messages import Broadcast, Update
from felb.federated.recipes.assignment import ASSIGN
from felb.federated.server import Outcome, Recipe, Server
from felb.federated.state import holding
from felb.privacy.discrete import require_sampler
from felb.privacy.names import UPLOADS
from felb.privacy.uploads import ClippedGaussian, RandomizedResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix
    from felb.privacy.plan import PrivacyPlan

UNTOLD = {"loss": np.asarray(np.nan), "unfinished": np.asarray(0)}
"""What stands in for the figures that clients keep to themselves."""


def private_uploads(recipe: Recipe, plan: PrivacyPlan) -> Recipe:
    """Return the recipe with V as the only thing that leaves, by the mechanism of the plan.

    Parameters
    ----------
    recipe : a method whose clients upload V at most as often as the plan says
    plan : the agreement, with its noise calibrated for these uploads
    """
    if plan.uploads is None:
        raise InputError(f"mechanism={plan.privacy.mechanism!r} releases sums over records; {recipe.name} uploads V")
    mechanism = plan.upload_mechanism()
    if isinstance(mechanism, ClippedGaussian):
        require_sampler()
    tasks = {
        word: _silent(task) if word == ASSIGN else _uploading(task, boolean=plan.uploads.boolean)
        for word, task in recipe.client.tasks.items()
    }
    client = Client(tasks=tasks, state_type=recipe.client.state_type, assignment=recipe.client.assignment)
    return Recipe(f"{recipe.name}, {plan.privacy.mechanism}", client, UploadsServer(recipe.server, plan), plan)


def _uploading(task: Task, *, boolean: bool) -> Task:
    """Return the task that tells V alone."""

    def upload(state: Any, shard: BinaryMatrix, broadcast: Broadcast, rng: np.random.Generator) -> tuple[Any, Update]:
        new, update = task(state, shard, broadcast, rng)
        V = np.asarray(update.values[UPLOADS])
        return new, Update({UPLOADS: V.astype(bool) if boolean else V})

    return upload


def _silent(task: Task) -> Task:
    """Return the task that tells nothing."""

    def silent(state: Any, shard: BinaryMatrix, broadcast: Broadcast, rng: np.random.Generator) -> tuple[Any, Update]:
        new, _ = task(state, shard, broadcast, rng)
        return new, Update({})

    return silent


@dataclass(frozen=True)
class UploadsServer:
    """Plays a server that knows V only.

    Parameters
    ----------
    inner : the server of the method
    plan : the agreement
    """

    inner: Server
    plan: PrivacyPlan

    @cached_property
    def state_type(self) -> type[Any]:
        """The state of the method, whether rows were assigned, and how often V was uploaded."""
        return make_dataclass(
            "UploadsState",
            [
                ("inner", Any, field(metadata=holding(self.inner.state_type))),
                ("assigned", bool, field(default=False)),
                ("uploaded", int, field(default=0)),
            ],
            frozen=True,
        )

    def start(self, seed: int) -> Any:
        """Start the method."""
        return self.state_type(self.inner.start(seed))

    def broadcast(self, state: Any) -> Broadcast | None:
        """Ask what the method asks, until rows were assigned."""
        return None if state.assigned else self.inner.broadcast(state.inner)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: Any) -> Any:
        """Hand on the sum of V; where bits were flipped at a known rate, the sum that they let expect."""
        if UPLOADS not in total:
            return replace(state, assigned=True)
        self.plan.check_answers(n_clients)
        V, mechanism = np.asarray(total[UPLOADS]), self.plan.upload_mechanism()
        if isinstance(mechanism, RandomizedResponse):
            V = np.rint(mechanism.unbiased(V, n_clients))
        inner = self.inner.combine({UPLOADS: V, **UNTOLD}, n_clients, state.inner)
        return replace(state, inner=inner, uploaded=state.uploaded + 1)

    def record(self, state: Any) -> Mapping[str, float]:
        """Return the figures of the method that follow from V alone."""
        if state.assigned:
            return {}
        return {key: value for key, value in self.inner.record(state.inner).items() if key not in UNTOLD}

    def outcome(self, state: Any) -> Outcome:
        """Return the components; counts stay with the clients."""
        return replace(self.inner.outcome(state.inner), counts=None, supports=None)
