"""Cuts of a relaxed V by shares of its rows' greatest entries."""

import numpy as np
import pytest
from driving import algorithm_of, drive

from felb.data import partition, planted
from felb.data.binary import BinaryMatrix
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms.bmf import Effort, federated_bmf
from felb.federated.steps.relaxed import CUT_COUNTS, SHARES, cut_at, cut_relaxed, nmf
from felb.federated.steps.starts import spectral_init
from felb.federated.steps.state import Solution
from felb.kernels.assign import assign_rows

DATA = planted(300, 40, 5, noise=0.05, seed=1)


def cut_start(seed):
    known = yield from spectral_init(40, 5, seed=seed)
    known = yield from nmf(known, 8)
    return (yield from cut_relaxed(known))


ALGORITHM = algorithm_of(cut_start, DATA.A.shape[1])


def shards(groups):
    return {f"c{group}": DATA.A.take(np.flatnonzero(groups == group)) for group in np.unique(groups)}


def test_the_best_cut_is_the_one_a_search_over_all_rows_finds():
    outcome = run(ALGORITHM, {"a": DATA.A}).outcome
    errors = []
    for share in SHARES:
        V = outcome.relaxed > share * outcome.relaxed.max(axis=1, keepdims=True)
        U = assign_rows(DATA.A, V)
        errors.append(np.count_nonzero(((U.astype(int) @ V) > 0) != DATA.A.toarray()))
    best = SHARES[int(np.argmin(errors))]
    np.testing.assert_array_equal(outcome.components, cut_at(outcome.relaxed, best))
    history = run(ALGORITHM, {"a": DATA.A}).history
    assert [row["loss"] for row in history if row["task"] == CUT_COUNTS.name] == [min(errors)]


def test_how_rows_are_split_does_not_matter():
    centralized = run(ALGORITHM, {"a": DATA.A}).outcome
    split = run(ALGORITHM, shards(partition.uneven(300, 7, seed=0))).outcome
    np.testing.assert_array_equal(split.components, centralized.components)
    assert split.counts == centralized.counts


def test_a_row_of_zeros_stays_empty():
    assert not cut_at(np.zeros((2, 3), dtype=np.float32), 0.5).any()


def test_without_a_relaxed_v_it_says_what_is_missing():
    with pytest.raises(InputError, match="relaxed"):
        drive(cut_relaxed(Solution()), [DATA.A])


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
    assert CUT_COUNTS.name not in asked
    both, asked = found(cuts=True)
    assert CUT_COUNTS.name in asked
    assert both <= one
