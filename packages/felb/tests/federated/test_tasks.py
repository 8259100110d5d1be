"""What a task declares is held to, in requests, in responses and in sums; a request may have several parts."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from declarations import algorithm_with

from felb.data.binary import BinaryMatrix
from felb.engines.local import plain_sums, run
from felb.errors import FederationError
from felb.federated.algorithms import all_tasks, count_rounds_by_phase, phase_of
from felb.federated.client import Client, read_assignment
from felb.federated.gate import Gate, StoredResponses
from felb.federated.journal import Journal, digest, states_from_arrays, states_to_arrays
from felb.federated.protocol import Outcome, Part, Request, Sums, Update
from felb.federated.tasks import (
    MOST,
    MOST_ROWS,
    ROWS,
    Bounds,
    Input,
    Limits,
    Output,
    ResponseValidator,
    TaskSpec,
    declare,
    require,
)
from felb.secure_sum.releases import MaskedSums, read_bits

M, K = 4, 3
LIMITS = Limits(M, K, node_cap=50)
SHARDS = {name: BinaryMatrix.of(np.random.default_rng(i).random((5 + i, M)) < 0.5) for i, name in enumerate("abcd")}


@dataclass(frozen=True)
class State:
    """Private to a client of these tests: how often it was asked."""

    asked: int = 0
    assigned: np.ndarray | None = None


def count(work):
    """Count ones of columns, times a factor; a state counts the requests."""
    ones = work.rows.to_scipy(np.int64).sum(axis=0) * int(work.values["factor"])
    state = State(1 if work.state is None else work.state.asked + 1)
    return state, Update({"ones": np.asarray(ones).ravel(), "rows": np.asarray(len(work.rows))})


def draw(work):
    return work.state, Update({"number": np.asarray(float(work.rng.integers(100)))})


def assign(work):
    V = np.asarray(work.values["components"], dtype=bool)
    return State(assigned=np.ones((len(work.rows), len(V)), dtype=bool)), Update({})


def check_order(told, values, bounds):
    require(np.diff(told["ones"]) <= bounds.clients, "ones grow too fast")


COUNT = TaskSpec(
    "count",
    "counting",
    count,
    "ones of each column",
    {"factor": Input("i", (), 1, 3)},
    {"ones": Output("i", ("m",), high="cells"), "rows": ROWS},
)
DRAW = TaskSpec("draw", "drawing", draw, "a number", outputs={"number": Output("f", bits=2)})
ASSIGN = TaskSpec("assign", "assignment", assign, "nothing", {"components": Input("b", ("k", "m"))}, assigns=True)
ASK = TaskSpec(
    "ask",
    "asking",
    draw,
    "nothing",
    {
        "V": Input("f", ("k", "m"), 0.0, 1.0),
        "flags": Input("b", ("k",), optional=True),
        "places": Input("i", ("p",), 0, lambda limits: limits.n_features - 1, unique=True, optional=True),
        "cap": Input("i", (), 1, lambda limits: limits.node_cap, optional=True),
        "even": Input("i", (), allowed=lambda value, limits: int(value) % limits.n_components == 0, optional=True),
    },
    sizes={"p": 2},
)
ALGORITHM = algorithm_with(COUNT, DRAW, ASSIGN, ASK, limits=LIMITS, state_type=State)
V = np.zeros((2, M))


# -- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"V": V},
        {"V": V.astype(int)},
        {"V": V.astype(np.float32), "flags": [True, False], "places": [3, 0], "cap": 50, "even": 6},
        {"V": np.zeros((0, M)), "flags": np.zeros(0, bool)},
        {"V": np.ones((K, M)), "places": np.zeros(0, int)},
    ],
)
def test_what_is_declared_may_be_asked(values):
    ALGORITHM.check_request(Request(ASK, **values))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "does not hold the values"),
        ({"V": V, "extra": 1}, "does not hold the values"),
        ({"V": V.astype(bool)}, "V of the request is of another type"),
        ({"V": V, "cap": 2.0}, "cap of the request is of another type"),
        ({"V": V, "flags": [1, 0]}, "flags of the request is of another type"),
        ({"V": V[0]}, "V of the request has another shape"),
        ({"V": V[:, :2]}, "V of the request has another shape"),
        ({"V": V, "flags": [True]}, "flags of the request has another shape"),
        ({"V": V, "cap": [3]}, "cap of the request has another shape"),
        ({"V": np.zeros((K + 1, M))}, "larger than the algorithm allows"),
        ({"V": V, "places": [0, 1, 2]}, "larger than the algorithm allows"),
        ({"V": V + 1.5}, "V of the request is out of the range"),
        ({"V": V + np.nan}, "V of the request is out of the range"),
        ({"V": V, "cap": 51}, "cap of the request is out of the range"),
        ({"V": V, "cap": 0}, "cap of the request is out of the range"),
        ({"V": V, "places": [M, 0]}, "places of the request is out of the range"),
        ({"V": V, "places": [1, 1]}, "places of the request holds an entry twice"),
        ({"V": V, "even": 4}, "even of the request is not what the plan says"),
    ],
)
def test_nothing_else_may_be_asked(values, said):
    with pytest.raises(FederationError, match=said):
        ALGORITHM.check_request(Request(ASK, **values))
    with pytest.raises(FederationError, match=said):
        answered("a", Request(ASK, **values))


def test_a_task_that_is_not_declared_is_not_done():
    with pytest.raises(FederationError, match="unknown task 'shell'; this client knows ask, assign, count, draw"):
        ALGORITHM.check_request(Request("shell"))


def test_a_client_does_not_answer_from_memory_what_it_would_not_do(tmp_path):
    responses = StoredResponses(tmp_path, None, charged=False)
    responses.keep(Request(ASK, V=V + 9), {"number": np.asarray(1.0)})
    client = Client("a", ALGORITHM, Gate("a", lambda _: None, responses=responses), seed=0)
    with pytest.raises(FederationError, match="out of the range"):
        client.answer(None, SHARDS["a"], Request(ASK, V=V + 9))


# -- responses -------------------------------------------------------------------------------------------------------


def told(**changes):
    return {"ones": np.array([3, 2, 2, 1]), "rows": np.asarray(5), **changes}


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ({"ones": np.zeros(M, int)}, "instead of"),
        (told(extra=np.zeros(1)), r"extra.* instead of"),
        (told(**{"lane.ones": np.zeros(1)}), "instead of"),
        (told(ones=np.zeros(3, int)), "ones has shape"),
        (told(rows=np.ones(1, int)), "rows has shape"),
        (told(ones=np.zeros(M)), "ones is of type float64"),
        (told(rows=np.asarray(np.nan)), "rows is of type float64"),
        (told(ones=np.array([3, 2, 2, -1])), "ones holds a number below 0"),
        (told(ones=np.array([21, 2, 2, 1])), "ones holds more than 20"),
        (told(rows=np.asarray(MOST_ROWS + 1)), "rows holds more than"),
        (told(ones=np.array([2 * MOST, 2, 2, 1])), "no data can have"),
    ],
)
def test_a_response_is_held_to_its_declaration(response, said):
    validator, asked = ResponseValidator(ALGORITHM), Request(COUNT, factor=1)
    validator.check(told(), asked, client="a")
    with pytest.raises(FederationError, match=f"the response of b to round 0 was rejected: .*{said}"):
        validator.check(response, asked, client="b")


def test_a_sum_is_held_to_as_many_times_the_bounds():
    validator, asked = ResponseValidator(ALGORITHM), Request(COUNT, factor=1)
    sums = {"ones": np.array([60, 0, 0, 0]), "rows": np.asarray(15)}
    validator.check_sum(Sums(sums, 3), asked)
    with pytest.raises(FederationError, match="the sum of round 0 was rejected: ones holds more than 60"):
        validator.check_sum(Sums({**sums, "ones": np.array([61, 0, 0, 0])}, 3), asked)
    with pytest.raises(FederationError, match="rows holds more than"):
        validator.check_sum(Sums({**sums, "rows": np.asarray(3 * MOST_ROWS + 1)}, 3), asked)


def test_what_is_left_of_a_sum_without_the_own_part_must_be_possible_for_the_others():
    validator, asked = ResponseValidator(ALGORITHM), Request(COUNT, factor=1)
    sums = Sums({"ones": np.array([30, 5, 0, 0]), "rows": np.asarray(15)}, 3)
    validator.check_sum(sums, asked, own={"ones": np.array([20, 5, 0, 0]), "rows": np.asarray(5)})
    for own in ([20, 6, 0, 0], [0, 0, 0, 1]):
        with pytest.raises(FederationError, match="ones holds a number below 0"):
            validator.check_sum(sums, asked, own={"ones": np.array(own), "rows": np.asarray(5)})
    with pytest.raises(FederationError, match="no data can have"):
        validator.check_sum(Sums(dict(sums), 1), asked, own={"ones": np.array([20, 5, 0, 0]), "rows": np.asarray(15)})


@pytest.mark.parametrize(("high", "most"), [("rows", 10), ("cells", 40), (7.0, 14)])
def test_bounds_grow_with_clients_rows_or_cells(high, most):
    assert Bounds(n_features=M, clients=2, rows=10).greatest(high) == most


def test_real_numbers_are_finite():
    validator = ResponseValidator(ALGORITHM)
    validator.check({"number": np.asarray(2.5)}, Request(DRAW), client="a")
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(FederationError, match="number holds NaN, infinity"):
            validator.check({"number": np.asarray(bad)}, Request(DRAW), client="a")


def test_what_must_hold_between_numbers_is_checked_of_responses_and_sums():
    algorithm = algorithm_with(replace(COUNT, relations=check_order), limits=LIMITS)
    validator, asked = ResponseValidator(algorithm), Request(COUNT, factor=1)
    validator.check(told(ones=np.array([1, 2, 3, 4])), asked, client="a")
    with pytest.raises(FederationError, match="ones grow too fast"):
        validator.check(told(ones=np.array([1, 3, 3, 3])), asked, client="a")
    validator.check_sum(Sums(told(ones=np.array([1, 3, 3, 3])), 2), asked)


def test_arrays_of_a_response_may_depend_on_the_request():
    spec = replace(
        ASK,
        outputs={
            "parts": Output("i", (lambda sizes, values: sizes["k"] + int(values["cap"]), "m")),
            "chosen": Output("i", ("k",), when=lambda values: "flags" in values),
        },
    )
    assert {name: shape for name, (_, shape) in spec.expected({"V": V, "cap": np.asarray(3)}, M).items()} == {
        "parts": (5, M)
    }
    asked = Request(spec, V=V, cap=3, flags=[True, False])
    assert {name: shape for name, (_, shape) in spec.expected(asked.values, M).items()} == {
        "parts": (5, M),
        "chosen": (2,),
    }
    assert ResponseValidator(algorithm_with(spec, limits=LIMITS)).most_bytes(asked) == (1 << 14) + 8 * (5 * M + 2)


def test_a_task_that_tells_something_else_than_it_declares_sends_nothing():
    log = []
    algorithm = algorithm_with(replace(COUNT, outputs={"ones": COUNT.outputs["ones"]}), limits=LIMITS)
    client = Client("a", algorithm, Gate("a", log.append), seed=0)
    with pytest.raises(FederationError, match="nothing was sent"):
        client.answer(None, SHARDS["a"], Request(COUNT, factor=1))
    assert not log


# -- words -----------------------------------------------------------------------------------------------------------


def test_phases_are_those_of_the_declarations():
    assert {phase_of(name) for name in ("gram_sketch", "sign_norms")} == {"initialisation"}
    assert phase_of("column_counts") == "column counts", "a task of another package"
    assert all(spec.phase and spec.meaning for spec in all_tasks().values())
    rounds = {"gram_sketch": 2, "flip_gains": 5, "sign_norms": 1}
    assert count_rounds_by_phase(rounds) == {"initialisation": 3, phase_of("flip_gains"): 5}


# -- several parts in one request ------------------------------------------------------------------------------------


def two_parts(number=0):
    """Ask for counts in two lanes, and a number in a third."""
    parts = [
        Part("count", {"factor": np.asarray(1)}, "one"),
        Part("count", {"factor": np.asarray(2)}, "two"),
        Part("draw", {}),
    ]
    return Request.of(parts, number=number)


def answered(name, request, states=None, log=None):
    return Client(name, ALGORITHM, Gate(name, lambda record: log is None or log.append(record)), seed=0).answer(
        states, SHARDS[name], request
    )


@pytest.mark.parametrize("lanes", [[], ["x", "x"], ["", ""], ["a.b"], ["a:b"], ["a b"]])
def test_every_part_has_a_lane_of_its_own(lanes):
    with pytest.raises(FederationError, match="a lane of its own"):
        Request.of([Part("draw", {}, lane) for lane in lanes])


def test_a_request_of_several_parts_is_answered_in_one_round():
    log = []
    states, release = answered("a", two_parts(), log=log)
    ones = SHARDS["a"].toarray().sum(axis=0)
    np.testing.assert_array_equal(release.values["one.ones"], ones)
    np.testing.assert_array_equal(release.values["two.ones"], 2 * ones)
    assert release.values.keys() == {"one.ones", "one.rows", "two.ones", "two.rows", "number"}
    assert states == {"one": State(1), "two": State(1), "": None}
    assert [(record.task, record.what) for record in log] == [
        ("count", "one.ones"),
        ("count", "one.rows"),
        ("count", "two.ones"),
        ("count", "two.rows"),
        ("draw", "number"),
    ]


def test_states_go_on_within_their_lanes_and_a_lane_that_is_not_asked_is_forgotten():
    states, _ = answered("a", two_parts())
    states, _ = answered("a", two_parts(1), states)
    states, _ = answered("a", Request.of([Part("count", {"factor": np.asarray(1)}, "two")], number=2), states)
    assert states == {"two": State(3)}


def test_randomness_of_lanes_is_their_own():
    parts = [Part("draw", {}, lane) for lane in ("", "x", "y")]
    _, release = answered("a", Request.of(parts))
    assert len({float(value) for value in release.values.values()}) == 3
    _, alone = answered("a", Request.of(parts[:1]))
    assert alone.values["number"] == release.values["number"], "that of a lane does not depend on the others"


def test_one_part_that_may_not_be_asked_refuses_all_of_them():
    parts = [Part("draw", {}), Part("count", {"factor": np.asarray(4)}, "x")]
    log = []
    with pytest.raises(FederationError, match="factor of the request"):
        answered("a", Request.of(parts), log=log)
    assert not log


def test_responses_of_parts_are_checked_each_by_its_task():
    validator, request = ResponseValidator(ALGORITHM), two_parts()
    values = dict(answered("a", request)[1].values)
    validator.check(values, request, client="a")
    for bad, said in (
        ({"two.ones": values["two.ones"] + 100}, "ones holds more than 20"),
        ({"two.rows": np.asarray(6)}, "the number of rows has changed"),
        ({"other.ones": values["one.ones"]}, "instead of"),
        ({"one.two.ones": values["one.ones"]}, "instead of"),
    ):
        with pytest.raises(FederationError, match=said):
            validator.check({**values, **bad}, request, client="a")
    del values["number"]
    with pytest.raises(FederationError, match="instead of"):
        validator.check(values, request, client="a")


def test_sums_of_parts_are_read_by_part_and_are_the_same_under_masks():
    request = two_parts()
    releases = {name: answered(name, request)[1] for name in SHARDS}
    plain = plain_sums(ALGORITHM)(releases, request, [])
    masked = MaskedSums.simulated(SHARDS, ALGORITHM)(releases, request, [])
    assert masked.clients == plain.clients == 4
    assert masked.keys() == plain.keys()
    assert all(np.array_equal(masked[name], plain[name]) for name in plain)
    assert read_bits(ALGORITHM, request)["number"] == 2
    one, two = (plain.part(part) for part in request.parts[:2])
    assert set(one) == {"ones", "rows"}
    np.testing.assert_array_equal(2 * one["ones"], two["ones"])
    assert int(one["rows"]) == sum(map(len, SHARDS.values()))


def test_states_of_lanes_survive_being_stored(tmp_path):
    states, _ = answered("a", two_parts())
    stored = {"one": State(1), "two": State(1)}
    assert states_from_arrays(State, states_to_arrays(states)) == stored, "a lane without a state is left out"
    responses = StoredResponses(tmp_path, None, state_type=State, charged=False)
    gate = Gate("a", lambda _: None, responses=responses)
    Client("a", ALGORITHM, gate, seed=0).answer(None, SHARDS["a"], two_parts())
    again = StoredResponses(tmp_path, None, state_type=State, charged=False)
    assert again.states_before(1) == stored
    found = again.find(two_parts())
    assert found.keys() == {"one.ones", "one.rows", "two.ones", "two.rows", "number"}
    assert again.find(Request.of(two_parts().parts[:2])) is None


def test_another_lane_is_another_request():
    parts = [Part("draw", {}, lane) for lane in ("", "x")]
    digests = {digest(Request.of(found)) for found in (parts[:1], parts[1:], parts, parts[::-1])}
    assert len(digests) == 4


def played_twice(seed):
    """A server of two steps that are played together, round by round, and an assignment at the end."""
    total = np.zeros(M, dtype=np.int64)
    for _ in range(3):
        request = two_parts()
        sums = yield request
        total = total + sum(sums.part(part)["ones"] for part in request.parts[:2])
    yield Request("assign", components=np.ones((2, M), bool), all_clients=True)
    return Outcome(components=total[None] > 0, n_iter=3)


def test_a_run_of_requests_with_several_parts_is_resumed_as_it_was(tmp_path):
    algorithm = replace(ALGORITHM, tasks=declare(COUNT, DRAW, ASSIGN), server=played_twice)
    whole = run(algorithm, SHARDS, seed=1)
    assert [row["task"] for row in whole.history] == ["count + count + draw"] * 3 + ["assign"]

    def stop(progress):
        if len(progress.history) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(algorithm, SHARDS, seed=1, journal=Journal(tmp_path), on_round=stop)
    journal = Journal(tmp_path)
    assert journal.rewind_to_states(State).states["b"] == {"one": State(2), "two": State(2)}
    again = run(algorithm, SHARDS, seed=1, journal=Journal(tmp_path))
    assert list(again.history) == list(whole.history)
    np.testing.assert_array_equal(again.outcome.components, whole.outcome.components)
    secure = run(algorithm, SHARDS, seed=1, secure=True)
    assert list(secure.history) == list(whole.history)
    assert all(U.all() for U in again.assignments.values())


def test_the_assignment_is_that_of_the_lane_that_made_one():
    U = np.ones((2, 1), bool)
    assert read_assignment({"one": State(1), "": State(assigned=U), "two": None}) is U
    assert read_assignment({"one": State(1)}) is None
    assert read_assignment(None) is None
