"""Candidates for V from released co-occurrence, at no further privacy cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.kernels.blas import one_blas_thread
from felb.privacy.choice import gain_bound
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

STRICT, LOOSE = 3.0, 1.0
"""Columns are kept if they occur more often than so many standard deviations of the noise."""

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
    rows: int = 2500,
) -> Candidates:
    """Factorize synthetic rows, and co-occurrence itself.

    The default comes from synthetic rows of both kinds over the columns that surely occur; the others from the rows of
    either kind alone, from rows over more columns, and straight from co-occurrence, which is better where records are
    few. All are components of all columns.

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
        strict, loose = (synthesize(released, z=z, rows=rows, seed=seed) for z in (STRICT, LOOSE))
        found = [
            synthetic.expand(factorize(part, min(n_components, synthetic.columns.size), seed), n_components)
            for synthetic, part in (
                (strict, strict.mix),
                (loose, loose.mix),
                (strict, strict.latent),
                (strict, strict.copula),
            )
        ]
        found.append(_direct(released, n_components, seed=seed))
        bound = gain_bound(loose.mix, [V[:, loose.columns] for V in found])
    return Candidates(np.stack(found), bound)


def _direct(released: NoisyCooccurrence, n_components: int, *, seed: int) -> NDArray[np.bool_]:
    # A column that hardly stands out alone may do so by what it occurs with: none is left out before there are many.
    columns = heavy_columns(np.diag(released.M), sigma=released.sigma, most=MOST_DIRECT, least=MOST_DIRECT)
    V = np.zeros((n_components, released.M.shape[0]), dtype=bool)
    k = min(n_components, columns.size)
    V[:k, columns] = symmetric_components(released.of_columns(columns), k, seed=seed)
    return V
