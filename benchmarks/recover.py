"""How well belief propagation recovers planted components under heavy or one-sided noise: F1* against its bars.

S1: 2000 x 200, ten tiles of 5-25% of the rows and columns. S2: 5000 x 300, fifteen of 2-10% and 3-12%. S4: as S1, of
20-40%. Tiles are 90% dense; mean of three seeds. For each row of the table:

    start     the Boolean factors to start from: non-negative factorization, cut where the data is most likely
    found     belief propagation, pooled; with --clients N, it must be the same to the last bit with N clients
    given V   the same inference by one who knows the true V

Prints a Markdown table; ends with an error if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.datasets import planted
from felb.linalg.passes import factor_step, row_pass
from felb.metrics import Counts, confusion
from felb.optim.belief import Belief, first_belief, known_components, learn_rates, recover
from felb.optim.steps import HalsStep

if TYPE_CHECKING:
    from felb.linalg import BinaryMatrix

SETS: dict[str, dict[str, Any]] = {
    "S1": {"n": 2000, "m": 200, "k": 10, "heights": (0.05, 0.25), "widths": (0.05, 0.25)},
    "S2": {"n": 5000, "m": 300, "k": 15, "heights": (0.02, 0.1), "widths": (0.03, 0.12)},
    "S4": {"n": 2000, "m": 200, "k": 10, "heights": (0.2, 0.4), "widths": (0.2, 0.4)},
}
# (data, kind of noise, noise): least F1*
BARS = {
    ("S1", "xor", 0.3): 0.92,
    ("S1", "xor", 0.4): 0.56,
    ("S2", "xor", 0.3): 0.80,
    ("S4", "xor", 0.3): 0.95,
    ("S4", "xor", 0.4): 0.74,
    ("S1", "additive", 0.3): 0.985,
    ("S2", "additive", 0.3): 0.97,
    ("S1", "destructive", 0.3): 0.99,
    ("S1", "destructive", 0.6): 0.98,
    ("S2", "destructive", 0.6): 0.97,
}
ROUNDS, SWEEPS, OVERSAMPLING = 20, 2, 10
CUTS = np.arange(1, 10) / 10


def relaxed_start(A: BinaryMatrix, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Factorize A by HALS from the non-negative parts of its leading singular vectors; return U and Vᵀ."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((A.shape[1], k + OVERSAMPLING)))[0]
    csr = A.to_scipy(np.float64)
    for _ in range(2):
        Q = np.linalg.qr(csr.T @ (csr @ Q))[0]
    Y = csr @ Q
    values, vectors = np.linalg.eigh(Y.T @ Y)
    vectors = vectors[:, np.argsort(-values)[:k]]
    right, left = Q @ vectors, Y @ vectors
    Vt = np.empty((A.shape[1], k))
    for c in range(k):
        ups = [np.maximum(sign * right[:, c], 0) for sign in (1, -1)]
        sizes = [
            np.linalg.norm(np.maximum(sign * left[:, c], 0)) * np.linalg.norm(x)
            for sign, x in zip((1, -1), ups, strict=True)
        ]
        Vt[:, c] = np.abs(right[:, c]) if c == 0 else ups[int(np.argmax(sizes))]
    Vt = (Vt / np.maximum(Vt.max(axis=0), 1e-9) + 0.01).astype(np.float32)
    U = np.full((A.shape[0], k), 0.1, dtype=np.float32)
    for _ in range(ROUNDS):
        U, AtU, UtU = row_pass(A, U, Vt, rule=HalsStep(SWEEPS))
        Vt = factor_step(Vt, AtU, UtU, rule=HalsStep(SWEEPS))
    return row_pass(A, U, Vt, rule=HalsStep(SWEEPS)).U, Vt


def log_likelihood(counts: Counts) -> float:
    """Return the log-likelihood of the data with the densities inside and outside of U∘V."""
    covered = counts.tp + counts.fp
    total = 0.0
    for ones, cells in ((counts.tp, covered), (counts.fn, counts.cells - covered)):
        rate = (ones + 1) / (cells + 2)
        total += ones * np.log(rate) + (cells - ones) * np.log1p(-rate)
    return total


def boolean_start(A: BinaryMatrix, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Counts]:
    """Cut the relaxed factors at the pair of thresholds that makes the data most likely."""
    U, Vt = relaxed_start(A, k, seed)
    # A typical size of the entries that matter: the mean, weighted by the entries.
    sizes = (U**2).sum(axis=0) / np.maximum(U.sum(axis=0), 1e-9), (Vt**2).sum(axis=0) / np.maximum(Vt.sum(axis=0), 1e-9)
    balance = np.sqrt(sizes[1] / np.maximum(sizes[0], 1e-9))
    U, V = U * balance, (Vt / np.maximum(balance, 1e-9)).T
    pairs = [(cut_u < U, cut_v < V) for cut_u in CUTS for cut_v in CUTS]
    scored = [(confusion(A, *pair), pair) for pair in pairs]
    counts, (U, V) = max(scored, key=lambda entry: log_likelihood(entry[0]))
    return U, V, counts


def start_belief(A: BinaryMatrix, k: int, seed: int = 0) -> tuple[Belief, np.ndarray, np.ndarray]:
    """Return the belief to start from, and the Boolean factors it comes from."""
    U, V, counts = boolean_start(A, k, seed)
    ones, covered = counts.tp + counts.fn, counts.tp + counts.fp
    belief = first_belief(
        V, row_share=float(U.mean()), covered_ones=counts.tp, covered=covered, ones=ones, cells=counts.cells
    )
    return belief, U, V


def split(A: BinaryMatrix, clients: int) -> list[BinaryMatrix]:
    """Split the rows among clients."""
    cuts = np.linspace(0, A.shape[0], clients + 1).astype(int)
    return [A.rows(int(a), int(b)) for a, b in pairwise(cuts)]


def measure(name: str, kind: str, *, noise: float, seed: int, clients: int) -> dict[str, float]:
    """Recover one planted data set."""
    data = planted(**SETS[name], noise=noise, kind=kind, seed=seed)
    belief, U, V = start_belief(data.A, SETS[name]["k"])
    began = time.perf_counter()
    found = recover([data.A], belief)
    seconds = time.perf_counter() - began
    if clients > 1:
        other = recover(split(data.A, clients), belief)
        same = np.array_equal(found.belief.theta, other.belief.theta) and np.array_equal(found.U, other.U)
        if not same:
            sys.exit(f"{clients} clients and pooled data give different results on {name}")
    known = known_components(data.V, inside=belief.inside, outside=belief.outside, row_share=float(data.U.mean()))
    given = recover([data.A], known, learn=learn_rates)
    return {
        "start": confusion(data.signal, U, V).f1,
        "found": confusion(data.signal, found.U, found.V).f1,
        "given V": confusion(data.signal, given.U, data.V).f1,
        "rounds": found.belief.rounds,
        "a": found.belief.inside,
        "b": found.belief.outside,
        "tau": found.decision.threshold,
        "seconds": seconds,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=1, help="compare with this many clients, too")
    options = parser.parse_args()
    missed = []
    print("| data | noise | start | found | bar | given V | rounds | a | b | tau | seconds |")
    print("|---|---|" + "---|" * 9)
    for (name, kind, noise), bar in BARS.items():
        runs = [measure(name, kind, noise=noise, seed=s, clients=options.clients) for s in range(options.seeds)]
        mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
        print(
            f"| {name} | {kind} {noise:.0%} | {mean['start']:.3f} | {mean['found']:.3f} | {bar} "
            f"| {mean['given V']:.3f} | {mean['rounds']:.0f} | {mean['a']:.3f} | {mean['b']:.3f} "
            f"| {mean['tau']:.2f} | {mean['seconds']:.2f} |",
            flush=True,
        )
        if mean["found"] < bar:
            missed.append(f"{name} at {noise:.0%} {kind} noise: {mean['found']:.3f} < {bar}")
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
