"""Post-hoc federation of a centralized method (paper, Alg. 2).

Every client factorizes its own rows and sends its Boolean V_i, once; the server aggregates them (rounded mean, majority
vote, logical or), and every client assigns its rows to the aggregate. Components are aggregated by their number:
nothing makes the first component of one client mean the same as the first of another, unless they are aligned (see
`felb.federated.algorithms.post_hoc`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from felb.centralized.base import LARGEST_SEED
from felb.errors import InputError
from felb.federated.aggregate import BOOLEAN_AGGREGATIONS, agreement, align, anchor
from felb.federated.protocol import Algorithm, Request, Update
from felb.federated.steps.assignment import assign_task, assigned
from felb.federated.tasks import Input, Limits, Output, TaskSpec, Work, declare

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from felb.centralized.base import CentralizedMethod
    from felb.federated.protocol import Outcome, Server, Sums

LOCAL_COMPONENTS = "local_components"


def post_hoc(model: CentralizedMethod, aggregation: str, n_features: int) -> Algorithm:
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

    local = TaskSpec(
        LOCAL_COMPONENTS,
        "local factorization",
        LocalComponents(model),
        "the components of the client's own rows",
        outputs={"V": own_components(model), "unfinished": Output("i", high=1, made_of="all")},
    )
    limits = Limits(n_features, int(model.n_components))
    name = f"{model.label}+{aggregation}"
    return Algorithm(name, declare(local, assign_task(VotingState)), VotingState, server, limits)


def own_components(model: CentralizedMethod) -> Output:
    """Declare V_i of a client, whose rows are components of its own."""
    return Output("i", (int(model.n_components), "m"), high=1, made_of="named", axes=1)


@dataclass(frozen=True, slots=True)
class VotingState:
    """Private to a client: nothing until it has its assignment."""

    assigned: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class LocalComponents:
    """The task: k components of the own rows, with the client's own randomness."""

    model: CentralizedMethod

    def __call__(self, work: Work) -> tuple[None, Update]:
        """Send V_i, and whether there was time enough to find it."""
        found = self.model.find(work.rows, int(self.model.n_components), seed=int(work.rng.integers(LARGEST_SEED)))
        told = {"V": found.V.astype(np.uint8), "unfinished": np.asarray(int(not found.complete))}
        return None, Update(told, supports={"V": np.count_nonzero(found.U, axis=0)})


# -- A post-hoc algorithm, with the components of clients aligned before they are aggregated -------------------------
#
# Row l of one client's V_i and row l of another's are strangers: components correspond only up to a permutation. The
# server sees nothing but sums, so it cannot match them. Instead it sends a reference, and every client permutes its own
# rows to it (see `felb.federated.aggregate`): first to random weights, then to the sum of what all have sent, until the
# sum stays as it is or `passes` are over. The idea is that of "Creating Coherence in Federated Non-Negative Matrix
# Factorization" (Dalleiger and Gionis, AAAI 2025). A client factorizes once, when it is first asked; a pass costs a
# matching of k rows and an upload of k × m bits. The sum of the last pass is aggregated, and rows are assigned, as the
# algorithm does it.

ALIGNED_COMPONENTS = "aligned_components"

PASSES = 5
"""Passes at most after the first alignment; twice as many changed F1 by less than a hundredth on five real sets."""


def aligned(algorithm: Algorithm, n_features: int, *, passes: int = PASSES) -> Algorithm:
    """Return the algorithm that aggregates aligned components.

    Parameters
    ----------
    algorithm : one by `felb.federated.algorithms.post_hoc.post_hoc`
    n_features : columns of the data
    passes : alignments at most to the sum of all clients, after the one to random weights
    """
    passes, local = check_passes(passes), algorithm.tasks.get(LOCAL_COMPONENTS)
    if local is None or not isinstance(local.do, LocalComponents):
        raise InputError(
            f"{algorithm.name} does not aggregate Boolean components; only post-hoc algorithms can be aligned"
        )
    shape = int(local.do.model.n_components), n_features

    def server(seed: int) -> Server:
        return play_aligned(algorithm.server(seed), anchor(seed, shape), passes)

    task = TaskSpec(
        ALIGNED_COMPONENTS,
        "alignment",
        AlignedComponents(local.do),
        "the components of the client's own rows, reordered",
        {"reference": Input("i", ("k", "m"), -(2**31), 2**31)},
        local.outputs,
    )
    tasks = declare(task, assign_task(AlignedState))
    return replace(algorithm, name=f"{algorithm.name}, aligned", tasks=tasks, state_type=AlignedState, server=server)


def check_passes(passes: int) -> int:
    """Return the number of passes, if it is one."""
    if isinstance(passes, bool) or not isinstance(passes, int | np.integer) or passes < 0:
        raise InputError(f"alignment_passes must be a whole number of at least 0, got {passes!r}")
    return int(passes)


# -- the server ------------------------------------------------------------------------------------------------------


def play_aligned(server: Server, reference: NDArray[np.int64], passes: int) -> Server:
    """Play a post-hoc server that is told the sum of aligned components where it asks for that of components."""
    value = None
    try:
        while True:
            asked = server.send(value)
            if isinstance(asked, Request) and asked.task == LOCAL_COMPONENTS:
                value = yield from align_sums(reference, passes)
            else:
                value = yield asked
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def align_sums(reference: NDArray[np.int64], passes: int) -> Generator[Request, Sums, Sums]:
    """Ask for components in the order of a reference, the next of which is their sum, until that stays.

    Parameters
    ----------
    reference : the first one
    passes : requests at most after the first
    """
    settled, played = False, 0
    while not settled:
        sums = yield Request(ALIGNED_COMPONENTS, reference=reference)
        before, reference = reference, np.rint(sums["V"]).astype(np.int64)
        sums.report(unfinished=int(sums["unfinished"]), agreement=agreement(reference, sums.clients))
        played += 1
        settled = played > passes or np.array_equal(reference, before)
    return sums


# -- the client ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlignedState:
    """Private to a client: V_i as it was found, its supports, whether time ran out; then the assignment."""

    V: NDArray[np.bool_] | None = None
    supports: NDArray[np.int64] | None = None
    unfinished: int = 0
    assigned: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class AlignedComponents:
    """The task: k components of the own rows, computed at the first request, in the order of the reference."""

    local: LocalComponents

    def __call__(self, work: Work) -> tuple[AlignedState, Update]:
        """Send V_i, and whether there was time enough to find it."""
        state: AlignedState | None = work.state
        if state is None or state.V is None:
            _, found = self.local(work)
            state = AlignedState(
                np.asarray(found.values["V"], dtype=bool), found.supports["V"], int(found.values["unfinished"])
            )
        assert state.V is not None
        assert state.supports is not None
        permuted = align(state.V, work.values["reference"])
        told = {"V": permuted.astype(np.uint8), "unfinished": np.asarray(state.unfinished)}
        return state, Update(told, supports={"V": _of_rows(permuted, state.V, state.supports)})


def _of_rows(permuted: NDArray[np.bool_], V: NDArray[np.bool_], supports: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the supports of the rows of V in another order; of rows that are equal, the least."""
    least: dict[bytes, int] = {}
    for row, support in zip(V, supports.tolist(), strict=True):
        least[row.tobytes()] = min(support, least.get(row.tobytes(), support))
    return np.array([least[row.tobytes()] for row in permuted], dtype=np.int64)
