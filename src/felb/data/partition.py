"""Partitions: a client label for each row, as in `fit(X, groups=...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Labels = NDArray[np.int64]


def even(n: int, clients: int, *, seed: int = 0) -> Labels:
    """Split the rows at random; client sizes differ by at most one row.

    Examples
    --------
    >>> np.bincount(even(10, 3))
    array([4, 3, 3])
    """
    _check(n, clients)
    return np.random.default_rng(seed).permutation(np.arange(n) % clients)


def consecutive(n: int, clients: int) -> Labels:
    """Split the rows into consecutive blocks; client sizes differ by at most one row.

    A block is a view of the data, so that a memory-mapped matrix is split without being loaded.

    Examples
    --------
    >>> consecutive(6, 3)
    array([0, 0, 1, 1, 2, 2])
    """
    _check(n, clients)
    return np.arange(n) * clients // n


def uneven(n: int, clients: int, *, concentration: float = 1.0, seed: int = 0) -> Labels:
    """Split the rows at random into sizes drawn from a symmetric Dirichlet; smaller concentration, larger spread.

    Every client has at least one row.

    Examples
    --------
    >>> sizes = np.bincount(uneven(100, 5, concentration=0.5))
    >>> len(sizes), sizes.sum(), bool(sizes.min() >= 1)
    (5, np.int64(100), True)
    """
    _check(n, clients)
    if concentration <= 0:
        raise InputError(f"concentration must be positive, got {concentration}")
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(clients, float(concentration)))
    labels = np.concatenate([np.arange(clients), rng.choice(clients, n - clients, p=shares)])
    return rng.permutation(labels)


def by_component(U: NDArray[Any], clients: int, *, skew: float = 1.0, seed: int = 0) -> Labels:
    """Give rows with the same components to the same clients (non-IID); sizes differ by one row at most.

    `skew` = 1 sorts all rows by their first active component, `skew` = 0 is `even`; in between, that share of the
    rows is sorted and the rest is split at random.

    Examples
    --------
    >>> by_component([[1, 0], [0, 1], [1, 0], [0, 1]], 2)
    array([0, 1, 0, 1])
    """
    rows = np.asarray(U, dtype=bool)
    _check(rows.shape[0], clients)
    if not 0 <= skew <= 1:
        raise InputError(f"skew must be between 0 and 1, got {skew}")
    rng = np.random.default_rng(seed)
    n = rows.shape[0]
    first = np.where(rows.any(axis=1), rows.argmax(axis=1), rows.shape[1])
    # Rows sorted by component fill the clients one after the other; unsorted ones get a random place in that order.
    sorted_rows = rng.random(n) < skew
    place = np.where(sorted_rows, (first + rng.random(n)) / (rows.shape[1] + 1), rng.random(n))
    labels = np.empty(n, dtype=np.int64)
    labels[np.argsort(place, kind="stable")] = np.arange(n) * clients // n
    return labels


def _check(n: int, clients: int) -> None:
    if clients < 1:
        raise InputError(f"at least one client is needed, got {clients}")
    if clients > n:
        raise InputError(f"{clients} clients cannot share {n} rows: every client needs at least one")
