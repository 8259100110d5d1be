"""Whether a component of which only a late client has records is still found, by the round in which the client joins.

Eight clients share 2000 × 200 cells with eight planted tiles and 5% xor noise; the first tile is in a share of the rows
of one client and nowhere else. `FederatedBMF` with its defaults; found means that a component differs from the tile by
at most 5% of the tile's columns. Prints a Markdown table: in how many runs it was found for either share, with the mean
F1* over all rows, and what was being done in the round in which the client joined. The last line is of clients that
join in the first round of propagation, whichever that is. Five minutes on two cores; ``--runs 1`` for a look.
"""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
from common import make_parser

import felb
from felb.data import partition, planted
from felb.engines.local import Participation
from felb.metrics import confusion

ROWS, COLUMNS, COMPONENTS, CLIENTS, NOISE = 2000, 200, 8, 8, 0.05
LATE, NEVER, PROPAGATION = "5", 10_000, "belief_statistics"
SHARES = (0.6, 0.2)


def play(first: int, seed: int, share: float) -> tuple[bool, float, list[str]]:
    """Return whether the late client's own component was found, F1*, and the task of each round."""
    rng = np.random.default_rng(seed)
    data = planted(ROWS, COLUMNS, COMPONENTS, seed=seed)
    groups = partition.even(ROWS, CLIENTS, seed=seed)
    U = data.U.copy()
    U[:, 0] = (groups == int(LATE)) & (rng.random(ROWS) < share)
    signal = (U.astype(np.int32) @ data.V.astype(np.int32)) > 0
    A = signal ^ (rng.random(signal.shape) < NOISE)
    model = felb.FederatedBMF(COMPONENTS, random_state=seed, participation=Participation(joins={LATE: first}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a client that came too late
        assigned = model.fit_transform(A, groups=groups)
    wrong = min(np.count_nonzero(v != data.V[0]) for v in model.components_)
    found = bool(wrong <= 0.05 * np.count_nonzero(data.V[0]))
    return found, confusion(signal, assigned, model.components_).f1, [str(row["task"]) for row in model.history_]


def first_of_propagation(seed: int, share: float) -> int:
    """Return the round in which the others begin to propagate, if the late client stays away."""
    return play(NEVER, seed, share)[2].index(PROPAGATION)


def row(rounds: dict[tuple[int, float], int], runs: int) -> str:
    """Return the cells of a line; `rounds` has the round of joining by seed and share."""
    cells, tasks = [], Counter[str]()
    for share in SHARES:
        played = [(rounds[seed, share], *play(rounds[seed, share], seed, share)) for seed in range(runs)]
        tasks.update(done[first] if first < len(done) else "over" for first, _, _, done in played)
        scores = np.mean([score for _, _, score, _ in played])
        cells.append(f"{sum(found for _, found, _, _ in played)} of {runs} (F1\\* {scores:.3f})")
    return " | ".join([*cells, ", ".join(f"{count} {task}" for task, count in tasks.most_common())])


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=5, help="seeds of each round")
    parser.add_argument("--rounds", type=int, nargs="*", default=[0, 4, 12, 24, 30, 50, 70, 90, 110])
    options = parser.parse_args()
    columns = " | ".join(f"found, in {share:.0%} of its rows" for share in SHARES)
    print(f"| joins in round | {columns} | task of that round |\n|---|---|---|---|")
    every = [(seed, share) for seed in range(options.runs) for share in SHARES]
    for first in options.rounds:
        print(f"| {first} | {row(dict.fromkeys(every, first), options.runs)} |", flush=True)
    beginnings = {(seed, share): first_of_propagation(seed, share) for seed, share in every}
    span = f"{min(beginnings.values())} to {max(beginnings.values())}"
    print(f"| first of propagation, {span} | {row(beginnings, options.runs)} |", flush=True)


if __name__ == "__main__":
    main()
