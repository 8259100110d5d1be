"""How far three methods see through noise: agreement with what was planted, on ten clients.

python examples/noise.py --picture docs/images/noise-quick.png
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

import felb

METHODS = {
    "FederatedBMF": felb.FederatedBMF(5, random_state=0),
    "FELB-MU": felb.FELBMU(5, random_state=0),
    "Asso at each client, majority vote": felb.PostHoc(felb.Asso(5, tau="auto"), "vote", random_state=0),
}


def recovery(method: felb.FederatedBMF, noise: float, rows: int) -> float:
    """Return F1*, the agreement of the reconstruction with the planted signal."""
    data = felb.data.planted(rows, 80, 5, noise=noise, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", felb.ConvergenceWarning)  # that a method collapses is what the picture shows
        U = method.fit_transform(data.A, groups=felb.data.partition.even(rows, 10, seed=0))
    return felb.metrics.confusion(data.signal, U, method.components_).f1


def main(arguments: list[str] | None = None) -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description="How far three methods see through noise.")
    parser.add_argument("--picture", type=Path, default=Path("noise.png"), help="file to draw to")
    parser.add_argument("--quick", action="store_true", help="two levels of noise on few rows")
    options = parser.parse_args(arguments)

    levels, rows = ((0.0, 0.2), 200) if options.quick else ((0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35), 600)
    with mpl.rc_context({"axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.add_subplot(xlabel="share of flipped cells", ylabel="F1*", ylim=(0, 1.02))
        for name, method in METHODS.items():
            scores = [recovery(method, noise, rows) for noise in levels]
            print(name, *(f"{score:.2f}" for score in scores))
            axes.plot(levels, scores, marker="o", label=name)
        axes.legend(frameon=False, loc="lower left")
        figure.savefig(options.picture, dpi=160)


if __name__ == "__main__":
    main()
