"""Counts of each feature and each component; they add over rows, hence over clients."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.metrics.counts import Counts
from felb.records import as_record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

BLOCK = 4096
"""Rows at a time."""


@dataclass(frozen=True, slots=True)
class FeatureCounts:
    """How U∘V explains records, feature by feature and component by component.

    Parameters
    ----------
    records : number of rows
    known, ones, missed, false : of each feature, cells that are known, ones, ones that U∘V does not cover, and zeros
        that it covers
    supports : of each component, records that have it
    inside, inside_ones : of each component, known cells of its features in the records that have it, and ones of these

    Examples
    --------
    >>> import numpy as np
    >>> from felb.data import BinaryMatrix
    >>> counts = feature_counts(BinaryMatrix.of([[1, 1, 0], [1, 0, 1]]), np.array([[1], [1]]), np.array([[1, 1, 0]]))
    >>> counts.missed, counts.false, counts.inside_ones
    ((0, 0, 1), (0, 1, 0), (3,))
    """

    records: int
    known: tuple[int, ...]
    ones: tuple[int, ...]
    missed: tuple[int, ...]
    false: tuple[int, ...]
    supports: tuple[int, ...]
    inside: tuple[int, ...]
    inside_ones: tuple[int, ...]

    def __add__(self, other: FeatureCounts) -> FeatureCounts:
        """Pool two sets of rows."""
        sums = {
            entry.name: tuple(a + b for a, b in zip(getattr(self, entry.name), getattr(other, entry.name), strict=True))
            for entry in fields(self)
            if entry.name != "records"
        }
        return FeatureCounts(self.records + other.records, **sums)

    def __radd__(self, other: object) -> FeatureCounts:
        """Let ``sum(counts)`` work."""
        return self if other == 0 else NotImplemented

    @property
    def total(self) -> Counts:
        """Counts of all features together."""
        ones, missed = sum(self.ones), sum(self.missed)
        return Counts(tp=ones - missed, fp=sum(self.false), fn=missed, cells=sum(self.known))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def of_json(cls, raw: dict[str, Any], n_features: int, *, source: str) -> FeatureCounts:
        """Read `to_json` back; `source` names the file in errors."""
        advice = "make the result again"
        found = as_record(raw, cls, source=source, advice=advice)
        features, components = ("known", "ones", "missed", "false"), ("supports", "inside", "inside_ones")
        sizes = [len(getattr(found, name)) for name in features]
        alike = len({len(getattr(found, name)) for name in components}) == 1
        cells = [count for name in (*features, *components) for count in getattr(found, name)]
        if sizes != [n_features] * 4 or not alike or min([found.records, *cells]) < 0:
            raise InputError(f"{source} is damaged (counts of features do not fit the result); {advice}")
        return found


def feature_counts(A: BinaryMatrix, U: NDArray[Any], V: NDArray[Any]) -> FeatureCounts:
    """Count the cells of U∘V against A for each feature and each component; unknown cells count nowhere."""
    from felb.kernels.boolean import boolean_product_dense  # compiled, and not needed to read stored counts

    rows, components = np.asarray(U, dtype=bool), np.asarray(V, dtype=bool)
    m, k = A.shape[1], len(components)
    tp, claimed, inside, inside_ones = (np.zeros(size, dtype=np.int64) for size in (m, m, k, k))
    for start in range(0, len(A), BLOCK):
        block, have = A.rows(start, start + BLOCK), rows[start : start + BLOCK]
        # Rows with the same components have the same reconstruction.
        patterns, which, times = np.unique(have, axis=0, return_inverse=True, return_counts=True)
        product, which = boolean_product_dense(patterns, components), which.reshape(-1)
        tp += _covered(block, product, which)
        claimed += times @ product
        in_records = have.sum(axis=0)[:, None] * components
        inside_ones += _inside(block, have, components)
        inside += in_records.sum(axis=1)
        if block.unknown is not None:
            claimed -= _covered(block.unknown, product, which)
            inside -= _inside(block.unknown, have, components)
    ones, unknown = A.column_sums(), np.zeros(m, np.int64) if A.unknown is None else A.unknown.column_sums()
    found = (len(A) - unknown, ones, ones - tp, claimed - tp, rows.sum(axis=0), inside, inside_ones)
    return FeatureCounts(len(A), *(tuple(counts.tolist()) for counts in found))


def _covered(rows: BinaryMatrix, product: NDArray[np.bool_], which: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many ones of each column are ones of the reconstruction ``product[which]``."""
    columns = rows.indices[rows.indptr[0] : rows.indptr[-1]]  # a slice shares the places of all ones
    hit = product[np.repeat(which, rows.row_sums()), columns]
    return np.bincount(columns[hit], minlength=rows.shape[1])


def _inside(rows: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return Σ_rj U_rl V_lj A_rj for every component l."""
    sums = (rows.to_scipy(np.int64).T @ U.astype(np.int64)).T
    return np.asarray((sums * V).sum(axis=1))
