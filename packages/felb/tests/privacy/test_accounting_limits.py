"""What δ and σ tell of the number of records, and what discrete noise really costs."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from felb.privacy import mechanisms as discrete
from felb.privacy import spec
from felb.privacy.accounting import gaussian_delta, public_size
from felb.privacy.mechanisms import FINEST, GRID_BITS, DiscreteGaussian
from felb.privacy.releases import row_size_histogram
from felb.privacy.spec import Privacy
from felb.privacy.statement import statement
from felb.runs.execute import simulate
from felb.runs.job import Job


def published(n):
    """All numbers about noise that a run of n records publishes."""
    plan = Privacy(1.0).plan(n_records=n, n_clients=3, n_columns=50)
    return plan.delta, plan.mu, statement(plan)


def test_neighbours_are_not_told_apart_by_delta_and_sigma(monkeypatch):
    assert published(20001) == published(20000)
    assert published(999) == published(1000), "up to 10000 records delta is 1e-5 whatever they are"
    monkeypatch.setattr(spec, "public_size", lambda n: n)
    assert published(20001) != published(20000), "the attack of the audit"


@pytest.mark.parametrize("n", [1, 9, 10, 19_999, 29_999, 10**9 - 1])
def test_a_rounded_size_is_at_most_the_true_one_and_more_than_half_of_it(n):
    assert n / 2 < public_size(n) <= n
    assert Privacy(1.0).delta_for(n) * n < 0.2


def test_a_stated_delta_is_checked_against_all_records():
    with pytest.raises(ValueError, match="delta=4e-05"):
        Privacy(1.0, 4e-5).plan(n_records=29_999, n_clients=3, n_columns=5)


def test_a_private_result_does_not_state_its_number_of_records(tmp_path):
    result = simulate(
        Job("zoo", "bmf", 3, clients=2, privacy={"epsilon": 4.0}, parameters={"effort": "fast"}), tmp_path / "out"
    )
    assert result.provenance.data["rows"] is None
    stored = json.loads((tmp_path / "out" / "result.json").read_text())
    assert stored["provenance"]["data"]["rows"] is None
    assert set(stored["clients"].values()) == {None}
    assert not re.search(r"\b101\b", (tmp_path / "out" / "result.json").read_text())


def worst_ratio(sigma, mu):
    """The largest δ of discrete noise by that of continuous noise, over ε, for a shift by μσ steps; from its mass."""
    shift = round(mu * sigma)
    x = np.arange(-int(12 * sigma), int(12 * sigma) + 1, dtype=float)
    log_p = -(x**2) / (2 * sigma**2)
    log_p -= np.log(np.exp(log_p).sum())
    loss = (2 * shift * x - shift**2) / (2 * sigma**2)  # of seeing x under a shift, against none
    shifted = log_p + loss
    ratios = []
    for epsilon in np.linspace(0.2, 3.0, 141):
        exact = np.maximum(0.0, np.exp(shifted) - np.exp(epsilon + log_p)).sum()
        ratios.append(exact / gaussian_delta(shift / sigma, epsilon))
    return max(ratios)


def test_at_the_finest_noise_discrete_and_continuous_cost_the_same(monkeypatch):
    assert FINEST == 64
    for mu in (0.25, 0.5, 1.0):
        assert worst_ratio(FINEST, mu) < 1.01
    assert worst_ratio(4.0, 0.25) > 1.05, "what was allowed before"
    with pytest.raises(ValueError, match="64 steps"):
        DiscreteGaussian(63.9, 1.0)
    monkeypatch.setattr(discrete, "FINEST", 4.0)
    DiscreteGaussian(4.0, 1.0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("clients", [2, 50])
def test_every_planned_release_is_fine_enough(epsilon, clients):
    from felb.data.binary import BinaryMatrix

    options = {} if clients == 2 else {"noise": "distributed", "colluders": 1}
    plan = Privacy(epsilon, 1e-6, **options).plan(n_records=5000, n_clients=clients, n_columns=30)
    histogram = row_size_histogram(BinaryMatrix.of(np.eye(30, dtype=bool)))
    assert histogram.sensitivity == 2**GRID_BITS
    assert plan.mechanism_for("sizes", histogram).sigma_of_client >= FINEST
