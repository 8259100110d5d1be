"""What every transport must do with every algorithm; a new transport is one function and one line in the list.

A transport of another package is tested by a file with ``from test_transport_contract import *`` and `TRANSPORTS` of
its own, as docs/extend.md and the tests of felb-sites do. Scores and supports are tested once, for the reference loop;
every transport gives the same result as that loop.
"""

from dataclasses import dataclass, field, replace

import dask_cluster
import numpy as np
import pytest
from brief_effort import BRIEF_NAME

from felb.data import partition, planted
from felb.data.binary import BinaryMatrix
from felb.data.partition import split
from felb.engines.dask import cluster as on_dask
from felb.engines.local import run
from felb.federated.gate import Gate
from felb.federated.journal import Journal
from felb.federated.loop import OWNER, Centralized, play
from felb.federated.protocol import Sums
from felb.metrics import confusion
from felb.sklearn.methods import make_federated

DATA = planted(240, 40, 4, noise=0.05, seed=1)
SHARDS, ROWS = split(DATA.A, partition.uneven(240, 5, seed=1))


@dataclass(frozen=True)
class Plan:
    """What is run: a method of the command line, its parameters and a seed."""

    method: str
    parameters: dict = field(default_factory=dict)
    seed: int = 3

    def algorithm(self):
        return make_federated(self.method, n_components=4, **self.parameters).algorithm(40)


@dataclass
class Played:
    """A run, with what left each client."""

    outcome: object
    history: list
    assignments: dict
    left: dict = field(default_factory=dict)


def in_process(plan, shards, folder, *, workers=1, secure=False, stop_after=None):
    left, algorithm = {}, plan.algorithm()

    def outbound(name):
        return lambda record: left.setdefault(name, []).append((record.round, record.what, record.shape))

    options = {"seed": plan.seed, "workers": workers, "outbound": outbound, "secure": secure}
    if stop_after is not None:
        with pytest.raises(KeyboardInterrupt):
            run(algorithm, shards, journal=Journal(folder / "j"), on_round=stop(stop_after), **options)
    finished = run(algorithm, shards, journal=Journal(folder / "j"), **options)
    return Played(finished.outcome, list(finished.history), dict(finished.assignments), left)


def masked(plan, shards, folder, **options):
    return in_process(plan, shards, folder, secure=True, **options)


def two_threads(plan, shards, folder, **options):
    return in_process(plan, shards, folder, workers=2, **options)


def by_the_loop(make):
    """Return the entry of a transport, ``make(algorithm, shards, seed=, write=)``, that the loop is played over."""

    def played(plan, shards, folder, *, stop_after=None):
        algorithm, left = plan.algorithm(), {}

        def write(record):
            left.setdefault(record.client, []).append((record.round, record.what, record.shape))

        def go(**options):
            transport = make(algorithm, shards, seed=plan.seed, write=write)
            return play(algorithm, transport, seed=plan.seed, journal=Journal(folder / "j"), **options)

        if stop_after is not None:
            with pytest.raises(KeyboardInterrupt):
                go(on_round=stop(stop_after))
        finished = go()
        return Played(finished.outcome, list(finished.history), dict(finished.assignments), left)

    return played


def one_owner(algorithm, shards, *, seed, write):
    """One owner of all rows; where the others have one row set each, the sums are the same."""
    return Centralized(algorithm, BinaryMatrix.vstack(list(shards.values())), seed=seed)


centralized = by_the_loop(one_owner)


@pytest.fixture(scope="module")
def dask_client():
    with dask_cluster.threads() as client:
        yield client


def dask_workers(plan, shards, folder, *, stop_after=None):
    """Blocks on Dask workers, whose states are on disk when the run is stopped."""
    from distributed import get_client

    algorithm, client = plan.algorithm(), get_client()
    blocks = dask_cluster.on_workers(client, shards)
    options = {"seed": plan.seed, "client": client, "states": folder / "states"}
    if stop_after is not None:
        with pytest.raises(KeyboardInterrupt):
            on_dask.run(
                algorithm,
                blocks,
                journal=Journal(folder / "j"),
                on_round=stop(stop_after),
                persist_every=stop_after,
                **options,
            )
        assert Journal(folder / "j").next_round == stop_after
    finished = on_dask.run(algorithm, blocks, journal=Journal(folder / "j"), persist_every=30, **options)
    return Played(finished.outcome, list(finished.history), dict(finished.assignments))


TRANSPORTS = {
    "in process": in_process,
    "in process, two threads": two_threads,
    "in process, masked": masked,
    "centralized": centralized,
    "dask workers": dask_workers,
}
ONE_OWNER = (centralized, dask_workers)
"""Transports from which nothing leaves, since all clients are one owner's."""
AS_IN_PROCESS = (two_threads, masked, dask_workers)
"""Transports of which it is enough that they agree with the reference loop, undisturbed and after two rounds."""
PLANS = {
    "felb": Plan("felb", {"max_iter": 6}),
    "felb-mu": Plan("felb-mu", {"max_iter": 6}),
    "bmf": Plan("bmf", {"objective": "hamming", "effort": BRIEF_NAME}),
    "bmf, recover": Plan("bmf", {"objective": "recover", "effort": BRIEF_NAME}),
    "asso+or": Plan("asso+or"),
    "felb, refined": Plan("felb", {"max_iter": 4, "refine": True}),
    "fedprox": Plan("fedprox", {"max_iter": 6}),
    "scaffold": Plan("scaffold", {"max_iter": 6}),
    "proxskip": Plan("proxskip", {"max_iter": 6}),
    "grecond+aligned-vote": Plan("grecond+aligned-vote", {"alignment_passes": 3}),
}
"""FedNMF asks for what FELB asks for; of the post-hoc methods there is one that draws nothing and one that aligns."""
SEEDED = ("felb", "felb-mu", "fedprox", "scaffold", "proxskip", "grecond+aligned-vote")
"""Plans whose result shows the seed; that of the others may be the same for all."""
TOLD = {
    "local_factor": ("V", "curvature", "loss"),
    "local_components": ("V", "unfinished"),
    "aligned_components": ("V", "unfinished"),
    "fedprox": ("V", "curvature", "loss"),
    "scaffold": ("V", "control", "curvature", "curvature_change", "loss"),
    "proxskip": ("V", "curvature", "loss"),
    "gram_sketch": ("sketch",),
    "sign_norms": ("positive", "negative"),
    "factor_statistics": ("AtU", "UtU", "sums", "ones", "filled"),
    "threshold_counts": ("covered", "claimed", "members", "ones", "cells", "rows"),
    "flip_gains": ("counts", "supports", "gains"),
    "assign": ("counts", "supports"),
}
"""What leaves a client, by task."""
SIZES = {(), (4,), (4, 4), (4, 40), (40, 4), (40, 14), (9,), (9, 9)}
"""Of scalars, statistics of 4 components and 40 features, a basis, and 9 thresholds."""
ONE = {"all": DATA.A}


def pytest_generate_tests(metafunc):
    """Take the transports and plans of the module that asks, which may be one that has imported these tests."""
    plans, seeded = metafunc.module.PLANS, metafunc.module.SEEDED
    transports = metafunc.module.TRANSPORTS
    own = {name: transport for name, transport in transports.items() if transport not in AS_IN_PROCESS}
    tables = {
        "transport": transports,
        "own_transport": own,
        "several": {name: transport for name, transport in own.items() if transport is not centralized},
        "plan": plans,
        "seeded_plan": {name: plan for name, plan in plans.items() if name in seeded},
        # What clients draw at random goes by their names, and these methods show it.
        "nameless_plan": {name: plan for name, plan in plans.items() if "asso" not in name},
    }
    for fixture, table in tables.items():
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, table.values(), ids=table.keys(), indirect=fixture == "transport")


@pytest.fixture
def transport(request):
    if request.param is dask_workers:
        request.getfixturevalue("dask_client")
    return request.param


KNOWN = {}
"""Undisturbed runs, which several tests look at."""


def once(play, plan, shards, *folder):
    """Return ``play(plan, shards, *folder)``, which is computed once for a plan and names of clients."""
    known = play, str(plan), tuple(shards)
    if known not in KNOWN:
        KNOWN[known] = play(plan, shards, *folder)
    return KNOWN[known]


def shards_for(transport):
    return ONE if transport is centralized else SHARDS


def stop(rounds):
    def on_round(progress):
        if len(progress.history) == rounds:
            raise KeyboardInterrupt

    return on_round


def found(outcome):
    """Return V before it was cut; what is Boolean throughout, as it is."""
    return outcome.components if outcome.relaxed is None else outcome.relaxed


def reference(plan, shards):
    """The loop of the design, written out: task, gate, sum, next request."""
    from felb.federated.client import compute_update, read_assignment
    from felb.federated.loop import Execution

    algorithm = plan.algorithm()
    execution, states = Execution(algorithm, seed=plan.seed), {}
    while (request := execution.request) is not None:
        releases = []
        for name, shard in sorted(shards.items()):
            states[name], update = compute_update(
                algorithm, states.get(name), shard, request, name=name, seed=plan.seed
            )
            gate, declared = Gate(name, lambda record: None), algorithm.expected(request)
            releases.append(gate.release(update, request, declared, rng=np.random.default_rng(0)))
        execution.receive(Sums.of(releases))
    return Played(execution.outcome, execution.rows, {name: read_assignment(found) for name, found in states.items()})


def assert_same(a, b):
    np.testing.assert_array_equal(a.outcome.components, b.outcome.components)
    assert (a.outcome.relaxed is None) == (b.outcome.relaxed is None)
    if a.outcome.relaxed is not None:
        np.testing.assert_array_equal(a.outcome.relaxed, b.outcome.relaxed)
    assert a.outcome.counts == b.outcome.counts
    np.testing.assert_array_equal(a.outcome.supports, b.outcome.supports)
    assert a.history == b.history
    for U, other in zip(a.assignments.values(), b.assignments.values(), strict=True):
        np.testing.assert_array_equal(U, other)


def test_same_result_as_the_reference_loop(transport, plan, tmp_path):
    shards = {OWNER: DATA.A} if transport is centralized else SHARDS
    assert_same(once(transport, plan, shards, tmp_path), once(reference, plan, shards))


def test_a_run_interrupted_after_two_rounds_ends_as_if_undisturbed(transport, plan, tmp_path):
    shards = shards_for(transport)
    whole = once(transport, plan, shards, tmp_path / "whole")
    assert_same(transport(plan, shards, tmp_path / "stopped", stop_after=2), whole)


def test_a_run_interrupted_after_its_first_round_ends_as_if_undisturbed(own_transport, seeded_plan, tmp_path):
    shards = shards_for(own_transport)
    whole = once(own_transport, seeded_plan, shards, tmp_path / "whole")
    assert_same(own_transport(seeded_plan, shards, tmp_path / "stopped", stop_after=1), whole)


def test_a_seed_fixes_everything(own_transport, seeded_plan, tmp_path):
    shards = shards_for(own_transport)
    first = once(own_transport, seeded_plan, shards, tmp_path / "first")
    assert_same(first, own_transport(seeded_plan, shards, tmp_path / "again"))
    other = own_transport(replace(seeded_plan, seed=4), shards, tmp_path / "other")
    assert not np.array_equal(found(first.outcome), found(other.outcome))


def test_shuffled_clients_give_the_same_result_to_the_last_bit(several, nameless_plan, tmp_path):
    renamed = {f"z{9 - i}": shard for i, shard in enumerate(SHARDS.values())}
    a = once(several, nameless_plan, SHARDS, tmp_path / "a")
    b = several(nameless_plan, renamed, tmp_path / "b")
    np.testing.assert_array_equal(a.outcome.components, b.outcome.components)
    np.testing.assert_array_equal(found(a.outcome), found(b.outcome))
    assert a.outcome.counts == b.outcome.counts
    assert a.history == b.history


def test_summed_scores_are_centralized_scores_and_every_client_has_its_assignment(plan):
    played = once(reference, plan, SHARDS)
    pairs = zip(SHARDS.values(), played.assignments.values(), strict=True)
    summed = sum(confusion(shard, U, played.outcome.components) for shard, U in pairs)
    assert played.outcome.counts == summed
    supports = sum(U.sum(axis=0) for U in played.assignments.values())
    np.testing.assert_array_equal(played.outcome.supports, supports)
    assert summed.cells == 240 * 40


def test_everything_that_leaves_is_logged_and_nothing_has_the_size_of_rows(transport, plan, tmp_path):
    played = once(transport, plan, shards_for(transport), tmp_path)
    if transport in ONE_OWNER:
        assert played.left == {}
    else:
        assert_logged(played)


def assert_logged(played):
    """The logs of all clients are alike, name every round, and tell of nothing that has the size of a client's rows."""
    assert played.left.keys() == SHARDS.keys()
    sizes = {len(shard) for shard in SHARDS.values()}
    logs = list(played.left.values())
    assert all(log == logs[0] for log in logs), "what leaves looks alike, however many rows a client has"
    assert {number for number, _, _ in logs[0]} == set(range(len(played.history)))
    assert len(logs[0]) == len({(number, what) for number, what, _ in logs[0]})
    assert not sizes & {side for _, _, shape in logs[0] for side in shape if side > 40}


@pytest.mark.parametrize("name", [name for name in PLANS if "bmf" not in name])
def test_nothing_leaves_but_what_the_task_is_known_to_tell(name, tmp_path):
    """The default method asks for much more, about V of many sizes; its tasks are tested with its steps."""
    played = once(in_process, PLANS[name], SHARDS, tmp_path)
    for log in played.left.values():
        by_round = [[what for at, what, _ in log if at == row["round"]] for row in played.history]
        assert by_round == [list(TOLD[row["task"]]) for row in played.history]
        assert {shape for _, _, shape in log} <= SIZES
