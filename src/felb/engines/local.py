"""The in-process engine: all clients in one process, one after the other or in threads.

It plays the same loop a deployed federation plays (broadcast → client step → gate → sum → combine), including what
goes wrong there: clients that are not asked, that drop out, that fail. A seed fixes everything.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from felb.deadline import Deadline
from felb.engines.streams import CLIENT_STREAM, NOISE_STREAM, SAMPLING_STREAM, random_stream
from felb.errors import FederationError, InputError, PrivacyError
from felb.federated.gate import Book, Gate
from felb.federated.messages import Broadcast, Release, Total
from felb.federated.server import Concludes
from felb.linalg.blas import one_blas_thread
from felb.results.history import History

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from felb.federated.server import Outcome, Recipe
    from felb.linalg.binary import BinaryMatrix
    from felb.privacy.mechanisms import Mechanism
    from felb.privacy.outbound import OutboundRecord

MAX_ATTEMPTS = 20
"""How often a round is called again when too few clients answer."""


@dataclass(frozen=True, slots=True)
class Participation:
    """Who plays a round.

    Parameters
    ----------
    fraction : share of the clients asked in a round (at least one)
    dropout : probability that a client that was asked does not answer
    quorum : a round counts if at least this many answer; with it, a client that raises an error is left out of the
        round (with a warning) instead of ending the run
    joins : first round of each client that is not there from the start, by its name; until then it is not asked for
        anything, from then on it is one of all, with a state that starts there

    Examples
    --------
    >>> import felb
    >>> some = felb.Participation(0.5, dropout=0.1, quorum=2)
    >>> felb.FELB(n_components=5, participation=some).sampled
    True
    """

    fraction: float = 1.0
    dropout: float = 0.0
    quorum: int | None = None
    joins: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction of clients must lie in (0, 1], got {self.fraction}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.quorum is not None and self.quorum < 1:
            raise InputError(f"quorum must be at least 1, got {self.quorum}")
        for name, first in self.joins.items():
            if not isinstance(first, int) or first < 0:
                raise InputError(f"{name} must join in a round, counted from 0, got {first!r}")

    def check_names(self, names: list[str]) -> None:
        """Raise if clients are to join that do not exist, or if none is there at the start."""
        strangers = sorted(set(self.joins) - set(names))
        if strangers:
            raise InputError(f"there is no client {strangers[0]!r} that could join; the clients are {', '.join(names)}")
        if names and min(self.joins.get(name, 0) for name in names) > 0:
            raise InputError("all clients join later; a run needs at least one from round 0 on")

    def answering(self, names: list[str], broadcast: Broadcast, *, seed: int) -> tuple[list[str], list[str]]:
        """Draw who answers a broadcast and who was asked in vain; repeated until a quorum answers."""
        names = [name for name in names if self.joins.get(name, 0) <= broadcast.round]
        if broadcast.everyone:
            return names, []
        rng = random_stream(seed, SAMPLING_STREAM, broadcast.round)
        count = max(1, round(self.fraction * len(names)))
        needed = min(self.quorum or 1, count)
        for _ in range(MAX_ATTEMPTS):
            asked = sorted(rng.choice(len(names), count, replace=False))
            lost = rng.random(count) < self.dropout
            if count - lost.sum() >= needed:
                return (
                    [names[i] for i, gone in zip(asked, lost, strict=True) if not gone],
                    [names[i] for i, gone in zip(asked, lost, strict=True) if gone],
                )
        raise FederationError(
            f"round {broadcast.round}: fewer than {needed} of {count} clients answered, {MAX_ATTEMPTS} times in a row; "
            "lower the quorum or the dropout"
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a run is, between two rounds; a run continued from it ends as if it had never stopped."""

    server: Any
    clients: Mapping[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: what the server knows, and what each client that took part keeps to itself."""

    outcome: Outcome
    assignments: Mapping[str, NDArray[np.bool_]]
    history: History


def run(
    recipe: Recipe,
    shards: Mapping[str, BinaryMatrix],
    *,
    seed: int = 0,
    participation: Participation | None = None,
    workers: int = 1,
    deadline: Deadline | None = None,
    resume: Snapshot | None = None,
    on_round: Callable[[Snapshot], None] = lambda _: None,
    outbound: Callable[[str], Callable[[OutboundRecord], None]] = lambda _: lambda _: None,
    books: Callable[[str], Book] | None = None,
    mechanism: Mechanism | None = None,
) -> Run:
    """Play a recipe to its end on shards held in this process.

    Parameters
    ----------
    recipe : the method
    shards : rows of each client by its name
    seed : fixes the start, the sampling of clients and every client's own randomness
    workers : clients that work at the same time; does not change the result
    deadline : when it has passed, the round that is being played is the last one before the recipe concludes
    resume : where to go on, as passed to `on_round` before
    on_round : called after each completed round
    outbound : gives each client's log of what leaves it
    books : for a private recipe, gives each client's book of what it has spent and answered in this run; new ones if
        not given. To go on with an interrupted run, the same ones as before are needed: with the answers lost, a
        round is answered anew and charged again, and the ledger refuses what exceeds the agreement
    mechanism : noise at every client's gate, for studies of noise; without an agreement nothing adds up its cost
    """
    names = sorted(shards)
    participation = participation or Participation()
    participation.check_names(names)
    if recipe.privacy is not None and resume is not None and books is None:
        raise PrivacyError(
            "what the clients have spent before the interruption is not known; give the books of the run, or start anew"
        )
    gates = {name: _gate(name, recipe, outbound(name), books, mechanism) for name in names}
    deadline = deadline or Deadline()
    if deadline.seconds is not None and not isinstance(recipe.server, Concludes):
        raise InputError(f"{recipe.name} cannot be ended early; leave out the time limit and lower its rounds instead")
    snapshot = resume or Snapshot(recipe.server.start(seed))

    def answer(name: str, broadcast: Broadcast, states: Mapping[str, Any]) -> tuple[Any, Release]:
        rng = random_stream(seed, CLIENT_STREAM, broadcast.round, name)
        state, update = recipe.client.step(states.get(name), shards[name], broadcast, rng=rng)
        noise = random_stream(seed, NOISE_STREAM, broadcast.round, name)
        return state, gates[name].release(update, broadcast, rng=noise)

    with one_blas_thread(), ThreadPoolExecutor(max(1, workers)) as pool:
        while (broadcast := recipe.server.broadcast(snapshot.server)) is not None:
            if deadline.passed and isinstance(recipe.server, Concludes):
                snapshot = replace(snapshot, server=recipe.server.conclude(snapshot.server))
                broadcast = recipe.server.broadcast(snapshot.server)
                assert broadcast is not None  # concluding leaves the last task to be asked for
            asked, lost = participation.answering(names, broadcast, seed=seed)
            clients, total, failed = dict(snapshot.clients), Total(), []
            # Dozens of clients in one memory: from here on a state lives only until its successor is there.
            snapshot = replace(snapshot, clients={})
            jobs = {name: pool.submit(answer, name, broadcast, clients) for name in asked}
            try:
                for name in asked:
                    error = jobs[name].exception()
                    if error is not None:
                        if participation.quorum is None or not isinstance(error, Exception):
                            raise error
                        warnings.warn(f"round {broadcast.round}: {name} failed ({error})", RuntimeWarning, stacklevel=2)
                        failed.append(name)
                        continue
                    clients[name], release = jobs.pop(name).result()
                    total.add(release)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            if total.n_clients < min(participation.quorum or 1, len(asked)):
                raise FederationError(
                    f"round {broadcast.round}: only {total.n_clients} of {len(asked)} clients answered; "
                    f"the quorum is {participation.quorum}. Failed: {', '.join(failed)}"
                )
            server = recipe.server.combine(total.values, total.n_clients, snapshot.server)
            row = {"round": broadcast.round, "task": broadcast.task, "clients": total.n_clients}
            if lost or failed:
                row["missing"] = sorted(lost + failed)
            history = snapshot.history.plus({**row, **recipe.server.record(server)})
            snapshot = replace(snapshot, server=server, clients=clients, history=history)
            on_round(snapshot)
    return Run(
        outcome=recipe.server.outcome(snapshot.server),
        assignments={name: recipe.client.assignment(state) for name, state in snapshot.clients.items()},
        history=snapshot.history,
    )


def _gate(
    name: str,
    recipe: Recipe,
    write: Callable[[OutboundRecord], None],
    books: Callable[[str], Book] | None,
    mechanism: Mechanism | None,
) -> Gate:
    plan = recipe.privacy
    if plan is None:
        return Gate(name, write) if mechanism is None else Gate(name, write, mechanism)
    if mechanism is not None:
        raise PrivacyError("a private recipe brings its own noise; leave out the mechanism")
    book = Book(plan.ledger()) if books is None else books(name)
    return Gate.private(name, write, plan=plan, book=book)
