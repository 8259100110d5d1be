"""Forecasts: the small simulation has the noise of the run it stands for, and time is kept."""

from __future__ import annotations

import json

import pytest

from felb.errors import InputError
from felb.privacy import Privacy
from felb.privacy.noise_forecast import Shape, release_noise
from felb.runs import privacy_forecast as planning
from felb.runs.privacy_forecast import forecast, imagine, noise_factor, scaled_down

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

LARGE = Shape.of(200_000, 1000, 10, ones_per_record=50)
SMALL = Shape.of(400, 12, 2, ones_per_record=3)


@pytest.fixture
def scores(monkeypatch):
    """Replace the factorization; returns the settings it was called with."""
    seen = []

    def recovered(data, n_components, privacy, *, seed):
        seen.append(privacy)
        return 1.0 if privacy is None else min(1.0, privacy.epsilon / 100)

    monkeypatch.setattr(planning, "_recovered", recovered)
    return seen


def main_noise(privacy, shape, clients):
    plan = privacy.plan(n_records=shape.n_records, n_clients=clients, n_columns=shape.n_features)
    return planning._main(release_noise(plan, shape))


@pytest.mark.parametrize("shape", [LARGE, SMALL, Shape.of(50_000, 20_000, 20, ones_per_record=10)])
@pytest.mark.parametrize(
    "privacy",
    [Privacy(0.7), Privacy(0.7, noise="distributed", dropouts=2), Privacy(0.7, row_bound=5)],
    ids=["client", "distributed", "bound"],
)
def test_the_simulation_has_the_noise_of_the_run_it_stands_for(shape, privacy, scores):
    small = scaled_down(shape)
    setting = planning._standing_for(privacy, shape, small, clients=16)
    wanted = main_noise(privacy, shape, 16) * noise_factor(shape, small)
    assert main_noise(setting, small, 1) == pytest.approx(wanted, rel=1e-3)


def test_data_that_is_small_enough_is_simulated_as_it_is(scores):
    assert scaled_down(SMALL) == SMALL
    assert noise_factor(SMALL, SMALL) == 1
    found = forecast(SMALL, Privacy(1.0), clients=3)
    assert "simulated at full size, all noise added at once" in found.notes


def test_scaling_keeps_what_tells_a_component_from_noise():
    small = scaled_down(LARGE)
    assert (small.n_records, small.n_features, small.height) == (3000, 300, LARGE.height)
    assert small.width / small.n_features**0.5 == pytest.approx(LARGE.width / LARGE.n_features**0.5)
    assert noise_factor(LARGE, small) == pytest.approx(1)


@pytest.mark.parametrize("ones", [2, 10, 300, 15_000])
@pytest.mark.parametrize("m", [50, 301, 2000, 20_000])
@pytest.mark.parametrize("k", [1, 20])
def test_nothing_is_easier_to_tell_from_noise_in_the_simulation(ones, m, k):
    if ones >= 0.8 * m:
        return
    shape = Shape.of(50_000, m, k, ones_per_record=ones)
    small = scaled_down(shape)
    noise = noise_factor(shape, small)
    assert small.width >= min(4, shape.width)
    assert noise >= 1
    assert small.width <= shape.width
    assert small.width / (noise * small.n_features**0.5) <= shape.width / shape.n_features**0.5 * (1 + 1e-9)
    assert 0 < small.ones_per_record < 0.9 * small.n_features


def test_imagined_data_has_the_shape_asked_for():
    small = scaled_down(LARGE)
    data = imagine(small, seed=0)
    assert data.A.shape == (3000, 300)
    assert data.A.nnz / 3000 == pytest.approx(small.ones_per_record, rel=0.25)
    assert set(data.V.sum(axis=1)) == {round(small.width)}


def test_a_forecast_says_what_to_expect_for_several_epsilon(scores):
    steps = []
    found = forecast(LARGE, Privacy(0.5), clients=10, on_step=lambda *step: steps.append(step))
    assert [row.epsilon for row in found.expected] == [0.125, 0.25, 0.5, 1.0, 2.0]
    assert [len(row.scores) for row in found.expected] == [3] * 5
    means = [row.mean for row in found.expected]
    assert means == sorted(means)
    assert steps[0] == (0, 18)
    assert steps[-1] == (18, 18)
    assert found.delta == pytest.approx(5e-7)
    assert "(epsilon, delta) = (0.5, 5e-07)" in found.statement
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["without_noise"]["f1"] == 1
    assert plain["simulated"]["n_records"] == 3000
    assert any("no less than at full size" in note for note in plain["notes"])


def test_with_little_time_at_least_what_was_asked_for_is_tried(scores, monkeypatch):
    monkeypatch.setattr(planning, "SECONDS", 0.0)
    found = forecast(SMALL, Privacy(1.5), clients=3)
    assert [(row.epsilon, len(row.scores)) for row in found.expected] == [(1.5, 1)]
    assert len(found.without) == 1


def test_more_features_than_can_be_simulated_are_admitted(scores):
    found = forecast(Shape.of(50_000, 20_000, 20, ones_per_record=10), Privacy(1.0), clients=3)
    assert any("expect less" in note for note in found.notes)


def test_only_promises_to_records_are_planned(scores):
    with pytest.raises(InputError, match="reproduction only"):
        forecast(SMALL, Privacy(1.0, unit="client", mechanism="paper", theta=1.0, rounds=2), clients=3)
    with pytest.raises(InputError, match="below 1/400"):
        forecast(SMALL, Privacy(1.0, 0.01), clients=3)
    assert scores == []
