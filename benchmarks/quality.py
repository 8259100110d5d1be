"""How well planted components are found: F1* on S1 data, against the bars the methods must hold.

S1: 2000 x 200, ten tiles of 5-25% of the rows and columns, 90% dense; 100 rounds of ten local steps; mean of three
seeds; rows assigned for the Boolean components. Prints a Markdown table; ends with an error if a bar is missed. With
``--refine``: what refinement adds at 30% noise, for FELB, FELB-MU and Asso+vote.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from common import exit_if_missed, f1_star, make_parser

import felb
from felb.data import partition, planted
from felb.sklearn.methods import make

NOISE = (0.05, 0.10, 0.20)
# (method, clients): least F1* at 5, 10 and 20% xor noise; None where nothing is guaranteed.
BARS = {
    (felb.FELB, 10): (0.985, 0.97, 0.92),
    (felb.FELBMU, 10): (0.985, 0.97, 0.92),
    (felb.FELB, 50): (None, None, None),
    (felb.FELBMU, 50): (0.97, 0.95, None),
    (felb.ELBMF, 1): (0.98, None, None),
}

REFINED = ("felb", "felb-mu", "asso+vote")
REFINED_NOISE = (0.3,)


def recovered(model: Any, clients: int, *, noise: float, seed: int) -> float:
    """Return F1* of a model on one planted data set."""
    groups = {} if clients == 1 else {"groups": partition.even(2000, clients, seed=seed)}
    return f1_star(model, planted(2000, 200, 10, noise=noise, seed=seed), **groups)


def refinement(seeds: range) -> None:
    """Print F1* with ten clients, without and with refinement."""
    print("| method | refine | " + " | ".join(f"{noise:.0%} noise" for noise in REFINED_NOISE) + " |")
    print("|---|---|" + "---|" * len(REFINED_NOISE))
    for name in REFINED:
        for refine in (False, True):
            cells = []
            for noise in REFINED_NOISE:
                found = [
                    recovered(make(name, n_components=10, refine=refine, random_state=seed), 10, noise=noise, seed=seed)
                    for seed in seeds
                ]
                cells.append(f"{np.mean(found):.3f}")
            print(f"| {name} | {'yes' if refine else 'no'} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--refine", action="store_true", help="what refinement adds, instead of the bars")
    options = parser.parse_args()
    seeds = range(options.seeds)
    warnings.simplefilter("ignore", felb.ConvergenceWarning)
    if options.refine:
        refinement(seeds)
        return
    missed = []
    print("| method | clients | " + " | ".join(f"{noise:.0%} noise" for noise in NOISE) + " | seconds a fit |")
    print("|---|---|" + "---|" * (len(NOISE) + 1))
    for (method, clients), bars in BARS.items():
        start, cells = time.perf_counter(), []
        for noise, bar in zip(NOISE, bars, strict=True):
            found = float(
                np.mean([recovered(method(10, random_state=seed), clients, noise=noise, seed=seed) for seed in seeds])
            )
            cells.append(f"{found:.3f}" + (f" (bar {bar})" if bar else ""))
            if bar and found < bar:
                missed.append(f"{method.__name__} with {clients} clients at {noise:.0%} noise: {found:.3f} < {bar}")
        seconds = (time.perf_counter() - start) / (len(seeds) * len(NOISE))
        who = "centralized" if clients == 1 else str(clients)
        print(f"| {method.__name__} | {who} | " + " | ".join(cells) + f" | {seconds:.1f} |", flush=True)
    exit_if_missed(missed)


if __name__ == "__main__":
    main()
