"""Patterns of columns from summed co-occurrence, and components chosen from them one after the other.

For a seed column s and a confidence τ, the candidate of Asso (Miettinen, Mielikäinen, Gionis, Das, Mannila) is the set
of columns j with |A_s ∩ A_j| >= τ·|A_s|. The co-occurrence of seeds with all columns is a sum over rows, hence over
clients, and so is what a candidate would gain on top of a cover; all of these are integers, the same for any split.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError
from felb.federated.protocol import Request
from felb.federated.steps.known import Known, best_so_far, required
from felb.federated.steps.objective import Cost, Objective, as_array
from felb.federated.steps.reseed import CANDIDATE_GAINS, PAIR_COUNTS, RESIDUAL_COUNTS, distinct_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.federated.steps.known import Steps


CONFIDENCES = (0.3, 0.5, 0.7, 0.9, 1.0)
"""A column joins a seed's pattern if it is in this share of the records that have the seed."""


def patterns_from(
    pairs_of: NDArray[np.int64],
    sizes: NDArray[np.int64],
    seeds: NDArray[np.int64],
    *,
    confidences: tuple[float, ...] = CONFIDENCES,
) -> NDArray[np.bool_]:
    """Return the different patterns of all seeds and confidences, one per row, in a fixed order."""
    found = []
    for seed, pairs in zip(seeds, pairs_of, strict=True):
        for confidence in confidences:
            pattern = pairs >= confidence * max(int(sizes[seed]), 1)
            pattern[seed] = True
            found.append(pattern)
    return distinct_rows(np.array(found)) if found else np.zeros((0, len(sizes)), dtype=bool)


def find_patterns(
    known: Known, n_features: int, n_seeds: int = 256, *, confidences: tuple[float, ...] = CONFIDENCES
) -> Steps:
    """Find columns that often occur together, in two rounds of everybody; nothing is covered yet, so of all ones.

    Parameters
    ----------
    known : handed on, with the patterns
    n_features : columns of the data
    n_seeds : the columns with the most ones are seeds, this many
    confidences : see `patterns_from`
    """
    if n_seeds < 1:
        raise InputError(f"at least one seed is needed, got n_seeds={n_seeds}")
    if not all(0 < confidence <= 1 for confidence in confidences):
        raise InputError(f"confidences lie in (0, 1], got {confidences}")
    nothing = {"components": np.zeros((1, n_features), dtype=bool), "weights": np.array([1.0, -1.0])}
    with best_so_far(lambda: known):
        sums = yield Request(RESIDUAL_COUNTS, **nothing, all_clients=True)
        sizes = sums["residual"]
        seeds = np.argsort(-sizes, kind="stable")[:n_seeds]
        seeds = np.sort(seeds[sizes[seeds] > 0])
        sums = yield Request(PAIR_COUNTS, **nothing, seeds=seeds, all_clients=True)
    patterns = patterns_from(sums["pairs"], sizes, seeds, confidences=confidences)
    sums.report(patterns=len(patterns))
    return replace(known, patterns=patterns)


def cover(known: Known, n_components: int, objective: Objective | None = None) -> Steps:
    """Choose components among known patterns: each time the one with the largest summed gain, as long as there is one.

    Parameters
    ----------
    n_components : rounds at most
    objective : what cells are worth; the Hamming loss if None
    """
    patterns = required(known.patterns, "patterns of columns")
    weights = as_array((objective or Cost()).weights(None))
    V = np.zeros((n_components, patterns.shape[1]), dtype=bool)
    with best_so_far(lambda: Known(components=V, weights=weights)):
        for taken in range(n_components if len(patterns) else 0):
            sums = yield Request(CANDIDATE_GAINS, components=V, weights=weights, candidates=patterns, all_clients=True)
            gains = weights[0] * sums["ones"] + weights[1] * sums["zeros"]
            best = int(np.argmax(gains))
            sums.report(gain=float(gains[best]))
            if not gains[best] > 0:
                break
            V = V.copy()
            V[taken] = patterns[best]
    return Known(components=V, weights=weights)
