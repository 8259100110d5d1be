"""A certificate for a Boolean factorization of small data: a proven lower bound on the errors of every one of rank k.

Let OPT_k(A) = min |A ⊕ U∘V| over Boolean U (n × k) and V (k × m). A bound on a part of A is a bound on A, and bounds on
parts without common rows, or without common columns, add up. Three bounds are computed, and the largest is proven:

- **distinct rows**: a product of rank k has at most 2^k distinct rows, so of the distinct rows of A all but 2^k have a
  wrong cell each; the same holds for columns.
- **isolated ones**: two ones (i, j), (i', j') are isolated if A_ij' or A_i'j is zero. A component that covers t ones of
  a set of s pairwise isolated ones covers t(t−1)/2 zeros, another one for each pair. So s ones cost at least
  s − Σ_l (t_l − t_l(t_l−1)/2) >= s − k cells. Sets in different rows are found one after the other, and add up.
- **search**: OPT_k of more and more columns, proven by branch and bound (`felb.kernels.exact`); with all of them
  the bound is the optimum. For the columns that are left, the isolated ones are added.

All hold for the transposed matrix, whose OPT is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.kernels.exact import optimal_suffixes
from felb.progress import Deadline

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

MOST_CELLS = 4_000_000
"""Of a matrix that is held densely; larger ones are not small."""

MOST_SEARCHED = 6
"""Components up to which there is a search; a step of it tries 2^k sets for a column and as many for each row."""

ORDERS = 20
"""Random orders in which isolated ones are looked for; the best counts."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proven about the errors of a Boolean factorization.

    Parameters
    ----------
    n_components : k
    lower : no factorization of this rank has fewer wrong cells
    bound : which of the bounds it is: "distinct rows", "isolated ones" or "search"
    errors : wrong cells of the result that was given, or None
    """

    n_components: int
    lower: int
    bound: str
    errors: int | None = None

    @property
    def optimal(self) -> bool:
        """Whether the result that was given is proven to be the best."""
        return self.errors is not None and self.errors == self.lower

    @property
    def gap(self) -> float | None:
        """(errors − lower) / errors: the share of its wrong cells that a better result could avoid at most."""
        if self.errors is None:
            return None
        return (self.errors - self.lower) / self.errors if self.errors else 0.0


def certify(
    A: BinaryMatrix | NDArray[Any], n_components: int, *, errors: int | None = None, time_limit: float | None = 30.0
) -> Certificate:
    """Prove a lower bound on |A ⊕ U∘V| for all Boolean factors of a rank.

    Parameters
    ----------
    A : small data, 0/1, all cells known
    errors : wrong cells of a factorization; the search stops as soon as it is proven optimal
    time_limit : seconds of the search at most; without a limit it goes on to the optimum, however long that takes

    Examples
    --------
    >>> import felb
    >>> from felb.centralized.certificate import certify
    >>> zoo = felb.data.load("zoo")
    >>> found = certify(zoo, 2, errors=271, time_limit=600)
    >>> found.lower, found.optimal
    (271, True)
    """
    matrix = BinaryMatrix.of(A) if not isinstance(A, BinaryMatrix) else A
    if n_components < 1:
        raise InputError(f"n_components must be at least 1, got {n_components}")
    if matrix.unknown is not None:
        raise InputError("a certificate is of data without unknown cells; fill them, or leave out their columns")
    if matrix.shape[0] * matrix.shape[1] > MOST_CELLS:
        raise InputError(
            f"data of {matrix.shape[0]} x {matrix.shape[1]} is too large for a certificate, which is of at most "
            f"{MOST_CELLS} cells; certify a part of it"
        )
    deadline = Deadline(time_limit)
    cells = matrix.toarray()
    found = {
        "distinct rows": max(distinct_bound(cells, n_components), distinct_bound(cells.T, n_components)),
        "isolated ones": max(isolated_bound(cells, n_components), isolated_bound(cells.T, n_components)),
    }
    known = max(found.values())
    if known != errors:
        found["search"] = search_bound(cells, n_components, errors=errors, deadline=deadline)
    bound = max(found, key=lambda name: found[name])
    if errors is not None and found[bound] > errors:
        raise InputError(f"errors={errors} is less than any factorization of rank {n_components} has: {found[bound]}")
    return Certificate(n_components, found[bound], bound, errors)


def distinct_bound(cells: NDArray[np.bool_], n_components: int) -> int:
    """Return the rows that equal none of the 2^k most frequent ones."""
    counts = np.unique(cells, axis=0, return_counts=True)[1]
    if n_components >= 62 or len(counts) <= 1 << n_components:
        return 0
    return int(np.sort(counts)[: len(counts) - (1 << n_components)].sum())


# -- isolated ones -----------------------------------------------------------------------------------------------------


def isolated_bound(cells: NDArray[np.bool_], n_components: int, *, orders: int = ORDERS) -> int:
    """Return Σ (s − k) over sets of s > k pairwise isolated ones, in different rows from set to set."""
    rng = np.random.default_rng(0)
    best = 0
    for _ in range(orders):
        rows, total = np.flatnonzero(cells.any(axis=1)), 0
        while len(rows) > n_components:
            chosen = isolated_rows(cells, rng.permutation(rows))
            if len(chosen) <= n_components:
                break
            total += len(chosen) - n_components
            rows = np.setdiff1d(rows, chosen)
        best = max(best, total)
    return best


def isolated_rows(cells: NDArray[np.bool_], order: NDArray[np.int64]) -> list[int]:
    """Return the rows of a maximal set of pairwise isolated ones, one a row, taken greedily in an order of the rows.

    Of the ones of a row that are isolated from all before, that in the column with the fewest ones is taken.
    """
    rarest = np.argsort(cells[order].sum(axis=0), kind="stable")
    rows: list[int] = []
    columns: list[int] = []
    for row in order:
        candidates = rarest[cells[row, rarest]]
        if rows:
            # (row, j) and (i, c) are isolated if A[row, c] or A[i, j] is zero.
            held = np.asarray(rows)[cells[row, columns]]
            candidates = candidates[~cells[np.ix_(held, candidates)].any(axis=0)]
        if len(candidates):
            rows.append(int(row))
            columns.append(int(candidates[0]))
    return rows


# -- search ------------------------------------------------------------------------------------------------------------


def search_bound(cells: NDArray[np.bool_], n_components: int, *, errors: int | None, deadline: Deadline) -> int:
    """Return OPT_k of the columns that could be searched, plus a bound of isolated ones on the others."""
    if n_components > MOST_SEARCHED or not cells.size:
        return 0
    if len(np.unique(cells, axis=0)) < len(np.unique(cells, axis=1).T):
        cells = cells.T
    rows, row_weights = np.unique(cells, axis=0, return_counts=True)
    columns, column_weights = np.unique(rows, axis=1, return_counts=True)
    # The columns that differ most come last: they are searched first, and their OPT prunes the other searches.
    share = (row_weights @ columns) / row_weights.sum()
    order = np.argsort(share * (1 - share) * column_weights, kind="stable")
    columns, column_weights = np.ascontiguousarray(columns[:, order]), column_weights[order].astype(np.int64)
    upper = int(cells.sum()) if errors is None else errors
    optima = optimal_suffixes(
        columns, (row_weights.astype(np.int64), column_weights), n_components, upper=upper, stop=lambda: deadline.passed
    )
    first = int(np.flatnonzero(optima >= 0)[0])
    rest = np.repeat(np.repeat(columns[:, :first], row_weights, axis=0), column_weights[:first], axis=1)
    return int(optima[first]) + (max(isolated_bound(rest, n_components), isolated_bound(rest.T, n_components)))
