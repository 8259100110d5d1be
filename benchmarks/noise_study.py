"""How the methods stand noise: F1* on S1 data at xor noise of 0 to 50%, ten clients, post-hoc methods by vote.

    python benchmarks/noise_study.py            writes NOISE.md
    python benchmarks/noise_study.py --seeds 1  one seed, prints only

S1 is described in quality.py. A method runs with its defaults; Asso with the grid of tau as well as with tau = 1.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from common import f1_star, listed, make_parser, write_page

from felb.data import partition, planted
from felb.sklearn.methods import make

TABLE = Path(__file__).with_name("NOISE.md")
NOISE = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
METHODS: dict[str, tuple[str, dict[str, object]]] = {
    "FELB": ("felb", {}),
    "FELB-MU": ("felb-mu", {}),
    "ELBMF+vote": ("elbmf+vote", {}),
    "Asso+vote (tau 1)": ("asso+vote", {}),
    "Asso+vote (tau grid)": ("asso+vote", {"tau": "auto"}),
    "GreConD+vote": ("grecond+vote", {}),
    "MEBF+vote": ("mebf+vote", {}),
    "Zhang+vote": ("zhang+vote", {}),
}


def recovered(label: str, noise: float, seed: int) -> float:
    """Return F1* of a method on one planted data set."""
    warnings.simplefilter("ignore")
    name, parameters = METHODS[label]
    data = planted(2000, 200, 10, noise=noise, seed=seed)
    model = make(name, n_components=10, random_state=seed, **parameters)
    return f1_star(model, data, groups=partition.even(2000, 10, seed=seed))


def main() -> None:
    """Print and write the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(options.workers) as pool:
        for label in METHODS:
            cells = [(label, noise, seed) for noise in NOISE for seed in range(options.seeds)]
            scores = np.reshape(list(pool.map(recovered, *zip(*cells, strict=True))), (len(NOISE), options.seeds))
            rows.append(f"| {label} | " + " | ".join(f"{score:.3f}" for score in scores.mean(axis=1)) + " |")
            print(rows[-1], flush=True)
    if options.seeds < 3:
        return
    lines = [
        "# Noise",
        "",
        f"Written by `python benchmarks/noise_study.py`: F1* on S1, 10 clients, mean of {options.seeds} seeds.",
        "",
        "| method | " + " | ".join(f"{noise:.0%}" for noise in NOISE) + " |",
        "|---|" + "---|" * len(NOISE),
        *rows,
        "",
        *listed(load=False),
    ]
    write_page(TABLE, "\n".join(lines))


if __name__ == "__main__":
    main()
