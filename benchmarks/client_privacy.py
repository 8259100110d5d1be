"""How many clients FELB needs under client-level privacy with the clipping and the noise of the paper.

    python benchmarks/client_privacy.py
    python benchmarks/client_privacy.py --clients 10 100 --seeds 1

Planted data: 20 rows a client, 60 columns, four tiles, 2% of the cells flipped. FELB in the setting "unweighted", ten
local steps, 40 rounds; every upload is clipped to ‖V_i‖ <= 7.5 and has Gaussian noise for ε = 2 and δ = 0.05 by the
paper's formula. Each upload costs that ε, so the ε of a client's whole run stands beside it (δ = 1e-5). The tiles cover
a good part of the matrix, so F1* of a matrix of ones stands there too. Writes CLIENT_PRIVACY.md.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
from common import make_parser, write_page

from felb.data import planted
from felb_paper.cells import Cell, MethodUse, Noise, PlantedData
from felb_paper.measuring import measure

THETA, DELTA, ROUNDS = 7.5, 0.05, 40
EPSILONS = (math.inf, 2.0)


def make_data(clients: int) -> PlantedData:
    """Return the data of so many clients."""
    return PlantedData(20 * clients, 60, 4, noise=0.02, heights=(0.1, 0.25), widths=(0.1, 0.25))


def score_ones(clients: int, seed: int) -> float:
    """Return F1* of a matrix of ones."""
    data = make_data(clients)
    made = planted(data.rows, 60, 4, noise=0.02, heights=data.heights, widths=data.widths, seed=seed)
    density = made.signal.density
    return 2 * density / (1 + density)


def score(clients: int, epsilon: float, seed: int) -> tuple[float, float | None]:
    """Return F1* and the ε of a whole run."""
    sigma = 0.0 if math.isinf(epsilon) else THETA * math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
    use = MethodUse("FELB", "felb", {"local_steps": 10, "setting": "unweighted", "max_iter": ROUNDS, "l2_rate": 1.2})
    found = measure(
        Cell(use, make_data(clients), clients, float(clients), seed, noise=Noise("gaussian", sigma, THETA))
    ).figures
    star = found["f1_star"]
    assert star is not None
    return star, found["epsilon_total"]


def main() -> None:
    """Measure and write the page."""
    parser = make_parser(__doc__)
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 100, 300, 1000], metavar="N")
    parser.add_argument("--seeds", type=int, default=1, metavar="N")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for clients in options.clients:
        cells = []
        for epsilon in EPSILONS:
            runs = [score(clients, epsilon, seed) for seed in range(options.seeds)]
            cells.append(f"{np.mean([star for star, _ in runs]):.3f}")
        total, ones = runs[0][1], np.mean([score_ones(clients, seed) for seed in range(options.seeds)])
        rows.append(
            f"| {clients} | {cells[0]} | {cells[1]} | {ones:.3f} | {'–' if total is None else f'{total:.0f}'} |"
        )
        print(rows[-1], flush=True)
    text = f"""# Clients that client-level privacy needs

F1\\*, mean of {options.seeds} seeds; `python benchmarks/client_privacy.py` measures it and describes the data.

| clients | clipped, without noise | ε = 2 for each upload | a matrix of ones | ε of the whole run |
|---|---|---|---|---|
""" + "\n".join(rows)
    write_page(Path(__file__).with_name("CLIENT_PRIVACY.md"), text)


if __name__ == "__main__":
    main()
