"""Splitting the rows costs nothing: FederatedBMF finds the same components for one client and for fifty.

python examples/clients.py --picture docs/images/clients.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import felb
from felb.report import draw_matrices


def main(arguments: list[str] | None = None) -> None:
    """Fit one client, ten and fifty, compare, and draw the components of all three."""
    parser = argparse.ArgumentParser(description="The same components for one client and for fifty.")
    parser.add_argument("--picture", type=Path, default=Path("clients.png"), help="file to draw to")
    parser.add_argument("--quick", action="store_true", help="few rows and little effort")
    options = parser.parse_args(arguments)

    rows, effort = (200, "fast") if options.quick else (1000, "default")
    data = felb.data.planted(rows, 80, 6, noise=0.15, heights=(0.2, 0.4), contiguous=True, seed=7)
    found, panels = {}, {}
    for clients in (1, 10, 50):
        split = felb.data.partition.by_component(data.U, clients, seed=0)  # clients with unlike rows
        model = felb.FederatedBMF(6, effort=effort, random_state=0).fit(data.A, groups=split)
        found[clients] = model.components_
        order = np.argsort(model.components_.argmax(axis=1), kind="stable")
        panels[
            f"{clients} client{'s' * (clients > 1)}\n{model.counts_.errors:,} of {model.counts_.cells:,} cells wrong"
        ] = list(model.components_[order][:, None])
    print("ten as one:", np.array_equal(found[1], found[10]))
    print("fifty as one:", np.array_equal(found[1], found[50]))
    draw_matrices(panels, options.picture)


if __name__ == "__main__":
    main()
