"""Components as rules "if … then …", for basket analysis.

The rule of component S has a consequent j in S and the other features of S, S∖{j}, as its antecedent. Of n records, x
have all of the antecedent, y have j, and z have both; then

    support     z / n
    confidence  z / x
    lift        (z / x) / (y / n)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


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
