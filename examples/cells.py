"""Cells of a mouse brain: an embedding coloured by components.

python examples/cells.py --picture docs/images/cells.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from anndata import AnnData
from matplotlib.figure import Figure
from sklearn.decomposition import TruncatedSVD
from sklearn.manifold import TSNE

import felb

COMPONENTS = 6


def main(arguments: list[str] | None = None) -> None:
    """Find components, embed the cells, and draw."""
    parser = argparse.ArgumentParser(description="An embedding of cells, coloured by components.")
    parser.add_argument("--picture", type=Path, default=Path("cells.png"), help="file to draw to")
    parser.add_argument("--quick", action="store_true", help="few cells and genes")
    options = parser.parse_args(arguments)

    n_cells, n_genes, refits = (150, 60, 1) if options.quick else (3000, 1000, 20)
    matrix = felb.data.load("sc_10x_brain_10k").rows(0, n_cells)
    cells = AnnData(matrix.to_scipy(np.float32)[:, :n_genes])
    felb.scverse.bmf(cells, COMPONENTS, n_resamples=refits, effort="fast", objective="hamming")
    found = cells.uns["bmf"]["stability"]["found"]

    reduced = TruncatedSVD(20, random_state=0).fit_transform(cells.X)
    cells.obsm["X_tsne"] = TSNE(random_state=0, init="pca", max_iter=250 if options.quick else 750).fit_transform(
        reduced
    )

    order = np.argsort(-cells.uns["bmf"]["supports"])
    figure = Figure(figsize=(9, 6), layout="constrained")
    x, y = cells.obsm["X_tsne"].T
    for axes, number in zip(figure.subplots(2, 3).flat, order, strict=True):
        has = cells.obsm["X_bmf"][:, number] > 0
        axes.scatter(x[~has], y[~has], s=2, color="#d9dbd6", linewidths=0)
        axes.scatter(x[has], y[has], s=3, color="#0b6b69", linewidths=0)
        genes = int(cells.varm["bmf"][:, number].sum())
        axes.set_title(f"component {number}: {genes} genes, {has.sum()} cells\nfound in {found[number]:.0%} of refits",
                       fontsize=9, loc="left")  # fmt: skip
        axes.set_axis_off()
        print(f"component {number}: {genes} genes, {has.sum()} cells, found {found[number]:.2f}")
    figure.savefig(options.picture, dpi=130)


if __name__ == "__main__":
    main()
