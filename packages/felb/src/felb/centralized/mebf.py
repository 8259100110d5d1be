"""MEBF: Boolean factors grown from rows and columns of median size (Wan et al., 2020)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.centralized.base import CentralizedMethod, Factors
from felb.errors import InputError
from felb.kernels.cooccurrence import transpose
from felb.kernels.cover import best_seed, needed, overlaps, without_block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline


@dataclass(eq=False, repr=False)
class MEBFMethod(CentralizedMethod):
    """The method of `felb.MEBF`, which describes it and its parameters."""

    if_collapsed = "another threshold"

    _: KW_ONLY
    threshold: float = 0.5
    uncovered: float = 0.05

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        for name in ("threshold", "uncovered"):
            if not 0 <= getattr(self, name) <= 1:  # also catches NaN
                raise InputError(f"{name} is a share and must be between 0 and 1, got {getattr(self, name)}")

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:  # noqa: ARG002
        """Find and remove one block after the other."""
        blocks: list[Block] = []
        rest, complete = A, True
        for _ in range(min(k, min(A.shape) - 1)):
            if rest.nnz <= self.uncovered * A.nnz:
                break
            if blocks and deadline.passed:
                complete = False
                break
            block = find_block(rest, self.threshold)
            if block is None:
                break
            blocks.append(block)
            self.step_done(len(blocks))
            rest = without_block(rest, block.rows, block.columns)
        U, V = np.zeros((A.shape[0], len(blocks)), dtype=bool), np.zeros((len(blocks), A.shape[1]), dtype=bool)
        for number, block in enumerate(blocks):
            U[:, number], V[number] = block.rows, block.columns
        return Factors(U, V, complete=complete, attributes={"n_iter_": len(blocks)})


class Block(NamedTuple):
    """Rows and columns of a factor, as masks."""

    rows: NDArray[np.bool_]
    columns: NDArray[np.bool_]


class _Grown(NamedTuple):
    """A pattern, the lines that resemble it, and what their block is worth."""

    pattern: NDArray[np.bool_]
    lines: NDArray[np.bool_]
    score: int


def find_block(rest: BinaryMatrix, threshold: float) -> Block | None:
    """Return the best block that a column or a row of median size starts; if there is none, a pair of full lines.

    Columns come before rows: a row must do better. Of two pairs that are worth the same the rows win.
    """
    columns = transpose(rest)
    # A column is a pattern of rows, which other columns resemble; hence columns are the lines of the transpose.
    by_column = best_seed(columns, rest, median_lines(columns), threshold=threshold)
    by_row = best_seed(rest, columns, median_lines(rest), threshold=threshold)
    if by_row.score > by_column.score:
        grown = _grow(columns, _ones(rest, by_row.line), threshold)
        return Block(rows=grown.lines, columns=grown.pattern)
    if by_column.line >= 0:
        grown = _grow(rest, _ones(columns, by_column.line), threshold)
        return Block(rows=grown.pattern, columns=grown.lines)
    of_columns, of_rows = _common(columns, rest, threshold), _common(rest, columns, threshold)
    if of_columns is not None and (of_rows is None or of_columns.score > of_rows.score):
        return Block(rows=of_columns.pattern, columns=of_columns.lines)
    return None if of_rows is None else Block(rows=of_rows.lines, columns=of_rows.pattern)


def median_lines(lines: BinaryMatrix) -> NDArray[np.int64]:
    """Return all lines of the smallest size that is at least the median of the sizes above 0, if that is above 1."""
    sizes = lines.row_sums()
    filled = sizes[sizes > 0]
    if not filled.size or (median := np.median(filled)) <= 1:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(sizes == filled[filled >= median].min())


def _common(lines: BinaryMatrix, transposed: BinaryMatrix, threshold: float) -> _Grown | None:
    """Grow a block from what the two fullest lines, the first of equals, have in common, if that is two or more."""
    first, second = np.argsort(-lines.row_sums(), kind="stable")[:2]
    shared = np.intersect1d(_ones(lines, first), _ones(lines, second), assume_unique=True)
    return _grow(transposed, shared, threshold) if shared.size > 1 else None


def _grow(transposed: BinaryMatrix, pattern: NDArray[Any], threshold: float) -> _Grown:
    """Return the block of a pattern (positions of its ones) and all lines that resemble it."""
    counts = overlaps(transposed, pattern)
    lines = counts >= needed(pattern.size, threshold)
    mask = np.zeros(transposed.shape[0], dtype=bool)
    mask[pattern] = True
    return _Grown(mask, lines, int((counts[lines] - 1).sum()) - (pattern.size - 1))


def _ones(lines: BinaryMatrix, line: int) -> NDArray[Any]:
    return lines.indices[lines.indptr[line] : lines.indptr[line + 1]]
