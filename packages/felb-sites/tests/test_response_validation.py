"""No bad answer enters a sum, and the error says whose it was."""

import numpy as np
import pytest

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run
from felb.errors import FederationError
from felb.federated.algorithms.registry import FEDERATED, METHODS
from felb.federated.client import Client
from felb.federated.gate import Gate
from felb.federated.journal import pack
from felb.federated.loop import Execution
from felb.federated.protocol import Request, Sums
from felb_sites.response_validation import ResponseValidator
from felb_sites.rounds import Answers
from felb_sites.run_plan import Plan

ALGORITHM = Plan("r1", "felb-mu", 3, 8).algorithm()
REQUEST = Request("local_factor", t=0, V=np.full((3, 8), 0.5, np.float32))
ASSIGN = Request("assign", components=np.ones((3, 8), bool), all_clients=True)
V = np.ones((3, 8), np.int64)


@pytest.fixture(scope="module")
def validator():
    return ResponseValidator(ALGORITHM)


def good(request=REQUEST):
    """Return a response of ones; those of counts have as many wrong cells as fit."""
    return {
        name: np.ones(shape, np.float64 if output.kind == "f" else np.int64)
        for name, (output, shape) in ALGORITHM.expected(request).items()
    }


def test_a_good_answer_is_read_as_it_was_written(validator):
    release = validator.admit(pack(good()), REQUEST, site="a")
    np.testing.assert_array_equal(release.values["V"], V)
    assert release.values.keys() == {"V", "curvature", "loss"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: {**v, "loss": np.asarray(np.nan)}, "NaN, infinity"),
        (lambda v: {**v, "loss": np.asarray(np.inf)}, "NaN, infinity"),
        (lambda v: {**v, "V": np.ones((8, 3), np.int64)}, "shape"),
        (lambda v: {**v, "V": np.ones((3, 8), np.float32)}, "type"),
        (lambda v: {**v, "V": np.full((3, 8), np.nan, np.float32)}, "type"),
        (lambda v: {**v, "V": np.full((3, 8), np.iinfo(np.int64).max)}, "no data can have"),
        (lambda v: {**v, "V": np.ones((3000, 800), np.int64)}, "at most"),
        (lambda v: {**v, "U": np.ones(3)}, "instead of"),
        (lambda v: {"V": v["V"]}, "instead of"),
    ],
)
def test_bad_answers_are_rejected_by_name(validator, change, said):
    with pytest.raises(FederationError, match=rf"hospital-b .*rejected.*{said}"):
        validator.admit(pack(change(good())), REQUEST, site="hospital-b")


def test_impossible_counts_are_rejected(validator):
    values = good(ASSIGN)
    values["counts"][0] = np.iinfo(values["counts"].dtype).max
    with pytest.raises(FederationError, match="no data"):
        validator.admit(pack(values), ASSIGN, site="a")


@pytest.mark.parametrize(
    "change",
    [
        {"counts": np.array([-(2**62), 0, 0, 24])},
        {"counts": np.array([20, 20, 20, 24])},
        {"counts": np.array([0, 0, 0, 2**62])},
        {"supports": np.array([-1, 0, 0])},
    ],
)
def test_a_sum_that_no_rows_can_give_is_rejected_also_where_nobody_sees_its_parts(validator, change):
    true = {name: 3 * np.asarray(value, np.int64) for name, value in good(ASSIGN).items()}
    true["counts"] = np.array([6, 6, 6, 24])
    validator.check_sum(Sums(true, 3), ASSIGN)
    with pytest.raises(FederationError, match="sum of round 0 was rejected"):
        validator.check_sum(Sums({**true, **change}, 3), ASSIGN)


@pytest.mark.parametrize("data", [None, b"", b"garbage", "text", {"V": V}])
def test_what_is_no_message_is_rejected(validator, data):
    with pytest.raises(FederationError, match="rejected"):
        validator.admit(data, REQUEST, site="a")


def test_a_late_or_second_answer_does_not_count(validator):
    answers, release = Answers(), validator.admit(pack(good()), REQUEST, site="a")
    answers.fail("b", "was away")
    answers.add("a", release)
    answers.add("a", validator.admit(pack({**good(), "V": 2 * V}), REQUEST, site="a"))
    assert answers.counts() == (1, 1)
    releases, reasons = answers.taken()
    answers.add("b", release)
    assert (list(releases), reasons) == (["a"], {"b": "was away"})
    np.testing.assert_array_equal(releases["a"].values["V"], V)
    assert answers.counts() == (1, 1)


@pytest.mark.parametrize("method", [method.name for method in FEDERATED])
def test_answers_of_every_federated_method_are_admitted_and_lead_to_the_local_result(method):
    """Every method can be deployed: a plan makes its algorithm, and what clients send passes the wire and the check."""
    brief = {"effort": "fast", "max_iter": 6}
    parameters = {name: brief[name] for name in METHODS[method].parameters() if name in brief}
    algorithm = Plan("r1", method, 3, 12, parameters).algorithm()
    shards = split(planted(60, 12, 3, noise=0.02, seed=0).A, partition.uneven(60, 3, seed=0))[0]
    validator, execution, states = ResponseValidator(algorithm), Execution(algorithm, seed=0), {}
    while (request := execution.request) is not None:
        releases = []
        for site, shard in shards.items():
            client = Client(site, algorithm, Gate(site, lambda _: None), seed=0)
            states[site], release = client.answer(states.get(site), shard, request)
            releases.append(validator.admit(pack(release.values), request, site=site))
        sums = Sums.of(releases)
        validator.check_sum(sums, request)
        execution.receive(sums)
    expected = run(algorithm, shards, seed=0).outcome
    np.testing.assert_array_equal(execution.outcome.components, expected.components)
