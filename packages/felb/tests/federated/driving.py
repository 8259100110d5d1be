"""Drives the generator of a step over clients, as the loop would."""

import itertools
from dataclasses import dataclass, field

import pytest

from felb.data.binary import BinaryMatrix
from felb.engines.local import run
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.client import Client
from felb.federated.gate import Gate
from felb.federated.journal import Journal
from felb.federated.protocol import Algorithm, Request, Step, Sums, TimeUp
from felb.federated.steps.state import ClientState
from felb.federated.tasks import MOST_NODES, Limits, ResponseValidator
from felb.progress import Deadline

KNOWN = federated_bmf(1, 1, centralized=True)
"""Its tasks are those of all steps of the default method."""


@dataclass
class Driven:
    """What a step returned, the sums and metrics of its rounds, the requests it made."""

    known: object = None
    requests: list[Request] = field(default_factory=list)
    sums: list[Sums] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)

    def close_row(self):
        """Read the metrics of the last round, once the step has gone on."""
        self.rows += [sums.metrics for sums in self.sums[len(self.rows) :]]

    @property
    def rounds(self):
        return len(self.sums)


class Anything(frozenset):
    """The weights of every objective."""

    def __contains__(self, weights):
        return True


def limits_of(n_features):
    """Return limits that every step of a test keeps."""
    return Limits(n_features, 100, node_cap=MOST_NODES, weights=Anything())


def drive(generator, shards, *, stop_after=None, tasks=KNOWN.tasks):
    """Play a step to its end; with `stop_after`, the time is up after so many rounds."""
    driven, clients, value = Driven(), {}, None
    algorithm = Algorithm("a step", tasks, ClientState, lambda seed: generator, limits_of(shards[0].shape[1]))
    validator = ResponseValidator(algorithm)
    try:
        while True:
            asked = generator.send(value)
            driven.close_row()
            if isinstance(asked, Step):
                inner = drive(asked.generator, shards, tasks=tasks)
                driven.requests += inner.requests
                driven.sums += inner.sums
                driven.rows += inner.rows
                value = inner.solution
                continue
            if not isinstance(asked, Request):
                value = asked.state
                continue
            if driven.rounds == stop_after:
                try:
                    generator.throw(TimeUp())
                except TimeUp as up:
                    driven.solution = up.found
                    return driven
            releases, numbered = [], Request.of(asked.parts, all_clients=asked.all_clients, number=driven.rounds)
            for name, shard in enumerate(shards):
                client = Client(str(name), algorithm, Gate(str(name), lambda record: None), seed=0)
                clients[name], release = client.answer(clients.get(name), shard, numbered)
                validator.check(release.values, numbered, client=client.name)
                releases.append(release)
            value = Sums.of(releases, number=driven.rounds)
            driven.requests.append(asked)
            driven.sums.append(value)
    except StopIteration as end:
        driven.solution = end.value
    driven.close_row()
    return driven


def algorithm_of(make_step, n_features, **options):
    """Return the algorithm that plays a step, `make_step(seed)`, and then assigns all rows."""
    from felb.federated.algorithms.bmf import request_assignments
    from felb.federated.steps.state import step

    def server(seed):
        known = yield from step("step", make_step(seed))
        return (yield from request_assignments(known, complete=True, node_cap=1_000))

    return Algorithm("a step", KNOWN.tasks, ClientState, server, limits_of(n_features), **options)


class Rounds(Deadline):
    """A deadline after some looks at it instead of some seconds."""

    def __init__(self, looks):
        object.__setattr__(self, "seconds", 1.0)
        object.__setattr__(self, "_left", looks)

    __slots__ = ("_left",)

    @property
    def passed(self):
        object.__setattr__(self, "_left", self._left - 1)
        return self._left < 0


class Interruption(Exception):
    pass


def resumed(algorithm, shards, folder, *, after, **options):
    """Interrupt a run after so many rounds, and go on from its journal."""

    def stop(progress):
        if len(progress.history) == after:
            raise Interruption

    with pytest.raises(Interruption):
        run(algorithm, shards, journal=Journal(folder), on_round=stop, **options)
    return run(algorithm, shards, journal=Journal(folder), **options)


def cut(A, *ends):
    """Cut a matrix into runs of rows."""
    places = [0, *ends, len(A)]
    return [A.rows(a, b) for a, b in itertools.pairwise(places)]


def dense(shards):
    return BinaryMatrix.vstack(shards).toarray()
