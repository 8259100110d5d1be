"""The paper's noise on uploads: as much as its formula and its level say, at the cost that it states."""

from __future__ import annotations

import math

import numpy as np
import pytest

from felb.data.partition import split
from felb.engines.local import run
from felb.errors import InputError, PrivacyError
from felb.privacy.accounting import gaussian_delta
from felb.privacy.audit import scale_matches
from felb.privacy.spec import Privacy
from felb.sklearn.federated import FederatedBMF
from felb_paper.cells import Cell, MethodUse, Noise, PlantedData
from felb_paper.measuring import measure, prepare
from felb_paper.upload_noise import NoisyUploads, upload_epsilon

DRAWS = 20_000


def rng(seed=0):
    return np.random.default_rng(seed)


def upload(mechanism, level, value, theta=None):
    return NoisyUploads(Noise(mechanism, level, theta)).release("V", value, rng=rng())


def test_gaussian_noise_costs_theta_over_sigma():
    noise, cost = upload("gaussian", 1.5, np.zeros(DRAWS), 2.0)
    assert scale_matches(noise, 1.5)
    assert (cost.kind, cost.unit, cost.neighbours) == ("gaussian", "client", "add_remove")
    assert cost.loss == pytest.approx(2.0 / 1.5)


def test_laplace_noise_costs_the_l1_sensitivity_over_its_scale():
    noise, cost = upload("laplace", 3.0, np.zeros(DRAWS), 1.5)
    assert np.mean(np.abs(noise)) == pytest.approx(3.0, rel=0.05)  # E|x| = b
    assert (cost.kind, cost.unit) == ("laplace", "client")
    assert cost.loss == pytest.approx(1.5 * math.sqrt(DRAWS) / 3.0)


def test_uploads_are_shortened_to_theta_before_the_noise():
    noise = upload("gaussian", 1.0, np.zeros(9), 2.0)[0]
    for value, length in ((np.full(9, 5.0), 2.0), (np.full(9, -5.0), 2.0), (np.full(9, 0.1), 0.3)):
        assert np.linalg.norm(upload("gaussian", 1.0, value, 2.0)[0] - noise) == pytest.approx(length)


def test_xor_flips_as_often_as_said_and_charges_every_bit():
    p = 1 / (1 + math.e)
    released, cost = upload("xor", p, np.zeros((100, 200), dtype=bool))
    assert abs(released.mean() - p) < 5 * math.sqrt(p * (1 - p) / DRAWS)
    assert (cost.count, cost.unit, cost.pure_epsilon) == (20_000, "client", pytest.approx(20_000))


@pytest.mark.parametrize("value", [np.zeros(3), np.zeros(3, dtype=np.int64)])
def test_xor_refuses_numbers(value):
    with pytest.raises(InputError, match="Boolean"):
        upload("xor", 0.1, value)


def test_real_noise_refuses_bits():
    for mechanism in ("gaussian", "laplace"):
        with pytest.raises(InputError, match="xor noise"):
            upload(mechanism, 1.0, np.zeros(3, dtype=bool))


@pytest.mark.parametrize(
    "noise",
    [
        Noise("gaussian", 0.0),
        Noise("gaussian", math.inf),
        Noise("laplace", -1.0),
        Noise("laplace", 1.0, 0.0),
        Noise("xor", 0.5),
        Noise("record", 1.0),
    ],
)
def test_nonsense_is_refused(noise):
    with pytest.raises(InputError):
        NoisyUploads(noise)


SHAPE = (20, 500)
DATA = PlantedData(60, 12, 2, heights=(0.4, 0.6), widths=(0.4, 0.6))
FELB = MethodUse("FELB", "felb", {"max_iter": 5, "local_steps": 1, "setting": "unweighted"})
ASSO = MethodUse("Asso", "asso+vote")


def spread(noise):
    V = np.full(SHAPE, 0.001, dtype=np.float64)
    released, _ = NoisyUploads.of(noise).release("V", V, rng=np.random.default_rng(0))
    return released - V


@pytest.mark.parametrize("theta", [None, 5.0])
def test_the_level_is_the_spread_of_the_noise(theta):
    assert np.std(spread(Noise("gaussian", 0.3, theta))) == pytest.approx(0.3, rel=0.05)
    assert np.mean(np.abs(spread(Noise("laplace", 0.3, theta)))) == pytest.approx(0.3, rel=0.05)


def test_flips_come_as_often_as_the_level_says():
    bits, _ = NoisyUploads.of(Noise("xor", 0.2)).release("V", np.zeros(SHAPE, bool), rng=np.random.default_rng(0))
    assert bits.mean() == pytest.approx(0.2, rel=0.1)


def test_only_v_is_noised_and_without_a_level_nothing():
    counts = np.arange(4)
    released, cost = NoisyUploads.of(Noise("xor", 0.2)).release("counts", counts, rng=np.random.default_rng(0))
    assert (released == counts).all()
    assert cost is None
    assert NoisyUploads.of(Noise("gaussian", 0.0)) is None


def test_epsilon_of_an_upload_follows_the_papers_formulas():
    assert upload_epsilon(Noise("gaussian", 2.0), 100) == pytest.approx(math.sqrt(2 * math.log(25)) / 2)
    assert upload_epsilon(Noise("gaussian", 2.0, 3.0), 100) == pytest.approx(3 * math.sqrt(2 * math.log(25)) / 2)
    assert upload_epsilon(Noise("laplace", 2.0), 100) == 0.5
    assert upload_epsilon(Noise("laplace", 2.0, 3.0), 100) == 15
    assert upload_epsilon(Noise("xor", 0.25), 100) == pytest.approx(math.log(3))


def measured(use, noise):
    return measure(Cell(use, DATA, 3, 0.0, 0, noise=noise)).figures


def test_totals_are_those_of_a_whole_run():
    gauss = measured(FELB, Noise("gaussian", 0.5, 2.0))
    assert gauss["uploads"] == 5
    mu = math.sqrt(5) * 2.0 / 0.5  # five uploads of μ = θ/σ each
    assert gaussian_delta(mu, gauss["epsilon_total"]) == pytest.approx(1e-5, rel=1e-3)
    laplace = measured(FELB, Noise("laplace", 0.5, 2.0))
    assert laplace["epsilon_total"] == pytest.approx(5 * laplace["epsilon_upload"])
    flips = measured(ASSO, Noise("xor", 0.1))
    assert flips["epsilon_total"] == pytest.approx(2 * 12 * math.log(9))


def test_without_a_clip_or_noise_there_is_no_total():
    assert measured(FELB, Noise("gaussian", 0.5))["epsilon_total"] is None
    assert measured(FELB, Noise("gaussian", 0.5))["epsilon_upload"] > 0
    none = measured(FELB, Noise("laplace", 0.0, 2.0))
    assert none["epsilon_total"] is None
    assert none["f1"] == measured(FELB, None)["f1"]


def test_a_private_algorithm_takes_no_other_noise():
    pytest.importorskip("dp_accounting")
    ready = prepare(Cell(FELB, DATA, 3, 0.0, 0))
    shards, _ = split(ready.A, ready.clients)
    algorithm = FederatedBMF(2, privacy=Privacy(1.0)).algorithm_for(shards)
    with pytest.raises(PrivacyError, match="own noise"):
        run(algorithm, shards, mechanism=NoisyUploads.of(Noise("gaussian", 1.0)))


def test_noise_for_real_values_is_refused_where_whole_numbers_are_sent():
    with pytest.raises(InputError, match="V is int64"):
        measured(MethodUse("FELB", "felb", {"max_iter": 5}), Noise("gaussian", 0.5))


def test_heavy_noise_hurts():
    assert measured(FELB, Noise("gaussian", 50.0))["f1_star"] < measured(FELB, None)["f1_star"]


def test_rounds_are_watched():
    found = measure(Cell(FELB, DATA, 3, 0.0, 0, watch="rounds"))
    assert {len(curve) for curve in found.curves.values()} == {5}
    assert found.figures["loss"] == found.curves["loss"][-1]
    assert found.figures["integrality_gap"] == pytest.approx(found.curves["integrality_gap"][-1])
    assert found.figures["f1"] == pytest.approx(found.curves["f1"][-1])
