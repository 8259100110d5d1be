"""FELB and FELB-MU with one choice of the setting changed at a time: F1* on planted and F1 on real data.

    python benchmarks/felb_choices.py
    python benchmarks/felb_choices.py --data FOLDER --sets bfi debian_tags --choices nothing floor --clients 1 --seeds 3

Prints a Markdown table of the choices in docs/explanation/method.md, or of those that contain a word of --choices.

Planted: 2000 x 200, ten tiles, 10% of the cells flipped, 10 and 50 clients, mean of three seeds; left out if sets are
named. Real: by default single cells, 10000 random rows, their 1000 heaviest columns, 20 components, 50 clients, seed 0;
left out where there is no data folder.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from common import FOLDER, f1_star, make_parser, real

import felb
from felb.data import partition, planted
from felb.federated.algorithms.felb import Setting
from felb_paper.measuring import subset

CHOICES: dict[str, Setting | str] = {
    "nothing": Setting(),
    '`start="random"`': Setting(start="random"),
    '`order="alternating"`': Setting(order="alternating"),
    '`average="equal"`': Setting(average="equal"),
    '`aggregation="mean"`': Setting(aggregation="mean"),
    '`units="absolute"`, published weights': Setting(units="absolute", l1=0.001, l2=0.1, l2_rate=1.05, proximity=1.0),
    "`boxed=False`": Setting(boxed=False),
    "`exact_prox=True`": Setting(exact_prox=True),
    "`floor=0`": Setting(floor=0.0),
    "`floor=0.003`": Setting(floor=0.003),
    "`floor=0.01`": Setting(floor=0.01),
    "`proximity=0`": Setting(proximity=0.0),
    "`proximity=3`": Setting(proximity=3.0),
    '`setting="literal"`': "literal",
}
METHODS = {"FELB": felb.FELB, "FELB-MU": felb.FELBMU}
REAL = "sc_10x_brain_10k"


def recovery(method: type, setting: Setting | str, clients: int) -> float:
    """Mean F1* over three planted data sets."""
    found = []
    for seed in range(3):
        data = planted(2000, 200, 10, noise=0.1, seed=seed)
        model = method(10, setting=setting, random_state=seed)
        found.append(f1_star(model, data, groups=partition.even(2000, clients, seed=seed)))
    return float(np.mean(found))


def fit(method: type, setting: Setting | str, parts: list[felb.BinaryMatrix], clients: int) -> float:
    """Mean F1 over parts of a real data set, each with a seed of its own."""
    found = []
    for seed, A in enumerate(parts):
        model = method(20, setting=setting, random_state=seed)
        found.append(model.fit(A, groups=partition.even(len(A), clients, seed=seed)).counts_.f1)
    return float(np.mean(found))


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=FOLDER, metavar="FOLDER", help="with SciPy matrices (.npz)")
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="data sets of the folder")
    parser.add_argument("--choices", nargs="+", metavar="WORD", default=[""])
    parser.add_argument("--clients", nargs="+", type=int, default=[50], metavar="N", help="on real data")
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="on real data: mean of N parts, splits, starts"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    planted_clients = () if options.sets else (10, 50)
    found = {name: real(name, options.data) for name in options.sets or [REAL]}
    seeds = range(options.seeds)
    parts = {name: [subset(A, seed=seed) for seed in seeds] for name, A in found.items() if A is not None}
    on_real = [(name, clients, method) for name in parts for method in METHODS for clients in options.clients]
    columns = [f"{method}, {clients}" for clients in planted_clients for method in METHODS]
    columns += [f"{method}, {name}, {clients}" for name, clients, method in on_real]
    print("| changed | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    for label, setting in CHOICES.items():
        if any(word in label for word in options.choices):
            row = [recovery(method, setting, clients) for clients in planted_clients for method in METHODS.values()]
            row += [fit(METHODS[method], setting, parts[name], clients) for name, clients, method in on_real]
            print(f"| {label} | " + " | ".join(f"{value:.3f}" for value in row) + " |", flush=True)


if __name__ == "__main__":
    main()
