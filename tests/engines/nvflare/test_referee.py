"""No bad answer enters a sum, and the error says whose it was."""

import numpy as np
import pytest

from felb.datasets import partition, planted
from felb.datasets.shards import split
from felb.engines import run
from felb.engines.nvflare.plan import Plan
from felb.engines.nvflare.referee import Referee
from felb.engines.nvflare.rounds import Answers
from felb.engines.nvflare.wire import pack
from felb.errors import FederationError
from felb.estimators.methods import FEDERATED
from felb.federated.messages import Broadcast, Total
from felb.linalg.binary import BinaryMatrix

RECIPE = Plan("r1", "felb-mu", 3, 8).recipe()
START = RECIPE.server.broadcast(RECIPE.server.start(0))
QUESTION = Broadcast("factorize", 4, {"V": np.full((3, 8), 0.5, np.float32)})
ASSIGN = Broadcast("assign", 5, {"components": np.ones((3, 8), bool)}, everyone=True)
V = np.ones((3, 8), np.int64)


@pytest.fixture(scope="module")
def referee():
    return Referee(RECIPE, 8)


def good(referee, broadcast=QUESTION):
    return {name: np.ones(e.shape, e.dtype) for name, e in referee.expect(broadcast).items()}


def test_it_knows_what_answers_look_like(referee):
    assert {name: (e.shape, e.dtype) for name, e in referee.expect(START).items()} == {"sketch": ((8, 8), np.int64)}
    assert {name: (e.shape, e.dtype) for name, e in referee.expect(QUESTION).items()} == {
        "V": ((3, 8), np.int64),
        "curvature": ((3,), np.int64),
        "loss": ((), np.float64),
    }
    assert referee.expect(ASSIGN)["counts"].shape == (4,)
    release = referee.admit(pack(good(referee)), QUESTION, site="a")
    np.testing.assert_array_equal(release.values["V"], V)


def test_every_pass_of_an_alignment_is_answered_alike():
    recipe = Plan("r1", "asso+aligned-vote", 3, 8).recipe()
    referee, state, rng = Referee(recipe, 8), recipe.server.start(0), np.random.default_rng(0)
    site, shard, asked = None, BinaryMatrix.of(rng.random((30, 8)) < 0.5), []
    while (question := recipe.server.broadcast(state)) is not None:
        site, update = recipe.client.step(site, shard, question, rng=rng)
        release = referee.admit(pack(update.values), question, site="a")
        state = recipe.server.combine(release.values, 1, state)
        asked.append(question.task)
    assert asked == ["align", "align", "assign"]
    with pytest.raises(FederationError, match=r"rejected.*shape"):
        referee.admit(
            pack({**update.values, "supports": np.ones(4, int)}), Broadcast("assign", 2, ASSIGN.values), site="a"
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: {**v, "loss": np.asarray(np.nan)}, "NaN or infinity"),
        (lambda v: {**v, "loss": np.asarray(np.inf)}, "NaN or infinity"),
        (lambda v: {**v, "V": np.ones((8, 3), np.int64)}, "shape"),
        (lambda v: {**v, "V": np.ones((3, 8), np.float32)}, "type"),
        (lambda v: {**v, "V": np.full((3, 8), np.nan, np.float32)}, "type"),
        (lambda v: {**v, "V": np.full((3, 8), np.iinfo(np.int64).max)}, "no data can have"),
        (lambda v: {**v, "V": np.ones((3000, 800), np.int64)}, "at most"),
        (lambda v: {**v, "U": np.ones(3)}, "instead of"),
        (lambda v: {"V": v["V"]}, "instead of"),
    ],
)
def test_bad_answers_are_rejected_by_name(referee, change, said):
    with pytest.raises(FederationError, match=rf"hospital-b .*rejected.*{said}"):
        referee.admit(pack(change(good(referee))), QUESTION, site="hospital-b")


def test_impossible_counts_are_rejected(referee):
    values = good(referee, ASSIGN)
    values["counts"][0] = np.iinfo(values["counts"].dtype).max
    with pytest.raises(FederationError, match="no data can have"):
        referee.admit(pack(values), ASSIGN, site="a")


@pytest.mark.parametrize("data", [None, b"", b"garbage", "text", {"V": V}])
def test_what_is_no_message_is_rejected(referee, data):
    with pytest.raises(FederationError, match="rejected"):
        referee.admit(data, QUESTION, site="a")


def test_a_late_or_second_answer_does_not_count(referee):
    answers, release = Answers(), referee.admit(pack(good(referee)), QUESTION, site="a")
    answers.fail("b", "was away")
    answers.add("a", release)
    answers.add("a", referee.admit(pack({**good(referee), "V": 2 * V}), QUESTION, site="a"))
    assert answers.counts() == (1, 1)
    releases, reasons = answers.taken()
    answers.add("b", release)
    assert (list(releases), reasons) == (["a"], {"b": "was away"})
    np.testing.assert_array_equal(releases["a"].values["V"], V)
    assert answers.counts() == (1, 1)


@pytest.mark.parametrize("method", [method.name for method in FEDERATED])
def test_answers_of_every_federated_method_are_admitted_and_lead_to_the_local_result(method):
    """Every method can be deployed: a plan makes its recipe, and what clients send passes the wire and the check."""
    parameters = {"effort": "fast"} if method == "bmf" else {"max_iter": 6}
    recipe = Plan("r1", method, 3, 12, parameters).recipe()
    shards = split(planted(60, 12, 3, noise=0.02, seed=0).A, partition.uneven(60, 3, seed=0))[0]
    referee, state, clients = Referee(recipe, 12), recipe.server.start(0), {}
    while (broadcast := recipe.server.broadcast(state)) is not None:
        total = Total()
        for site, shard in shards.items():
            clients[site], update = recipe.client.step(
                clients.get(site), shard, broadcast, rng=np.random.default_rng(0)
            )
            total.add(referee.admit(pack(update.values), broadcast, site=site))
        state = recipe.server.combine(total.values, total.n_clients, state)
    expected = run(recipe, shards, seed=0).outcome
    np.testing.assert_array_equal(recipe.server.outcome(state).components, expected.components)
