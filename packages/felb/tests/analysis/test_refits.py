"""Stability: planted components come back, components of noise do not, and clients resample for themselves."""

import numpy as np
import pytest

import felb
from felb.analysis.refits import FILE, Stability, cheapest_refit, resampled, shards_of, stability_among
from felb.data import planted

DATA = planted(400, 60, 4, noise=0.05, heights=(0.1, 0.3), widths=(0.1, 0.3), seed=0)
CLIENTS = felb.data.partition.uneven(400, 3)
MODEL = felb.FederatedBMF(4, random_state=0).fit(DATA.A)


def test_planted_components_are_found_and_their_members_told():
    stable = felb.stability(MODEL, DATA.A, n_resamples=6)
    assert (stable.found >= 0.95).all()
    np.testing.assert_array_equal(stable.features > 0.5, MODEL.components_)
    assert (np.abs(stable.records - MODEL.transform(DATA.A)).mean(axis=0) < 0.05).all()
    assert (stable.interval[:, 0] <= stable.mean).all()
    assert (stable.mean <= stable.interval[:, 1]).all()


def test_components_of_noise_are_not_found():
    noise = np.random.default_rng(0).random((400, 60)) < 0.3
    model = felb.FederatedBMF(4, random_state=0).fit(noise)
    assert (felb.stability(model, noise, n_resamples=6).found < 0.5).all()


def test_components_of_noise_beside_planted_ones_are_told_apart():
    data = planted(400, 60, 4, noise=0.05, heights=(0.1, 0.3), widths=(0.1, 0.3), seed=1)
    model = felb.FederatedBMF(6, objective="hamming", random_state=0).fit(data.A)
    real = (model.components_[:, None] == data.V).all(axis=2).any(axis=1)
    assert real.sum() == 4
    found = felb.stability(model, data.A, n_resamples=8).found
    assert found[real].min() > 0.8
    assert found[~real].max() < 0.5


def test_a_seed_fixes_everything_and_groups_equal_lists():
    by_groups, again = (
        felb.stability(MODEL, DATA.A, groups=[f"client-{c + 1:02}" for c in CLIENTS], n_resamples=3) for _ in range(2)
    )
    parts = [DATA.A.take(np.flatnonzero(c == CLIENTS)) for c in range(3)]
    by_list = felb.stability(MODEL, parts, n_resamples=3)
    for other in (again, by_list):
        np.testing.assert_array_equal(by_groups.match, other.match)
        np.testing.assert_array_equal(by_groups.features, other.features)
    order = np.argsort(CLIENTS, kind="stable")
    np.testing.assert_array_equal(by_groups.records[order], by_list.records)


def test_a_client_draws_only_its_own_rows_from_a_stream_of_its_own():
    shards, rows = shards_of(None, DATA.A, CLIENTS, None)
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(400))
    draws = {}
    for name, shard in shards.items():
        sample = resampled(shard, 1.0, rng=np.random.default_rng(1))
        own = {tuple(row) for row in shard.toarray().tolist()}
        assert len(sample) == len(shard)
        assert {tuple(row) for row in sample.toarray().tolist()} <= own
        draws[name] = sample
    assert len(resampled(DATA.A, 0.5, rng=np.random.default_rng(1))) == 200


def test_a_client_that_others_join_or_leave_draws_the_same_rows(monkeypatch):
    drawn = []
    real = resampled

    def spy(shard, size, *, rng):
        drawn.append((len(shard), real(shard, size, rng=rng).fingerprint()))
        return real(shard, size, rng=np.random.default_rng(0))

    monkeypatch.setattr("felb.analysis.refits.resampled", spy)
    parts = [DATA.A.rows(0, 100), DATA.A.rows(100, 180), DATA.A.rows(180, 400)]
    model = felb.FederatedBMF(4, effort="fast", objective="hamming", random_state=0).fit(DATA.A)
    felb.stability(model, parts, n_resamples=1)
    felb.stability(model, parts[:2], n_resamples=1)
    assert drawn[0] == drawn[3]
    assert drawn[1] == drawn[4]


@pytest.mark.parametrize("method", ["grecond", "felb-mu"])
def test_other_methods_are_refitted_as_they_are(method):
    from felb.sklearn.methods import make

    model = make(method, n_components=3, random_state=0)
    model.fit(DATA.A)
    stable = felb.stability(model, DATA.A, n_resamples=2)
    assert stable.match.shape == (2, 3)


def test_refits_use_belief_propagation_only_where_it_is_needed():
    light = cheapest_refit(MODEL, MODEL.components_, shards_of(None, DATA.A, None, None)[0], recovered=True, seed=0)
    assert light.estimator.objective == "hamming"
    assert light.size == 1
    noisy = planted(400, 60, 4, noise=0.3, heights=(0.1, 0.3), widths=(0.1, 0.3), seed=1)
    model = felb.FederatedBMF(4, random_state=0).fit(noisy.A)
    assert model.belief_ is not None
    heavy = cheapest_refit(model, model.components_, shards_of(None, noisy.A, None, None)[0], recovered=True, seed=0)
    assert heavy.estimator.objective == "recover"
    assert heavy.size == 0.5


def test_the_record_is_stored_without_records(tmp_path):
    stable = felb.stability(MODEL, DATA.A, n_resamples=3)
    stable.write(tmp_path / FILE)
    again = Stability.read(tmp_path / FILE)
    np.testing.assert_allclose(again.match, stable.match, atol=1e-4)
    np.testing.assert_allclose(again.features, stable.features, atol=1e-4)
    assert again.records is None
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(felb.InputError, match=r"stability\.json is damaged"):
        Stability.read(tmp_path / FILE)


def test_wrong_input_is_named():
    with pytest.raises(felb.InputError, match="60"):
        felb.stability(MODEL, DATA.A.toarray()[:, 1:])
    with pytest.raises(felb.InputError, match="n_resamples"):
        felb.stability(MODEL, DATA.A, n_resamples=0)
    private = felb.FederatedBMF(4, privacy=felb.privacy.Privacy(epsilon=1.0))
    private.components_, private.n_features_in_ = MODEL.components_, 60
    with pytest.raises(felb.InputError, match="budget"):
        felb.stability(private, DATA.A)


def test_found_is_relative_to_chance():
    V, W = np.zeros((2, 40), dtype=bool), np.zeros((2, 40), dtype=bool)
    V[0, :10], V[1, 5:39] = True, True
    W[0, :7], W[1, :26] = True, True
    stable = stability_among(V, [W], seed=0)
    # The first component is found with a Jaccard index of 0.7; the second has most of the features, so that two random
    # sets of its size are alike, and 0.54 is hardly more than chance.
    np.testing.assert_allclose(stable.match[0], [0.7, 21 / 39])
    assert stable.chance[0, 0] < 0.2
    assert stable.chance[0, 1] > 0.5
    assert stable.found.tolist() == [1.0, 0.0]


def test_the_chance_is_stored(tmp_path):
    V = np.eye(3, 6, dtype=bool)
    stable = stability_among(V, [V, V[::-1]], seed=0)
    stable.write(tmp_path / "s.json")
    again = Stability.read(tmp_path / "s.json")
    np.testing.assert_allclose(again.chance, stable.chance, atol=1e-4)
    assert again.found.tolist() == [1.0, 1.0, 1.0]
