"""Plays a single phase over clients, as an engine would."""

import itertools

import numpy as np

from felb.federated.gate import Gate
from felb.federated.messages import Total
from felb.federated.phases.base import Known
from felb.linalg.binary import BinaryMatrix


def play(phase, shards, known=None, *, seed=0, stop_after=None):
    """Return the states of the phase, the first included."""
    states, clients, rng = [phase.start(known or Known(), seed)], {}, np.random.default_rng(0)
    while (broadcast := phase.broadcast(states[-1])) is not None and len(states) - 1 != stop_after:
        total = Total()
        for name, shard in enumerate(shards):
            clients[name], update = phase.tasks[broadcast.task](clients.get(name), shard, broadcast, rng)
            total.add(Gate(str(name), lambda record: None).release(update, broadcast, rng=rng))
        states.append(phase.combine(total.values, total.n_clients, states[-1]))
    return states


def cut(A, *ends):
    """Cut a matrix into runs of rows."""
    places = [0, *ends, len(A)]
    return [A.rows(a, b) for a, b in itertools.pairwise(places)]


def dense(shards):
    return BinaryMatrix.vstack(shards).toarray()
