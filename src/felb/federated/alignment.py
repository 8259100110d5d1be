"""Alignment: which component of a client corresponds to which row of a shared reference.

Components are a set; their order is an accident of the search. A client permutes the rows of its Boolean V_i such that
they overlap most with the rows of a reference R that all clients know (the Hungarian algorithm):

    argmax_σ Σ_l ⟨V_i[σ(l)], R[l]⟩  =  argmin_σ Σ_l ‖V_i[σ(l)] − R[l]‖²        as both norms do not depend on σ.

With R = Σ_i V_i, repeated, this is k-means with a constraint: no two components of one client share a centre. Each
pass that changes the sum increases ‖Σ_i V_i‖², so passes of the same clients end. A multiple of R aligns as R does, so
Σ_i V_i serves as well as the mean, and as it is whole, overlaps are exact on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment

if TYPE_CHECKING:
    from numpy.typing import NDArray

ANCHOR_SCALE = 1 << 16
"""Steps of the grid of an anchor in one standard deviation."""


def anchor(seed: int, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Return the first reference, k × m Gaussian weights on a grid: public, and about nobody's data.

    Equal sets of components are sent in the same order, as no two orders overlap equally with it; similar sets in a
    similar one. Measured on real data, the kind of weights hardly matters once a few passes follow.
    """
    weights = np.random.default_rng(seed).standard_normal(shape)
    return np.rint(ANCHOR_SCALE * weights).astype(np.int64)


def sorted_rows(V: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows in lexical order, which does not depend on the order in which they were found."""
    packed = np.packbits(V, axis=1)
    return V[sorted(range(len(V)), key=lambda row: packed[row].tobytes())]


def align(V: NDArray[np.bool_], reference: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the rows of V in the order that overlaps most with the rows of the reference; a function of their set.

    An empty row overlaps with nothing, so it goes where no other row gains more.
    """
    rows = sorted_rows(np.asarray(V, dtype=bool))
    # Whole numbers below 2^53: sums in float64 are exact in any order, so ties are ties everywhere.
    overlap = rows.astype(np.float64) @ np.asarray(reference, dtype=np.float64).T
    own, place = linear_sum_assignment(overlap, maximize=True)
    permuted = np.empty_like(rows)
    permuted[place] = rows[own]
    return permuted


def agreement(total: NDArray[Any], n_clients: int) -> float:
    """‖Σ V_i‖² / (C Σ_lj (Σ V_i)_lj): how many of the clients have a one where one has it, on average; 1/C to 1."""
    ones = float(np.sum(total, dtype=np.float64))
    return float(np.sum(np.square(total, dtype=np.float64))) / (n_clients * ones) if ones > 0 else 1.0
