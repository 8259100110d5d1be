"""Candidates for V from released co-occurrence, at no further privacy cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.kernels.blas import one_blas_thread
from felb.privacy.choice import gain_bound, row_gains
from felb.privacy.private_cooccurrence import heavy_columns
from felb.privacy.symmetric import symmetric_components
from felb.privacy.synthesis import synthesize

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.privacy.private_cooccurrence import NoisyCooccurrence

    Factorize = Callable[[BinaryMatrix, int, int], NDArray[np.bool_]]
    """(rows, number of components, seed) -> V."""

LOOSE, STRICT = 1.0, 3.0
"""Columns may occur, or surely do, if they are counted more often than so many standard deviations of the noise."""

CLASSES = (80, 40, 20)
"""Numbers of latent classes, each of which gives a candidate, the default first. Few classes blur what records have in
common, many fit the noise."""

LEAST_GAIN = 0.95
"""Candidates that gain less than this share of the default's gain on synthetic rows are not asked about. Records would
say much about them, which makes the bound G and with it the noise of the choice among the others larger."""

MOST_DIRECT = 400
"""Columns, the most frequent ones, whose co-occurrence is factorized itself."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Several V, the default first, and the bound G on what a record says about them."""

    V: NDArray[np.bool_]
    bound: float


def find_candidates(
    released: NoisyCooccurrence,
    n_components: int,
    *,
    factorize: Factorize,
    seed: int,
    rows: int = 500,
) -> Candidates:
    """Factorize synthetic rows, and co-occurrence itself.

    The default comes from rows of latent classes over all columns that may occur. The others come from fewer
    classes, from rows of both kinds, from rows over the columns that surely occur, and straight from co-occurrence;
    those that synthetic rows already tell to be bad are left out. All are components of all columns.

    Parameters
    ----------
    released : M, N and σ
    n_components : k; where fewer columns are kept, some components are empty
    factorize : the method to run on synthetic rows
    seed : fixes everything
    rows : synthetic rows of each model
    """
    # What works on a few hundred columns is slowed down by threads that wait for each other.
    with one_blas_thread():
        loose = synthesize(released, z=LOOSE, n_classes=CLASSES[0], rows=rows, seed=seed)
        others = [
            synthesize(released, z=z, n_classes=n_classes, copulas=0, rows=rows, seed=seed)
            for z, n_classes in (*((LOOSE, fewer) for fewer in CLASSES[1:]), (STRICT, CLASSES[0]))
        ]
        parts = [(drawn, drawn.latent) for drawn in (loose, *others)]
        found = [
            drawn.expand(factorize(part, min(n_components, drawn.columns.size), seed), n_components)
            for drawn, part in (*parts, (loose, loose.mix))
        ]
        found.append(_direct(released, n_components, seed=seed))
        gains = [int(row_gains(loose.latent, V[:, loose.columns]).sum()) for V in found]
        # One other stays in any case, so that there is something to choose.
        kept = [
            V for i, (V, gain) in enumerate(zip(found, gains, strict=True)) if i < 2 or gain >= LEAST_GAIN * gains[0]
        ]
        bound = gain_bound(loose.latent, [V[:, loose.columns] for V in kept])
    return Candidates(np.stack(kept), bound)


def _direct(released: NoisyCooccurrence, n_components: int, *, seed: int) -> NDArray[np.bool_]:
    # A column that hardly stands out alone may do so by what it occurs with: none is left out before there are many.
    columns = heavy_columns(np.diag(released.M), sigma=released.sigma, most=MOST_DIRECT, least=MOST_DIRECT)
    V = np.zeros((n_components, released.M.shape[0]), dtype=bool)
    k = min(n_components, columns.size)
    V[:k, columns] = symmetric_components(released.of_columns(columns), k, seed=seed)
    return V
