"""FedProx, SCAFFOLD, ProxSkip and federated NMF against what they must come to in simple cases."""

from dataclasses import replace

import numpy as np
import pytest
from driving import cut, dense, drive, resumed
from scipy.optimize import nnls

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import Participation, run
from felb.errors import InputError
from felb.federated import journal
from felb.federated.algorithms.competitors import (
    FEDPROX,
    PROXSKIP,
    SCAFFOLD,
    Schedule,
    average_proximally,
    common_control,
    draw_steps_to_prox,
    fednmf,
    fedprox,
    fedprox_steps,
    learn_control,
    proxskip,
    proxskip_steps,
    scaffold,
    scaffold_steps,
)
from felb.federated.protocol import Request, Sums
from felb.federated.steps.state import Solution
from felb.federated.tasks import Work, declare
from felb.kernels.passes import on_grid
from felb.metrics import confusion
from felb.optim.palm import Objective, Point, palm_step
from felb.optim.prox import prox_elb
from felb.optim.steps import Lipschitz, Penalty
from felb.progress import Deadline

DATA = planted(240, 40, 4, noise=0.05, seed=3)
ONE = [DATA.A]
UNEVEN = cut(DATA.A, 20, 50, 130)
RULE = Lipschitz()
SCHEDULE = Schedule(0.001, 0.1, 1.05, 5, 12, 0.0)
V0 = Solution(relaxed=np.random.default_rng(1).random((4, 40)).astype(np.float32))
TASKS = declare(FEDPROX, SCAFFOLD, PROXSKIP)
ALGORITHMS = {"fednmf": fednmf, "fedprox": fedprox, "scaffold": scaffold, "proxskip": proxskip}
TOLD = {
    "gram_sketch": {"sketch"},
    "sign_norms": {"positive", "negative"},
    "factor_statistics": {"AtU", "UtU", "sums", "ones", "filled"},
    "threshold_counts": {"covered", "claimed", "members", "ones", "cells", "rows"},
    "fedprox": {"V", "curvature", "loss"},
    "scaffold": {"V", "control", "curvature", "curvature_change", "loss"},
    "proxskip": {"V", "curvature", "loss"},
    "assign": {"counts", "supports"},
}
"""What leaves a client, by task."""


@pytest.fixture(params=ALGORITHMS.values(), ids=ALGORITHMS.keys())
def make(request):
    return request.param


def factors(steps, shards, rounds=None):
    """Return V after each round of a step, of which so many are played."""
    driven = drive(steps, shards, stop_after=rounds, tasks=TASKS)
    return [request.values["V"] for request in driven.requests[1:]] + [driven.solution.relaxed]


def by_palm(schedule, rounds):
    """Play local steps of PALM on all rows, λ growing every b steps; after these, V is rounded as uploads are."""
    Vt = np.ascontiguousarray(V0.relaxed.T)
    point, found = Point.start(RULE.first_rows(DATA.A, Vt), Vt), []
    for t in range(rounds):
        for _ in range(schedule.local_steps):
            point, _ = palm_step(DATA.A, point, Objective(schedule.kappa), rule=RULE, lam=schedule.lam_at(t))
        point = replace(point, Vt=on_grid(point.Vt))
        found.append(point.Vt.T)
    return found


def by_proximal_gradient(shards, schedule, rounds, *, penalty):
    """Play, in float64 and by the book, one step on U_i at each client and one on V for all with L = Σ‖U_iᵀU_i‖."""
    matrices = [shard.toarray().astype(float) for shard in shards]
    V = V0.relaxed.astype(float)
    rows = [np.clip(A @ V.T / (V @ V.sum(axis=0)), 0, 1) for A in matrices]
    for t in range(rounds):
        lam = schedule.lam_at(t)
        nu = RULE.step_size(V @ V.T, 0.0)
        rows = [
            Penalty(schedule.kappa, lam).shrink(U - nu * (U @ (V @ V.T) - A @ V.T), nu, V @ V.T, None)
            for A, U in zip(matrices, rows, strict=True)
        ]
        eta = 1 / sum(1 / RULE.step_size(U.T @ U, 0.0) for U in rows)
        gradient = sum(U.T @ U @ V - U.T @ A for A, U in zip(matrices, rows, strict=True))
        weight = penalty * eta
        V = np.clip(prox_elb(V - eta * gradient, schedule.kappa * weight, lam * weight), 0, 1)
        yield V


class Played:
    """A step, played round by round by those clients that are not missing; `request` is what is asked next."""

    def __init__(self, steps):
        self.steps, self.clients = steps, {}
        self.request = self.asked(None)

    def asked(self, value):
        """Go on to the next request; nothing is kept of checkpoints."""
        while not isinstance(yielded := self.steps.send(value), Request):
            value = yielded.state
        return yielded

    @property
    def V(self):
        return self.request.values["V"]

    def round(self, shards, *, missing=None):
        """Play a round and return what clients have sent."""
        total, updates = {}, []
        for i, shard in enumerate(shards):
            if i == missing:
                continue
            work = Work(self.clients.get(i), shard, self.request.values, np.random.default_rng(0))
            self.clients[i], update = TASKS[self.request.task].do(work)
            updates.append(update.values)
            for name, value in update.values.items():
                total[name] = total.get(name, 0) + np.asarray(value, dtype=np.float64)
        self.request = self.asked(Sums(total, len(updates)))
        return updates


# -- FedProx ---------------------------------------------------------------------------------------------------------


def test_fedprox_of_one_client_without_a_pull_is_palm_to_the_last_bit():
    for V, expected in zip(factors(fedprox_steps(V0, SCHEDULE), ONE), by_palm(SCHEDULE, 12), strict=True):
        np.testing.assert_array_equal(V, expected)


def test_a_strong_pull_holds_clients_at_the_shared_factor():
    free, held, frozen = (
        drive(fedprox_steps(V0, SCHEDULE, gamma=gamma), UNEVEN, stop_after=1, tasks=TASKS).rows[0]["change"]
        for gamma in (0.0, 10.0, 1e6)
    )
    assert free > held > frozen
    assert frozen < 1e-4


def test_the_pull_means_the_same_for_many_and_for_few_rows():
    repeated = [type(DATA.A).vstack([DATA.A] * 7)]
    # Nothing but ∇F and the pull, both seven times as large; the step is a seventh.
    schedule = replace(SCHEDULE, kappa=0.0, lam=0.0)
    once, seven = (factors(fedprox_steps(V0, schedule, gamma=1.0), shards)[-1] for shards in (ONE, repeated))
    np.testing.assert_allclose(once, seven, atol=1e-4)


def test_the_server_of_fedprox_takes_the_plain_average():
    schedule = replace(SCHEDULE, max_rounds=1)
    V, *alone = (factors(fedprox_steps(V0, schedule, gamma=1.0), s)[-1] for s in (UNEVEN, *([u] for u in UNEVEN)))
    np.testing.assert_allclose(V, np.mean(alone, axis=0), atol=1e-6)


# -- SCAFFOLD --------------------------------------------------------------------------------------------------------


def test_scaffold_of_one_client_is_palm_since_its_control_variates_cancel():
    for V, expected in zip(factors(scaffold_steps(V0, SCHEDULE), ONE), by_palm(SCHEDULE, 12), strict=True):
        np.testing.assert_allclose(V, expected, atol=1e-4)


@pytest.mark.parametrize("shards", [ONE, UNEVEN, cut(DATA.A, *range(40, 240, 40))], ids=len)
def test_scaffold_with_one_local_step_is_the_gradient_step_of_centralized_rows(shards):
    """Corrections cancel in the average, in every round; compared where no client met the box."""
    played = Played(scaffold_steps(V0, replace(SCHEDULE, kappa=0.0, lam=0.0, local_steps=1)))
    for _ in range(5):
        shared = played.V
        updates = played.round(shards)
        gradient, curvature = 0, 0
        for i, shard in enumerate(shards):
            U = played.clients[i].relaxed.astype(float)
            gradient = gradient + U.T @ U @ shared - U.T @ shard.toarray()
            curvature += 1 / RULE.step_size(U.T @ U, 0.0)
        own = [update["V"] / update["curvature"] for update in updates]
        inside = np.all([(V > 1e-6) & (V < 1 - 1e-6) for V in own], axis=0)
        assert inside.mean() > 0.2
        np.testing.assert_allclose(played.V[inside], (shared - gradient / curvature)[inside], atol=1e-4)


def test_the_servers_control_variate_is_the_sum_of_the_clients_whoever_plays():
    played = Played(scaffold_steps(V0, SCHEDULE))
    assert not played.request.values["control"].any()
    for t in range(6):
        # One client is missing from each of the first rounds; the first one joins late.
        played.round(UNEVEN, missing=t % 4)
        clients = played.clients.values()
        control = sum(client.control.astype(float) for client in clients).T
        curvature = sum(1 / client.step_size for client in clients)
        told = played.request.values["control"]
        np.testing.assert_allclose(told, common_control(control, curvature), atol=1e-3 / curvature)


def test_a_control_variate_is_the_mean_gradient_of_the_local_steps():
    """With one step, the gradient at the shared V."""
    played = Played(scaffold_steps(V0, replace(SCHEDULE, local_steps=1)))
    for _ in range(3):
        V = played.V
        played.round(UNEVEN)
        for i, shard in enumerate(UNEVEN):
            U = played.clients[i].relaxed
            np.testing.assert_allclose(played.clients[i].control.T, U.T @ U @ V - U.T @ shard.toarray(), atol=1e-3)


def test_control_variates_keep_different_clients_from_drifting():
    """With rows sorted by what they hold, average V after many local steps is nearer to where centralized rows lead."""
    order = np.argsort(dense(ONE) @ np.arange(40))
    shards = cut(DATA.A.take(order), 60, 120, 180)
    schedule = replace(SCHEDULE, kappa=0.0, lam=0.0, local_steps=10, max_rounds=60)
    corrected, plain = (
        centralized_loss(factors(steps(V0, schedule), shards)[-1]) for steps in (scaffold_steps, fedprox_steps)
    )
    assert corrected < plain


def centralized_loss(V):
    """‖A − UV‖² at the best U >= 0."""
    return sum(nnls(V.T.astype(float), row)[1] ** 2 for row in dense(ONE).astype(float))


# -- ProxSkip --------------------------------------------------------------------------------------------------------


def test_proxskip_that_never_skips_is_proximal_gradient_on_centralized_rows():
    schedule = replace(SCHEDULE, local_steps=1)
    for shards in (ONE, UNEVEN):
        twin = by_proximal_gradient(shards, schedule, 12, penalty=len(shards))
        for V, expected in zip(factors(proxskip_steps(V0, schedule, seed=0), shards), twin, strict=True):
            np.testing.assert_allclose(V, expected, atol=1e-4)


def test_steps_between_two_proxes_are_geometric_and_the_same_for_all():
    steps = np.array([draw_steps_to_prox(8, seed=5, t=t) for t in range(4000)])
    assert steps.min() == 1
    assert abs(steps.mean() - 8) < 0.5
    assert abs((steps == 1).mean() - 1 / 8) < 0.02
    assert [draw_steps_to_prox(8, seed=6, t=t) for t in range(20)] != steps[:20].tolist()
    assert {draw_steps_to_prox(1, seed=5, t=t) for t in range(50)} == {1}
    asked = drive(proxskip_steps(V0, replace(SCHEDULE, local_steps=8), seed=5), ONE, tasks=TASKS).requests
    assert [request.values["steps"] for request in asked] == steps[:12].tolist()


def test_control_variates_of_proxskip_sum_to_zero_without_a_prox():
    """Then the prox of ψ is the average, and h_i learn how far each client is from it."""
    schedule, middle = replace(SCHEDULE, kappa=0.0, lam=0.0), Solution(relaxed=V0.relaxed / 2 + 0.25)
    played = Played(proxskip_steps(middle, schedule, seed=0))
    played.round(UNEVEN)
    controls = [learn_control(played.clients[i], played.V.T, t=1, mean_steps=5) for i in range(4)]
    inside = (played.V > 0) & (played.V < 1)  # elsewhere the box is a prox
    np.testing.assert_allclose(sum(controls).T[inside], 0, atol=1e-3)
    assert max(np.abs(h).max() for h in controls) > 0.1


def test_a_client_that_missed_the_prox_keeps_its_control_variate():
    played = Played(proxskip_steps(V0, SCHEDULE, seed=0))
    for _ in range(2):
        played.round(ONE)
    state = played.clients[0]
    assert state.t == 1
    late, next_round = (learn_control(state, V0.relaxed.T, t=t, mean_steps=5) for t in (3, 2))
    np.testing.assert_array_equal(late, state.control)
    assert not np.array_equal(next_round, state.control)


def test_the_prox_of_proxskip_draws_the_average_into_the_box_and_towards_booleans():
    sums = Sums({"V": np.array([[-3.0, 0.4, 1.2, 3.8, 9.0]]), "curvature": np.asarray(4.0)}, 2)
    free, drawn = (average_proximally(sums, replace(SCHEDULE, kappa=0.0, lam=lam), 0) for lam in (0.0, 0.1))
    np.testing.assert_allclose(free, [[0, 0.1, 0.3, 0.95, 1]], atol=1e-6)
    assert drawn[0, 1] < free[0, 1]
    assert drawn[0, 3] > free[0, 3]


# -- all -------------------------------------------------------------------------------------------------------------


def test_federated_nmf_is_that_of_centralized_rows_bit_for_bit():
    found = [
        run(fednmf(40, 4), split(DATA.A, labels)[0], seed=2).outcome
        for labels in (np.zeros(240, int), partition.even(240, 10, seed=0), partition.uneven(240, 7, seed=0))
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other.relaxed, found[0].relaxed)
        np.testing.assert_array_equal(other.components, found[0].components)
        assert other.counts == found[0].counts


def test_planted_components_are_found_at_five_percent_noise(make):
    data = planted(2000, 200, 10, noise=0.05, seed=0)
    shards, rows = split(data.A, partition.even(2000, 10, seed=0))
    finished = run(make(200, 10), shards)
    U = np.empty((2000, 10), dtype=bool)
    for name, picked in rows.items():
        U[picked] = finished.assignments[name]
    assert confusion(data.signal, U, finished.outcome.components).f1 >= 0.9


def test_the_order_of_clients_does_not_matter(make):
    named = dict(zip("abcd", UNEVEN, strict=True))
    turned = dict(zip("abcd", UNEVEN[::-1], strict=True))
    a, b = (run(make(40, 4, max_rounds=10), shards, seed=1).outcome for shards in (named, turned))
    np.testing.assert_allclose(a.relaxed, b.relaxed, atol=1e-5)
    np.testing.assert_array_equal(a.components, b.components)


def test_a_sample_of_clients_is_enough(make):
    shards = split(DATA.A, partition.even(240, 6, seed=0))[0]
    finished = run(make(40, 4, max_rounds=60), shards, participation=Participation(fraction=0.5), seed=1)
    assert finished.outcome.counts.f1 > 0.6
    assert finished.outcome.counts.cells == 240 * 40


def test_nothing_that_leaves_grows_with_the_rows(make):
    shapes = []
    for shards in (ONE, [type(DATA.A).vstack([DATA.A] * 3)]):
        log = []
        run(make(40, 4, max_rounds=3), {"a": shards[0]}, outbound=lambda _, log=log: log.append)
        shapes.append({(record.task, record.what, record.shape, record.dtype) for record in log})
    assert shapes[0] == shapes[1]
    told = {task: {what for other, what, *_ in shapes[0] if other == task} for task, *_ in shapes[0]}
    assert told == {task: TOLD[task] for task in told}


@pytest.mark.parametrize("limit", [0, 16 << 20], ids=["with checkpoints", "with all sums"])
@pytest.mark.parametrize("after", [2, 7])
def test_an_interrupted_run_goes_on_to_the_same_bits(make, limit, after, tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "COMPACT_BYTES", limit)
    algorithm, shards = make(40, 4, max_rounds=10), dict(zip("abcd", UNEVEN, strict=True))
    options = {"seed": 1, "participation": Participation(fraction=0.75)}
    whole, again = run(algorithm, shards, **options), resumed(algorithm, shards, tmp_path, after=after, **options)
    np.testing.assert_array_equal(again.outcome.relaxed, whole.outcome.relaxed)
    np.testing.assert_array_equal(again.outcome.components, whole.outcome.components)
    assert again.outcome.integrality_gap == whole.outcome.integrality_gap
    assert list(again.history) == list(whole.history)
    assert len(list(tmp_path.glob("round-*"))) <= 1, "the journal of a finished search is its result"


def test_a_time_limit_ends_the_search_with_what_is_known(make):
    shards = dict(zip("abcd", UNEVEN, strict=True))
    outcome = run(make(40, 4), shards, deadline=Deadline(1e-9)).outcome
    assert not outcome.complete
    assert not outcome.converged
    assert outcome.components.shape == (4, 40)
    assert outcome.counts.cells == 240 * 40


@pytest.mark.parametrize(
    ("parameters", "said"),
    [({"lam": -1}, "l2"), ({"rate": np.nan}, "l2_rate"), ({"local_steps": 0}, "local_steps"), ({"tol": -1}, "tol")],
)
@pytest.mark.parametrize("build", [fedprox, scaffold, proxskip])
def test_parameters_that_cannot_be(build, parameters, said):
    with pytest.raises(InputError, match=said):
        build(40, 4, **parameters)


def test_a_negative_pull_is_refused():
    with pytest.raises(InputError, match="proximity"):
        fedprox(40, 4, gamma=-1.0)


@pytest.mark.parametrize(("parameters", "said"), [({"max_rounds": 0}, "max_iter"), ({"memory": 1.0}, "memory")])
def test_federated_nmf_that_cannot_be(parameters, said):
    with pytest.raises(InputError, match=said):
        fednmf(40, 4, **parameters)
