"""What every federated algorithm must satisfy; a new one is one line in the list.

An algorithm of another package is tested by a file with ``from test_algorithm_contract import *`` and an
``ALGORITHMS`` of its own, as docs/extend.md does.
"""

import copy
import functools
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import pytest
from brief_effort import BRIEF
from seeded_noise import seeded_noise

from felb.data import partition, planted
from felb.data.binary import BinaryMatrix
from felb.data.partition import split
from felb.engines.local import Participation, run
from felb.errors import InputError
from felb.federated.algorithms import all_tasks
from felb.federated.algorithms.registry import CENTRALIZED, FEDERATED, METHODS
from felb.federated.client import compute_update
from felb.federated.gate import Gate, Responses
from felb.federated.journal import Journal
from felb.federated.loop import play
from felb.federated.protocol import NOISE_STREAM, ClientStates, Sums, random_stream
from felb.federated.tasks import MOST, ResponseValidator
from felb.metrics import confusion
from felb.privacy.accounting import UPLOADS
from felb.privacy.releases import ClippedGaussian
from felb.privacy.spec import Population, Privacy
from felb.sklearn.methods import make_federated

K, M, SEED = 3, 14, 3
DATA = planted(64, M, K, noise=0.05, seed=1)
SHARDS, _ = split(DATA.A, np.array(list("abcd"))[partition.uneven(64, 4, seed=2)])


def method(name, *, privacy=None, **parameters):
    """Return what makes the algorithm of a method by its word at the command line."""
    if privacy is not None:
        parameters["privacy"] = Privacy(**{"delta": 1e-5, **privacy})
    population = Population(len(DATA.A), len(SHARDS))
    return lambda: make_federated(name, n_components=K, **parameters).algorithm(M, population=population)


ALGORITHMS = {
    **{entry.name: method(entry.name) for entry in FEDERATED},
    "bmf": method("bmf", effort=BRIEF),
    "bmf, fast": method("bmf", effort="fast"),
    "bmf, f1": method("bmf", objective="f1", effort=BRIEF),
    "bmf, recover": method("bmf", objective="recover", effort=BRIEF),
    "bmf, mdl": lambda: make_federated("bmf", n_components="mdl", max_components=5, effort="fast").algorithm(M),
    "bmf, sampled": method("bmf", participation=Participation(fraction=0.9)),
    "felb": method("felb", max_iter=6),
    "felb, literal": method("felb", max_iter=6, setting="literal"),
    "felb, unweighted": method("felb", max_iter=6, setting="unweighted"),
    "felb, refined": method("felb", max_iter=3, refine=True),
    "felb-mu": method("felb-mu", max_iter=6),
    "felb-mu, refined": method("felb-mu", max_iter=3, refine=True),
    "fednmf": method("fednmf", max_iter=6),
    "fedprox": method("fedprox", max_iter=6),
    "scaffold": method("scaffold", max_iter=6),
    "proxskip": method("proxskip", max_iter=6),
    "elbmf+mean": method("elbmf+mean", max_iter=20),
    "asso+or": method("asso+or"),
    "grecond+aligned-vote": method("grecond+aligned-vote"),
    "mebf+vote": method("mebf+vote"),
    "zhang+aligned-mean": method("zhang+aligned-mean", max_iter=10),
    "grecond-plus+vote": method("grecond-plus+vote"),
    "greess+aligned-or": method("greess+aligned-or"),
    "primp+vote": method("primp+vote", max_iter=20),
    "panpal+aligned-mean": method("panpal+aligned-mean", max_iter=20),
    "sofa+vote": method("sofa+vote"),
    "faststep+or": method("faststep+or", max_iter=5),
    "c-salt+vote": method("c-salt+vote", max_iter=10),
    "asso+or, refined": method("asso+or", refine=True),
    "bmf, private": method("bmf", effort="fast", privacy={"epsilon": 8.0}),
    "bmf, private, scores": method("bmf", effort="fast", privacy={"epsilon": 8.0, "score_share": 0.2}),
    "bmf, private statistics": method("bmf", privacy={"epsilon": 8.0, "mechanism": "statistics", "rounds": 3}),
    "bmf, private hybrid": method("bmf", effort="fast", privacy={"epsilon": 8.0, "mechanism": "hybrid", "rounds": 2}),
    "bmf, private shares": method("bmf", effort="fast", privacy={"epsilon": 8.0, "noise": "distributed"}),
    "felb, private": method("felb", max_iter=3, privacy={"epsilon": 50.0, "unit": "client", "theta": 5.0}),
    "asso+vote, private": method("asso+vote", privacy={"epsilon": 300.0, "unit": "client"}),
}
"""Name -> makes the algorithm, for M features. What stands before a comma is a method of the command line.

Of the post-hoc methods there is one for each centralized model, and among them each plain aggregation and some aligned
ones: a model and an aggregation know nothing of each other.
"""


def pytest_generate_tests(metafunc):
    """Take the algorithms of the module that asks, which may be one that has imported these tests."""
    if "algorithm" in metafunc.fixturenames:
        table = metafunc.module.ALGORITHMS
        metafunc.parametrize("algorithm", table.values(), ids=table.keys(), indirect=True, scope="module")


@pytest.fixture(scope="module")
def algorithm(request):
    pytest.importorskip("dp_accounting")
    pytest.importorskip("opendp")
    with seeded_noise():
        yield made(request.param)


@functools.cache
def made(make):
    """Calibrating noise takes a while."""
    return make()


def simulated(algorithm, **options):
    """Run on the engine for one process; with distributed noise, by secure sums."""
    distributed = algorithm.privacy is not None and algorithm.privacy.distributed
    return run(algorithm, SHARDS, **{"seed": SEED, "secure": distributed, **options})


@pytest.fixture(scope="module")
def whole(algorithm):
    """One undisturbed run on the engine for one process."""
    return simulated(algorithm)


@pytest.fixture(scope="module")
def played(algorithm):
    """One undisturbed run, in which everything that happens at clients is watched."""
    watched = Watched(algorithm)
    return Played(play(algorithm, watched, seed=SEED), watched)


@dataclass
class Played:
    run: object
    watched: object


@dataclass
class Told:
    """One client's part in one round."""

    client: str
    request: object
    update: object
    released: object


class Watched:
    """A transport that writes down what its clients are asked, hold and tell, and checks that they change nothing.

    Parameters
    ----------
    backwards : the clients' releases are added in the opposite order
    """

    def __init__(self, algorithm, *, backwards=False):
        self.algorithm, self.backwards, self.states = algorithm, backwards, ClientStates()
        self.gates = {name: gate_of(algorithm, name) for name in SHARDS}
        self.told, self.changed = [], set()

    def ask(self, request):
        states, releases = dict(self.states.states), []
        for name in sorted(SHARDS, reverse=self.backwards):
            state, shard = states.get(name), SHARDS[name]
            kept = copy.deepcopy((plain(state), plain(request), plain(shard)))
            states[name], update = compute_update(self.algorithm, state, shard, request, name=name, seed=SEED)
            sent = copy.deepcopy(plain(update.values))
            noise = random_stream(SEED, NOISE_STREAM, request.round, name)
            release = self.gates[name].release(update, request, self.algorithm.expected(request), rng=noise)
            if not (same((plain(state), plain(request), plain(shard)), kept) and same(plain(update.values), sent)):
                self.changed.add((request.round, request.task, name))
            releases.append(release)
            self.told.append(Told(name, request, update, release))
        self.states = ClientStates(request.round, states)
        return Sums.of(releases, number=request.round)

    def restore(self, states):
        self.states = states


def gate_of(algorithm, name):
    if algorithm.privacy is None:
        return Gate(name, lambda record: None)
    plan = algorithm.privacy
    return Gate.private(name, lambda record: None, plan=plan, responses=Responses(plan.accountant()))


def plain(value):
    """Return an object as nested containers of arrays and numbers, which can be copied and compared."""
    if isinstance(value, BinaryMatrix):
        return {"indptr": value.indptr, "indices": value.indices, "shape": value.shape}
    if is_dataclass(value):
        return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return {name: plain(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def same(a, b):
    """Tell whether two nested containers hold the same bits."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f")


def assert_same(a, b):
    """Two runs found the same by the same way, to the last bit."""
    assert same(plain(a.outcome), plain(b.outcome))
    assert same(tuple(map(dict, a.history)), tuple(map(dict, b.history)))
    assert same(dict(a.assignments), dict(b.assignments))


def assert_usable(finished, algorithm):
    """The components are Boolean, and every client that played has its assignment, which the counts are those of."""
    outcome = finished.outcome
    assert outcome.components.dtype == bool
    assert outcome.components.ndim == 2
    assert outcome.components.shape[1] == M
    for name, U in finished.assignments.items():
        assert U.dtype == bool
        assert U.shape == (len(SHARDS[name]), len(outcome.components))
    assert finished.history[-1]["task"].startswith("assign")
    if algorithm.privacy is None:
        pairs = [(SHARDS[name], U) for name, U in finished.assignments.items()]
        assert outcome.counts == sum(confusion(shard, U, outcome.components) for shard, U in pairs)
        np.testing.assert_array_equal(outcome.supports, sum(U.sum(axis=0) for _, U in pairs))


# -- the list --------------------------------------------------------------------------------------------------------


def test_every_method_is_registered():
    listed = {name.split(",")[0] for name in ALGORITHMS}
    assert {entry.name for entry in FEDERATED} <= listed
    post_hoc = {name for name in listed if METHODS[name].post_hoc}
    assert {name.split("+")[0] for name in post_hoc} == {entry.name for entry in CENTRALIZED}
    assert {name.split("+")[1].removeprefix("aligned-") for name in post_hoc} == {"mean", "vote", "or"}


def test_every_task_has_a_phase_for_people():
    known = [(name, spec) for make in ALGORITHMS.values() for name, spec in made(make).tasks.items()]
    found = all_tasks()
    assert found.keys() - dict(known).keys() == {"centralized_search"}, "of an owner of all rows, not of a client"
    assert dict(known).keys() <= found.keys()
    for name, spec in known:
        assert spec.phase == found[name].phase, f"two methods have a task {name}; give one of them another name"


def letters(rules):
    """Return what stands for sizes in shapes."""
    return {size for rule in rules for size in rule.shape if isinstance(size, str)}


def test_what_a_task_is_declared_to_be_is_complete(algorithm):
    """People are told what leaves in words, by a name and a phase; every run ends with an assignment."""
    for name, spec in algorithm.tasks.items():
        assert name == spec.name
        assert spec.phase
        assert spec.meaning
        assert letters(spec.inputs.values()) <= {"m", "k", *spec.sizes}, "every size of a request has a limit"
        required = letters(rule for rule in spec.inputs.values() if not rule.optional)
        assert letters(spec.outputs.values()) <= {"m", *required}, "every size of a response follows from its request"
    assert any(spec.assigns for spec in algorithm.tasks.values())


# -- determinism -----------------------------------------------------------------------------------------------------


def test_a_run_ends_with_a_result_that_can_be_used(algorithm, played):
    assert_usable(played.run, algorithm)
    assert played.run.assignments.keys() == SHARDS.keys()


def test_a_seed_fixes_everything(algorithm, played):
    assert_same(play(algorithm, Watched(algorithm), seed=SEED), played.run)


def test_the_order_of_clients_does_not_matter(algorithm, played):
    assert_same(play(algorithm, Watched(algorithm, backwards=True), seed=SEED), played.run)


def test_a_masked_run_is_the_same_as_one_in_the_clear(algorithm, whole):
    assert_same(simulated(algorithm, secure=True), whole)


def test_the_threads_of_the_engine_do_not_matter(algorithm, whole):
    assert_same(simulated(algorithm, workers=3), whole)


# -- journal ---------------------------------------------------------------------------------------------------------


class Nobody:
    """A transport that must not be asked."""

    def __init__(self, states):
        self.states = states

    def ask(self, request):
        raise AssertionError(f"round {request.round} was asked again")

    def restore(self, states):
        self.states = states


def test_a_finished_run_is_replayed_from_its_journal_without_asking_anybody(algorithm, played, tmp_path):
    watched = Watched(algorithm)
    play(algorithm, watched, seed=SEED, journal=Journal(tmp_path))
    assert_same(play(algorithm, Nobody(watched.states), seed=SEED, journal=Journal(tmp_path)), played.run)


def test_a_run_that_is_interrupted_and_resumed_ends_as_if_undisturbed(algorithm, whole, tmp_path):
    """It stops after the first round, half way, and before the assignment."""
    rounds = len(whole.history)
    options = {"responses": kept_responses(algorithm)}
    for after in sorted({1, max(1, rounds // 2), rounds - 1}):

        def interrupt(progress, after=after):
            if len(progress.history) == after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            simulated(algorithm, journal=Journal(tmp_path), on_round=interrupt, **options)
    assert_same(simulated(algorithm, journal=Journal(tmp_path), **options), whole)


def kept_responses(algorithm):
    """Responses of the clients of a private run, which outlive an interruption."""
    if algorithm.privacy is None:
        return None
    kept = {name: Responses(algorithm.privacy.accountant()) for name in SHARDS}
    return kept.__getitem__


# -- participation ---------------------------------------------------------------------------------------------------


def test_clients_may_drop_out(algorithm, played):
    finished = run_with(algorithm, Participation(dropout=0.4))
    everybody = {told.request.round for told in played.watched.told if told.request.all_clients}
    if finished is not None:
        missed = [row["round"] for row in finished.history if row["clients"] < len(SHARDS)]
        assert missed or len(everybody) == len(played.run.history), "nobody dropped out of a round where one may"


def test_a_client_may_join_late(algorithm):
    finished = run_with(algorithm, Participation(joins={"d": 1}))
    if finished is not None:
        assert [row["clients"] for row in finished.history] == [3] + [4] * (len(finished.history) - 1)
        assert finished.assignments.keys() == SHARDS.keys()


def run_with(algorithm, participation):
    """Run to a result that can be used; None where it is refused since shares of the noise would be missing."""
    plan = algorithm.privacy
    if plan is not None and plan.privacy.noise == "distributed":
        with pytest.raises(InputError, match="all clients"):
            simulated(algorithm, participation=Participation(joins={"d": 1}))
        return None
    finished = simulated(algorithm, participation=participation)
    assert_usable(finished, algorithm)
    return finished


# -- what leaves -----------------------------------------------------------------------------------------------------


def test_only_declared_tasks_and_arrays_leave(algorithm, played):
    for told in played.watched.told:
        declared = algorithm.expected(told.request)
        assert {name: np.shape(value) for name, value in told.released.values.items()} == {
            name: shape for name, (_, shape) in declared.items()
        }
        assert told.released.values.keys() == told.update.values.keys()


def test_what_leaves_looks_alike_whatever_the_rows_of_a_client_are(algorithm, played):
    """So a server admits it: names, shapes, types and bounds are those that the algorithm declares."""
    validator = ResponseValidator(algorithm)
    for told in played.watched.told:
        validator.check(told.released.values, told.request, client=told.client)


def test_sums_are_within_their_bounds(algorithm, played):
    """Whole numbers and grids leave room for a sum over very many clients that is exact."""
    for told in played.watched.told:
        for name, value in told.released.values.items():
            array = np.asarray(value)
            assert array.dtype.kind in "biuf"
            assert np.all(np.isfinite(array))
            if array.dtype.kind in "iu":
                assert np.abs(array.astype(np.int64)).max(initial=0) <= MOST, name
            elif array.dtype.kind == "f" and algorithm.privacy is None:
                bits = algorithm.expected(told.request)[name][0].bits
                units = np.ldexp(array.astype(np.float64), bits)
                assert np.array_equal(units, np.rint(units)), f"{name} of {told.request.task} is not on a grid"


def test_under_a_specification_the_part_of_one_record_is_bounded(algorithm, played):
    """A sum over records moves by at most its declared sensitivity if a record is left out; uploads are clipped."""
    plan = algorithm.privacy
    if plan is None:
        assert all(not told.update.record_sums for told in played.watched.told)
        return
    rng = np.random.default_rng(0)
    if plan.uploads is not None:
        assert all(set(told.update.values) <= {UPLOADS} for told in played.watched.told)
        if isinstance(mechanism := plan.upload_mechanism(), ClippedGaussian):
            large = np.full((K, M), 1e6)
            clipped, cost = mechanism.release(UPLOADS, large, rng=rng)
            assert np.linalg.norm(clipped) < np.linalg.norm(large)
            assert cost is not None
        return
    for told in played.watched.told:
        assert told.update.record_sums.keys() == told.update.values.keys()
        shard = SHARDS[told.client]
        # As a client that is new to the run, since a state holds rows.
        _, update = compute_update(algorithm, None, shard, told.request, name="new", seed=SEED)
        for left_out in rng.choice(len(shard), 3, replace=False):
            rest = shard.take(np.delete(np.arange(len(shard)), left_out))
            _, without = compute_update(algorithm, None, rest, told.request, name="new", seed=SEED)
            for name, part in update.record_sums.items():
                moved = np.linalg.norm(part.values - without.record_sums[name].values)
                assert moved <= part.sensitivity * (1 + 1e-12), (told.request.task, name)


def test_nothing_that_a_client_is_given_is_changed(algorithm, played):
    assert played.watched.told
    assert played.watched.changed == set()
