"""The server: turns the sum of a round's updates into the next broadcast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from felb.federated.client import Client
    from felb.federated.messages import Broadcast
    from felb.metrics import Counts
    from felb.optim.belief import Belief
    from felb.privacy.plan import PrivacyPlan


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished run found.

    Parameters
    ----------
    components : Boolean V̂, components × features
    relaxed : V̂ before it was made Boolean, or None for methods that are Boolean throughout
    integrality_gap : how far `relaxed` was from Boolean
    converged : V̂ is Boolean, or near enough for the cut at ½ to be unambiguous
    n_iter : rounds of optimisation
    counts : summed confusion counts of all clients for their final assignments; None if clients keep them to themselves
    supports : records of all clients that were assigned each component; None likewise
    weights : what covering a one and covering a zero was worth in the assignment
    complete : False if a time limit ended the search of a client or of the run
    belief : the model that rows were inferred under, for methods that have one; others assign by `weights`
    """

    components: NDArray[np.bool_]
    relaxed: NDArray[np.floating[Any]] | None
    integrality_gap: float
    converged: bool
    n_iter: int
    counts: Counts | None
    supports: NDArray[np.int64] | None
    weights: tuple[float, float] = (1.0, -1.0)
    complete: bool = True
    belief: Belief | None = None


class Server(Protocol):
    """The public side of a recipe. All methods are pure; the state is an explicit value that engines store."""

    @property
    def state_type(self) -> type[Any]:
        """The frozen dataclass of the state."""
        ...

    def start(self, seed: int) -> Any:
        """Return the state before the first broadcast."""
        ...

    def broadcast(self, state: Any) -> Broadcast | None:
        """Return what to tell the clients next; None when the run is over."""
        ...

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: Any) -> Any:
        """Return the next state from a sum of updates and their number; no single update is ever needed."""
        ...

    def record(self, state: Any) -> Mapping[str, float]:
        """Return the figures of the last combined round, for the history."""
        ...

    def outcome(self, state: Any) -> Outcome:
        """Return what was found; also for a run that was stopped early."""
        ...


@runtime_checkable
class Concludes(Protocol):
    """A server that can be told to come to an end; what it has found so far is a valid result."""

    def conclude(self, state: Any) -> Any:
        """Return a state that asks only for what a result needs; the same state if nothing else is left to ask."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """A federated method: one client and one server that know the same tasks.

    With `privacy`, an engine must let nothing leave a client except by noise that this agreement calibrates, charged to
    a ledger of the client's own.
    """

    name: str
    client: Client
    server: Server
    privacy: PrivacyPlan | None = None
