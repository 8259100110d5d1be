"""GreConD+: formal concepts that may grow beyond the ones (Belohlavek and Trnecka, 2018)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from felb.centralized.base import CentralizedMethod, Factors
from felb.kernels.cover import ConceptCover, Coverage
from felb.optim.prox import check_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline


class Block(NamedTuple):
    """A factor: its rows and columns as masks, and those of them that were added to the concept."""

    rows: NDArray[np.bool_]
    columns: NDArray[np.bool_]
    added_rows: NDArray[np.bool_]
    added_columns: NDArray[np.bool_]


@dataclass(eq=False, repr=False)
class GreConDPlusMethod(CentralizedMethod):
    """The method of `felb.GreConDPlus`, which describes it and its parameters."""

    if_collapsed = "binarizing at another threshold"

    _: KW_ONLY
    penalty: float = 4.0

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        check_weights(penalty=(self.penalty, 0))

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:  # noqa: ARG002
        """Take concepts, each grown beyond the ones, and drop what later ones have made superfluous."""
        blocks: list[Block] = []
        cover, coverage = ConceptCover(A), Coverage(A)
        out_of_time = False
        while len(blocks) < k and cover.left and not out_of_time:
            for _ in cover.grow(every_column=True):
                out_of_time = deadline.passed
                if out_of_time:
                    break
            added = cover.expand(self.penalty)
            block = Block(cover.rows | added[0], cover.columns | added[1], *added)
            cover.take_block(block.rows, block.columns)
            coverage.add(np.flatnonzero(block.rows), block.columns)
            blocks = [shrink(each, coverage) for each in drop_superfluous([*blocks, block], coverage)]
            self.step_done(len(blocks))
        U = np.array([block.rows for block in blocks], dtype=bool).reshape(-1, A.shape[0]).T
        V = np.array([block.columns for block in blocks], dtype=bool).reshape(-1, A.shape[1])
        complete = not out_of_time or not cover.left
        return Factors(np.ascontiguousarray(U), V, complete=complete, attributes={"n_iter_": len(blocks)})


def drop_superfluous(blocks: list[Block], coverage: Coverage) -> list[Block]:
    """Return the blocks without those before the last whose ones are all covered by others."""
    kept = []
    for block in blocks[:-1]:
        rows = np.flatnonzero(block.rows)
        if coverage.covered_by_others(rows, block.columns):
            coverage.add(rows, block.columns, -1)
        else:
            kept.append(block)
    return [*kept, blocks[-1]]


def shrink(block: Block, coverage: Coverage) -> Block:
    """Return a block without the added lines, first columns, then rows, whose ones are all covered by others."""
    rows, columns = block.rows.copy(), block.columns.copy()
    numbers = np.flatnonzero(rows)
    for j in np.flatnonzero(block.added_columns):
        line = np.zeros(columns.size, dtype=bool)
        line[j] = True
        if coverage.covered_by_others(numbers, line):
            coverage.add(numbers, line, -1)
            columns[j] = False
    for r in np.flatnonzero(block.added_rows):
        number = np.array([r])
        if coverage.covered_by_others(number, columns):
            coverage.add(number, columns, -1)
            rows[r] = False
    return Block(rows, columns, block.added_rows & rows, block.added_columns & columns)
