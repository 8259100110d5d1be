"""Partitions of rows among clients: a label for each row, and the rows of each client by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from felb.data.binary import BinaryMatrix

    Labels = NDArray[np.int64]

__all__ = ["by_component", "consecutive", "even", "uneven"]


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


PARTITIONS: Mapping[str, Callable[[int, int, int], NDArray[np.int64]]] = {
    "even": lambda n, clients, seed: even(n, clients, seed=seed),
    "uneven": lambda n, clients, seed: uneven(n, clients, seed=seed),
    "consecutive": lambda n, clients, _: consecutive(n, clients),
}
"""Functions that split rows among clients, given the numbers of rows and clients and a seed."""


def is_list_of_matrices(X: Any) -> bool:
    """Tell a list of client matrices from a list of rows: its elements are two-dimensional."""
    return isinstance(X, list | tuple) and bool(X) and all(len(getattr(part, "shape", ())) == 2 for part in X)


def dealt(n: int, clients: int, *, split: str, seed: int) -> NDArray[np.str_]:
    """Return the client of each of n rows: client-01, client-02, …, by one of the `PARTITIONS`."""
    return np.array(client_names(clients))[PARTITIONS[split](n, clients, seed)]


def split(matrix: BinaryMatrix, labels: ArrayLike) -> tuple[dict[str, BinaryMatrix], dict[str, Any]]:
    """Split by client labels, one per row; return the shards and, for each, its row numbers in `matrix`.

    A client whose rows follow each other gets a view of them, any other client a copy.
    """
    groups = _labels(labels)
    if groups.ndim != 1 or groups.size != matrix.shape[0]:
        raise InputError(f"groups must hold one client label per row: {matrix.shape[0]} rows, labels of {groups.shape}")
    missing = np.array([_missing(label) for label in groups]) if groups.dtype == object else groups != groups
    if missing.any():
        raise InputError(f"row {np.argmax(missing)} has no client label")
    if groups.dtype == object:
        _check_distinct(groups)
        groups = groups.astype(str)
    values, inverse = np.unique(groups, return_inverse=True)
    by_client = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    rows = {str(value): picked for value, picked in zip(values, by_client, strict=True)}
    return {name: _rows_of(matrix, picked) for name, picked in rows.items()}, rows


def _labels(labels: ArrayLike) -> NDArray[Any]:
    """Return labels as an array that still tells missing ones, and texts from numbers."""
    if isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels):
        known = np.array(labels, dtype=object)
        known[np.ma.getmaskarray(labels)] = None
        return known
    try:
        groups = np.asarray(labels)
        # A list of texts and other values would be an array of texts, "nan" among them.
        return groups if isinstance(labels, np.ndarray) or groups.dtype.kind != "U" else np.asarray(labels, object)
    except ValueError as error:  # lists of several lengths
        raise InputError("groups must hold one client label per row, not lists of labels") from error


def _missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)  # NaN is not itself
    except TypeError:  # pandas.NA does not know whether it is itself
        return True


def _check_distinct(labels: NDArray[Any]) -> None:
    """Raise if two labels differ, such as 1 and "1", but are written alike: they would silently be one client."""
    known: dict[str, Any] = {}
    for label in labels.tolist():
        first = known.setdefault(str(label), label)
        if type(first) is not type(label):
            raise InputError(
                f"groups holds {shortened(repr(first), 60)} ({type(first).__name__}) and {shortened(repr(label), 60)} "
                f"({type(label).__name__}), which are written alike; give all labels one type"
            )


def _rows_of(matrix: BinaryMatrix, picked: NDArray[np.int64]) -> BinaryMatrix:
    first, last = int(picked[0]), int(picked[-1])
    return matrix.rows(first, last + 1) if last - first + 1 == picked.size else matrix.take(picked)


def named(matrices: Sequence[BinaryMatrix]) -> dict[str, BinaryMatrix]:
    """Name a list of matrices client-01, client-02, … in their order."""
    return dict(zip(client_names(len(matrices)), matrices, strict=True))


def client_names(count: int) -> list[str]:
    """Return as many names of clients, client-01, client-02, …, whose order is that of their numbers."""
    width = max(2, len(str(count)))
    return [f"client-{number:0{width}}" for number in range(1, count + 1)]


def check_shards(shards: Mapping[str, BinaryMatrix]) -> None:
    """Raise unless all clients have rows and the very same columns."""
    if not shards:
        raise InputError("no clients: give at least one matrix")
    first = next(iter(shards))
    reference = shards[first]
    for name, shard in shards.items():
        if shard.shape[0] == 0:
            raise InputError(f"{name} has no rows; leave it out of the federation")
        if shard.shape[1] != reference.shape[1]:
            raise InputError(
                f"{name} has {shard.shape[1]} columns where {first} has {reference.shape[1]}; "
                "all clients need the same features"
            )
        if shard.columns != reference.columns:
            raise InputError(_name_mismatch(first, reference.columns, name, shard.columns))
    if reference.shape[1] == 0:
        raise InputError("the data has no columns: 0 feature(s) while a minimum of 1 is required")


def _name_mismatch(a: str, names_a: Sequence[str] | None, b: str, names_b: Sequence[str] | None) -> str:
    if names_a is None or names_b is None:
        return f"{a if names_a else b} has column names and {b if names_a else a} has none; name the columns of both"
    at = next(i for i, (x, y) in enumerate(zip(names_a, names_b, strict=True)) if x != y)
    hint = "put the columns in the same order" if set(names_a) == set(names_b) else "all clients need the same features"
    return f"column {at} is {names_b[at]!r} at {b} and {names_a[at]!r} at {a}; {hint}"
