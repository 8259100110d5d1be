"""The audits pass for what felb does, and fail for each mistake they are there to find."""

import math

import numpy as np
import pytest

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.federated.algorithms.private import (
    FINE_BITS,
    FIRST,
    Averaged,
    draw_components,
    lam_at,
    moved,
    round_statistics,
    sum_statistics,
)
from felb.federated.protocol import Request
from felb.federated.tasks import Work
from felb.kernels.assign import assign_rows
from felb.optim.prox import prox_elb
from felb.privacy.accounting import Cost, gaussian_epsilon, total_epsilon
from felb.privacy.audit import isolation, on_grid, scale_matches, transcript
from felb.privacy.mechanisms import GRID_BITS, discrete_gaussian
from felb.privacy.releases import (
    StatisticsBounds,
    clipped_counts,
    clipped_statistics,
    fit_rows,
    improve_components,
    read_statistics,
    row_size_histogram,
    weighted_cooccurrence,
)
from felb.privacy.spec import Privacy

UNIT = 1 << GRID_BITS
K, M = 2, 12
BOUNDS = StatisticsBounds(c=1.0, s=2.0, w=0.5)
START = np.full((K, M), 0.5) + np.arange(K * M).reshape(K, M) % 7 / 50


def records(seed=0, n=12):
    rng = np.random.default_rng(seed)
    return BinaryMatrix.of(rng.random((n, M)) < 0.3)


def canary(A):
    """Return A with a record that uses its bounds to the full."""
    return BinaryMatrix.vstack([A, BinaryMatrix.of(np.ones((1, M), dtype=bool))])


# -- scale -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.9, False), (1.1, False), (0.5, False)])
def test_noise_of_the_wrong_scale_is_found(factor, passes):
    assert scale_matches(discrete_gaussian(37.0 * factor, 20_000), 37.0) is passes


@pytest.mark.parametrize("noise", ["client", "distributed"])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_planned_releases_carry_the_noise_that_their_sensitivity_asks_for(noise, neighbours):
    plan = Privacy(2.0, noise=noise, neighbours=neighbours, row_bound=5).plan(
        n_records=1000, n_clients=4, n_columns=200
    )
    empty = weighted_cooccurrence(BinaryMatrix.of(np.zeros((0, 200), dtype=bool)), 5)
    mechanism = plan.mechanism_for("cooccurrence", empty)
    released, cost = mechanism.release("cooccurrence", empty.values, rng=None)
    sigma = UNIT * 4.0 * (math.sqrt(2) if neighbours == "replace" else 1) / plan.mu_of("cooccurrence")
    shares = 3 if noise == "distributed" else 1
    assert scale_matches(released, sigma / math.sqrt(shares))
    assert not scale_matches(released, 1.1 * sigma / math.sqrt(shares))
    assert cost.loss == pytest.approx(plan.mu_of("cooccurrence"))
    assert plan.sigma_of_sum("cooccurrence", empty) == pytest.approx(sigma / UNIT * math.sqrt(4 / shares), rel=1e-12)


# -- isolation ---------------------------------------------------------------------------------------------------------


def honest(A):
    return clipped_statistics(A, fit_rows(A, START, steps=8), BOUNDS).values


def local_v_steps(A):
    """Like the paper's loop: V moves at the client before U is summed up."""
    V = START
    for _ in range(3):
        U = fit_rows(A, V, steps=4)
        gram = U.T @ U
        V = np.clip(V - (gram @ V - U.T @ A.toarray()) / (np.linalg.norm(gram, 2) + 1e-6), 0, 1)
    return clipped_statistics(A, U, BOUNDS).values


def private_step_size(A):
    """The step of all rows comes from the data of all rows."""
    dense, U = A.toarray().astype(float), np.full((A.shape[0], K), 0.5)
    step = 1 / (np.linalg.norm(START @ START.T, 2) + np.linalg.norm(dense, 2))
    for _ in range(8):
        U = np.clip(prox_elb(U - step * (U @ START @ START.T - dense @ START.T), 0.0, 0.02), 0, 1)
    return clipped_statistics(A, U, BOUNDS).values


def unclipped(A):
    return clipped_statistics(A, fit_rows(A, START, steps=8), StatisticsBounds(c=9.0, s=9.0, w=0.5)).values


def row_count_weight(A):
    return honest(A) * A.shape[0]


STEPS = clipped_statistics(records(), np.zeros((12, K)), BOUNDS).sensitivity


def test_honest_statistics_are_isolated():
    assert isolation(honest, canary(records()), sensitivity=STEPS).holds


@pytest.mark.parametrize("defect", [local_v_steps, private_step_size, unclipped, row_count_weight])
def test_records_that_reach_beyond_their_own_part_are_found(defect):
    assert not isolation(defect, canary(records()), sensitivity=UNIT).holds


def test_a_sensitivity_stated_too_small_is_found():
    A = canary(records())
    assert not isolation(lambda rows: row_size_histogram(rows).values, A, sensitivity=0.9 * UNIT).holds
    assert isolation(lambda rows: row_size_histogram(rows).values, A, sensitivity=UNIT).holds
    with pytest.raises(InputError):
        isolation(honest, A.rows(0, 0), sensitivity=1.0)


# -- transcript --------------------------------------------------------------------------------------------------------


def play(mu=3.0, rounds=4, noise_factor=1.0, forget_rounds=False):
    """Audit adaptive rounds of statistics whose noise is calibrated for a total of μ, or wrongly so."""
    sigma = STEPS * (1 if forget_rounds else math.sqrt(rounds)) / mu * noise_factor

    def statistic(A, V):
        return clipped_statistics(A, fit_rows(A, V, steps=4), BOUNDS).values

    def server(released, V):
        S, G = read_statistics(released, K, M, grid=2.0**-6, bounds=BOUNDS)
        return improve_components(V, S, G, lam=0.0, steps=1)

    A = records()
    return transcript(
        statistic,
        server,
        (A, canary(A)),
        noise=lambda shape: discrete_gaussian(sigma, math.prod(shape)).reshape(shape),
        sigma=sigma,
        start=START,
        rounds=rounds,
        runs=120,
    )


def test_honest_rounds_reveal_what_was_charged_and_not_more():
    found = play()
    assert found.within(3.0)
    assert found.mu + 4 * found.standard_error > 0.8 * 3.0, "the canary does not saturate, so the audit would be blind"


@pytest.mark.parametrize("defect", [{"noise_factor": 0.5}, {"forget_rounds": True}])
def test_too_little_noise_over_the_rounds_is_found(defect):
    assert not play(**defect).within(3.0)


# -- the rounds that are really played -----------------------------------------------------------------------------


def play_rounds(mu=3.0, rounds=4, noise_factor=1.0, forget_rounds=False):
    """Audit the client's task and the server's step of the method itself, U carried from round to round."""
    told = np.array([BOUNDS.c, BOUNDS.s, BOUNDS.w])
    sensitivity = round_statistics(records(), np.zeros((12, K)), BOUNDS).sensitivity
    sigma = sensitivity * (1 if forget_rounds else math.sqrt(rounds)) / mu * noise_factor

    def lam(at):
        return lam_at(at.played, rounds, first=FIRST)

    def request(at):
        return Request("statistics", V=at.V, lam=lam(at), bounds=told)

    def statistic(A, public):
        state = None
        for asked in (*public[1], request(public[0])):
            state, update = sum_statistics(Work(state, A, asked.values, np.random.default_rng(0)))
        return update.values["statistics"]

    def server(released, public):
        at, asked = public
        return moved(at, released * 2.0**-FINE_BITS, BOUNDS, lam=lam(at)), (*asked, request(at))

    A = records()
    return transcript(
        statistic,
        server,
        (A, canary(A)),
        noise=lambda shape: discrete_gaussian(sigma, math.prod(shape)).reshape(shape),
        sigma=sigma,
        start=(Averaged(0, draw_components((K, M), 0)), ()),
        rounds=rounds,
        runs=50,
    )


def test_the_rounds_of_the_method_reveal_what_was_charged_and_not_more():
    found = play_rounds()
    assert found.within(3.0)
    assert found.mu + 4 * found.standard_error > 0.8 * 3.0


@pytest.mark.parametrize("defect", [{"noise_factor": 0.5}, {"forget_rounds": True}])
def test_too_little_noise_over_the_rounds_of_the_method_is_found(defect):
    assert not play_rounds(**defect).within(3.0)


@pytest.mark.parametrize("mechanism", ["statistics", "hybrid"])
def test_planned_rounds_carry_the_noise_of_all_of_them(mechanism):
    plan = Privacy(2.0, mechanism=mechanism, rounds=9).plan(n_records=1000, n_clients=4, n_columns=400)
    nobody = round_statistics(BinaryMatrix.of(np.zeros((0, 400), dtype=bool)), np.zeros((0, 10)), BOUNDS)
    released, cost = plan.mechanism_for("statistics", nobody).release("statistics", nobody.values, rng=None)
    sigma = 2**FINE_BITS * BOUNDS.sensitivity * 3 / (plan.mu * math.sqrt(plan.shares["statistics"]))
    assert scale_matches(released, sigma)
    for defect in (2.0, 1 / 3, 1.2):  # twice what was added; a forgotten √9; a little off
        assert not scale_matches(released, sigma * defect)
    assert on_grid(released)
    spent = [Cost("gaussian", cost.loss, "record")] * 9
    others = [Cost("gaussian", plan.mu_of(what), "record") for what in plan.shares if what != "statistics"]
    assert total_epsilon(spent + others, plan.delta) == pytest.approx(gaussian_epsilon(plan.mu, plan.delta), abs=2e-3)


# -- scores ------------------------------------------------------------------------------------------------------------


def scored(A, bound=3.0):
    V = START > 0.55
    return clipped_counts(A, assign_rows(A, V), V, bound).values


def test_scores_are_isolated_and_unclipped_or_overstated_ones_are_found():
    A = canary(records())
    sensitivity = UNIT * math.sqrt(3.0**2 + 1)
    assert isolation(scored, A, sensitivity=sensitivity).holds
    assert not isolation(lambda rows: scored(rows, bound=100.0), A, sensitivity=sensitivity).holds
    assert not isolation(lambda rows: scored(rows) * len(rows), A, sensitivity=sensitivity).holds


# -- grid and accountant -----------------------------------------------------------------------------------------------


def test_floating_point_noise_is_found():
    assert on_grid(discrete_gaussian(50.0, 100))
    assert not on_grid(np.random.default_rng(0).standard_normal(100))


def test_an_accountant_that_forgets_to_compose_is_found():
    mus = [0.3, 0.4]
    exact = gaussian_epsilon(0.5, 1e-5)
    assert total_epsilon([Cost("gaussian", mu, "record") for mu in mus], 1e-5) == pytest.approx(exact, abs=1e-3)
    for wrong in (gaussian_epsilon(max(mus), 1e-5), sum(gaussian_epsilon(mu, 1e-5) for mu in mus)):
        assert wrong != pytest.approx(exact, abs=1e-3)
