"""Random data in the shapes of the published evaluation, made directly as `BinaryMatrix`.

Ones are independent given the popularity of columns (a power law) and the size of rows (log-normal): cell (i, j) is one
with probability 1 − exp(−s·r_i·c_j), with s such that the density comes out. Census data have exactly one one in each
group of columns (a one-hot variable).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np

from felb.data import BinaryMatrix
from felb.data.binary import index_dtype


@dataclass(frozen=True)
class Shape:
    """Rows, columns, density and number of components of a dataset, and how its columns differ."""

    name: str
    rows: int
    columns: int
    density: float
    k: int
    exponent: float = 1.0
    spread: float = 0.8
    ones_per_row: int | None = None

    def take(self, rows: int) -> Shape:
        """Return the same shape with fewer rows."""
        return replace(self, rows=min(rows, self.rows))


PAPER = (
    Shape("acs-income", 1_630_167, 998, 0.01002, 20, ones_per_row=10),
    Shape("acs-poverty", 3_271_346, 836, 0.02392, 20, ones_per_row=20),
    Shape("cs.lg", 145_981, 14_570, 0.004619, 50, spread=0.4),
    Shape("goodreads", 350_332, 9_374, 0.001114, 50),
    Shape("hpa-brain", 76_533, 20_082, 0.2388, 100, exponent=0.7, spread=0.4),
    Shape("movielens", 162_541, 62_423, 0.001540, 20),
    Shape("netflix", 480_189, 17_770, 0.006672, 20),
    Shape("tcga", 10_459, 20_530, 0.01889, 33, exponent=0.3, spread=0.3),
)
"""The eight datasets of the evaluation."""

OTHERS = (
    Shape("ratings", 162_541, 62_423, 0.001838, 20),
    Shape("single-cell", 10_000, 20_000, 0.07, 50, exponent=0.7, spread=0.4),
    Shape("hpa-tenth", 7_653, 20_082, 0.2388, 100, exponent=0.7, spread=0.4),
    Shape("small", 2_000, 200, 0.3, 10, exponent=0.3, spread=0.2),
)
"""Shapes that show other sides of the kernels."""

SHAPES = {shape.name: shape for shape in PAPER + OTHERS}

DENSE = 0.03
"""From this density on, every cell is drawn; below it, ones are."""


def generate(shape: Shape, *, seed: int = 0) -> BinaryMatrix:
    """Return random data of a shape; the same for the same seed."""
    rng = np.random.default_rng(seed)
    if shape.ones_per_row is not None:
        return _one_hot(shape, rng)
    columns = rng.permutation((np.arange(shape.columns) + 10.0) ** -shape.exponent)
    rows = rng.lognormal(0.0, shape.spread, shape.rows)
    columns /= columns.sum()
    rows *= _scale(rows / rows.mean(), columns, shape) / rows.mean()
    block = _cells if shape.density >= DENSE else _draws
    size = max(1, round(2e7 / (shape.columns if shape.density >= DENSE else shape.columns * shape.density)))
    counts, indices = [np.zeros(1, np.int64)], []
    for first in range(0, shape.rows, size):
        count, ones = block(rows[first : first + size], columns, rng)
        counts.append(count)
        indices.append(ones)
    return BinaryMatrix(np.cumsum(np.concatenate(counts)), np.concatenate(indices), shape.columns)


def _scale(rows: np.ndarray, columns: np.ndarray, shape: Shape) -> float:
    """Return s: the expected number of ones of a mean row, before cells that are drawn twice are counted once."""
    sample = np.quantile(rows, np.linspace(0.02, 0.98, 25))
    sample *= rows.mean() / sample.mean()
    low, high = 0.0, 1e3 * shape.density * shape.columns
    for _ in range(30):
        s = (low + high) / 2
        density = -np.expm1(-s * np.outer(sample, columns)).mean()
        low, high = (s, high) if density < shape.density else (low, s)
    return s


def _cells(rows: np.ndarray, columns: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    probability = -np.expm1(-np.outer(rows, columns).astype(np.float32))
    ones = rng.random(probability.shape, dtype=np.float32) < probability
    return np.count_nonzero(ones, axis=1), np.nonzero(ones)[1].astype(index_dtype(columns.size))


def _draws(rows: np.ndarray, columns: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    m = columns.size
    drawn = rng.poisson(rows)
    cells = np.repeat(np.arange(rows.size) * m, drawn)
    cells += np.minimum(np.searchsorted(np.cumsum(columns), rng.random(cells.size)), m - 1)
    cells.sort()
    cells = cells[np.flatnonzero(np.diff(cells, prepend=-1))]
    return np.bincount(cells // m, minlength=rows.size), (cells % m).astype(index_dtype(m))


def _one_hot(shape: Shape, rng: np.random.Generator) -> BinaryMatrix:
    groups = shape.ones_per_row or 1
    # Sizes of the variables from 2 upwards, like sex, race, age, occupation; they add up to the number of columns.
    sizes = np.maximum(2, np.floor(np.geomspace(2, shape.columns, groups)).astype(np.int64))
    sizes = np.maximum(2, sizes * shape.columns // sizes.sum())
    sizes[-1] += shape.columns - sizes.sum()
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    indices = np.empty((shape.rows, groups), index_dtype(shape.columns))
    for group, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        popularity = rng.permutation((np.arange(size) + 2.0) ** -shape.exponent)
        bounds = np.cumsum(popularity / popularity.sum())
        chosen = np.searchsorted(bounds, rng.random(shape.rows, dtype=np.float32))
        indices[:, group] = start + np.minimum(chosen, size - 1)
    return BinaryMatrix(np.arange(shape.rows + 1) * groups, indices.ravel(), shape.columns)


def main() -> None:
    """Generate shapes and say how long it took and how near the density is."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", default=list(SHAPES), help=", ".join(SHAPES))
    for name in parser.parse_args().names:
        start = time.perf_counter()
        A = generate(SHAPES[name])
        print(f"{name}: {A}, wanted {SHAPES[name].density}, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
