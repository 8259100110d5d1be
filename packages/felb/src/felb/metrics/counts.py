"""Counts of cells, features and components; they add across clients, and every score is a function of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.records import as_record

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from felb.kernels.boolean import FactorMasks

    Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Counts:
    """Cells of a reconstruction R = U∘V against a binary target A.

    Parameters
    ----------
    tp, fp, fn : ones of both, of R alone, of A alone
    cells : all cells, rows × columns, without those that are unknown

    Examples
    --------
    >>> north, south = Counts(tp=8, fp=1, fn=1, cells=20), Counts(tp=2, fp=0, fn=2, cells=10)
    >>> north + south
    Counts(tp=10, fp=1, fn=3, cells=30)
    >>> round(sum([north, south]).f1, 3)
    0.833
    """

    tp: int = 0
    fp: int = 0
    fn: int = 0
    cells: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Pool two sets of rows."""
        return Counts(self.tp + other.tp, self.fp + other.fp, self.fn + other.fn, self.cells + other.cells)

    def __radd__(self, other: object) -> Counts:
        """Let ``sum(counts)`` work."""
        return self if other == 0 else NotImplemented

    @property
    def errors(self) -> int:
        """Wrong cells, |A ⊕ R|."""
        return self.fp + self.fn

    @property
    def f1(self) -> float:
        """2|A∧R| / (|A| + |R|); 1 where both are empty."""
        total = 2 * self.tp + self.fp + self.fn
        return 2 * self.tp / total if total else 1.0

    @property
    def precision(self) -> float:
        """|A∧R| / |R|; 1 where nothing was claimed."""
        claimed = self.tp + self.fp
        return self.tp / claimed if claimed else 1.0

    @property
    def recall(self) -> float:
        """|A∧R| / |A|; 1 where there was nothing to find."""
        ones = self.tp + self.fn
        return self.tp / ones if ones else 1.0

    @property
    def error_rate(self) -> float:
        """Fraction of wrong cells."""
        return self.errors / self.cells if self.cells else 0.0

    @property
    def rmsd(self) -> float:
        """Root mean squared deviation of Boolean cells, sqrt(fraction of wrong cells)."""
        return float(np.sqrt(self.error_rate))

    @property
    def rmsd_table(self) -> float:
        """RMSD in the unit of the paper's tables, 50·sqrt(fraction of wrong cells)."""
        return 50 * self.rmsd

    @property
    def coverage(self) -> float:
        """1 − |A ⊕ R| / |A|: the share of ones explained, false ones counted against it; 0 for R = 0."""
        ones = self.tp + self.fn
        return 1 - self.errors / ones if ones else 1.0 - float(self.fp > 0)

    def scores(self) -> dict[str, float]:
        """All scores by name, for tables and JSON."""
        names = ("f1", "rmsd", "rmsd_table", "precision", "recall", "coverage", "errors")
        return {name: getattr(self, name) for name in names}


def confusion(A: Any, U: ArrayLike, V: ArrayLike) -> Counts:
    """Count the cells of U∘V against A without ever building U∘V.

    With A the data this gives F1 and RMSD; with A the planted signal, F1*. Counts of row blocks add up. Unknown
    cells of A are not counted.

    Examples
    --------
    >>> import numpy as np
    >>> counts = confusion(np.eye(2, dtype=int), U=np.array([[1], [1]]), V=np.array([[1, 0]]))
    >>> counts.errors, counts.f1
    (2, 0.5)
    """
    matrix = BinaryMatrix.of(A)
    rows, components = to_boolean(U, "U"), to_boolean(V, "V")
    if rows.shape[0] != matrix.shape[0] or components.shape[1] != matrix.shape[1]:
        raise InputError(f"A is {matrix.shape}, but U∘V is {(rows.shape[0], components.shape[1])}")
    if rows.shape[1] != components.shape[0]:
        raise InputError(f"U has {rows.shape[1]} components and V has {components.shape[0]}")
    from felb.kernels.boolean import FactorMasks  # compiled, and not needed to read stored counts

    return count_cells(matrix, FactorMasks.of(rows, components))


def count_cells(A: BinaryMatrix, factors: FactorMasks) -> Counts:
    """Count the cells of U∘V against A, for factors that were checked before, as in the tasks of a run."""
    from felb.kernels.boolean import count_overlaps

    tp, claimed, ones = count_overlaps(A, factors)
    return Counts(tp=tp, fp=claimed - tp, fn=ones - tp, cells=A.known_cells)


def to_boolean(factor: ArrayLike, name: str) -> NDArray[np.bool_]:
    """Return a Boolean factor as a contiguous bool array; values between 0 and 1 are refused."""
    array = np.asarray(factor)
    if array.ndim != 2:
        raise InputError(f"{name} must be 2D, got {array.ndim}D")
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise InputError(f"{name} must be Boolean; threshold it first, for example {name} > 0.5")
    return np.ascontiguousarray(array.astype(bool))


DECIDED = 0.25
"""An integrality gap up to this leaves no doubt about the cut at ½."""


def integrality_gap(V: ArrayLike) -> float:
    """Max |x − round(x)| over the entries: 0 for a Boolean factor, at most ½ inside [0, 1].

    Examples
    --------
    >>> integrality_gap([[0.0, 1.0], [0.25, 1.0]])
    0.25
    """
    values = np.asarray(V, dtype=np.float64)
    return float(np.minimum(np.abs(values), np.abs(values - 1)).max(initial=0.0))


# -- Counts of each feature and each component; they add over rows, hence over clients -------------------------------

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
        inside_ones += (count_joint(block, have) * components).sum(axis=1)
        inside += in_records.sum(axis=1)
        if block.unknown is not None:
            claimed -= _covered(block.unknown, product, which)
            inside -= (count_joint(block.unknown, have) * components).sum(axis=1)
    ones, unknown = A.column_sums(), np.zeros(m, np.int64) if A.unknown is None else A.unknown.column_sums()
    found = (len(A) - unknown, ones, ones - tp, claimed - tp, rows.sum(axis=0), inside, inside_ones)
    return FeatureCounts(len(A), *(tuple(counts.tolist()) for counts in found))


def _covered(rows: BinaryMatrix, product: NDArray[np.bool_], which: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many ones of each column are ones of the reconstruction ``product[which]``."""
    columns = rows.indices[rows.indptr[0] : rows.indptr[-1]]  # a slice shares the places of all ones
    hit = product[np.repeat(which, rows.row_sums()), columns]
    return np.bincount(columns[hit], minlength=rows.shape[1])


def count_joint(rows: BinaryMatrix, U: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return Σ_r U_rl A_rj, how many rows have component l and feature j, components × features."""
    return np.asarray((rows.to_scipy(np.int64).T @ U.astype(np.int64)).T)


SHOWN = (("loss", "loss", 0), ("integrality_gap", "gap", 2))
"""Metrics of a round that are shown beside a progress bar: key, label, number of digits."""


class History(Sequence["Row"]):
    """An immutable list of rounds, each a mapping of metrics; ``history["loss"]`` gives one metric over time.

    Examples
    --------
    >>> history = History([{"round": 0, "loss": 9.0}, {"round": 1, "loss": 4.0}])
    >>> history[-1]["loss"], history["loss"].tolist()
    (4.0, [9.0, 4.0])
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._rows = tuple(dict(row) for row in rows)

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> History: ...
    @overload
    def __getitem__(self, key: str) -> NDArray[np.float64]: ...

    def __getitem__(self, key: int | slice | str) -> Row | History | NDArray[np.float64]:
        """Return a round, some rounds, or one metric over the rounds that have it."""
        if isinstance(key, str):
            return np.array([row[key] for row in self._rows if key in row], dtype=np.float64)
        if isinstance(key, slice):
            return History(self._rows[key])
        return self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(len(self._rows))

    def __repr__(self) -> str:
        return f"History({len(self)} rounds)"

    @property
    def note(self) -> str:
        """The latest metrics in words, to stand beside a progress bar."""
        last = self._rows[-1]
        return " ".join(f"{label} {last[key]:.{digits}f}" for key, label, digits in SHOWN if key in last)

    def plus(self, row: Row) -> History:
        """Return a history with one more round."""
        longer = History()
        longer._rows = (*self._rows, dict(row))  # the rows so far are shared, not copied every round
        return longer
