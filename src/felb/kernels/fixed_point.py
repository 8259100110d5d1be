"""Sums in fixed point: integer multiples of a power of two, so that the order of addition does not matter.

Floating-point sums over rows depend on how the rows are grouped. Sums of integers do not, so a statistic that is
rounded row by row before it is added is the same for one client with all rows and for many with a few rows each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from felb.errors import InputError
from felb.kernels.passes import whole_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

UNIT_BITS = 12
"""Fractional bits of a relaxed row: far finer than any threshold it is cut at, coarse enough for sums of squares."""

LARGEST_UNITS = (1 << 16) - 1
"""Rows are clipped to this many units, so that squares add up exactly in float64 over 2^21 rows."""

SKETCH_BITS = 20
"""Fractional bits of a sketch Q; A Q and AᵀA Q then add up exactly in float64 up to 2^33 pairs of ones a column."""

UPLOAD_BITS = 32
"""Fractional bits of an uploaded factor with entries of order one; those above 2^-9 keep all bits of a float32."""

GRAM_ROWS = 1 << 20
"""Rows whose squares are added in float64 at once."""


WEIGHTED_BITS = 24
"""Fractional bits of weighted uploads, as many as a float32 in [½, 1) has. Whole multiples add up exactly below 2^39,
those in float64 below 2^29."""


def whole_multiples(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return values in units of 2^-24, so that sums over clients are exact and do not depend on their order."""
    return np.rint(np.ldexp(np.asarray(values, np.float64), WEIGHTED_BITS)).astype(np.int64)


class FixedStatistics(NamedTuple):
    """AᵀX (m × k), XᵀX (k × k) and column sums (k) of whole-numbered rows X, as int64."""

    AtX: NDArray[np.int64]
    XtX: NDArray[np.int64]
    sums: NDArray[np.int64]


def units_of(V: NDArray[Any]) -> NDArray[np.float64]:
    """Return the unit for each column of U: a power of two, finer where the row of V (k × m) it goes with is larger.

    Products U_rl V_lj are of order one, so a unit of 2^-12 / max_j V_lj, rounded down to a power of two, resolves them
    alike for every scale. Rows of zeros get the unit 2^-12.
    """
    highest = V.max(axis=1, initial=0.0).astype(np.float64)
    _, exponent = np.frexp(np.where(highest > 0, highest, 0.5))
    return np.asarray(np.ldexp(1.0, -UNIT_BITS - exponent))


def in_units(U: NDArray[Any], units: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the columns of U >= 0 as whole multiples of their units, rounded to nearest and clipped."""
    whole = np.empty(U.shape, dtype=np.int32)
    # Units are powers of two, so that a product with their inverses is exact.
    in_units_into(whole, np.ascontiguousarray(U), (1 / units).astype(U.dtype))
    return whole


def fixed_statistics(A: BinaryMatrix, X: NDArray[np.int32]) -> FixedStatistics:
    """Return AᵀX, XᵀX and the column sums of X exactly; entries of X are at most `LARGEST_UNITS`."""
    if X.shape[0] != A.shape[0]:
        raise InputError(f"X has {X.shape[0]} rows, but the data has {A.shape[0]}")
    k = X.shape[1]
    AtX = whole_sums(A, np.ascontiguousarray(X))
    if AtX is None:
        AtX = np.zeros((A.shape[1], k), dtype=np.int64)
        add_rows_into(AtX, A.indptr, A.indices, np.ascontiguousarray(X))
    XtX, sums = np.zeros((k, k), dtype=np.int64), np.zeros(k, dtype=np.int64)
    for first in range(0, X.shape[0], GRAM_ROWS):
        # BLAS knows no integers, but sums below 2^53 are exact in float64, in any order.
        rows = X[first : first + GRAM_ROWS].astype(np.float64)
        XtX += (rows.T @ rows).astype(np.int64)
        sums += (np.ones(len(rows)) @ rows).astype(np.int64)
    return FixedStatistics(AtX, XtX, sums)


def from_squares(total: NDArray[np.int64]) -> float:
    """Read a sum of squares in units of 2^-SKETCH_BITS as a number."""
    return float(np.ldexp(np.float64(total), -SKETCH_BITS))


def as_sketch(Q: NDArray[Any]) -> NDArray[np.float64]:
    """Round Q (entries up to 1) to `SKETCH_BITS` fractional bits."""
    return np.asarray(np.ldexp(np.rint(np.ldexp(Q, SKETCH_BITS)), -SKETCH_BITS))


def on_grid(values: NDArray[Any], bits: int = UPLOAD_BITS) -> NDArray[Any]:
    """Round values to multiples of 2^-bits, in their own type: sums of them below 2^(53−bits) are exact in float64."""
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, bits)), -bits), dtype=values.dtype)


def fixed_sketch(A: BinaryMatrix, Q: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return AᵀA Q in units of 2^-SKETCH_BITS, exactly, for a Q rounded by `as_sketch`."""
    ones = A.to_scipy(np.float64)
    return np.asarray(np.rint(np.ldexp(ones.T @ (ones @ Q), SKETCH_BITS)), dtype=np.int64)


def from_sketch(total: NDArray[np.int64]) -> NDArray[np.float64]:
    """Read a sum of `fixed_sketch` as numbers."""
    return np.ldexp(total.astype(np.float64), -SKETCH_BITS)


@njit(cache=True, nogil=True)
def in_units_into(whole: Any, U: Any, per_unit: Any) -> None:
    """Write the columns of U >= 0, times the number of units in 1, as whole numbers, rounded to nearest and clipped."""
    k = U.shape[1]
    most = U.dtype.type(LARGEST_UNITS)
    for r in range(U.shape[0]):
        for c in range(k):
            whole[r, c] = np.int32(min(max(np.rint(U[r, c] * per_unit[c]), U.dtype.type(0)), most))


@njit(cache=True, nogil=True)
def add_rows_into(total: Any, indptr: Any, indices: Any, X: Any) -> None:
    """Add row r of X to ``total[j]`` for every one (r, j)."""
    k = X.shape[1]
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            for c in range(k):
                total[j, c] += X[r, c]
