"""Belief propagation with one shared state: recovers planted components under heavy or one-sided noise.

The model: U_rl is 1 with probability π_l and V_lj with probability ρ, independently; A_rj is 1 with probability a where
U∘V covers it and b where it does not. Rows keep their own log-odds L (`felb.kernels.belief`); what is shared is
a `Belief`, log-odds Θ of V together with a, b, π and ρ. A round is

    rows      (L, sums) ← `infer(A, L, belief)`, where the data is; sums add over rows, hence over clients
    shared    Θ ← .4 Θ + .6 (logit ρ + Σ_r log(1 + u q)), then a, b, π and ρ by expectation maximisation: `combine`

and at the end V = [Θ > 0], U = [σ(L) > τ] with the τ of the largest expected F1 (`count_thresholds`, `best_threshold`).
All functions are pure, and all sums integers: results do not depend on how rows are split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.kernels.belief import LEAST_RATE, UNIT, count_cover, infer_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from felb.data.binary import BinaryMatrix

    Sums = Mapping[str, NDArray[np.int64]]

MAX_ROUNDS = 100
MIN_ROUNDS = 9
TOLERANCE = 5e-4
"""A run ends when Σ|Δv|/Σv falls below this, but not before `MIN_ROUNDS`."""

DAMPING = 0.4
"""Weight of the old Θ; a round without it would overshoot."""

FIRST_LEARNING = 2
"""Rounds in which a, b, π and ρ stay as they are; beliefs must form before they can be counted."""

INSIDE_RANGE, OUTSIDE_RANGE = (0.02, 1 - LEAST_RATE), (LEAST_RATE, 0.98)
ROW_RANGE, COLUMN_RANGE = (1e-3, 0.9), (5e-3, 0.6)
LEAST_CONTRAST = 1e-3
"""The noise must leave a > b, or cells would say nothing."""

THRESHOLDS = np.arange(2, 11) / 20
"""The candidates for τ: .1, .15, ..., .5."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of V and of the noise; it is public among the clients.

    Parameters
    ----------
    theta : Θ, log-odds of V, k × m
    inside, outside : a and b, densities of ones where U∘V covers and where it does not
    row_rates : π, one for each component
    column_rate : ρ
    rounds : how many rounds it has seen
    change : Σ|Δv|/Σv of the last of them
    threshold : τ at which σ(L) is cut, once that is decided
    """

    theta: NDArray[np.float64]
    inside: float
    outside: float
    row_rates: NDArray[np.float64]
    column_rate: float
    rounds: int = 0
    change: float = np.inf
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.theta.ndim != 2 or self.row_rates.shape != self.theta.shape[:1]:
            raise InputError(
                f"theta has shape {self.theta.shape} and row_rates {self.row_rates.shape}; expected k x m and k"
            )
        if not 0 < self.outside < self.inside < 1:
            raise InputError(f"densities must obey 0 < outside < inside < 1, got {self.outside} and {self.inside}")

    @property
    def components(self) -> NDArray[np.bool_]:
        """V = [Θ > 0]: the entries that are likelier than not."""
        return self.theta > 0

    @property
    def weights(self) -> tuple[float, float]:
        """(log a/b, log (1−a)/(1−b)): what covering a one and covering a zero adds to the log-likelihood."""
        a, b = self.inside, self.outside
        return float(np.log(a / b)), float(np.log1p(-a) - np.log1p(-b))

    @property
    def converged(self) -> bool:
        """Whether V has stopped to change."""
        return self.rounds >= MIN_ROUNDS and self.change < TOLERANCE

    @property
    def finished(self) -> bool:
        """Whether V has stopped to change or time is up."""
        return self.converged or self.rounds >= MAX_ROUNDS

    def to_values(self) -> dict[str, NDArray[Any]]:
        """Return what clients need for a round, as named arrays."""
        values: dict[str, NDArray[Any]] = {
            "theta": self.theta,
            "noise": np.array([self.inside, self.outside]),
            "row_rates": self.row_rates,
            "column_rate": np.array(self.column_rate),
            "rounds": np.array(self.rounds),
        }
        return values if self.threshold is None else {**values, "threshold": np.array(self.threshold)}

    @classmethod
    def from_values(cls, values: Mapping[str, NDArray[Any]]) -> Belief:
        """Read `to_values` back."""
        inside, outside = (float(x) for x in values["noise"])
        return cls(
            np.asarray(values["theta"], dtype=np.float64),
            inside,
            outside,
            np.asarray(values["row_rates"], dtype=np.float64),
            float(values["column_rate"]),
            int(values["rounds"]),
            threshold=float(values["threshold"]) if "threshold" in values else None,
        )


# -- the start ---------------------------------------------------------------------------------------------------------


def first_belief(V: ArrayLike, *, row_share: float, covered_ones: int, covered: int, ones: int, cells: int) -> Belief:
    """Return the belief to start from, given Boolean factors U, V that explain the data somehow.

    a and b are the densities inside and outside of U∘V; π and ρ those of U and V, but small, since components that a
    start gets wrong are easier lost than gained; v = .8 in V and outside of it as much as noise alone would not refute.

    Parameters
    ----------
    V : Boolean array, k × m
    row_share : share of ones of U
    covered_ones, covered, ones, cells : |A ∧ U∘V|, |U∘V|, |A| and the number of cells; they add over clients
    """
    start = np.asarray(V, dtype=bool)
    k, _ = start.shape
    inside = (covered_ones + 1) / (covered + 2)
    outside = (ones - covered_ones + 1) / (cells - covered + 2)
    inside, outside = _contrast(max(inside, outside + 0.02), outside)
    row_rate = float(np.clip(row_share, 0.02, 0.1))
    column_rate = float(np.clip(start.mean() if start.size else 0.0, 0.01, 0.1))
    off = min(0.05, column_rate, 0.3 * outside / (inside - outside))
    theta = np.where(start, _logit(0.8), _logit(off))
    return Belief(theta, inside, outside, np.full(k, row_rate), column_rate)


def known_components(V: ArrayLike, *, inside: float, outside: float, row_share: float = 0.1) -> Belief:
    """Return the belief of one who knows V: `learn_rates` instead of `combine` then infers rows and noise alone."""
    V = np.asarray(V, dtype=bool)
    inside, outside = _contrast(inside, outside)
    rates = np.full(V.shape[0], float(np.clip(row_share, *ROW_RANGE)))
    column_rate = float(np.clip(V.mean() if V.size else 0.0, *COLUMN_RANGE))
    return Belief(np.where(V, 1.0, -1.0) * KNOWN_LOG_ODDS, inside, outside, rates, column_rate)


KNOWN_LOG_ODDS = 12.0
"""Log-odds of what is as good as known."""


def first_rows(n: int, belief: Belief) -> NDArray[np.float32]:
    """L = logit π: nothing is known of a row but how common components are."""
    return np.tile(_logit(belief.row_rates).astype(np.float32), (n, 1))


# -- a round -----------------------------------------------------------------------------------------------------------


def infer(
    A: BinaryMatrix, L: NDArray[np.float32] | None, belief: Belief, *, threads: int | None = None
) -> tuple[NDArray[np.float32], dict[str, NDArray[np.int64]]]:
    """Infer the rows of one client; return their log-odds, which stay there, and the sums that leave.

    `L` is None in the first round. See `felb.kernels.belief.RowMessages` for the sums.
    """
    new, evidence, members, cells = infer_rows(
        A,
        first_rows(A.shape[0], belief) if L is None else L,
        belief.theta,
        inside=belief.inside,
        outside=belief.outside,
        row_rates=belief.row_rates,
        settled=belief.rounds > 0,
        threads=threads,
    )
    return new, {"evidence": evidence, "members": members, "cells": cells, "rows": np.asarray(A.shape[0])}


def combine(belief: Belief, total: Sums) -> Belief:
    """Return the belief that follows from the summed messages of all rows."""
    return learn_rates(learn_components(belief, total), total)


def learn_components(belief: Belief, total: Sums) -> Belief:
    """Θ ← .4 Θ + .6 (logit ρ + Σ_r log(1 + u q)), all of the latter in the first round."""
    kept = DAMPING if belief.rounds else 0.0
    news = _logit(belief.column_rate) + total["evidence"] * UNIT
    theta = kept * belief.theta + (1 - kept) * news
    before, after = _sigmoid(belief.theta), _sigmoid(theta)
    change = float(np.abs(after - before).sum() / max(1.0, after.sum()))
    return replace(belief, theta=theta, change=change)


def learn_rates(belief: Belief, total: Sums) -> Belief:
    """Count the round and set a, b, π and ρ to what is expected of the data, but for the first rounds.

    a and b are the shares of ones among covered and uncovered cells, π_l the mean of σ(L_l), ρ the mean of σ(Θ).
    """
    belief = replace(belief, rounds=belief.rounds + 1)
    if belief.rounds <= FIRST_LEARNING:
        return belief
    m = belief.theta.shape[1]
    covered_ones, covered, other_ones, others = (float(x) * UNIT for x in total["cells"])
    n = int(total["rows"])
    # Rows of pseudo-counts keep rates away from 0 and 1 where data is scarce.
    inside, outside = _contrast((covered_ones + 1) / (covered + 2), (other_ones + 1) / (others + 2))
    return replace(
        belief,
        inside=inside,
        outside=outside,
        row_rates=np.clip((total["members"] * UNIT + 0.5) / (n + 1), *ROW_RANGE),
        column_rate=float(np.clip(np.mean((_sigmoid(belief.theta).sum(axis=1) + 0.5) / (m + 1)), *COLUMN_RANGE)),
    )


# -- the decision ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """Where to cut σ(L), the F1 to expect then, and whether there is anything to be found.

    If not a single entry of U is likelier than not, or none of V, there is no recoverable structure.
    """

    threshold: float
    expected_f1: float
    recoverable: bool


def count_thresholds(
    L: NDArray[np.float32], belief: Belief, *, threads: int | None = None
) -> dict[str, NDArray[np.int64]]:
    """Count what each candidate for τ would cover in the rows of one client; counts add over clients."""
    counts = count_cover(L, belief.theta, thresholds=THRESHOLDS, threads=threads)
    return {name: np.asarray(count) for name, count in counts._asdict().items()}


def best_threshold(total: Sums) -> Decision:
    """Return the τ with the largest expected F1 = 2 E|R ∧ S| / (|R| + E|S|), R = U∘V and S the cells covered in truth.

    Of equals, it is the largest.
    """
    scale = np.maximum(total["claimed"] + float(total["covered"]) * UNIT, UNIT)
    f1 = 2 * total["expected"] * UNIT / scale
    best = f1.size - 1 - int(np.argmax(f1[::-1]))
    recoverable = int(total["members"]) > 0 and int(total["claimed"][-1]) > 0
    return Decision(float(THRESHOLDS[best]), float(f1[best]), recoverable)


NEW_ROW_ROUNDS = 4
"""Rounds after which the log-odds of a row hardly change, as long as Θ does not."""


def infer_new_rows(A: BinaryMatrix, belief: Belief, *, threads: int | None = None) -> NDArray[np.float32]:
    """Return log-odds of rows under a belief that is taken as it is, each from its own row of A alone.

    Θ is taken to owe nothing to these rows. For rows that it was learnt from this counts their own share in it twice,
    which is one row among all.
    """
    fixed, L = replace(belief, rounds=0), first_rows(A.shape[0], belief)
    for _ in range(NEW_ROW_ROUNDS):
        L, _ = infer(A, L, fixed, threads=threads)
    return L


def assign_new_rows(A: BinaryMatrix, belief: Belief) -> NDArray[np.bool_]:
    """U = [σ(L) > τ] for the L of `infer_new_rows` and the threshold of a belief that has one."""
    if belief.threshold is None:
        raise InputError("this belief has no threshold yet; choose one with best_threshold")
    return decide_rows(infer_new_rows(A, belief), belief.threshold)


def decide_rows(L: NDArray[np.float32], threshold: float) -> NDArray[np.bool_]:
    """U = [σ(L) > τ]."""
    return np.float32(_logit(threshold)) < L


# -- all of it, where all clients are at hand --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recovery:
    """What belief propagation ends with: log-odds of the rows of each shard, the belief and the decision."""

    rows: list[NDArray[np.float32]]
    belief: Belief
    decision: Decision

    @property
    def U(self) -> NDArray[np.bool_]:
        """Rows of all shards, one after the other, cut at the threshold."""
        return decide_rows(np.concatenate(self.rows), self.decision.threshold)

    @property
    def V(self) -> NDArray[np.bool_]:
        """Components."""
        return self.belief.components


def recover(
    shards: Sequence[BinaryMatrix],
    belief: Belief,
    *,
    learn: Callable[[Belief, Sums], Belief] = combine,
    threads: int | None = None,
) -> Recovery:
    """Run rounds over all shards until the belief is finished; ``learn=learn_rates`` leaves Θ as it is.

    How rows are split into shards makes no difference, to the last bit.
    """
    rows: list[NDArray[np.float32]] = [first_rows(shard.shape[0], belief) for shard in shards]
    while not belief.finished:
        answers = [infer(shard, L, belief, threads=threads) for shard, L in zip(shards, rows, strict=True)]
        rows = [L for L, _ in answers]
        belief = learn(belief, add_sums([sums for _, sums in answers]))
    counts = [count_thresholds(L, belief, threads=threads) for L in rows]
    return Recovery(rows, belief, best_threshold(add_sums(counts)))


def add_sums(parts: Sequence[Sums]) -> dict[str, NDArray[np.int64]]:
    """Add up, name by name."""
    return {name: np.asarray(sum(part[name] for part in parts)) for name in parts[0]}


# -- numbers -----------------------------------------------------------------------------------------------------------


def _contrast(inside: float, outside: float) -> tuple[float, float]:
    """Return both densities in their ranges and apart from each other."""
    inside = float(np.clip(inside, *INSIDE_RANGE))
    return inside, float(np.clip(outside, OUTSIDE_RANGE[0], min(OUTSIDE_RANGE[1], inside - LEAST_CONTRAST)))


def _logit(p: Any) -> Any:
    return np.log(p) - np.log1p(-np.asarray(p))


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -500, 500))))
