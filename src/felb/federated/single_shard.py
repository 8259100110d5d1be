"""The transport without a federation: one owner of all rows in the same process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.federated.gate import Gate
from felb.federated.loop import play
from felb.federated.participation import CLIENT_STREAM, random_stream
from felb.federated.protocol import ClientStates, Sums

if TYPE_CHECKING:
    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm, Outcome, Request

OWNER = "all rows"


class Centralized:
    """One client that holds all rows; nothing leaves, so nothing is written down.

    Parameters
    ----------
    algorithm : knows the tasks
    A : the rows
    seed : fixes the randomness of tasks
    """

    def __init__(self, algorithm: Algorithm, A: BinaryMatrix, *, seed: int) -> None:
        self._algorithm, self._rows, self._seed = algorithm, A, seed
        self._gate = Gate(OWNER, lambda _: None)
        self._state: Any = None
        self._round = -1

    def ask(self, request: Request) -> Sums:
        """Do the task on all rows."""
        rng = random_stream(self._seed, CLIENT_STREAM, request.round, OWNER)
        self._state, update = self._algorithm.respond(self._state, self._rows, request, rng=rng)
        self._round = request.round
        return Sums.of([self._gate.release(update, request, rng=rng)], number=request.round)

    @property
    def states(self) -> ClientStates:
        """The owner's state."""
        return ClientStates(self._round, {OWNER: self._state})

    def restore(self, states: ClientStates) -> None:
        """Take up the owner's state."""
        self._round, self._state = states.round, states.states.get(OWNER)


def fit_centralized(algorithm: Algorithm, A: BinaryMatrix, *, seed: int) -> Outcome:
    """Play an algorithm to its end on rows that need no federation, such as synthetic ones of a private server."""
    finished = play(algorithm, Centralized(algorithm, A, seed=seed), seed=seed)
    assert finished is not None
    return finished.outcome
