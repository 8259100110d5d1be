"""Adding up costs: agreement with the closed form, refusals, replays, storage; and the gate that charges."""

import json
import math
import sys

import numpy as np
import pytest
import scipy.stats
from declarations import outputs_of

from felb.errors import InputError, MissingExtraError, PrivacyError
from felb.federated.gate import Gate
from felb.federated.protocol import Part, Request, Update
from felb.privacy import accounting as ledger_module
from felb.privacy.accounting import (
    Accountant,
    Charge,
    Cost,
    calibrated_mu,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    total_epsilon,
)
from felb.privacy.mechanisms import DiscreteGaussian, NoNoise
from felb.privacy.outbound_log import OutboundLog

X = np.arange(3)


def gaussian(mu):
    return Cost("gaussian", mu, "record")


def charge(round_, mu, what="M", value=X, run="run"):
    return Charge.of(run, round_, what, value, gaussian(mu))


# -- arithmetic --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-5, 0.05])
def test_accountant_and_closed_form_agree(mu, delta):
    assert total_epsilon([gaussian(mu)], delta) == pytest.approx(gaussian_epsilon(mu, delta), abs=1e-3)


def test_the_closed_form_is_the_integral_it_claims_to_be():
    from scipy.integrate import quad
    from scipy.stats import norm

    mu, epsilon = 1.3, 0.8
    density = lambda x: max(0.0, norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x))  # noqa: E731
    kink = epsilon / mu + mu / 2
    assert gaussian_delta(mu, epsilon) == pytest.approx(quad(density, kink, 12)[0], abs=1e-9)
    assert gaussian_epsilon(gaussian_mu(0.8, 1e-5), 1e-5) == pytest.approx(0.8, abs=1e-9)
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_epsilon(1e-9, 1e-3) == 0.0


def test_gaussian_uploads_compose_by_the_root_of_squares():
    sigma = math.sqrt(2 * math.log(1.25 / 0.05))  # the paper's epsilon = 1, delta = .05 per upload
    for uploads, known in ((20, 8.6), (100, 24)):
        costs = [Cost("gaussian", 1 / sigma, "client")] * uploads
        assert total_epsilon(costs, 1e-5) == pytest.approx(known, rel=0.01)


def test_laplace_and_bits_compose_below_their_sum_and_above_the_largest():
    laplace, bits = Cost("laplace", 0.5, "client"), Cost("bits", 0.01, "client", "replace", 2000)
    assert 0.5 < total_epsilon([laplace] * 10, 1e-5) < 5
    assert 1.5 < total_epsilon([bits], 1e-5) < 3  # 20 by adding up
    assert total_epsilon([laplace], 1e-5) == pytest.approx(0.5, abs=1e-3)
    both = total_epsilon([laplace, bits, Cost("gaussian", 0.3, "client")], 1e-5)
    assert total_epsilon([bits], 1e-5) < both < total_epsilon([bits], 1e-5) + 0.5 + total_epsilon([gaussian(0.3)], 1e-5)


def test_one_laplace_entry_dominates_the_same_shift_spread_over_several():
    # The accountant charges a vector with the L1 sensitivity like a single entry; several entries must not cost more.
    one = total_epsilon([Cost("laplace", 2.0, "client")], 1e-3)
    for parts in ([1.0, 1.0], [0.5] * 4, [1.8, 0.2]):
        assert total_epsilon([Cost("laplace", part, "client") for part in parts], 1e-3) <= one + 1e-6


def test_many_unlikely_bits_are_simply_added():
    assert total_epsilon([Cost("bits", 1.0, "client", "replace", 2000)], 1e-5) == 2000


def test_bits_without_number_are_added_up_in_no_memory():
    assert total_epsilon([Cost("bits", 1e-14, "client", count=10**14)], 1e-5) == 1.0
    assert total_epsilon([Cost("bits", 1e-9, "client", count=10**8)] * 2, 1e-5) == pytest.approx(0.2)


@pytest.mark.parametrize(("count", "loss"), [(20, 0.3), (3000, 0.005), (40_000, 0.012)])
def test_bits_cost_what_all_numbers_of_flips_tell(count, loss):
    flips = np.arange(count + 1)
    logs = scipy.stats.binom.logpmf(flips, count, 1 / (1 + math.exp(loss)))
    told = total_epsilon([Cost("bits", loss, "client", count=count)], 1e-5)
    for epsilon, sign in ((told * 1.001, 1), (told * 0.99, -1)):
        # δ(ε) = Σ_j max(0, P(j) − e^ε Q(j)), over all j and without rounding.
        delta = np.maximum(0.0, np.exp(logs) - np.exp(epsilon + logs[::-1])).sum()
        assert sign * (1e-5 - delta) >= 0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (2.0, 1e-6)])
def test_calibrated_noise_uses_the_budget_and_no_more(epsilon, delta):
    mu = calibrated_mu(epsilon, delta)
    assert 0.999 * epsilon < total_epsilon([gaussian(mu)], delta) <= epsilon
    shares = [0.01, 0.95, 0.04]
    assert total_epsilon([gaussian(mu * math.sqrt(share)) for share in shares], delta) <= epsilon


# -- the accountant ----------------------------------------------------------------------------------------------------


def test_overspending_is_refused_and_leaves_no_trace():
    accountant = Accountant(1.0, 1e-5)
    accountant.charge(charge(0, 0.2))
    with pytest.raises(PrivacyError, match=r"epsilon=.*nothing was sent"):
        accountant.charge(charge(1, 0.05, "a"), charge(1, 0.2, "b"))
    assert [entry.round for entry in accountant.entries] == [0]
    accountant.charge(charge(1, 0.15))
    assert accountant.mu == pytest.approx(0.25)
    assert accountant.spent == pytest.approx(gaussian_epsilon(0.25, 1e-5), abs=1e-3)


def test_the_same_answer_again_is_charged_once_another_one_anew():
    accountant = Accountant(1.0, 1e-5)
    for _ in range(3):
        accountant.charge(charge(0, 0.2))
    assert accountant.mu == pytest.approx(0.2)
    with pytest.raises(PrivacyError):
        accountant.charge(charge(0, 0.2, value=X + 1))
    accountant.charge(charge(0, 0.1, value=X + 1))
    accountant.charge(charge(0, 0.1, run="another"))
    assert accountant.mu == pytest.approx(math.sqrt(0.06))


def test_unprotected_and_foreign_costs_are_refused():
    accountant = Accountant(1.0, 1e-5)
    with pytest.raises(PrivacyError, match="not protected"):
        Charge.of("run", 0, "loss", X, None)
    for cost in (Cost("gaussian", 0.1, "client"), Cost("gaussian", 0.1, "record", "replace")):
        with pytest.raises(PrivacyError, match="added up"):
            accountant.charge(Charge.of("run", 0, "V", X, cost))
    assert accountant.entries == ()


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (math.inf, 1e-5), (1, 0), (1, 1)])
def test_budgets_that_protect_nothing_are_refused(epsilon, delta):
    with pytest.raises(InputError):
        Accountant(epsilon, delta)


def test_without_the_accountant_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    ledger_module._composed_epsilon.cache_clear()
    with pytest.raises(MissingExtraError, match=r"felb\[privacy\]"):
        Accountant(1.0, 1e-5).charge(charge(0, 0.1))


# -- the gate that charges ---------------------------------------------------------------------------------------------


def test_the_gate_logs_cost_and_running_total(tmp_path):
    log, accountant = OutboundLog(tmp_path / "site.jsonl"), Accountant(1.0, 1e-5)
    gate = Gate("site", log, DiscreteGaussian(100.0, 10.0), accountant, run="r")
    for t in range(2):
        update = Update({"M": np.arange(4), "N": np.int64(7)})
        gate.release(update, Request.of([Part("count", {})], number=t), outputs_of(update), rng=None)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [line["cost"]["loss"] for line in lines] == [0.1] * 4
    assert [line["total"]["mu"] for line in lines] == pytest.approx([math.sqrt(0.02)] * 2 + [0.2] * 2)
    assert lines[-1]["total"]["epsilon"] == pytest.approx(accountant.spent)
    assert lines[0]["mechanism"] == "discrete gaussian"


def test_a_refused_round_sends_nothing_at_all():
    class OnlyM:
        name = "only M"

        def release(self, what, value, *, rng):
            return (DiscreteGaussian(100.0, 10.0) if what == "M" else NoNoise()).release(what, value, rng=rng)

    seen, accountant = [], Accountant(1.0, 1e-5)
    gate = Gate("site", seen.append, OnlyM(), accountant)
    update = Update({"M": np.arange(4), "loss": np.float64(1)})
    with pytest.raises(PrivacyError, match=r"loss .* not protected"):
        gate.release(update, Request("count"), outputs_of(update), rng=None)
    assert (seen, accountant.entries) == ([], ())


def test_a_replayed_round_with_seeded_noise_is_charged_once():
    class Seeded:
        name = "seeded"

        def release(self, what, value, *, rng):
            return value + rng.standard_normal(value.shape), Cost("gaussian", 0.4, "client")

    accountant = Accountant(3.0, 1e-5, unit="client")
    gate = Gate("site", lambda _: None, Seeded(), accountant)
    for _ in range(2):
        request = Request.of([Part("local_factor", {})], number=4)
        update = Update({"V": np.ones((2, 3))})
        gate.release(update, request, outputs_of(update), rng=np.random.default_rng(5))
    assert len(accountant.entries) == 1
