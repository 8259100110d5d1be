"""SOFA: one pass, memory, planted components, and losses near those of Asso."""

import tracemalloc

import numpy as np
import pytest

from felb.data import BinaryMatrix, load, planted
from felb.errors import InputError
from felb.metrics import confusion
from felb.sklearn.centralized import Asso, Sofa

DATA = planted(3000, 100, 5, noise=0.05, seed=1)


def errors(model, A):
    return confusion(A, model.fit_transform(A), model.components_).errors


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_planted_components_are_recovered_in_one_pass(noise):
    data = planted(3000, 100, 5, noise=noise, seed=1)
    model = Sofa(5, random_state=0)
    assert confusion(data.signal, model.fit_transform(data.A), model.components_).f1 > 0.98


@pytest.mark.parametrize("size", [70, 700, 3000])
def test_blocks_of_rows_give_the_result_of_a_single_fit(size):
    whole, parts = (Sofa(5, centres=16, sample=100, random_state=0) for _ in range(2))
    whole.fit(DATA.A)
    for block in DATA.A.row_blocks(size):
        parts.partial_fit(block)
    np.testing.assert_array_equal(parts.components_, whole.components_)
    assert parts.n_records_ == whole.n_records_ == 3000


def test_fit_forgets_the_stream():
    model = Sofa(5, random_state=0).partial_fit(DATA.A)
    model.fit(load("zoo"))
    assert model.components_.shape == (5, 17)
    assert model.partial_fit(DATA.A).n_records_ == 3000


@pytest.mark.parametrize("name", ["zoo", "soybean"])
def test_errors_are_at_most_twice_those_of_asso_with_its_best_threshold(name):
    A = load(name)
    assert errors(Sofa(10, random_state=0), A) <= 2 * errors(Asso(10, tau="auto"), A)


def test_the_memory_of_a_stream_does_not_depend_on_the_number_of_rows():
    block, peaks = DATA.A, []
    for times in (1, 8):
        model = Sofa(5, sample=200, random_state=0).partial_fit(block)
        tracemalloc.start()
        for _ in range(times):
            model.partial_fit(block)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_the_sample_of_rows_is_uniform():
    rows = BinaryMatrix.of(np.eye(60, dtype=bool))
    counts = np.zeros(60)
    for seed in range(200):
        stream = Sofa(2, sample=15).open_stream(60, 2, seed)
        for block in rows.row_blocks(17):
            stream.add(block)
        counts += stream.sample.rows(60).column_sums()
    assert counts.sum() == 200 * 15
    assert 30 <= counts.min() <= counts.max() <= 75  # 50 expected, deviation 6


def test_parameters_that_make_no_sense():
    for parameters, message in (({"overlap": 1.5}, "overlap"), ({"rest": -0.1}, "rest"), ({"sample": 0}, "sample")):
        with pytest.raises(InputError, match=message):
            Sofa(2, **parameters).fit(load("zoo"))
    with pytest.raises(InputError, match="feature names should match"):
        Sofa(2).partial_fit(load("zoo")).partial_fit(load("soybean"))
