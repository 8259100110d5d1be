"""A sample of rows that does not depend on who holds them: a row is in it or not by a hash of its own ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

HASH_BITS = 53
"""Of a hash, so that a share of all hashes is exact in float64."""


def sampled_rows(A: BinaryMatrix, share: float) -> NDArray[np.int64]:
    """Return the numbers of the rows whose hash lies within a share of all hashes, ascending.

    Equal rows are sampled together, so the sample of some rows and that of others add up to the sample of all.
    """
    hashes = np.empty(len(A), dtype=np.uint64)
    hash_rows_into(hashes, A.indptr, A.indices)
    return np.flatnonzero(hashes < np.uint64(share * 2.0**HASH_BITS))


@njit(cache=True, nogil=True)
def hash_rows_into(hashes: Any, indptr: Any, indices: Any) -> None:
    """Write a hash of the ones of each row, whatever their order."""
    for r in range(hashes.shape[0]):
        total = np.uint64(indptr[r + 1] - indptr[r])
        for p in range(indptr[r], indptr[r + 1]):
            total += _mixed(np.uint64(indices[p]) + np.uint64(1))
        hashes[r] = _mixed(total) >> np.uint64(64 - HASH_BITS)


@njit(cache=True, nogil=True)
def _mixed(word: Any) -> Any:
    """Return the word after one step of SplitMix64 (Steele, Lea, Flood), all of whose bits depend on all."""
    word += np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
