"""FELB and FELB-MU with one choice of the setting changed at a time: F1* on planted and F1 on real data.

    python benchmarks/felb_choices.py [--data FOLDER]

Prints a Markdown table of the choices in docs/explanation/method.md.

Planted: 2000 x 200, ten tiles, 10% of the cells flipped, 10 and 50
clients, mean of three seeds. Real: single cells, 10000 x 1000, 20 components, 50 clients, seed 0; left out where there
is no data folder.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from real_data import FOLDER, real

import felb
from felb.data import partition, planted
from felb.federated.algorithms.felb_setting import Setting
from felb.metrics import confusion
from felb.paper.subset import subset

CHOICES: dict[str, Setting | str] = {
    "nothing": Setting(),
    '`start="random"`': Setting(start="random"),
    '`order="alternating"`': Setting(order="alternating"),
    '`average="equal"`': Setting(average="equal"),
    '`aggregation="mean"`': Setting(aggregation="mean"),
    '`units="absolute"`, published weights': Setting(units="absolute", l1=0.001, l2=0.1, l2_rate=1.05, proximity=1.0),
    "`boxed=False`": Setting(boxed=False),
    "`exact_prox=True`": Setting(exact_prox=True),
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
        U = model.fit_transform(data.A, groups=partition.even(2000, clients, seed=seed))
        found.append(confusion(data.signal, U, model.components_).f1)
    return float(np.mean(found))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    A = real(REAL, options.data)
    columns = [f"{name}, {clients}" for clients in (10, 50) for name in METHODS]
    columns += [f"{name}, cells" for name in METHODS] if A is not None else []
    print("| changed | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    for label, setting in CHOICES.items():
        row = [recovery(method, setting, clients) for clients in (10, 50) for method in METHODS.values()]
        if A is not None:
            part = subset(A, seed=0)
            groups = partition.even(len(part), 50, seed=0)
            fitted = [m(20, setting=setting, random_state=0).fit(part, groups=groups) for m in METHODS.values()]
            row += [model.counts_.f1 for model in fitted]
        print(f"| {label} | " + " | ".join(f"{value:.3f}" for value in row) + " |", flush=True)


if __name__ == "__main__":
    main()
