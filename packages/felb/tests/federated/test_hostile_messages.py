"""What an attacker would ask or answer is refused, by what the tasks of an algorithm declare."""

from __future__ import annotations

import numpy as np
import pytest

import felb
from felb.errors import FederationError
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.algorithms.competitors import fedprox
from felb.federated.algorithms.felb import LITERAL
from felb.federated.algorithms.felb import felb as felb_algorithm
from felb.federated.algorithms.post_hoc import aligned, post_hoc
from felb.federated.algorithms.private import private_bmf
from felb.federated.protocol import Request, Sums
from felb.federated.tasks import ResponseValidator
from felb.privacy import Privacy

M = 17
V = np.zeros((2, M), dtype=bool)
SET = np.zeros((4, M), dtype=bool)
EXACT = federated_bmf(M, 4)
VOTING = post_hoc(felb.Asso(2), "vote", M)
OWN = {"weights": [1.0, -1.0]}
COVER = {"components": V, **OWN}


@pytest.fixture(scope="module")
def private():
    pytest.importorskip("dp_accounting")
    plan = Privacy(4.0, mechanism="hybrid", score_share=0.05).plan(n_records=3000, n_clients=3, n_columns=M)
    return private_bmf(M, 3, plan, effort="fast")


def refused(algorithm, asked):
    with pytest.raises(FederationError) as error:
        algorithm.check_request(asked)
    assert "1e" not in str(error.value), "no value is quoted"


@pytest.mark.parametrize(
    ("task", "values"),
    [
        ("cooccurrence", {"row_bound": 1e30}),
        ("cooccurrence", {"row_bound": 18}),
        ("cooccurrence", {"row_bound": 0}),
        ("cooccurrence", {"row_bound": 3, "columns": [1, 1]}),
        ("cooccurrence", {"row_bound": 3, "columns": [17]}),
        ("choice", {"candidates": V[None], "bound": 1e12}),
        ("choice", {"candidates": np.zeros((17, 2, M), bool), "bound": 1.0}),
        ("statistics", {"V": V.astype(float), "lam": 0.1, "bounds": [1e9, 5.0, 1.0]}),
        ("statistics", {"V": V + np.nan, "lam": 0.1, "bounds": [1.0, 5.0, 1.0]}),
        ("scores", {"components": V, "node_cap": 10, "bound": 1e9}),
        ("flip_gains", COVER),
    ],
)
def test_c4_a_request_that_makes_noise_overflow_is_refused(private, task, values):
    refused(private, Request(task, **values))


@pytest.mark.parametrize(
    ("task", "values"),
    [
        # Weights that count rows with a chosen set of items.
        ("candidate_gains", {"components": V, "weights": [1.0, -17.0], "candidates": V}),
        ("candidate_gains", {"components": V, "weights": [1.0, -18.0], "candidates": V}),
        ("assign", {"components": V, "weights": [1.0, -18.0], "node_cap": 10}),
        ("assign", {"components": V, "weights": [0.0, -1.0], "node_cap": 10}),
        ("assign", {"components": V, "node_cap": 10}),
        ("exact_counts", {"components": V, "weights": [1.0, -18.0], "node_cap": 10}),
        ("flip_gains", {"components": V, "weights": [np.nan, -1.0]}),
        ("residual_counts", {"components": V, "weights": [1e-9, -1.0]}),
        # Work without end.
        ("assign", {"components": V, **OWN, "node_cap": 10**6}),
        ("stacked_gains", {"candidates": np.zeros((5000, 2, M), bool), **OWN}),
        ("flip_gains", {"components": np.zeros((5, M), bool), **OWN}),
        ("flip_gains", {"components": np.zeros((2, 16), bool), **OWN}),
        # Other shapes, types and names.
        ("flip_gains", {"components": V.astype(float), **OWN}),
        ("flip_gains", {"components": V}),
        ("flip_gains", {**COVER, "extra": 1}),
        ("pair_counts", {**COVER, "seeds": [3, 3]}),
        ("pair_counts", {**COVER, "seeds": [-1]}),
        ("gram_sketch", {"Q": np.full((M, 2), 1e6)}),
        ("gram_sketch", {"Q": np.zeros((M, 15))}),
        # Tasks of other algorithms.
        ("centralized_search", {"components": V}),
        ("cooccurrence", {"row_bound": 3}),
        ("shell", {"command": [1]}),
    ],
)
def test_h4_m6_a_request_that_the_algorithm_would_not_make_is_refused(task, values):
    refused(EXACT, Request(task, **values))


def counts(*numbers):
    return np.array(numbers, dtype=np.int64)


def rows_of(count, **told):
    return {"residual": np.zeros(M, int), "rows": np.asarray(count), **told}


PAIR = np.zeros((1, M), dtype=int)
PAIR[0, :2] = 3, 4
SHARED = np.array([[1, 2], [2, 5]])
LEVELS = {"V": np.zeros((2, M)), "scales": [1.0, 1.0], "levels": [0.5]}
THRESHOLDS = {
    "covered": counts(3)[None], "claimed": counts(4)[None], "members": counts(5), "ones": counts(9)[0],
    "cells": counts(17)[0], "rows": counts(1)[0],
}  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "asked", "told"),
    [
        (EXACT, Request("assign", components=V), {"counts": counts(2**53, 0, 0, 2**53), "supports": counts(1, 1)}),
        (EXACT, Request("assign", components=V), {"counts": counts(-1, 0, 0, 10), "supports": counts(1, 1)}),
        (EXACT, Request("assign", components=V), {"counts": counts(5, 5, 5, 10), "supports": counts(1, 1)}),
        (EXACT, Request("assign", components=V), {"counts": counts(1, 1, 1, 1701), "supports": counts(1, 1)}),
        (EXACT, Request("assign", components=V), {"counts": counts(1, 1, 1, 1700), "supports": counts(1, 101)}),
        (EXACT, Request("assign", components=V), {"counts": counts(1, 1, 1, 1700), "supports": counts(1, -1)}),
        (EXACT, Request("residual_counts", **COVER), rows_of(-5)),
        (EXACT, Request("residual_counts", **COVER), rows_of(2**33)),
        (EXACT, Request("residual_counts", **COVER), rows_of(np.nan)),
        (EXACT, Request("residual_counts", **COVER), rows_of([100])),
        (EXACT, Request("residual_counts", **COVER), rows_of(100, residual=np.full(M, 101))),
        (EXACT, Request("pair_counts", **COVER, seeds=[0]), {"pairs": PAIR}),
        (EXACT, Request("shared_counts", **COVER), {"shared": SHARED}),
        (EXACT, Request("shared_counts", **COVER), {"shared": np.array([[5, 2], [1, 5]])}),
        (EXACT, Request("threshold_counts", **LEVELS), {**THRESHOLDS, "covered": counts(5)[None]}),
        (EXACT, Request("threshold_counts", **LEVELS), {**THRESHOLDS, "ones": counts(18)[0]}),
        (EXACT, Request("gram_sketch", Q=np.zeros((M, 3))), {"sketch": np.full((M, 3), 2**54)}),
        (
            felb_algorithm(M, 2, setting=LITERAL),
            Request("local_factor", t=0),
            {"V": np.full((2, M), 3e38), "loss": np.asarray(1.0)},
        ),
        (
            felb_algorithm(M, 2, setting=LITERAL),
            Request("local_factor", t=0),
            {"V": np.full((2, M), -0.5), "loss": np.asarray(1.0)},
        ),
        (
            felb_algorithm(M, 2),
            Request("local_factor", t=0, V=V.astype(float)),
            {"V": np.full((2, M), 9), "curvature": counts(4, 9), "loss": np.asarray(1.0)},
        ),
        (
            fedprox(M, 2),
            Request("fedprox", V=V.astype(float), t=0, kappa=0.0, lam=0.0, steps=1, gamma=0.0),
            {"V": np.full((2, M), 1.5), "curvature": np.asarray(1.0), "loss": np.asarray(1.0)},
        ),
        (VOTING, Request("local_components"), {"V": np.full((2, M), 2, np.uint8), "unfinished": np.asarray(0)}),
        (
            aligned(VOTING, M),
            Request("aligned_components", reference=V.astype(int)),
            {"V": np.full((2, M), 2, np.uint8), "unfinished": np.asarray(0)},
        ),
    ],
)
def test_m4_a_response_that_no_rows_can_give_is_refused(algorithm, asked, told):
    validator = ResponseValidator(algorithm)
    if algorithm is EXACT:
        validator.check(rows_of(100), Request("residual_counts", **COVER), client="site")
    with pytest.raises(FederationError, match="the response of site to round 0 was rejected"):
        validator.check(told, asked, client="site")


def test_m4_a_client_that_changes_its_number_of_rows_is_refused():
    validator, asked = ResponseValidator(EXACT), Request("residual_counts", **COVER)
    validator.check(rows_of(40), asked, client="a")
    validator.check(rows_of(41), asked, client="b")
    with pytest.raises(FederationError, match="has changed"):
        validator.check(rows_of(41), asked, client="a")
    validator.check(rows_of(40), asked, client="a")


def test_a_response_that_is_refused_does_not_count_as_the_client_s_number_of_rows():
    validator, asked = ResponseValidator(EXACT), Request("residual_counts", **COVER)
    with pytest.raises(FederationError, match="residual holds more than"):
        validator.check(rows_of(7, residual=np.full(M, 8)), asked, client="a")
    validator.check(rows_of(40), asked, client="a")


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf, 1e300])
def test_m4_numbers_that_are_none_are_refused_in_sums_too(private, entry):
    sums = {"V": np.full((2, M), entry), "curvature": np.asarray(1.0), "loss": np.asarray(1.0)}
    asked = Request("fedprox", V=V.astype(float), t=0, kappa=0.0, lam=0.0, steps=1, gamma=0.0)
    with pytest.raises(FederationError, match="the sum of round 0 was rejected"):
        ResponseValidator(fedprox(M, 2)).check_sum(Sums(sums, 3), asked)
    with pytest.raises(FederationError, match="the sum of round 0 was rejected"):
        ResponseValidator(private).check_sum(Sums({"sizes": np.full(M + 1, entry)}, 3), Request("sizes"))
