"""Agreements: refusals, calibration, the statement."""

import math

import numpy as np
import pytest
from declarations import outputs_of

from felb.data.binary import BinaryMatrix
from felb.errors import InputError, PrivacyError
from felb.federated.gate import Gate
from felb.federated.protocol import Request, Update
from felb.privacy.accounting import Cost, calibrated_mu, total_epsilon
from felb.privacy.releases import (
    ClippedGaussian,
    RandomizedResponse,
    Uploads,
    row_size_histogram,
    weighted_cooccurrence,
)
from felb.privacy.spec import Privacy
from felb.privacy.statement import statement

CLIENT = {"unit": "client", "theta": 3.0, "rounds": 20}
SIZE = {"n_records": 20_000, "n_clients": 10, "n_columns": 200}
REAL, BITS = Uploads(20, 2000), Uploads(1, 2000, boolean=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": -1}, "epsilon must be positive"),
        ({"epsilon": math.inf}, "finite"),
        ({"delta": 0}, "delta must lie"),
        ({"delta": 1.0}, "delta must lie"),
        ({"unit": "village"}, "unit .*village"),
        ({"mechanism": "magic"}, "mechanism .*cooccurrence"),
        ({"noise": "server"}, "noise .*client, distributed"),
        ({"neighbours": "friends"}, "neighbours .*add_remove"),
        ({"unit": "client", "mechanism": "statistics"}, "unit='client'"),
        ({"mechanism": "paper", "unit": "client"}, "felb-paper"),
        ({"unit": "record", "mechanism": "uploads"}, "unit='record'"),
        ({**CLIENT, "theta": -1.0}, "theta must"),
        ({**CLIENT, "score_share": 0.02}, "score_share"),
        ({"score_share": 0.0}, "score_share must lie"),
        ({"score_share": 0.5}, "score_share must lie"),
        ({"score_share": 0.1, "score_bound": 0}, "score_bound must"),
        ({"score_bound": 3.0}, "score_share"),
        ({**CLIENT, "row_bound": 3}, "does not release"),
        ({"theta": 2.0}, "theta bounds"),
        ({"row_bound": 0}, "row_bound must"),
        ({"rounds": 3}, "rounds"),
        ({"mechanism": "statistics", "rounds": 0}, "rounds"),
        ({"mechanism": "statistics", "norm_bound": 0}, "c must"),
        ({"colluders": -1, "noise": "distributed"}, "colluders"),
        ({"dropouts": 1}, "noise='distributed'"),
        ({"colluders": 0, "noise": "distributed"}, "colluders"),
    ],
)
def test_nonsense_is_refused_at_once(options, message):
    with pytest.raises(InputError, match=message):
        Privacy(**{"epsilon": 1.0, **options})


def test_a_delta_that_could_publish_a_record_is_refused():
    with pytest.raises(InputError, match="delta"):
        Privacy(1.0, 1e-3).plan(n_records=1000, n_clients=3, n_columns=5)
    assert Privacy(1.0, 0.9e-3).delta_for(1000) == 0.9e-3
    assert Privacy(1.0).delta_for(1000) == 1e-5
    assert Privacy(1.0).delta_for(10**6) == pytest.approx(1e-7)
    with pytest.raises(InputError, match="number of records"):
        Privacy(1.0).delta_for(0)


def test_nobody_left_to_add_noise_is_refused():
    with pytest.raises(InputError, match="colluders"):
        Privacy(1.0, noise="distributed", colluders=2, dropouts=1).plan(n_records=100, n_clients=3, n_columns=5)
    with pytest.raises(InputError, match="column"):
        Privacy(1.0).plan(n_records=100, n_clients=3, n_columns=0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_bound": 30},
        {"mechanism": "statistics", "rounds": 7},
        {"mechanism": "hybrid", "neighbours": "replace"},
        {"noise": "distributed", "colluders": 2, "dropouts": 1},
        {"score_share": 0.05},
        {"mechanism": "statistics", "score_share": 0.02},
        CLIENT,
    ],
)
@pytest.mark.parametrize("n_columns", [200, 20_000])
def test_all_releases_of_a_plan_together_spend_the_agreed_total(options, n_columns):
    uploads = REAL if options is CLIENT else None
    plan = Privacy(1.0, **options).plan(**{**SIZE, "n_columns": n_columns}, uploads=uploads)
    assert sum(plan.shares.values()) == pytest.approx(1.0)
    costs = []
    for what in plan.shares:
        costs += [Cost("gaussian", plan.mu_of(what), plan.unit)] * plan.rounds_of(what)
    assert 0.999 < total_epsilon(costs, plan.delta) <= 1.0
    assert ("columns" in plan.shares) == (n_columns == 20_000 and plan.privacy.mechanism in ("cooccurrence", "hybrid"))


def test_the_plan_is_kept_by_gate_and_accountant():
    A = BinaryMatrix.of(np.random.default_rng(0).random((50, 20)) < 0.3)
    plan = Privacy(1.0, row_bound=6).plan(n_records=500, n_clients=10, n_columns=20)
    statistic = weighted_cooccurrence(A, 6)
    accountant = plan.accountant()
    gate = Gate("site", lambda _: None, plan.mechanism_for("cooccurrence", statistic), accountant, run="r")
    update = Update({"cooccurrence": statistic.values})
    released = gate.release(update, Request("count"), outputs_of(update), rng=None)
    assert released.values["cooccurrence"].dtype == np.int64
    assert accountant.mu == pytest.approx(plan.mu_of("cooccurrence"))
    with pytest.raises(PrivacyError, match="nothing was sent"):  # fresh noise on the same data is a second look
        gate.release(update, Request("count"), outputs_of(update), rng=None)


def test_clients_share_the_noise_of_an_aggregate():
    plan = Privacy(1.0, noise="distributed", colluders=2, dropouts=1).plan(**SIZE)
    sizes = row_size_histogram(BinaryMatrix.of(np.zeros((3, 200), dtype=bool)))
    alone = Privacy(1.0).plan(**SIZE)
    assert plan.noise_shares == 7
    assert plan.sigma_of_sum("sizes", sizes, n_answers=7) == pytest.approx(1 / plan.mu_of("sizes"))
    assert alone.sigma_of_sum("sizes", sizes) == pytest.approx(math.sqrt(10) / plan.mu_of("sizes"))


def test_uploads_of_a_client_keep_the_total():
    plan = Privacy(2.0, 1e-5, **CLIENT).plan(**SIZE, uploads=REAL)
    mechanism = plan.upload_mechanism()
    assert isinstance(mechanism, ClippedGaussian)
    _, cost = mechanism.release("V", np.ones((10, 200)), rng=None)
    assert cost.loss == pytest.approx(calibrated_mu(2.0, 1e-5) / math.sqrt(20))
    assert cost.unit == "client"
    assert mechanism.sigma_of_client == pytest.approx(3.0 / cost.loss)
    shared = (
        Privacy(2.0, 1e-5, noise="distributed", colluders=1, **CLIENT).plan(**SIZE, uploads=REAL).upload_mechanism()
    )
    assert shared.sigma_of_client == pytest.approx(mechanism.sigma_of_client / 3)
    with pytest.raises(InputError, match="does not upload"):
        Privacy(1.0).plan(**SIZE).upload_mechanism()
    with pytest.raises(InputError, match="'V'"):
        Privacy(1.0).plan(**SIZE).mu_of("V")


def test_bits_of_a_client_keep_the_total():
    plan = Privacy(2.0, 1e-5, unit="client").plan(**SIZE, uploads=BITS)
    mechanism = plan.upload_mechanism()
    assert isinstance(mechanism, RandomizedResponse)
    assert 1.99 < total_epsilon([mechanism.cost(2000)], 1e-5) <= 2.0
    assert "88 of 100" in statement(plan)


@pytest.mark.parametrize(
    ("options", "uploads", "message"),
    [
        ({}, REAL, "mechanism='cooccurrence'"),
        ({"mechanism": "statistics"}, BITS, "mechanism='statistics'"),
        (CLIENT, None, "mechanism='uploads'"),
        ({"unit": "client"}, REAL, "need theta"),
        ({"unit": "client", "noise": "distributed"}, BITS, "noise='client'"),
        ({"unit": "client", "rounds": 3}, BITS, "rounds"),
        ({**CLIENT, "delta": 0.1}, REAL, "delta"),
    ],
)
def test_a_mechanism_that_does_not_fit_the_method_is_refused_by_name(options, uploads, message):
    with pytest.raises(InputError, match=message):
        Privacy(1.0, **options).plan(**SIZE, uploads=uploads)


def test_the_statement_says_everything_that_matters():
    text = statement(Privacy(1.0).plan(**SIZE), row_bound=35)
    for part in ("one record", "add or remove", "(1, 5e-06)", "mu = 0.257", "none: each client", "B = 35",
                 "stays local", "pair of features", "55 of 100"):  # fmt: skip
        assert part in text
    assert "median" in statement(Privacy(1.0).plan(**SIZE))
    aggregate = Privacy(8.0, noise="distributed", colluders=2, neighbours="replace", mechanism="hybrid").plan(**SIZE)
    for part in (
        "secure aggregation",
        "at most 2 of them collude",
        "replace one",
        "guarantees little",
        "c = 1",
        "1/2.83 of its scale",
    ):
        assert part in statement(aggregate)


def test_the_statement_of_wide_data_tells_that_pairs_have_a_bound_of_their_own():
    wide = {**SIZE, "n_columns": 20_000}
    assert "for pairs, B shrinks" in statement(Privacy(1.0).plan(**wide))
    assert "for pairs, B shrinks" not in statement(Privacy(1.0, row_bound=9).plan(**wide))
    assert "for pairs, B shrinks" not in statement(Privacy(1.0).plan(**SIZE))
