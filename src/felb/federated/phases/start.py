"""The start: a non-negative V from the leading singular vectors of all rows, by sums alone.

A randomized range finder (Halko, Martinsson, Tropp): Q ← qr(Σ AᵢᵀAᵢ Q) brings a random m × (k+10) basis close to the
leading right singular vectors; the Gram matrix Qᵀ(Σ AᵢᵀAᵢ)Q then gives them and the singular values. NNDSVD (Boutsidis,
Gallopoulos) keeps the larger of the positive and the negative part of each pair of singular vectors; of the left ones,
which stay at the clients, it needs norms only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, stream
from felb.linalg.fixed import as_sketch, fixed_sketch, from_sketch
from felb.linalg.trivial import exact_components_of_sketch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix

SKETCH, SIGNS = "sketch", "signs"

POWER = 2
"""How often the basis is multiplied by AᵀA; more brings it closer to the leading vectors."""

EXTRA = 10
"""Columns of the basis beyond the components; they catch what the first ones would miss."""

FLOOR = 0.01
"""Added to V, whose rows have the largest entry 1, because a sweep can hardly bring back what all rows have at zero."""

NEGLIGIBLE = 1e-6
"""Singular values below this share of the largest belong to nothing; their components start at random."""

SQUARE_BITS = 40
"""Fractional bits of squares of left vectors; they add up to 1."""


def sketch_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """AᵀA Q, in fixed point."""
    state = ClientState.after(state, broadcast)
    return state, Update({"sketch": fixed_sketch(shard, np.asarray(broadcast.values["Q"]))})


def signs_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Squared norms of the positive and of the negative parts of the left vectors A v / s, in fixed point."""
    vectors, values = (np.asarray(broadcast.values[name]) for name in ("vectors", "values"))
    left = shard.to_scipy(np.float64) @ vectors / values
    squares = np.rint(np.ldexp(left * left, SQUARE_BITS)).astype(np.int64)
    update = {
        "positive": np.where(left > 0, squares, 0).sum(axis=0),
        "negative": np.where(left < 0, squares, 0).sum(axis=0),
    }
    return ClientState.after(state, broadcast), Update(update)


@dataclass(frozen=True, slots=True)
class StartState:
    """The basis, then the singular vectors (features × components) and values, then V."""

    round: int
    seed: int
    Q: NDArray[np.float64]
    vectors: NDArray[np.float64] | None = None
    values: NDArray[np.float64] | None = None
    V: NDArray[np.float32] | None = None
    exact: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Find a non-negative V to start from; everybody's rows count, so everybody is asked.

    The first sketch tells trivial data, such as that without ones; then the exact components are found at once.

    Parameters
    ----------
    n_features, n_components : size of V
    power : how often the basis is multiplied by AᵀA before the Gram matrix is taken
    keep_empty : of trivial data, return empty components up to `n_components`; otherwise one at least
    """

    n_features: int
    n_components: int
    power: int = POWER
    keep_empty: bool = True
    name: str = "start"
    state_type: type[Any] = StartState
    rounds: ClassVar[int] = POWER + 2
    """With the usual power: one for each power, one for the Gram matrix, one for the parts."""

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Sketches of AᵀA and the parts of left vectors."""
        return {SKETCH: sketch_task, SIGNS: signs_task}

    def start(self, known: Known, seed: int) -> StartState:  # noqa: ARG002
        """Draw a random basis."""
        width = min(self.n_features, self.n_components + EXTRA)
        drawn = stream(seed, self.name, 0).standard_normal((self.n_features, width))
        return StartState(0, seed, as_sketch(np.linalg.qr(drawn)[0]))

    def broadcast(self, state: StartState) -> Broadcast | None:
        """Ask for sketches, then for the parts of the left vectors."""
        if state.V is not None or state.exact is not None:
            return None
        if state.vectors is None:
            return Broadcast(SKETCH, state.round, {"Q": state.Q}, everyone=True)
        assert state.values is not None
        values = {"vectors": state.vectors, "values": state.values}
        return Broadcast(SIGNS, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: StartState) -> StartState:  # noqa: ARG002
        """Turn the basis towards the leading vectors, take these, and choose their parts."""
        state = replace(state, round=state.round + 1)
        if state.vectors is not None:
            return replace(state, V=self._choose_parts(total["positive"], total["negative"], state))
        product = from_sketch(total["sketch"])
        if state.round == 1:
            exact = exact_components_of_sketch(product, state.Q, self.n_components)
            if exact is not None:
                return replace(state, exact=exact)
        if state.round <= self.power:
            return replace(state, Q=as_sketch(np.linalg.qr(product)[0]))
        gram = state.Q.T @ product
        eigenvalues, turn = np.linalg.eigh((gram + gram.T) / 2)
        leading = np.argsort(-eigenvalues, kind="stable")[: self.n_components]
        values = np.sqrt(np.maximum(eigenvalues[leading], 0.0))
        floor = max(NEGLIGIBLE * float(values.max(initial=0.0)), np.finfo(np.float32).tiny)
        # Values below the floor are told as infinite: their left vectors vanish and their components start at random.
        return replace(
            state, vectors=as_sketch(state.Q @ turn[:, leading]), values=np.where(values > floor, values, 2.0**500)
        )

    def _choose_parts(
        self, positive: NDArray[np.int64], negative: NDArray[np.int64], state: StartState
    ) -> NDArray[np.float32]:
        assert state.vectors is not None
        V = stream(state.seed, self.name, state.round).random((self.n_components, self.n_features))
        for component, vector in enumerate(state.vectors.T):
            if positive[component] + negative[component] == 0:
                continue
            if component == 0:
                V[component] = np.abs(vector)
                continue
            parts = np.maximum(vector, 0), np.maximum(-vector, 0)
            # Comparing ‖u₊‖‖v₊‖ with ‖u₋‖‖v₋‖ in squares.
            sizes = [
                int(u) * float(v @ v) for u, v in zip((positive[component], negative[component]), parts, strict=True)
            ]
            V[component] = parts[int(sizes[1] > sizes[0])]
        highest = V.max(axis=1, keepdims=True)
        return np.asarray(V / np.where(highest > 0, highest, 1.0) + FLOOR, dtype=np.float32)

    def record(self, state: StartState) -> Mapping[str, float]:  # noqa: ARG002
        """Nothing is measured yet."""
        return {}

    def result(self, state: StartState) -> Known:
        """Return V, or the absolute basis while there is none; of trivial data, the exact components."""
        if state.exact is not None:
            used = len(state.exact) if self.keep_empty else max(1, int(np.count_nonzero(state.exact.any(axis=1))))
            return Known(components=state.exact[:used], settled=True, exact=True)
        if state.V is not None:
            return Known(relaxed=state.V)
        V = np.zeros((self.n_components, self.n_features), dtype=np.float32)
        rows = np.abs(state.Q.T[: self.n_components])
        V[: len(rows)] = rows
        return Known(relaxed=V)


@dataclass(frozen=True, slots=True)
class RandomState:
    """The drawn V."""

    V: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RandomStart:
    """Draw a non-negative V; nobody is asked anything.

    Parameters
    ----------
    n_features, n_components : size of V
    number : of the draw, so that several starts of one run differ
    """

    n_features: int
    n_components: int
    number: int = 0
    name: str = "random start"
    state_type: type[Any] = RandomState

    @property
    def tasks(self) -> Mapping[str, Task]:
        """None."""
        return {}

    def start(self, known: Known, seed: int) -> RandomState:  # noqa: ARG002
        """Draw V."""
        V = stream(seed, self.name, self.number).random((self.n_components, self.n_features))
        return RandomState(np.asarray(V + FLOOR, dtype=np.float32))

    def broadcast(self, state: RandomState) -> Broadcast | None:  # noqa: ARG002
        """Return nothing to ask."""
        return None

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: RandomState) -> RandomState:  # noqa: ARG002
        """Return the same state; never called, since nothing is asked."""
        return state

    def record(self, state: RandomState) -> Mapping[str, float]:  # noqa: ARG002
        """Nothing is measured."""
        return {}

    def result(self, state: RandomState) -> Known:
        """Return V."""
        return Known(relaxed=state.V)
