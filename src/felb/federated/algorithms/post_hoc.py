"""Post-hoc federation of a centralized method (paper, Alg. 2).

Every client factorizes its own rows and sends its Boolean V_i, once; the server aggregates them (rounded mean, majority
vote, logical or), and every client assigns its rows to the aggregate. Components are aggregated by their number:
nothing makes the first component of one client mean the same as the first of another, unless they are aligned (see
`felb.federated.algorithms.aligned`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.centralized.base import LARGEST_SEED
from felb.errors import InputError
from felb.federated.aggregate import BOOLEAN_AGGREGATIONS
from felb.federated.protocol import Algorithm, Request, Update
from felb.federated.steps.assignment import ASSIGN, assign_task, assigned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.centralized.method import CentralizedFactorization
    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Server, Task

LOCAL_COMPONENTS = "local_components"
"""The task of the only round before the assignment: the client's Boolean V_i, for their sum."""


def post_hoc(model: CentralizedFactorization, aggregation: str) -> Algorithm:
    """Return the algorithm that runs `model` at every client and aggregates in the named way."""
    if aggregation not in BOOLEAN_AGGREGATIONS:
        raise InputError(f"unknown aggregation {aggregation!r}; use one of {', '.join(BOOLEAN_AGGREGATIONS)}")
    model.check()
    aggregate = BOOLEAN_AGGREGATIONS[aggregation]

    def server(seed: int) -> Server:  # noqa: ARG001
        sums = yield Request(LOCAL_COMPONENTS)
        unfinished = int(sums["unfinished"])
        sums.report(unfinished=unfinished)
        V = np.asarray(aggregate(sums["V"], sums.clients))
        return (yield from assigned(V, complete=unfinished == 0))

    tasks: dict[str, Task] = {LOCAL_COMPONENTS: LocalComponents(model), ASSIGN: assign_task(ClientState)}
    return Algorithm(f"{type(model).__name__}+{aggregation}", tasks, ClientState, server)


@dataclass(frozen=True, slots=True)
class ClientState:
    """Private to a client: nothing until it has its assignment."""

    assigned: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class LocalComponents:
    """The task: k components of the own rows, with the client's own randomness."""

    model: CentralizedFactorization

    def __call__(
        self,
        state: ClientState | None,  # noqa: ARG002
        shard: BinaryMatrix,
        request: Request,  # noqa: ARG002
        rng: np.random.Generator,
    ) -> tuple[None, Update]:
        """Send V_i, and whether there was time enough to find it."""
        found = self.model.find(shard, int(self.model.n_components), seed=int(rng.integers(LARGEST_SEED)))
        told = {"V": found.V.astype(np.uint8), "unfinished": np.asarray(int(not found.complete))}
        return None, Update(told, supports={"V": np.count_nonzero(found.U, axis=0)})
