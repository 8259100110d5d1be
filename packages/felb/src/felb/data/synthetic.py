"""Planted Boolean structure under noise, for tests, benchmarks and plots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import scipy.sparse as sp

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.records import check_types, replacing

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

Noise = Literal["xor", "additive", "destructive"]

BLOCK_CELLS = 1 << 22
"""Cells drawn at a time, so that large data never exists densely."""
MOST_FACTOR_CELLS, MOST_CELLS = 1 << 33, 1 << 37
"""Entries of U and of V, which are dense arrays, and cells of A, for each of which two random numbers are drawn."""

DEFAULT_RANGE = (0.05, 0.25)


@dataclass(frozen=True, slots=True)
class Planted:
    """Data with a known answer.

    Parameters
    ----------
    A : the noisy data a method sees
    U, V : the planted Boolean factors
    signal : U∘V in full, before density and noise; F1* is measured against it
    """

    A: BinaryMatrix
    U: NDArray[np.bool_]
    V: NDArray[np.bool_]
    signal: BinaryMatrix


def planted(
    n: int,
    m: int,
    k: int,
    *,
    noise: float = 0.0,
    kind: Noise = "xor",
    density: float = 0.9,
    heights: tuple[float, float] = DEFAULT_RANGE,
    widths: tuple[float, float] = DEFAULT_RANGE,
    contiguous: bool = False,
    seed: int = 0,
) -> Planted:
    """Plant k tiles in an n × m matrix, thin them out, add noise.

    Each tile takes a uniform number of rows in ``heights``·n and of columns in ``widths``·m, chosen without order; a
    cell of the signal is a one with probability `density`; then noise flips cells (``xor``), sets them
    (``additive``) or clears them (``destructive``) with probability `noise`.

    Parameters
    ----------
    n, m, k : records, features, tiles
    contiguous : place each tile on consecutive rows and columns, for plots
    seed : fixes everything

    Examples
    --------
    >>> data = planted(200, 50, 3, noise=0.1, seed=1)
    >>> data.A.shape, data.U.shape, data.V.shape
    ((200, 50), (200, 3), (3, 50))
    """
    given = {"noise": noise, "density": density, "kind": kind, "contiguous": contiguous}
    check_types(given, {"noise": float, "density": float, "kind": str, "contiguous": bool})
    for name, value in (("n", n), ("m", m), ("k", k)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    if max(n, m) * k > MOST_FACTOR_CELLS or n * m > MOST_CELLS:
        raise InputError(f"{n} x {m} cells with {k} components are too many to draw; use fewer rows or columns")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number of at least 0, got {seed!r}")
    if kind not in get_args(Noise):
        raise InputError(f"unknown kind of noise {kind!r}; use one of {', '.join(get_args(Noise))}")
    for name, share in (("noise", noise), ("density", density)):
        if not 0 <= share <= 1:
            raise InputError(f"{name} is a probability between 0 and 1, got {share}")
    for name, limits in (("heights", heights), ("widths", widths)):
        numbers = (
            isinstance(limits, list | tuple)
            and len(limits) == 2
            and all(isinstance(limit, int | float | np.number) for limit in limits)
        )
        if not numbers or not 0 <= limits[0] <= limits[1] <= 1:
            raise InputError(f"{name} is a range (low, high) of shares between 0 and 1, got {limits!r}")
    structure, thinning, flips = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    U, V = np.zeros((n, k), dtype=bool), np.zeros((k, m), dtype=bool)
    for component in range(k):
        U[_pick(structure, n, heights, 1, contiguous=contiguous), component] = True
        V[component, _pick(structure, m, widths, 2, contiguous=contiguous)] = True
    data, signal = [], []
    for start in range(0, n, step := max(1, BLOCK_CELLS // m)):
        full = U[start : start + step].astype(np.float32) @ V.astype(np.float32) > 0
        thin = full & (thinning.random(full.shape) < density)
        hit = flips.random(full.shape) < noise
        noisy = {"xor": thin ^ hit, "additive": thin | hit, "destructive": thin & ~hit}[kind]
        data.append(BinaryMatrix.of(noisy))
        signal.append(BinaryMatrix.of(full))
    return Planted(BinaryMatrix.vstack(data), U, V, BinaryMatrix.vstack(signal))


def _pick(
    rng: np.random.Generator, size: int, share: tuple[float, float], least: int, *, contiguous: bool
) -> NDArray[np.int64]:
    count = min(size, max(least, int(size * rng.uniform(*share))))
    if contiguous:
        return np.arange(count) + int(rng.integers(0, size - count + 1))
    return rng.choice(size, count, replace=False)


def write_planted(
    out: str | os.PathLike[str], n: int, m: int, *, k: int, force: bool = False, **options: Any
) -> dict[str, Path]:
    """Write planted data and its answer as SciPy ``.npz`` files; return their paths by what they hold."""
    stem = Path(out)
    stem = stem.with_suffix("") if stem.suffix == ".npz" else stem
    if stem.name in ("", ".."):
        raise InputError(f"{out} is a folder; give a file name in it, such as {stem / 'planted'}")
    paths = {
        name: stem.with_name(f"{stem.name}{part}.npz")
        for name, part in (("data", ""), ("signal", ".signal"), ("U", ".U"), ("V", ".V"))
    }
    taken = [str(path) for path in paths.values() if path.exists()]
    if taken and not force:
        raise InputError(f"{taken[0]} exists; choose another name or replace it with --force")
    data = planted(n, m, k, **options)
    stem.parent.mkdir(parents=True, exist_ok=True)
    matrices: dict[str, Any] = {"data": data.A.to_scipy(), "signal": data.signal.to_scipy(), "U": data.U, "V": data.V}
    for name, path in paths.items():
        with replacing(path) as partial, partial.open("wb") as file:
            sp.save_npz(file, sp.csr_array(matrices[name], dtype="uint8"))
    return paths
