"""Enrichment: which labels the records of a component have more often than the others.

For component l and label g, the records are counted in a 2 × 2 table: a with both, b with the component alone, c with
the label alone, d with neither. The log-odds are log₂ (a + ½)(d + ½) / ((b + ½)(c + ½)), positive where the label is
enriched. The p-value is that of Fisher's exact test (two-sided), and q is adjusted for all tests by the procedure of
Benjamini and Hochberg (1995), which controls the false discovery rate. Counts of clients add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import chi2_contingency, false_discovery_control, fisher_exact

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

LARGE = 100_000
"""Records beyond which the chi-square test takes the place of Fisher's, if all expected counts are at least 5."""
MOST_LABELS = 200


@dataclass(frozen=True)
class Enrichment:
    """Counts of labels in the records of components; those of different records add up.

    Parameters
    ----------
    labels : names of the labels
    joint : records with component and label, components × labels
    supports : records of each component
    totals : records of each label
    n_records : number of records with a label

    Examples
    --------
    >>> import numpy as np
    >>> U = np.repeat([[1, 0], [0, 1]], 10, axis=0).astype(bool)
    >>> found = enrichment(U, ["cat"] * 10 + ["dog"] * 10)
    >>> found.labels, found.log_odds.round(1).tolist()
    (('cat', 'dog'), [[8.8, -8.8], [-8.8, 8.8]])
    """

    labels: tuple[str, ...]
    joint: NDArray[np.int64]
    supports: NDArray[np.int64]
    totals: NDArray[np.int64]
    n_records: int

    def __add__(self, other: Enrichment) -> Enrichment:
        """Pool two sets of records with the same labels."""
        if self.labels != other.labels:
            raise InputError("enrichments with different labels do not add up; use the same labels at all clients")
        return Enrichment(
            self.labels,
            self.joint + other.joint,
            self.supports + other.supports,
            self.totals + other.totals,
            self.n_records + other.n_records,
        )

    @cached_property
    def tables(self) -> NDArray[np.int64]:
        """The 2 × 2 tables [[a, b], [c, d]], components × labels × 2 × 2."""
        a = self.joint
        b, c = self.supports[:, None] - a, self.totals[None, :] - a
        d = self.n_records - a - b - c
        return np.stack([np.stack([a, b], axis=-1), np.stack([c, d], axis=-1)], axis=-2)

    @cached_property
    def log_odds(self) -> NDArray[np.float64]:
        """log₂ of the odds ratio with ½ added to each count, components × labels."""
        t = self.tables + 0.5
        return np.asarray(np.log2(t[..., 0, 0] * t[..., 1, 1] / (t[..., 0, 1] * t[..., 1, 0])))

    @cached_property
    def p_values(self) -> NDArray[np.float64]:
        """Two-sided p-values, components × labels."""
        return np.array([[_p_value(table) for table in row] for row in self.tables]).reshape(self.joint.shape)

    @cached_property
    def q_values(self) -> NDArray[np.float64]:
        """p-values adjusted by Benjamini and Hochberg over all components and labels."""
        flat = self.p_values.ravel()
        return np.asarray(false_discovery_control(flat) if flat.size else flat).reshape(self.joint.shape)

    def columns(self) -> dict[str, list[Any]]:
        """Return a tidy table as columns: one row for each component and label, smallest q first per component."""
        k, names = len(self.joint), ("component", "label", "records", "share", "log2_odds", "p", "q")
        order = [(i, int(j)) for i in range(k) for j in np.lexsort((-self.log_odds[i], self.q_values[i]))]
        rows = [
            (
                i,
                self.labels[j],
                int(self.joint[i, j]),
                float(self.joint[i, j] / max(int(self.supports[i]), 1)),
                float(self.log_odds[i, j]),
                float(self.p_values[i, j]),
                float(self.q_values[i, j]),
            )
            for i, j in order
        ]
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def enrichment(U: NDArray[np.bool_], labels: ArrayLike | Sequence[Any]) -> Enrichment:
    """Count labels, one per record, in the records of each component; a record without a label (None, NaN) is left out.

    Parameters
    ----------
    U : assignment, records × components
    labels : label of each record
    """
    given = np.asarray(labels, dtype=object)
    if given.shape != (len(U),):
        raise InputError(f"there must be one label per record: {len(U)} records, labels of shape {given.shape}")
    known = np.array([label is not None and label == label and str(label) != "" for label in given], dtype=bool)
    if not known.any():
        raise InputError("no record has a label", parameter="labels")
    names, which = np.unique(given[known].astype(str), return_inverse=True)
    if len(names) > MOST_LABELS:
        raise InputError(
            f"there are {len(names)} different labels, more than {MOST_LABELS}; give groups of records, not names",
            parameter="labels",
        )
    one_hot = np.eye(len(names), dtype=np.int64)[which]
    members = np.asarray(U, dtype=bool)[known].astype(np.int64)
    return Enrichment(
        tuple(map(str, names)), members.T @ one_hot, members.sum(axis=0), one_hot.sum(axis=0), int(known.sum())
    )


def _p_value(table: NDArray[np.int64]) -> float:
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    n = int(rows.sum())
    if not (rows.all() and columns.all()):
        return 1.0
    if n > LARGE and (np.outer(rows, columns) >= 5 * n).all():
        return float(chi2_contingency(table)[1])
    return float(fisher_exact(table)[1])
