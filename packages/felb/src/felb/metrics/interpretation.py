"""What components mean: profiles, rules and enriched labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import chi2_contingency, false_discovery_control, fisher_exact

from felb.errors import InputError
from felb.metrics.counts import count_joint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from felb.data.binary import BinaryMatrix


# -- What a component means: how its features and records compare with the rest of the data --------------------------
#
# All figures are functions of counts that add up over clients: of n records, s_l have component l, c_j have feature j,
# and t_lj have both. With these,
#
#     confidence   P(j | l) = t_lj / s_l
#     lift         P(j | l) / P(j | not l), with P(j | not l) = (c_j − t_lj) / (n − s_l)
#
# where ½ is added to counts and 1 to totals for the lift, so that no ratio is infinite.

RECORDS_AT_A_TIME = 1 << 12


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
    from felb.kernels.boolean import FactorMasks
    from felb.kernels.gains import count_switches

    joint = np.zeros(V.shape, dtype=np.int64)
    for start in range(0, len(A), RECORDS_AT_A_TIME):
        joint += count_joint(A.rows(start, start + RECORDS_AT_A_TIME), U[start : start + RECORDS_AT_A_TIME])
    ones, cells = count_switches(A, FactorMasks.of(U, V))
    return ComponentProfile(
        V,
        len(A),
        supports=np.count_nonzero(U, axis=0).astype(np.int64),
        feature_counts=A.column_sums().astype(np.int64),
        joint=joint,
        covered=(joint * V).sum(axis=1),
        exclusive=((2 * ones - cells) * V).sum(axis=1),
        ones=int(A.nnz),
    )


# -- Components as rules "if … then …", for basket analysis ----------------------------------------------------------
#
# The rule of component S has a consequent j in S and the other features of S, S∖{j}, as its antecedent. Of n records, x
# have all of the antecedent, y have j, and z have both; then
#
#     support     z / n
#     confidence  z / x
#     lift        (z / x) / (y / n)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a component: if a record has the antecedent, it has the consequent."""

    component: int
    antecedent: tuple[str, ...]
    consequent: str
    support: float
    confidence: float
    lift: float

    def __str__(self) -> str:
        """Return the rule in words."""
        return f"if {' and '.join(self.antecedent)} then {self.consequent}"


def component_rules(
    A: BinaryMatrix, V: NDArray[np.bool_], names: Sequence[str], *, max_antecedent: int = 3
) -> list[Rule]:
    """Return the rules of the components that some record supports, largest lift first.

    Parameters
    ----------
    A, V : data and components
    names : of the features
    max_antecedent : features in an antecedent at most. Of larger components the least frequent features are used: a
        record seldom has all features of a large component, and the least frequent ones tell the most

    Examples
    --------
    >>> import numpy as np
    >>> from felb.data import BinaryMatrix
    >>> A = BinaryMatrix.of([[1, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]])
    >>> first = component_rules(A, np.array([[1, 1, 0]], bool), ["bread", "milk", "tea"])[0]
    >>> str(first), first.support, first.confidence, round(first.lift, 2)
    ('if milk then bread', 0.5, 1.0, 1.33)
    """
    n, columns = A.shape[0], A.to_scipy(bool).tocsc()
    counts = A.column_sums()

    def records(j: int) -> NDArray[np.bool_]:
        having = np.zeros(n, dtype=bool)
        having[columns.indices[columns.indptr[j] : columns.indptr[j + 1]]] = True
        return having

    found = []
    for number, row in enumerate(V):
        features = np.flatnonzero(row)
        rarest = features[np.argsort(counts[features], kind="stable")]
        for j in features.tolist():
            chosen = sorted([int(i) for i in rarest if i != j][:max_antecedent])
            if not chosen:
                continue
            having = np.logical_and.reduce([records(i) for i in chosen])
            x, z = int(having.sum()), int((having & records(j)).sum())
            if z:
                confidence = z / x
                lift = confidence * n / int(counts[j])
                antecedent = tuple(names[i] for i in chosen)
                found.append(Rule(number, antecedent, names[j], z / n, confidence, lift))
    return sorted(found, key=lambda rule: (-rule.lift, -rule.support, rule.component, rule.consequent))


# -- Enrichment: which labels the records of a component have more often than the others -----------------------------
#
# For component l and label g, the records are counted in a 2 × 2 table: a with both, b with the component alone, c with
# the label alone, d with neither. The log-odds are log₂ (a + ½)(d + ½) / ((b + ½)(c + ½)), positive where the label is
# enriched. The p-value is that of Fisher's exact test (two-sided), and q is adjusted for all tests by the procedure of
# Benjamini and Hochberg (1995), which controls the false discovery rate. Counts of clients add up.

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
