"""Cuts of a relaxed V by shares of its rows' greatest entries."""

import numpy as np
import pytest

from felb.datasets import partition, planted
from felb.engines import run
from felb.errors import InputError
from felb.federated.phases.base import Known
from felb.federated.phases.cuts import MEASURE, SHARES, Cuts, cut_at
from felb.federated.phases.pipeline import Chain, pipeline
from felb.federated.phases.relaxed import Relaxed
from felb.federated.phases.start import Start
from felb.federated.recipes.sums import Effort, federated_bmf
from felb.linalg.assign import assign_rows
from felb.linalg.binary import BinaryMatrix

DATA = planted(300, 40, 5, noise=0.05, seed=1)
RECIPE = pipeline("cuts", Chain(Start(40, 5), Relaxed(8), Cuts()))


def shards(groups):
    return {f"c{group}": DATA.A.take(np.flatnonzero(groups == group)) for group in np.unique(groups)}


def test_the_best_cut_is_the_one_a_search_over_all_rows_finds():
    outcome = run(RECIPE, {"a": DATA.A}).outcome
    errors = []
    for share in SHARES:
        V = outcome.relaxed > share * outcome.relaxed.max(axis=1, keepdims=True)
        U = assign_rows(DATA.A, V)
        errors.append(np.count_nonzero(((U.astype(int) @ V) > 0) != DATA.A.toarray()))
    best = SHARES[int(np.argmin(errors))]
    np.testing.assert_array_equal(outcome.components, cut_at(outcome.relaxed, best))
    history = run(RECIPE, {"a": DATA.A}).history
    assert [row["loss"] for row in history if row["task"] == MEASURE] == [min(errors)]


def test_how_rows_are_split_does_not_matter():
    pooled = run(RECIPE, {"a": DATA.A}).outcome
    split = run(RECIPE, shards(partition.uneven(300, 7, seed=0))).outcome
    np.testing.assert_array_equal(split.components, pooled.components)
    assert split.counts == pooled.counts


def test_a_row_of_zeros_stays_empty():
    assert not cut_at(np.zeros((2, 3), dtype=np.float32), 0.5).any()


def test_without_a_relaxed_v_it_says_what_is_missing():
    with pytest.raises(InputError, match="relaxed"):
        Cuts().start(Known(), 0)


def test_the_default_method_tries_cuts_and_is_no_worse_for_it():
    rng = np.random.default_rng(0)
    X = rng.random((400, 300)) < 0.01
    X[:8, :200] |= rng.random((8, 200)) < 0.6
    A = BinaryMatrix.of(X)

    def found(cuts):
        effort = Effort(tries=0, cover_features=0, cuts=cuts, restarts=0)
        finished = run(federated_bmf(300, 6, effort=effort, objective="hamming"), {"a": A})
        return finished.outcome.counts.errors, {row["task"] for row in finished.history}

    one, asked = found(cuts=False)
    assert MEASURE not in asked
    both, asked = found(cuts=True)
    assert MEASURE in asked
    assert both <= one
