"""FedProx, SCAFFOLD, ProxSkip and federated NMF against what they must come to in simple cases."""

from dataclasses import replace

import numpy as np
import pytest
from phase_loop import cut, dense, play
from scipy.optimize import nnls

from felb.datasets import partition, planted
from felb.datasets.shards import split
from felb.engines import Participation, run
from felb.errors import InputError
from felb.federated.phases.base import Known
from felb.federated.phases.fedprox import FedProxSteps
from felb.federated.phases.local_steps import Schedule
from felb.federated.phases.proxskip import ProxSkipSteps
from felb.federated.phases.scaffold import ScaffoldSteps
from felb.federated.recipes.competitors import fednmf, fedprox, proxskip, scaffold
from felb.metrics import confusion
from felb.optim.palm import Objective, Point, palm_step
from felb.optim.prox import prox_elb
from felb.optim.steps import Lipschitz, Penalty

DATA = planted(240, 40, 4, noise=0.05, seed=3)
ONE = [DATA.A]
UNEVEN = cut(DATA.A, 20, 50, 130)
RULE = Lipschitz()
SCHEDULE = Schedule(0.001, 0.1, 1.05, 5, 12, 0.0)
V0 = Known(relaxed=np.random.default_rng(1).random((4, 40)).astype(np.float32))
RECIPES = {"fednmf": fednmf, "fedprox": fedprox, "scaffold": scaffold, "proxskip": proxskip}


@pytest.fixture(params=RECIPES.values(), ids=RECIPES.keys())
def recipe(request):
    return request.param


def by_palm(schedule, rounds):
    """Play local steps of PALM on pooled rows, λ growing every b steps."""
    Vt = np.ascontiguousarray(V0.relaxed.T)
    point, found = Point.start(RULE.first_rows(DATA.A, Vt), Vt), []
    for t in range(rounds):
        for _ in range(schedule.local_steps):
            point, _ = palm_step(DATA.A, point, Objective(schedule.kappa), rule=RULE, lam=schedule.lam_at(t))
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
            Penalty(schedule.kappa, lam).shrink(U - nu * (U @ (V @ V.T) - A @ V.T), nu, None)
            for A, U in zip(matrices, rows, strict=True)
        ]
        eta = 1 / sum(1 / RULE.step_size(U.T @ U, 0.0) for U in rows)
        gradient = sum(U.T @ U @ V - U.T @ A for A, U in zip(matrices, rows, strict=True))
        weight = penalty * eta
        V = np.clip(prox_elb(V - eta * gradient, schedule.kappa * weight, lam * weight), 0, 1)
        yield V


def one_round(phase, state, clients, shards, *, missing=None):
    """Play a round, keep the clients' states, and return the server's with what clients have sent."""
    broadcast, total, updates = phase.broadcast(state), {}, []
    for i, shard in enumerate(shards):
        if i == missing:
            continue
        clients[i], update = phase.tasks[broadcast.task](clients.get(i), shard, broadcast, np.random.default_rng(0))
        updates.append(update.values)
        for name, value in update.values.items():
            total[name] = total.get(name, 0) + np.asarray(value, dtype=np.float64)
    return phase.combine(total, len(updates), state), updates


# -- FedProx ---------------------------------------------------------------------------------------------------------


def test_fedprox_of_one_client_without_a_pull_is_palm_to_the_last_bit():
    states = play(FedProxSteps(SCHEDULE, 0.0), ONE, V0)
    assert len(states) == 13
    for state, V in zip(states[1:], by_palm(SCHEDULE, 12), strict=True):
        np.testing.assert_array_equal(state.V, V)


def test_a_strong_pull_holds_clients_at_the_shared_factor():
    free, held, frozen = (
        play(FedProxSteps(SCHEDULE, gamma), UNEVEN, V0, stop_after=1)[-1].change for gamma in (0.0, 10.0, 1e6)
    )
    assert free > held > frozen
    assert frozen < 1e-4


def test_the_pull_means_the_same_for_many_and_for_few_rows():
    repeated = [type(DATA.A).vstack([DATA.A] * 7)]
    # Nothing but ∇F and the pull, both seven times as large; the step is a seventh.
    schedule = replace(SCHEDULE, kappa=0.0, lam=0.0)
    once, seven = (play(FedProxSteps(schedule, 1.0), shards, V0)[-1].V for shards in (ONE, repeated))
    np.testing.assert_allclose(once, seven, atol=1e-4)


def test_the_server_of_fedprox_takes_the_plain_average():
    states = play(FedProxSteps(SCHEDULE, 1.0), UNEVEN, V0, stop_after=1)
    alone = [play(FedProxSteps(SCHEDULE, 1.0), [shard], V0, stop_after=1)[-1].V for shard in UNEVEN]
    np.testing.assert_allclose(states[-1].V, np.mean(alone, axis=0), atol=1e-6)


# -- SCAFFOLD --------------------------------------------------------------------------------------------------------


def test_scaffold_of_one_client_is_palm_since_its_control_variates_cancel():
    states = play(ScaffoldSteps(SCHEDULE), ONE, V0)
    for state, V in zip(states[1:], by_palm(SCHEDULE, 12), strict=True):
        np.testing.assert_allclose(state.V, V, atol=1e-4)


@pytest.mark.parametrize("shards", [ONE, UNEVEN, cut(DATA.A, *range(40, 240, 40))], ids=len)
def test_scaffold_with_one_local_step_is_the_gradient_step_of_pooled_rows(shards):
    """Corrections cancel in the average, in every round; compared where no client met the box."""
    phase = ScaffoldSteps(replace(SCHEDULE, kappa=0.0, lam=0.0, local_steps=1))
    state, clients = phase.start(V0, 0), {}
    for _ in range(5):
        shared = state.V
        state, updates = one_round(phase, state, clients, shards)
        gradient, curvature = 0, 0
        for i, shard in enumerate(shards):
            U = clients[i].relaxed.astype(float)
            gradient = gradient + U.T @ U @ shared - U.T @ shard.toarray()
            curvature += 1 / RULE.step_size(U.T @ U, 0.0)
        own = [update["V"] / update["curvature"] for update in updates]
        inside = np.all([(V > 1e-6) & (V < 1 - 1e-6) for V in own], axis=0)
        assert inside.mean() > 0.2
        np.testing.assert_allclose(state.V[inside], (shared - gradient / curvature)[inside], atol=1e-4)


def test_the_servers_control_variate_is_the_sum_of_the_clients_whoever_plays():
    phase, clients = ScaffoldSteps(SCHEDULE), {}
    state = phase.start(V0, 0)
    for t in range(6):
        # One client is missing from each of the first rounds; the first one joins late.
        state, _ = one_round(phase, state, clients, UNEVEN, missing=t % 4)
        np.testing.assert_allclose(state.control, sum(c.control for c in clients.values()).T, atol=1e-3)
        np.testing.assert_allclose(state.curvature, sum(1 / c.step_size for c in clients.values()))


def test_a_control_variate_is_the_mean_gradient_of_the_local_steps():
    """With one step, the gradient at the shared V."""
    phase, clients = ScaffoldSteps(replace(SCHEDULE, local_steps=1)), {}
    state = phase.start(V0, 0)
    for _ in range(3):
        V = state.V
        state, _ = one_round(phase, state, clients, UNEVEN)
        for i, shard in enumerate(UNEVEN):
            U = clients[i].relaxed
            np.testing.assert_allclose(clients[i].control.T, U.T @ U @ V - U.T @ shard.toarray(), atol=1e-3)


def test_control_variates_keep_different_clients_from_drifting():
    """With rows sorted by what they hold, average V after many local steps is nearer to where pooled rows lead."""
    order = np.argsort(dense(ONE) @ np.arange(40))
    shards = cut(DATA.A.take(order), 60, 120, 180)
    schedule = replace(SCHEDULE, kappa=0.0, lam=0.0, local_steps=10, max_rounds=60)
    corrected, plain = (pooled_loss(play(phase(schedule), shards, V0)[-1].V) for phase in (ScaffoldSteps, FedProxSteps))
    assert corrected < plain


def pooled_loss(V):
    """‖A − UV‖² at the best U >= 0."""
    return sum(nnls(V.T.astype(float), row)[1] ** 2 for row in dense(ONE).astype(float))


# -- ProxSkip --------------------------------------------------------------------------------------------------------


def test_proxskip_that_never_skips_is_proximal_gradient_on_pooled_rows():
    schedule = replace(SCHEDULE, local_steps=1)
    for shards in (ONE, UNEVEN):
        states = play(ProxSkipSteps(schedule), shards, V0)
        twin = by_proximal_gradient(shards, schedule, 12, penalty=len(shards))
        for state, V in zip(states[1:], twin, strict=True):
            np.testing.assert_allclose(state.V, V, atol=1e-4)


def test_steps_between_two_proxes_are_geometric_and_the_same_for_all():
    phase = ProxSkipSteps(replace(SCHEDULE, local_steps=8))
    steps = np.array([phase.steps_in(t, seed=5) for t in range(4000)])
    assert steps.min() == 1
    assert abs(steps.mean() - 8) < 0.5
    assert abs((steps == 1).mean() - 1 / 8) < 0.02
    assert [phase.steps_in(t, seed=6) for t in range(20)] != steps[:20].tolist()
    assert {ProxSkipSteps(replace(SCHEDULE, local_steps=1)).steps_in(t, seed=5) for t in range(50)} == {1}


def test_control_variates_of_proxskip_sum_to_zero_without_a_prox():
    """Then the prox of ψ is the average, and h_i learn how far each client is from it."""
    phase, clients = ProxSkipSteps(replace(SCHEDULE, kappa=0.0, lam=0.0)), {}
    state, _ = one_round(phase, phase.start(Known(relaxed=V0.relaxed / 2 + 0.25), 0), clients, UNEVEN)
    asked = phase.broadcast(state)
    controls = [phase._control(clients[i], asked, state.V.T) for i in range(4)]
    inside = (state.V > 0) & (state.V < 1)  # elsewhere the box is a prox
    np.testing.assert_allclose(sum(controls).T[inside], 0, atol=1e-3)
    assert max(np.abs(h).max() for h in controls) > 0.1


def test_a_client_that_missed_the_prox_keeps_its_control_variate():
    phase, rng = ProxSkipSteps(SCHEDULE), np.random.default_rng(0)
    asked = phase.broadcast(phase.start(V0, 0))
    state, _ = phase.tasks["proxskip"](None, DATA.A, asked, rng)
    state, _ = phase.tasks["proxskip"](state, DATA.A, replace(asked, round=1), rng)
    np.testing.assert_array_equal(phase._control(state, replace(asked, round=3), V0.relaxed.T), state.control)
    assert not np.array_equal(phase._control(state, replace(asked, round=2), V0.relaxed.T), state.control)


# -- all -------------------------------------------------------------------------------------------------------------


def test_federated_nmf_is_that_of_pooled_rows_bit_for_bit():
    found = [
        run(fednmf(40, 4), split(DATA.A, labels)[0], seed=2).outcome
        for labels in (np.zeros(240, int), partition.even(240, 10, seed=0), partition.uneven(240, 7, seed=0))
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other.relaxed, found[0].relaxed)
        np.testing.assert_array_equal(other.components, found[0].components)
        assert other.counts == found[0].counts


def test_planted_components_are_found_at_five_percent_noise(recipe):
    data = planted(2000, 200, 10, noise=0.05, seed=0)
    shards, rows = split(data.A, partition.even(2000, 10, seed=0))
    finished = run(recipe(200, 10), shards)
    U = np.empty((2000, 10), dtype=bool)
    for name, picked in rows.items():
        U[picked] = finished.assignments[name]
    assert confusion(data.signal, U, finished.outcome.components).f1 >= 0.9


def test_the_order_of_clients_does_not_matter(recipe):
    named = dict(zip("abcd", UNEVEN, strict=True))
    turned = dict(zip("abcd", UNEVEN[::-1], strict=True))
    a, b = (run(recipe(40, 4, max_rounds=10), shards, seed=1).outcome for shards in (named, turned))
    np.testing.assert_allclose(a.relaxed, b.relaxed, atol=1e-5)
    np.testing.assert_array_equal(a.components, b.components)


def test_a_sample_of_clients_is_enough(recipe):
    shards = split(DATA.A, partition.even(240, 6, seed=0))[0]
    finished = run(recipe(40, 4, max_rounds=60), shards, participation=Participation(fraction=0.5), seed=1)
    assert finished.outcome.counts.f1 > 0.6
    assert finished.outcome.counts.cells == 240 * 40


def test_nothing_that_leaves_grows_with_the_rows(recipe):
    shapes = []
    for shards in (ONE, [type(DATA.A).vstack([DATA.A] * 3)]):
        log = []
        run(recipe(40, 4, max_rounds=3), {"a": shards[0]}, outbound=lambda _, log=log: log.append)
        shapes.append({(record.task, record.what, record.shape, record.dtype) for record in log})
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [({"lam": -1}, "l2"), ({"rate": np.nan}, "l2_rate"), ({"local_steps": 0}, "local_steps"), ({"tol": -1}, "tol")],
)
@pytest.mark.parametrize("make", [fedprox, scaffold, proxskip])
def test_parameters_that_cannot_be(make, parameters, said):
    with pytest.raises(InputError, match=said):
        make(40, 4, **parameters)


def test_a_negative_pull_is_refused():
    with pytest.raises(InputError, match="proximity must be at least 0"):
        fedprox(40, 4, gamma=-1.0)
