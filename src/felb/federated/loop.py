"""The loop: executes any algorithm over any transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb.deadline import Deadline
from felb.errors import InputError
from felb.federated.execution import Execution
from felb.metrics.history import History

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from felb.federated.journal import Journal
    from felb.federated.protocol import Algorithm, Outcome, Request, Transport


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Where a run stands after a round.

    Parameters
    ----------
    history : a row for every round so far
    request : the next request; None at the end of the run
    """

    history: History
    request: Request | None


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    Parameters
    ----------
    outcome : what the server has found
    history : a row for every round
    assignments : the Boolean U_i of each client that this process holds; they are the clients' own
    """

    outcome: Outcome
    history: History
    assignments: Mapping[str, NDArray[np.bool_]]


def play(
    algorithm: Algorithm,
    transport: Transport,
    *,
    seed: int = 0,
    journal: Journal | None = None,
    deadline: Deadline | None = None,
    most_rounds: int | None = None,
    on_round: Callable[[RunProgress], None] = lambda _: None,
) -> Run | None:
    """Send the requests of the server to the transport and return the sums to it, until it is finished.

    Parameters
    ----------
    algorithm : the algorithm to run
    transport : how to reach the clients
    seed : fixes the server's randomness
    journal : of a new run or of one that was interrupted; the run goes on from there and is kept there
    deadline : when it has passed, the round that is being played is the last one of the search
    most_rounds : rounds to play now; None is returned if the run is not over then
    on_round : called after each completed round
    """
    deadline = deadline or Deadline()
    if deadline.seconds is not None and not algorithm.interruptible:
        raise InputError(
            f"{algorithm.name} cannot be ended early; leave out the time limit and lower its rounds instead"
        )
    if journal is not None and transport.states is not None:
        transport.restore(journal.rewind_to_states(algorithm.state_type))
    execution = Execution(algorithm, seed=seed, journal=journal)
    history, kept, played = History(execution.rows), transport.states, 0
    try:
        while (request := execution.request) is not None and played != most_rounds:
            if deadline.passed and execution.may_end_early:
                execution.end_early()
                continue
            sums = transport.ask(request)
            # From here on the sums of the round and the states after it belong together.
            kept = transport.states if journal is not None else None
            execution.receive(sums)
            history, played = history.plus(execution.rows[-1]), played + 1
            if journal is not None:
                journal.keep(kept)
            on_round(RunProgress(history, execution.request))
    except BaseException:
        if journal is not None and kept is not None:
            journal.save(kept)
        raise
    if execution.outcome is None:
        return None
    return Run(execution.outcome, history, assignments_in(transport.states.states if transport.states else {}))


def assignments_in(states: Mapping[str, Any]) -> dict[str, NDArray[np.bool_]]:
    """Return the assignments in final states."""
    return {name: state.assigned for name, state in states.items() if state is not None}
