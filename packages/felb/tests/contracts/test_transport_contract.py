"""What every transport must do with every algorithm; a new transport is one function and one line in the list."""

from dataclasses import dataclass, field, replace

import dask_cluster
import numpy as np
import pytest
from brief_effort import BRIEF_NAME
from loopback import Loopback
from masked_loopback import MaskedLoopback

from felb.data import partition, planted
from felb.data.binary import BinaryMatrix
from felb.data.partition import split
from felb.engines.dask import cluster as on_dask
from felb.engines.local import run
from felb.federated.gate import Gate
from felb.federated.journal import Journal
from felb.federated.loop import OWNER, Centralized, play
from felb.federated.protocol import Request, Sums
from felb.metrics import confusion
from felb_sites.run_plan import Plan

DATA = planted(240, 40, 4, noise=0.05, seed=1)
SHARDS, ROWS = split(DATA.A, partition.uneven(240, 5, seed=1))


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


def flare_by_loopback(plan, shards, folder, *, stop_after=None, kind=Loopback):
    loop = kind(folder, plan, shards, min_rows=1)
    if stop_after is not None:
        for _ in range(stop_after):
            loop.round()
        loop.restart()
    outcome = loop.finish()
    left = {name: [(line["round"], line["what"], tuple(line["shape"])) for line in loop.lines(name)] for name in shards}
    return Played(outcome, list(loop.history), {name: loop.assignment(name) for name in shards}, left)


def flare_masked(plan, shards, folder, **options):
    return flare_by_loopback(plan, shards, folder, kind=MaskedLoopback, **options)


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
    "flare, by loopback": flare_by_loopback,
    "flare, by loopback, masked": flare_masked,
    "dask workers": dask_workers,
}
ONE_OWNER = (centralized, dask_workers)
"""Transports from which nothing leaves, since all clients are one owner's."""
PLANS = {
    "felb": Plan("r", "felb", 4, 40, {"max_iter": 6}, seed=3),
    "felb-mu": Plan("r", "felb-mu", 4, 40, {"max_iter": 6}, seed=3),
    "bmf": Plan("r", "bmf", 4, 40, {"objective": "hamming", "effort": BRIEF_NAME}, seed=3),
    "bmf, recover": Plan("r", "bmf", 4, 40, {"objective": "recover", "effort": BRIEF_NAME}, seed=3),
    "asso+or": Plan("r", "asso+or", 4, 40, {}, seed=3),
    "felb, refined": Plan("r", "felb", 4, 40, {"max_iter": 4, "refine": True}, seed=3),
    "fednmf": Plan("r", "fednmf", 4, 40, {"max_iter": 6}, seed=3),
    "fedprox": Plan("r", "fedprox", 4, 40, {"max_iter": 6}, seed=3),
    "scaffold": Plan("r", "scaffold", 4, 40, {"max_iter": 6}, seed=3),
    "proxskip": Plan("r", "proxskip", 4, 40, {"max_iter": 6}, seed=3),
    "grecond+aligned-vote": Plan("r", "grecond+aligned-vote", 4, 40, {"alignment_passes": 3}, seed=3),
}
SEEDED = ("felb", "felb-mu", "fednmf", "fedprox", "scaffold", "proxskip", "grecond+aligned-vote")
"""Plans whose result shows the seed; that of the others may be the same for all."""
MASKED_AT_SITES = ("felb-mu", "asso+or")
"""Plans that are played over vaults with masked sums: V on the grid, and counts."""
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
    tables = {
        "transport": metafunc.module.TRANSPORTS,
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
    if request.param is flare_masked:
        asked = request.getfixturevalue("plan") if "plan" in request.fixturenames else None
        if asked not in [PLANS[name] for name in MASKED_AT_SITES]:
            pytest.skip("every trip is on disk at every site; in process, all methods are masked")
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


def skip_if_slow(transport):
    """Leave out what holds for whatever is the same as the reference loop, to keep the tests short."""
    if transport in (dask_workers, masked):
        pytest.skip("it is the same as the reference loop for every algorithm")


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
    assert a.history == b.history
    for U, other in zip(a.assignments.values(), b.assignments.values(), strict=True):
        np.testing.assert_array_equal(U, other)


def test_same_result_as_the_reference_loop(transport, plan, tmp_path):
    shards = {OWNER: DATA.A} if transport is centralized else SHARDS
    assert_same(once(transport, plan, shards, tmp_path), once(reference, plan, shards))


@pytest.mark.parametrize("rounds", [1, 2])
def test_an_interrupted_run_ends_as_if_undisturbed(transport, plan, rounds, tmp_path):
    if rounds == 1 or plan.method == "bmf":
        skip_if_slow(transport)
    shards = shards_for(transport)
    whole = once(transport, plan, shards, tmp_path / "whole")
    assert_same(transport(plan, shards, tmp_path / "stopped", stop_after=rounds), whole)


def test_a_seed_fixes_everything(transport, seeded_plan, tmp_path):
    skip_if_slow(transport)
    shards = shards_for(transport)
    first = once(transport, seeded_plan, shards, tmp_path / "first")
    assert_same(first, transport(seeded_plan, shards, tmp_path / "again"))
    other = transport(replace(seeded_plan, seed=4), shards, tmp_path / "other")
    assert not np.array_equal(found(first.outcome), found(other.outcome))


def test_shuffled_clients_give_the_same_result_to_the_last_bit(transport, nameless_plan, tmp_path):
    if transport is centralized:
        pytest.skip("one client has no order")
    skip_if_slow(transport)
    renamed = {f"z{9 - i}": shard for i, shard in enumerate(SHARDS.values())}
    a = once(transport, nameless_plan, SHARDS, tmp_path / "a")
    b = transport(nameless_plan, renamed, tmp_path / "b")
    np.testing.assert_array_equal(a.outcome.components, b.outcome.components)
    np.testing.assert_array_equal(found(a.outcome), found(b.outcome))
    assert a.outcome.counts == b.outcome.counts
    assert a.history == b.history


def test_summed_scores_are_centralized_scores_and_every_client_has_its_assignment(transport, plan, tmp_path):
    shards = shards_for(transport)
    played = once(transport, plan, shards, tmp_path)
    pairs = zip(shards.values(), played.assignments.values(), strict=True)
    centralized = sum(confusion(shard, U, played.outcome.components) for shard, U in pairs)
    assert played.outcome.counts == centralized
    supports = sum(U.sum(axis=0) for U in played.assignments.values())
    np.testing.assert_array_equal(played.outcome.supports, supports)
    assert centralized.cells == 240 * 40


def test_everything_that_leaves_is_logged_and_nothing_has_the_size_of_rows(transport, plan, tmp_path):
    played = once(transport, plan, shards_for(transport), tmp_path)
    if transport in ONE_OWNER:
        assert played.left == {}
        return
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


def test_an_unknown_task_is_refused(tmp_path):
    loop = Loopback(tmp_path, PLANS["felb"], SHARDS, min_rows=1)
    with pytest.raises(Exception, match=r"send_rows|knows no task"):
        loop.ask(Request("send_rows"))
