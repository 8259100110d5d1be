"""How far each method sees through noise: F1* on S1 with ten clients at 0 to 45% xor noise.

S1: 2000 x 200, ten tiles of 5-25% of the rows and columns, 90% dense; mean of three seeds of data, split and method.
"true V" is the inference of the objective "recover" by one who knows the components: what is lost below it is lost in
finding V, what is missing above it no method of this kind can know. Writes docs/images/noise.png and
benchmarks/NOISE_FIGURE.md.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from common import f1_star, make_parser, write_page

from felb.data import partition, planted
from felb.metrics import confusion
from felb.optim.belief import known_components, learn_rates, recover
from felb.records import replacing
from felb.report.figures import NOTE_COLOUR, TITLE_COLOUR
from felb.sklearn.federated import FELB, FELBMU, FederatedBMF

ROOT = Path(__file__).parents[1]
NOISE = (0.0, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
MODELS = {
    "FELB": lambda seed: FELB(10, random_state=seed),
    "FELB-MU": lambda seed: FELBMU(10, random_state=seed),
    "FederatedBMF, hamming": lambda seed: FederatedBMF(10, objective="hamming", random_state=seed),
    "FederatedBMF, recover": lambda seed: FederatedBMF(10, objective="recover", random_state=seed),
}
GIVEN = "true V"
LINES = {
    "FELB": ("#b0b0b0", "o", "-"),
    "FELB-MU": ("#8a8a8a", "s", "-"),
    "FederatedBMF, hamming": ("#3b7bbf", "^", "-"),
    "FederatedBMF, recover": ("#c0392b", "D", "-"),
    GIVEN: (TITLE_COLOUR, "", ":"),
}


def scores(noise: float, seed: int) -> dict[str, float]:
    """Return F1* of every method on one data set."""
    data = planted(2000, 200, 10, noise=noise, seed=seed)
    clients = partition.even(2000, 10, seed=seed)
    found = {}
    for name, make in MODELS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a method collapses is what the figure shows
            found[name] = f1_star(make(seed), data, groups=clients)
    inside, outside = 0.9 * (1 - noise) + 0.1 * noise, max(noise, 1e-3)
    belief = known_components(data.V, inside=inside, outside=outside, row_share=float(data.U.mean()))
    found[GIVEN] = confusion(data.signal, recover([data.A], belief, learn=learn_rates).U, data.V).f1
    return found


def draw(table: dict[str, list[float]], path: Path) -> None:
    """Draw a line for each method."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), dpi=160, facecolor="white")
    axes = figure.add_axes((0.09, 0.13, 0.88, 0.76))
    for name, (colour, marker, style) in LINES.items():
        axes.plot(NOISE, table[name], color=colour, marker=marker, markersize=5, linestyle=style, label=name)
    axes.set_xlim(0, 0.46)
    axes.set_ylim(0, 1.02)
    axes.set_xticks(NOISE, [f"{x:.0%}" for x in NOISE])
    axes.set_xlabel("flipped cells", color=NOTE_COLOUR)
    axes.set_ylabel("F1*, agreement with the planted signal", color=NOTE_COLOUR)
    axes.set_title("Ten planted components, ten clients", loc="left", color=TITLE_COLOUR, fontweight="bold")
    axes.tick_params(colors=NOTE_COLOUR)
    axes.grid(color="#eeeeee")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, loc="lower left")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, partial.open("wb") as file:
        FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})


def write(table: dict[str, list[float]], seeds: int, path: Path) -> None:
    """Write the figures behind the lines."""
    lines = [
        "# F1\\* under xor noise",
        "",
        f"S1 (2000 × 200, ten components), ten even clients, mean of {seeds} seeds; `benchmarks/noise_figure.py`.",
        "",
        "| method | " + " | ".join(f"{x:.0%}" for x in NOISE) + " |",
        "|---|" + "---|" * len(NOISE),
        *(f"| {name} | " + " | ".join(f"{x:.3f}" for x in row) + " |" for name, row in table.items()),
    ]
    write_page(path, "\n".join(lines))


def main() -> None:
    """Measure, draw and write."""
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--image", type=Path, default=ROOT / "docs" / "images" / "noise.png")
    parser.add_argument("--table", type=Path, default=ROOT / "benchmarks" / "NOISE_FIGURE.md")
    options = parser.parse_args()
    table: dict[str, list[float]] = {name: [] for name in LINES}
    for noise in NOISE:
        runs = [scores(noise, seed) for seed in range(options.seeds)]
        for name, row in table.items():
            row.append(float(np.mean([run[name] for run in runs])))
        print(f"{noise:.0%}", {name: round(row[-1], 3) for name, row in table.items()}, flush=True)
    draw(table, options.image)
    write(table, options.seeds, options.table)


if __name__ == "__main__":
    main()
