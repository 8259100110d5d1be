"""Under disclosure rules no released number is made of few records; checked by counting the records of each number.

Every number of a response is a sum over records. Here the records that have a part in it are counted one by one, from
the definitions, for requests that a hostile coordinator would like to make: components that few records have, that
all but a few have, and sets of features of single records, with costs at which a record covers whole sets only.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_algorithm_contract import ALGORITHMS, made

from felb.data import planted
from felb.data.binary import BinaryMatrix
from felb.engines.local import run
from felb.errors import FederationError
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.client import Client
from felb.federated.gate import Gate
from felb.federated.protocol import Request
from felb.kernels.assign import assign_rows
from felb.kernels.passes import in_units, units_of
from felb.privacy.disclosure import Disclosure

LEAST, N, M = 10, 120, 14
RULES = Disclosure(LEAST, 1, None, 1)
A = planted(N, M, 3, noise=0.08, seed=4).A.to_scipy(bool).toarray()
A[:, 0] = True
A[:3, 0] = False  # all but three have it
ROWS = BinaryMatrix.of(A)
ALGORITHM = federated_bmf(M, 6, false_positive_cost=np.inf)
WEIGHTS = [(1.0, -1.0), (1.0, -(M + 1.0))]


def hostile_sets(seed):
    """Return sets of features: of single records, of a few, common ones and nearly common ones."""
    rng = np.random.default_rng(seed)
    rows = A[rng.choice(N, 6, replace=False)]
    rows[2:4] &= A[rng.choice(N, 2)]
    rows[4:] = False
    rows[4, 0] = rows[5, rng.integers(1, M)] = True
    return rows


def released(task, rules=RULES, **values):
    client = Client("a", ALGORITHM, Gate("a", lambda _: None, disclosure=rules), seed=0)
    return client.answer(None, ROWS, Request(task, **values))[1].values


def members(V, weights):
    """U as it may be told: what few records have nobody has, and what few lack all have."""
    U = assign_rows(ROWS, V, weight_one=weights[0], weight_zero=weights[1])
    for column in U.T:
        if column.sum() < LEAST:
            column[:] = False
        elif N - column.sum() < LEAST:
            column[:] = True
    return U


def assert_many(value, records, what):
    """A number that is told is made of enough records."""
    value, records = np.asarray(value), np.asarray(records)
    assert not np.any((value != 0) & (records < LEAST)), what
    assert np.any(value != 0) or not np.any(records >= LEAST), f"{what} is not hidden altogether"


def assert_split(value, of, what):
    """Of a group whose size is told, either nobody, everybody or enough are counted, and enough are not."""
    value, of = np.broadcast_arrays(value, of)
    small = (value < LEAST) | (of - value < LEAST)
    assert np.isin(value[small], np.unique(np.concatenate([[0], of.ravel()]))).all(), what


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("seed", range(4))
def test_gains_and_counts_of_components_are_made_of_many(seed, weights):
    V = hostile_sets(seed)
    told, U = released("flip_gains", components=V, weights=weights), members(V, weights)
    R = (U.astype(int) @ V) > 0
    for name, cells in zip(("tp", "fp", "fn"), (R & A, R & ~A, ~R & A), strict=True):
        number = told["counts"][("tp", "fp", "fn").index(name)]
        few = np.count_nonzero(cells.any(axis=1)) < LEAST
        assert number in (0, A.sum(), (~A).sum()) if few else number > 0, name
    assert told["counts"][[0, 2]].sum() == A.sum(), "all ones are told as covered or not"
    np.testing.assert_array_equal(told["supports"], U.sum(axis=0))
    assert_split(told["supports"], N, "supports")
    for component in range(len(V)):
        others = (np.delete(U, component, axis=1).astype(int) @ np.delete(V, component, axis=0)) > 0
        left = U[:, [component]] & ~others
        ones, cells = (left & A).sum(axis=0), left.sum(axis=0)
        gains = told["gains"][component]
        assert_many(gains, cells, "gains")
        for gain, count, of in zip(gains, ones, cells, strict=True):
            count = 0 if count < LEAST else of if of - count < LEAST else count
            assert gain == (0 if of < LEAST else weights[0] * count + weights[1] * (of - count))
    stacked = released("stacked_gains", candidates=V[None], weights=weights)
    for name in ("counts", "supports", "gains"):
        np.testing.assert_array_equal(stacked[name][0], told[name], err_msg="the same rule for several V")


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("seed", range(4))
def test_residuals_pairs_and_candidates_are_made_of_many(seed, weights):
    V, candidates = hostile_sets(seed)[:3], np.concatenate([hostile_sets(seed + 9), np.eye(M, dtype=bool)])
    left = A & ~((members(V, weights).astype(int) @ V) > 0)
    asked = {"components": V, "weights": weights}
    residual = released("residual_counts", **asked)["residual"]
    assert_many(residual, left.sum(axis=0), "residual")
    assert_split(residual, N, "residual")
    pairs = released("pair_counts", **asked, seeds=np.arange(M))["pairs"]
    both = left.astype(int).T @ left
    assert_many(pairs, both, "pairs")
    sizes = left.sum(axis=0)
    alone = np.minimum(sizes[:, None], sizes) - both
    assert not np.any((alone > 0) & (alone < LEAST) & (pairs == both) & (pairs > 0)), "few that have one of two only"
    told = released("candidate_gains", **asked, candidates=candidates)
    covered = (members(V, weights).astype(int) @ V) > 0
    for place, candidate in enumerate(candidates):
        open_cells = candidate & ~covered
        ones, zeros = (open_cells & A).sum(axis=1), (open_cells & ~A).sum(axis=1)
        pays = weights[0] * ones + weights[1] * zeros > 0
        assert_split(np.count_nonzero(pays) if told["ones"][place] else 0, N, "candidates")
        for name, cells in (("ones", ones), ("zeros", zeros)):
            makers = np.count_nonzero(pays & (cells > 0))
            assert told[name][place] in (0, cells[pays].sum()), name
            assert makers >= LEAST or told[name][place] == 0, name


def test_sketches_are_those_of_pair_counts_that_may_leave():
    """However the coordinator has come to Q: unit vectors tell pair counts themselves."""
    units = released("gram_sketch", Q=np.eye(M)[:, :M])["sketch"]
    pairs = A.astype(int).T @ A
    told = units / units[1, 1] * pairs[1, 1]
    assert_many(told, pairs, "sketch")
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(M, M)))[0]
    mixed = released("gram_sketch", Q=np.ldexp(np.rint(np.ldexp(Q, 20)), -20))["sketch"]
    solved = np.rint(np.linalg.solve(Q.T, (mixed / units[1, 1] * pairs[1, 1]).T).T)
    assert_many(np.where(np.abs(solved) < 0.5, 0, solved), pairs, "what can be solved for")


@pytest.mark.parametrize("seed", range(4))
def test_statistics_of_relaxed_rows_are_numbers_of_many_records(seed):
    V = hostile_sets(seed).astype(np.float32)
    told = released("factor_statistics", V=V)
    [one] = in_units(np.ones((1, len(V)), np.float32), units_of(V)).astype(np.int64)
    for name, unit in (("AtU", one), ("sums", one), ("UtU", one[:, None] * one)):
        counts, rest = np.divmod(told[name], np.maximum(unit, 1))
        assert not rest.any(), name
        assert not np.any((counts > 0) & (counts < LEAST)), name


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if "private" not in name])
def test_every_method_runs_under_the_rules_and_declares_what_its_numbers_are_made_of(name):
    algorithm = made(ALGORITHMS[name])
    for spec in algorithm.tasks.values():
        assert all(output.made_of is not None for output in spec.outputs.values()), spec.name
    shards = {place: ROWS.rows(start, start + 40) for place, start in zip("abc", (0, 40, 80), strict=True)}
    finished = run(algorithm, shards, seed=0, disclosure=Disclosure(5, 1, None, 1))
    assert finished.outcome.components.shape[1] == M


def test_what_does_not_declare_its_records_does_not_leave():
    from dataclasses import replace

    spec = ALGORITHM.tasks["residual_counts"]
    outputs = {name: replace(output, made_of=None) for name, output in spec.outputs.items()}
    silent = replace(ALGORITHM, tasks={"residual_counts": replace(spec, outputs=outputs)})
    client = Client("a", silent, Gate("a", lambda _: None, disclosure=RULES), seed=0)
    request = Request("residual_counts", components=np.zeros((1, M), bool), weights=[1.0, -1.0])
    with pytest.raises(FederationError, match="nothing was sent"):
        client.answer(None, ROWS, request)
