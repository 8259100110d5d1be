"""What a component means: how its features and records compare with the rest of the data.

All figures are functions of counts that add up over clients: of n records, s_l have component l, c_j have feature j,
and t_lj have both. With these,

    confidence   P(j | l) = t_lj / s_l
    lift         P(j | l) / P(j | not l), with P(j | not l) = (c_j − t_lj) / (n − s_l)

where ½ is added to counts and 1 to totals for the lift, so that no ratio is infinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

CELLS_AT_A_TIME = 1 << 22


@dataclass(frozen=True)
class ComponentProfile:
    """Counts of components in data; profiles of different records add up.

    Parameters
    ----------
    components : V, components × features
    n_records : number of records, n
    supports : records that have each component, s
    feature_counts : records that have each feature, c
    joint : records that have both, components × features, t
    covered : ones of the data in the records and features of each component
    exclusive : those that no other component covers, less the zeros that no other component covers: by how much the
        number of wrong cells would grow without the component
    ones : ones of the data

    Examples
    --------
    >>> import numpy as np
    >>> from felb.data import BinaryMatrix
    >>> A = BinaryMatrix.of([[1, 1, 0], [1, 1, 0], [0, 1, 1]])
    >>> profile = profile_components(A, np.array([[1], [1], [0]], bool), np.array([[1, 1, 0]], bool))
    >>> profile.supports, profile.exclusive, profile.order(0)
    (array([2]), array([4]), array([0, 1]))
    """

    components: NDArray[np.bool_]
    n_records: int
    supports: NDArray[np.int64]
    feature_counts: NDArray[np.int64]
    joint: NDArray[np.int64]
    covered: NDArray[np.int64]
    exclusive: NDArray[np.int64]
    ones: int

    def __add__(self, other: ComponentProfile) -> ComponentProfile:
        """Pool two sets of records."""
        if not np.array_equal(self.components, other.components):
            raise InputError("profiles of different components do not add up")
        names = ("n_records", "supports", "feature_counts", "joint", "covered", "exclusive", "ones")
        return ComponentProfile(self.components, *(getattr(self, name) + getattr(other, name) for name in names))

    @cached_property
    def confidence(self) -> NDArray[np.float64]:
        """P(feature | component), components × features; 0 for a component of no record."""
        return np.asarray(self.joint / np.maximum(self.supports, 1)[:, None])

    @cached_property
    def lift(self) -> NDArray[np.float64]:
        """P(feature | component) / P(feature | not the component), components × features."""
        inside = (self.joint + 0.5) / (self.supports + 1)[:, None]
        outside = (self.feature_counts - self.joint + 0.5) / (self.n_records - self.supports + 1)[:, None]
        return np.asarray(inside / outside)

    @cached_property
    def coverage(self) -> NDArray[np.float64]:
        """Share of all ones that lie in the records and features of each component."""
        return np.asarray(self.covered / max(self.ones, 1))

    def order(self, number: int) -> NDArray[np.int64]:
        """Return the features of a component, most distinctive (largest lift) first."""
        features = np.flatnonzero(self.components[number])
        return features[np.argsort(-self.lift[number, features], kind="stable")]

    def columns(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return a tidy table as columns: one row for each component and feature of it, most distinctive first."""
        table: dict[str, list[Any]] = {name: [] for name in TIDY}
        for number in range(len(self.components)):
            for rank, j in enumerate(self.order(number).tolist()):
                values = (
                    number,
                    names[j],
                    rank + 1,
                    float(self.lift[number, j]),
                    float(self.confidence[number, j]),
                    int(self.feature_counts[j]),
                    int(self.supports[number]),
                    float(self.coverage[number]),
                    int(self.exclusive[number]),
                )
                for name, value in zip(TIDY, values, strict=True):
                    table[name].append(value)
        return table


TIDY = (
    "component", "feature", "rank", "lift", "confidence", "feature_count", "support", "coverage", "exclusive_gain",
)  # fmt: skip
"""Columns of a tidy table of components."""


def profile_components(A: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> ComponentProfile:
    """Count the features of the records of each component; unknown cells count as zeros of the features."""
    (n, m), k = A.shape, len(V)
    joint, exclusive = np.zeros((k, m), dtype=np.int64), np.zeros(k, dtype=np.int64)
    step = max(1, CELLS_AT_A_TIME // max(1, m))
    for start in range(0, n, step):
        rows = A.rows(start, min(start + step, n))
        data, members = rows.to_scipy(np.int64), U[start : start + len(rows)]
        joint += np.asarray((data.T @ members.astype(np.int64)).T)
        exclusive += _exclusive(rows, members, V)
    covered = (joint * V).sum(axis=1)
    return ComponentProfile(
        V, n, np.count_nonzero(U, axis=0).astype(np.int64), A.column_sums().astype(np.int64), joint, covered, exclusive,
        int(A.nnz),
    )  # fmt: skip


def _exclusive(rows: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return ones less zeros among the known cells that each component alone covers."""
    # Whole numbers below 2^24, which single precision holds exactly.
    members, features = U.astype(np.float32), V.astype(np.float32)
    worth = np.where(rows.toarray(), np.float32(1), np.float32(-1))
    if rows.unknown is not None:
        worth[rows.unknown.toarray()] = 0
    worth[members @ features != 1] = 0
    return np.asarray(np.rint(((members.T @ worth) * V).sum(axis=1)), dtype=np.int64)
