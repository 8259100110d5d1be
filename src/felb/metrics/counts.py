"""Counts of right and wrong cells; they add across clients, and every score is a function of the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from felb.kernels.boolean import FactorMasks


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

    return cell_counts(matrix, FactorMasks.of(rows, components))


def cell_counts(A: BinaryMatrix, factors: FactorMasks) -> Counts:
    """Count the cells of U∘V against A, for factors that were checked before, as in the tasks of a run."""
    from felb.kernels.boolean import overlap_counts

    tp, claimed, ones = overlap_counts(A, factors)
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
