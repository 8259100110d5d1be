"""The in-process transport: all clients in one process, one after the other or in threads.

It plays what a deployed federation plays, including what goes wrong there: clients that are not asked, that drop out,
that fail. A seed fixes everything.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from felb.deadline import Deadline, within
from felb.errors import FederationError, InputError, PrivacyError
from felb.federated.gate import Gate
from felb.federated.loop import Run, RunProgress, play
from felb.federated.protocol import ClientStates, Release, Request, Sums
from felb.federated.responses import Responses
from felb.federated.streams import CLIENT_STREAM, NOISE_STREAM, SAMPLING_STREAM, random_stream
from felb.kernels.blas import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from felb.data.binary import BinaryMatrix
    from felb.federated.journal import Journal
    from felb.federated.protocol import Algorithm
    from felb.privacy.mechanisms import Mechanism
    from felb.privacy.outbound_log import OutboundRecord

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

    def answering(self, names: list[str], request: Request, *, seed: int) -> tuple[list[str], list[str]]:
        """Draw who answers a request and who was asked in vain; repeated until a quorum answers."""
        names = [name for name in names if self.joins.get(name, 0) <= request.round]
        if request.all_clients:
            return names, []
        rng = random_stream(seed, SAMPLING_STREAM, request.round)
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
            f"round {request.round}: fewer than {needed} of {count} clients answered, {MAX_ATTEMPTS} times in a row; "
            "lower the quorum or the dropout"
        )


class InProcess:
    """Clients that are simulated in this process.

    Parameters
    ----------
    algorithm : knows the tasks
    shards : rows of each client by its name
    gates : exit of each client
    pool : runs the clients
    seed : fixes the sampling of clients and every client's own randomness
    participation : who plays a round; everybody without it
    deadline : of the run; long tasks look at it
    """

    def __init__(
        self,
        algorithm: Algorithm,
        shards: Mapping[str, BinaryMatrix],
        gates: Mapping[str, Gate],
        *,
        pool: ThreadPoolExecutor,
        seed: int,
        participation: Participation | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self._deadline = deadline
        self._algorithm, self._shards, self._gates = algorithm, shards, gates
        self._pool, self._seed = pool, seed
        self._participation = participation or Participation()
        self._participation.check_names(sorted(shards))
        self._states = ClientStates()

    def ask(self, request: Request) -> Sums:
        """Let the clients of the round respond, and add up what leaves them in the order of their names."""
        asked, missing = self._participation.answering(sorted(self._shards), request, seed=self._seed)
        states = dict(self._states.states)
        # Dozens of clients in one memory: from here on a state lives only until its successor is there.
        self._states = ClientStates(self._states.round)
        jobs = {name: self._pool.submit(self._respond, name, request, states.get(name)) for name in asked}
        releases: list[Release] = []
        failed: list[str] = []
        quorum = self._participation.quorum
        try:
            for name in asked:
                error = jobs[name].exception()
                if error is None:
                    states[name], release = jobs.pop(name).result()
                    releases.append(release)
                elif quorum is None or not isinstance(error, Exception):
                    raise error
                else:
                    warnings.warn(f"round {request.round}: {name} failed ({error})", RuntimeWarning, stacklevel=2)
                    failed.append(name)
        except BaseException:
            self._pool.shutdown(cancel_futures=True)
            raise
        if len(releases) < min(quorum or 1, len(asked)):
            raise FederationError(
                f"round {request.round}: only {len(releases)} of {len(asked)} clients answered; "
                f"the quorum is {quorum}. Failed: {', '.join(failed)}"
            )
        self._states = ClientStates(request.round, states)
        return Sums.of(releases, missing=missing + failed, number=request.round)

    @property
    def states(self) -> ClientStates:
        """The states of all clients."""
        return self._states

    def restore(self, states: ClientStates) -> None:
        """Take up states that were kept."""
        self._states = states

    def _respond(self, name: str, request: Request, state: Any) -> tuple[Any, Release]:
        rng = random_stream(self._seed, CLIENT_STREAM, request.round, name)
        with within(self._deadline):
            state, update = self._algorithm.respond(state, self._shards[name], request, rng=rng)
        noise = random_stream(self._seed, NOISE_STREAM, request.round, name)
        return state, self._gates[name].release(update, request, rng=noise)


def run(
    algorithm: Algorithm,
    shards: Mapping[str, BinaryMatrix],
    *,
    seed: int = 0,
    participation: Participation | None = None,
    workers: int = 1,
    deadline: Deadline | None = None,
    journal: Journal | None = None,
    on_round: Callable[[RunProgress], None] = lambda _: None,
    outbound: Callable[[str], Callable[[OutboundRecord], None]] = lambda _: lambda _: None,
    responses: Callable[[str], Responses] | None = None,
    mechanism: Mechanism | None = None,
) -> Run:
    """Play an algorithm to its end on shards held in this process.

    Parameters
    ----------
    algorithm : what to play
    shards : rows of each client by its name
    seed : fixes the start, the sampling of clients and every client's own randomness
    participation : who plays a round; everybody without it
    workers : clients that work at the same time; does not change the result
    deadline : when it has passed, the round that is being played is the last one of the search
    journal : of a new run or of one that was interrupted; the run goes on from there and is kept there
    on_round : called after each completed round
    outbound : gives each client's log of what leaves it
    responses : for a private algorithm, gives each client's responses in this run; new ones if not given. To go on
        with an interrupted run, the same ones as before are needed: with the responses lost, a round is answered anew
        and charged again, and the accountant refuses what exceeds the specification
    mechanism : noise at every client's gate, for studies of noise; without a specification nothing adds up its cost
    """
    if algorithm.privacy is not None and responses is None and journal is not None and journal.next_round > 0:
        raise PrivacyError(
            "what the clients have spent before the interruption is not known; give the responses of the run, or start "
            "anew"
        )
    gates = {name: _gate(name, algorithm, outbound(name), responses, mechanism) for name in sorted(shards)}
    with one_blas_thread(), ThreadPoolExecutor(max(1, workers)) as pool:
        transport = InProcess(
            algorithm, shards, gates, pool=pool, seed=seed, participation=participation, deadline=deadline
        )
        finished = play(algorithm, transport, seed=seed, journal=journal, deadline=deadline, on_round=on_round)
    assert finished is not None
    return finished


def _gate(
    name: str,
    algorithm: Algorithm,
    write: Callable[[OutboundRecord], None],
    responses: Callable[[str], Responses] | None,
    mechanism: Mechanism | None,
) -> Gate:
    plan = algorithm.privacy
    if plan is None:
        return Gate(name, write) if mechanism is None else Gate(name, write, mechanism)
    if mechanism is not None:
        raise PrivacyError("a private algorithm brings its own noise; leave out the mechanism")
    kept = Responses(plan.accountant()) if responses is None else responses(name)
    return Gate.private(name, write, plan=plan, responses=kept)
