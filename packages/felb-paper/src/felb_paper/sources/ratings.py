"""Who rated what how: triplets in any order into a matrix users x items."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.data import BinaryMatrix
from felb.data.files import Table
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

AT_LEAST = 3.5
"""The rating from which on a user likes an item; half of a five-star scale and a bit."""

MERGED_AT_A_TIME = 1 << 21


class Ids:
    """All different numbers that were shown to it, in memory that grows with how many they are."""

    def __init__(self) -> None:
        self._known = np.zeros(0, np.int64)
        self._fresh: list[NDArray[np.int64]] = []
        self._n_fresh = 0

    def add(self, ids: NDArray[np.int64]) -> None:
        """Take note of numbers."""
        self._fresh.append(np.unique(ids))
        self._n_fresh += self._fresh[-1].size
        if self._n_fresh > max(MERGED_AT_A_TIME, self._known.size):
            self.all()

    def all(self) -> NDArray[np.int64]:
        """Return the numbers in ascending order."""
        if self._fresh:
            self._known = np.unique(np.concatenate([self._known, *self._fresh]))
            self._fresh, self._n_fresh = [], 0
        return self._known


class Ratings:
    """Takes rating triplets block by block; keeps only those that become ones, a few bytes each.

    A[u, i] = 1 if user u gave item i a rating of `at_least` or more. Every user who rated anything has a row, and every
    item that was rated a column, liked or not.
    """

    def __init__(self, at_least: float) -> None:
        if not isinstance(at_least, int | float) or not math.isfinite(at_least):
            raise InputError(f"at_least={at_least!r} is not a finite number")
        self._at_least = at_least
        self._users, self._items = Ids(), Ids()
        self._liked: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def add(self, users: NDArray[np.int64], items: NDArray[np.int64], ratings: NDArray[np.float64]) -> None:
        """Take triplets; a pair may come again."""
        self._users.add(users)
        self._items.add(items)
        liked = ratings >= self._at_least
        self._liked.append((_narrow(users[liked]), _narrow(items[liked])))

    def items(self) -> NDArray[np.int64]:
        """Return the items that were rated, in ascending order."""
        return self._items.all()

    def table(self, items: NDArray[np.int64], names: Sequence[str]) -> Table:
        """Return the matrix with the given items as its columns, in this order; they must be all that were rated.

        What was collected is given away: it can be called once.
        """
        users = self._users.all()
        if not users.size:
            raise InputError("there are no ratings; the file is incomplete")
        order = np.argsort(items, kind="stable")
        ascending = items[order]
        rows, columns = (np.concatenate(parts) for parts in zip(*self._liked, strict=True))
        self._liked = []
        places = np.searchsorted(users, rows), order[np.searchsorted(ascending, columns)]
        # Through Booleans, whose sum is or: any number of repetitions is a one.
        ones = sp.coo_array((np.ones(rows.size, bool), places), shape=(users.size, items.size))
        matrix = BinaryMatrix.of(ones.tocsr())
        return Table(matrix.with_columns(names), rows=tuple(map(str, users.tolist())))


def _narrow(ids: NDArray[np.int64]) -> NDArray[Any]:
    fits = not ids.size or (ids.min() >= np.iinfo(np.int32).min and ids.max() <= np.iinfo(np.int32).max)
    return ids.astype(np.int32) if fits else ids
