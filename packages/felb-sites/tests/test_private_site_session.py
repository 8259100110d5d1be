"""Private runs over sites without their network: noise and charges once, whatever dies; the site's policy decides."""

import json
import math
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse as sp
from loopback import Loopback as Federation

from felb.data import planted
from felb.data.binary import BinaryMatrix
from felb.data.partition import split
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms import private
from felb.federated.algorithms.private import Candidates
from felb.federated.gate import KEPT
from felb.federated.protocol import Part, Request
from felb.privacy import Privacy
from felb.privacy import mechanisms as discrete
from felb.privacy.accounting import Accountant, Cost, total_epsilon
from felb.runs.result import Result
from felb_sites import refusals
from felb_sites.attempts import Attempts
from felb_sites.deployed import DeployedRun, result_of
from felb_sites.refusals import note_refusal, read_refusals
from felb_sites.run_plan import Plan
from felb_sites.site_budget import Spent
from felb_sites.site_policy import Policy, Refusal, SiteConfig
from felb_sites.site_session import SiteSession

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

DATA = planted(600, 30, 3, noise=0.02, heights=(0.25, 0.25), widths=(0.2, 0.2), seed=0)
SHARDS = split(DATA.A, [f"site-{row % 3}" for row in range(600)])[0]
TERMS = {"epsilon": 1.0, "delta": 1e-5}
RELEASES = ["sizes", "cooccurrence", "choice"]


def plan_of(run_id="p1", **terms):
    return Plan(run_id, "bmf", 3, 30, {"effort": "fast"}, privacy={**TERMS, **terms}, records=600, sites=3)


class Loopback(Federation):
    """Three sites of a private run."""

    def __init__(self, folder, plan=None, **policy):
        super().__init__(folder, plan or plan_of(), SHARDS, **{"min_rows": Policy().min_rows, **policy})

    def lines(self, name="site-0"):
        return super().lines(name)

    def spent(self, name="site-0"):
        return super().spent(name)


@pytest.fixture
def quick(monkeypatch):
    """Candidates without their factorizations, where only what leaves matters."""

    def found(released, n_components, *, factorize, seed):
        V = np.zeros((2, n_components, released.M.shape[0]), dtype=bool)
        V[0, 0, :5] = V[1, 0, 5:9] = True
        return Candidates(V, 3.0)

    monkeypatch.setattr(private, "find_candidates", found)


@pytest.fixture
def seeded(monkeypatch):
    """Noise that depends on nothing but its scale and size, so that two engines draw the same."""

    def sampler(sigma, size):
        return np.rint(np.random.default_rng([int(1000 * sigma), size]).normal(0, sigma, size)).astype(np.int64)

    monkeypatch.setattr(discrete, "discrete_gaussian", sampler)


@pytest.mark.usefixtures("seeded", "quick")
def test_with_the_same_noise_it_is_the_local_engine(tmp_path):
    loop = Loopback(tmp_path)
    local = run(loop.algorithm, SHARDS, seed=loop.plan.seed)
    while loop.round():
        loop.restart()
    np.testing.assert_array_equal(loop.outcome.components, local.outcome.components)
    assert loop.history == local.history
    for name, U in local.assignments.items():
        kept = sp.load_npz(tmp_path / name / "state" / "p1" / "assignment.npz").toarray()
        np.testing.assert_array_equal(kept, U)
    result = result_of(loop.record, DeployedRun(loop.plan), federation="f")
    result.write(tmp_path, {})
    stored = Result.read(tmp_path)
    assert stored.privacy["epsilon"] == 1.0
    assert stored.privacy["clients"] == 3
    assert (stored.scores, stored.supports) == ({}, (None,) * 3)
    data = stored.provenance.data
    assert (data["rows"], data["agreed_records"]) == (None, 600), "agreed on, and counted by nobody"
    assert stored.provenance.data["ones"] is None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("method", "parameters", "terms"),
    [
        ("bmf", {"effort": "fast"}, {"mechanism": "statistics", "rounds": 3}),
        ("bmf", {"effort": "fast"}, {"mechanism": "hybrid", "rounds": 2}),
        ("bmf", {"effort": "fast"}, {"score_share": 0.05}),
        ("felb-mu", {"max_iter": 4}, {"mechanism": "uploads", "theta": 3.0}),
        ("asso+vote", {"tau": 0.8}, {"unit": "client"}),
        ("asso+aligned-vote", {"tau": 0.8}, {"unit": "client"}),
    ],
    ids=["statistics", "hybrid", "scores", "uploads", "bits", "aligned bits"],
)
def test_every_mechanism_is_charged_once_though_everything_dies_after_every_round(tmp_path, method, parameters, terms):
    agreed = {"epsilon": 1.0, **terms}
    loop = Loopback(tmp_path, Plan("p1", method, 3, 30, parameters, privacy=agreed, records=600, sites=3))
    while loop.round(save=False):
        loop.restart()
        loop.round()
        loop.restart()
    guaranteed = loop.algorithm.privacy
    lines = loop.lines()
    assert len(lines) == len({(line["round"], line["what"]) for line in lines}) > 0
    assert {line["what"] for line in lines} == set(guaranteed.shares)
    epsilon = guaranteed.privacy.epsilon
    assert 0.99 * epsilon < lines[-1]["total"]["epsilon"] <= epsilon * (1 + 1e-5)
    kind = guaranteed.unit, guaranteed.privacy.neighbours
    assert loop.spent().totals() == {kind: (epsilon, guaranteed.delta)}
    assert result_of(loop.record, DeployedRun(loop.plan), federation="f").privacy["text"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("lost", [True, False], ids=["before the journal is written", "after it"])
def test_everything_may_die_after_every_round_and_each_answer_is_charged_once(tmp_path, lost):
    loop = Loopback(tmp_path, max_epsilon=1.0, total_epsilon=1.0)
    while True:
        request = loop.request
        sent = {} if request is None else {name: loop.ask_site(name, request) for name in SHARDS}
        if not loop.round(save=not lost):
            break
        loop.restart()
        if lost:
            assert {name: loop.ask_site(name, request) for name in SHARDS} == sent, "noise is drawn once"
            assert loop.round()
    for name in SHARDS:
        lines = loop.lines(name)
        assert [line["what"] for line in lines] == RELEASES
        assert 0.999 < lines[-1]["total"]["epsilon"] <= 1.0
        assert loop.spent(name).total() == (1.0, 1e-5)


@contextmanager
def power_cut(path, **_):
    raise KeyboardInterrupt
    yield


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["felb.federated.journal.replacing", "felb_sites.site_budget.replacing"])
def test_a_site_killed_while_it_writes_neither_loses_nor_doubles_a_charge(tmp_path, monkeypatch, where):
    loop = Loopback(tmp_path, total_epsilon=1.0)
    while (request := loop.request) is not None:
        with monkeypatch.context() as patch:
            patch.setattr(where, power_cut)
            # What the run may cost is set down once, before its first response.
            if request.round == 0 or "entries" in where:
                with pytest.raises(KeyboardInterrupt):
                    loop.ask_site("site-0", request)
        loop.restart()
        loop.round()
    assert loop.spent().total() == (1.0, 1e-5)
    accountant = loop.desks["site-0"]._client.gate.accountant
    assert [entry.what for entry in accountant.entries] == RELEASES
    assert 0.999 < accountant.spent <= 1.0


@pytest.mark.usefixtures("quick")
def test_a_response_is_never_forgotten_though_old_states_are(tmp_path):
    privacy = {"epsilon": 1.0, "mechanism": "statistics", "rounds": 6}
    plan = Plan("p1", "bmf", 3, 30, {"effort": "fast"}, privacy=privacy, records=600, sites=3)
    loop = Loopback(tmp_path, plan)
    first = loop.request
    sent = loop.ask_site("site-0", first)
    while loop.round():
        pass
    loop.restart()
    assert loop.ask_site("site-0", first) == sent
    assert len(loop.lines()) == 6
    folder = loop.state("site-0") / "p1" / "responses"
    sizes = [path.stat().st_size for path in sorted(folder.iterdir())]
    assert len(sizes) == 7
    assert max(sizes[: 7 - KEPT]) < min(sizes[7 - KEPT : -1]), "their states are dropped"


@pytest.mark.usefixtures("quick")
def test_a_coordinator_that_asks_again_under_new_numbers_is_refused(tmp_path):
    loop = Loopback(tmp_path)
    loop.round()
    loop.round()
    known = loop.ask_site("site-0", loop.request)
    accountant = loop.desks["site-0"]._client.gate.accountant
    before = accountant.spent
    # Under a new number, and another bound under a known number.
    for number in (9, 1):
        other = Request.of([Part("cooccurrence", {"row_bound": np.asarray(3)})], all_clients=True, number=number)
        with pytest.raises(Refusal, match="guaranteed"):
            loop.ask_site("site-0", other)
    assert loop.ask_site("site-0", loop.request) == known
    assert accountant.spent == before
    assert before == pytest.approx(total_epsilon([entry.cost for entry in accountant.entries], 1e-5))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("change", [{"epsilon": 4.0}, {"delta": 2e-6}, {"row_bound": 3}])
def test_a_run_s_name_stands_for_one_plan(tmp_path, change):
    loop = Loopback(tmp_path)
    loop.round()
    with pytest.raises(Refusal, match="another plan"):
        SiteSession("site-0", plan_of(**change).to_json(), loop.configs["site-0"])
    unprotected = Plan("p1", "bmf", 3, 30)
    with pytest.raises(Refusal, match="another plan"):
        SiteSession("site-0", unprotected.to_json(), loop.configs["site-0"])


@pytest.mark.usefixtures("quick")
def test_a_plan_that_was_not_answered_does_not_take_its_name(tmp_path):
    loop = Loopback(tmp_path, min_rows=201)
    with pytest.raises(Refusal, match="fewer rows"):
        loop.round()
    loop.desks["site-0"].close()
    SiteSession("site-0", plan_of(epsilon=0.5).to_json(), loop.configs["site-0"])


@pytest.mark.usefixtures("quick")
def test_all_runs_together_keep_to_the_site_s_budget(tmp_path):
    first = Loopback(tmp_path, total_epsilon=2.0)
    second = Loopback(tmp_path, plan_of("p2", epsilon=0.75), total_epsilon=2.0)
    third = Loopback(tmp_path, plan_of("p3", epsilon=0.5), total_epsilon=2.0)
    for loop in (first, second):
        while loop.round():
            pass
    assert first.spent().total() == (1.75, 2e-5)
    with pytest.raises(Refusal, match="budget") as refused:
        third.round()
    assert "1.75" not in str(refused.value), "what other runs cost is nobody's business"
    assert [line["run"] for line in third.lines()] == ["p1"] * 3 + ["p2"] * 3
    assert set(third.spent().runs()) == {"p1", "p2"}
    first.restart()
    assert first.round() is False


@pytest.mark.usefixtures("quick")
def test_a_run_whose_responses_are_lost_does_not_begin_again(tmp_path):
    loop = Loopback(tmp_path)
    loop.round()
    (tmp_path / "site-0" / "state" / "p1").rename(tmp_path / "moved")
    with pytest.raises(Refusal, match="lost its responses"):
        loop.restart()


def test_what_was_spent_is_not_guessed(tmp_path):
    guaranteed = plan_of().algorithm().privacy
    spent = Spent(tmp_path)
    assert (spent.runs(), spent.total()) == ({}, (0.0, 0.0))
    spent.reserve("a", guaranteed, limit=1.0)
    spent.reserve("a", guaranteed, limit=1.0)
    assert spent.total() == (1.0, 1e-5)
    spent.path.write_text(json.dumps({"runs": {"a": {"epsilon": "x", "delta": 1}}}))
    with pytest.raises(InputError, match="restore it"):
        spent.reserve("b", guaranteed, limit=None)


# -- what a site agrees to -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "terms", "said"),
    [
        ({"max_epsilon": 0.5}, {}, "epsilon 0.5"),
        ({"total_epsilon": 0.5}, {}, "at most epsilon 0.5"),
        ({"require_privacy": True}, {"epsilon": 4.1}, "epsilon 4"),
        ({"require_privacy": True}, {"delta": 1e-3}, "delta up to 1e-05"),
        ({"max_delta": 1e-6}, {}, "delta up to 1e-06"),
        ({"mechanisms": ["statistics"]}, {}, "mechanism 'cooccurrence'; .*statistics"),
        ({"require_privacy": True}, {"noise": "distributed"}, "leaves it a share"),
        ({"noise": "client"}, {"noise": "distributed"}, "leaves it a share"),
        ({"unit": "client"}, {}, "privacy of a client, .*of a record"),
        ({"allowed_methods": ["felb"]}, {}, "does not run 'bmf'"),
    ],
)
def test_a_promise_weaker_than_the_site_s_policy_is_refused_before_anything_is_read(tmp_path, policy, terms, said):
    config = SiteConfig(str(tmp_path / "missing.npz"), str(tmp_path / "state"), policy=Policy(**policy))
    with pytest.raises(Refusal, match=said):
        SiteSession("a", plan_of(**terms).to_json(), config)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "policy",
    [
        {"require_privacy": True},
        {"max_epsilon": 9.0},
        {"max_delta": 0.1},
        {"total_epsilon": 9.0},
        {"mechanisms": ["cooccurrence"]},
        {"unit": "record"},
        {"noise": "distributed"},
    ],
    ids=lambda policy: next(iter(policy)),
)
def test_any_condition_on_privacy_refuses_a_run_that_promises_none(policy):
    with pytest.raises(Refusal, match="guarantees none"):
        Policy(**{"require_privacy": False, **policy}).check_privacy(None)
    Policy(require_privacy=False).check_privacy(None)
    Policy(**policy).check_privacy(plan_of().algorithm().privacy)


def test_a_share_of_the_noise_is_accepted_where_the_policy_says_so():
    Policy(noise="distributed").check_privacy(plan_of(noise="distributed").algorithm().privacy)


def test_a_delta_that_would_expose_a_record_of_the_site_is_refused_without_saying_how_many_it_has(tmp_path):
    def guaranteed(delta):
        plan = Plan("p", "bmf", 3, 30, privacy={"epsilon": 1.0, "delta": delta}, records=90, sites=3)
        return plan.algorithm().privacy

    def refused(rows, delta):
        try:
            Policy().check_delta(BinaryMatrix.of(np.ones((rows, 4), bool)), guaranteed(delta))
        except Refusal as refusal:
            return str(rows) not in str(refusal)
        return False

    assert all(refused(rows, 1 / rows) for rows in (112, 150, 199, 200, 999))
    Policy().check_delta(BinaryMatrix.of(np.ones((112, 4), bool)), None)
    # One δ after the other, at no cost: all that is told is the first digit of the number of records.
    deltas = [1 / (rows + 0.5) for rows in range(100, 420, 7)]
    assert len({tuple(refused(rows, delta) for delta in deltas) for rows in range(100, 200, 9)}) == 1


def test_refusals_are_noted_and_cannot_fill_the_disk(tmp_path, monkeypatch):
    note_refusal(tmp_path / "state", {"run_id": "r1"}, "no")
    note_refusal(tmp_path / "state", "nonsense", "never")
    assert [(line["run"], line["reason"]) for line in read_refusals(tmp_path / "state")] == [
        ("r1", "no"),
        ("None", "never"),
    ]
    assert len(read_refusals(tmp_path / "state", run_id="r1")) == 1
    monkeypatch.setattr(refusals, "MOST_BYTES", 10)
    for number in range(5):
        note_refusal(tmp_path / "state", {"run_id": f"r{number}"}, "no")
    assert [line["run"] for line in read_refusals(tmp_path / "state")] == ["r3", "r4"], "the latest, and those before"
    assert read_refusals(tmp_path / "elsewhere") == []


# -- what a plan says ------------------------------------------------------------------------------------------------


def test_a_private_plan_is_plain_data_and_its_noise_that_of_the_local_engine():
    made = plan_of()
    assert Plan.of(json.loads(json.dumps(made.to_json()))) == made
    assert made.spec == Privacy(1.0, 1e-5)
    assert made.algorithm().privacy == Privacy(1.0, 1e-5).plan(n_records=600, n_clients=3, n_columns=30)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"records": None}, "records"),
        ({"sites": 0}, "sites"),
        ({"records": 0}, "records"),
        ({"records": True}, "records"),
        ({"privacy": [1]}, "table"),
        ({"privacy": {"epsilon": "much"}}, "understood|number"),
        ({"privacy": {"epsilon": 0.0}}, "epsilon"),
        ({"privacy": {"epsilon": math.inf}}, "epsilon"),
        ({"privacy": {"delta": 1e-5}}, "needs epsilon"),
        ({"privacy": {"epsilon": 1.0, "delta": 0.5}}, "below 1/600"),
        ({"privacy": {"epsilon": 1.0, "noise": "nowhere"}}, "noise"),
        ({"privacy": {"epsilon": 1.0, "data": "/etc/passwd"}}, "data"),
        ({"privacy": {"epsilon": 1.0, "colluders": 3, "noise": "distributed"}}, "colluders"),
        ({"n_components": "mdl"}, "mdl"),
    ],
)
def test_terms_that_are_wrong_or_hostile_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        Plan.of({**plan_of().to_json(), **change})


RUN = """
id = "p1"
components = 3
features = 30
sites = ["a", "b", "c"]
[parameters]
effort = "fast"
[privacy]
epsilon = 1.0
delta = 1e-5
records = 600
"""


def test_a_file_of_settings_makes_the_plan(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    assert DeployedRun.read(path).plan == plan_of()
    for old, new, said in [
        ("records = 600", "", "records"),
        ("epsilon = 1.0", "", "epsilon"),
        ('sites = ["a", "b", "c"]', "", "sites is required"),
        ("epsilon = 1.0", "epsilon = 1.0\nepsylon = 2.0", "epsylon"),
    ]:
        path.write_text(RUN.replace(old, new))
        with pytest.raises(InputError, match=said):
            DeployedRun.read(path)
    path.write_text(RUN.partition("[privacy]")[0].replace("components = 3", 'components = "mdl"'))
    assert DeployedRun.read(path).plan.n_components == "mdl"


def test_each_failure_of_a_round_is_charged_also_after_a_restart(tmp_path):
    cost, accountant = {"statistics": Cost("gaussian", 0.1, "record")}, Accountant(1.0, 1e-5)
    attempts = Attempts(tmp_path, accountant)
    for lam in (1.0, 2.0, 3.0, 4.0):
        request = Request.of([Part("statistics", {"lam": np.asarray(lam)})], number=0)
        attempts.begin(request, cost)
        attempts.fail(request, cost)
    again = Accountant(1.0, 1e-5)
    Attempts(tmp_path, again)
    assert accountant.mu == again.mu == pytest.approx(0.2)
