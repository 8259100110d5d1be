"""How the time of an iteration (pass and step of V) grows: exponents fitted to ladders of sizes.

Each ladder varies one size and holds the others; ones are spread evenly, so that ladders differ in nothing else. An
exponent of 1 is proportional, 0 is no growth.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from common import Figure, make_parser, smallest
from problem import Problem
from shapes import Shape, generate
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Callable

BASE = Shape("growth", 20_000, 4_000, 0.08, 32, exponent=0.0, spread=0.2)
"""6 million ones; the factors fit the caches, so that nothing but the work grows."""

TOLERANCE = 0.1


def with_ones(shape: Shape, ones: float) -> Shape:
    """Return the shape with so many ones."""
    return replace(shape, density=ones / (shape.rows * shape.columns))


def ladders(steps: int, size: float) -> dict[str, list[tuple[float, Shape]]]:
    """Return for each ladder its sizes, doubling, with the shapes that have them."""
    base = replace(BASE, rows=round(BASE.rows * size))
    ones, scales = base.rows * base.columns * base.density, [2.0**i for i in range(steps)]
    rows = [replace(base, rows=round(base.rows * s)) for s in scales]
    return {
        "ones": [(ones * s, with_ones(base, ones * s)) for s in scales],
        "rows with their ones": [(shape.rows, shape) for shape in rows],
        "rows, same ones": [(shape.rows, with_ones(shape, ones)) for shape in rows],
        "columns, same ones": [
            (base.columns * s, with_ones(replace(base, columns=round(base.columns * s)), ones)) for s in scales
        ],
        "components": [(16 * s, replace(base, k=round(16 * s))) for s in scales],
    }


def exponent(sizes: list[float], times: list[float]) -> float:
    """Return the slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def measure(*, steps: int, repeats: int, size: float, tell: Callable[[str], None] = print) -> list[Figure]:
    """Climb every ladder; the times of one are taken in turn."""
    figures = []
    for name, ladder in ladders(steps, size).items():
        problems = [Problem(generate(shape), shape.k, dense=False) for _, shape in ladder]
        for problem in problems:
            problem.felb_iteration()
        # What was asked for and what chance gave differ a little.
        sizes = [float(p.A.nnz) for p in problems] if name == "ones" else [size for size, _ in ladder]
        with threadpool_limits(1):
            runs: dict[str, Callable[[], object]] = {str(i): p.felb_iteration for i, p in enumerate(problems)}
            times = list(smallest(runs, repeats, time.process_time).values())
        fitted = exponent(sizes, times)
        climbed = ", ".join(f"{s:.3g}: {1e3 * t:.1f} ms" for s, t in zip(sizes, times, strict=True))
        bar, met = (f"1 ± {TOLERANCE}", abs(fitted - 1) <= TOLERANCE) if name == "ones" else ("", None)
        figures.append(Figure(name, f"{fitted:.2f} ({climbed})", bar, met))
        tell(f"{name}: {figures[-1].measured}")
    return figures


def main() -> None:
    """Measure the growth."""
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--size", type=float, default=1.0, help="factor of the rows")
    options = parser.parse_args()
    measure(steps=options.steps, repeats=options.repeats, size=options.size)


if __name__ == "__main__":
    main()
