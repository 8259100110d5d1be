"""GreEss: formal concepts from the intervals of essential ones (Belohlavek and Trnecka, 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.centralized.base import CentralizedMethod, Factors
from felb.data.binary import BinaryMatrix
from felb.kernels.cover import ConceptCover, essential_ones

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from felb.progress import Deadline


@dataclass(eq=False, repr=False)
class GreEssMethod(CentralizedMethod):
    """The method of `felb.GreEss`, which describes it and its parameters."""

    if_collapsed = "binarizing at another threshold"

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:  # noqa: ARG002
        """Cover the essential ones by intervals of concepts, then take from each the concept that covers most."""
        intervals, everything = [], ConceptCover(A)
        for rows, columns in find_intervals(A, everything):
            intervals.append(Interval(A, rows, columns))
            if deadline.passed:
                break
        U, V = np.zeros((A.shape[0], k), dtype=bool), np.zeros((k, A.shape[1]), dtype=bool)
        found = 0
        while found < k and everything.left and not (found and deadline.passed):
            best = best_interval(intervals, deadline)
            if best is None:
                for _ in everything.grow():  # what the chosen concepts of all intervals left over
                    if deadline.passed:
                        break
                U[:, found], V[found] = everything.rows, everything.columns
            else:
                intervals.remove(best)
                U[:, found], V[found] = best.concept()
            everything.take_block(U[:, found], V[found])
            for interval in intervals:
                interval.cover(U[:, found], V[found])
            found += 1
            self.step_done(found)
        complete = not deadline.passed or found == k or not everything.left
        return Factors(
            U[:, :found], V[:found], complete=complete, attributes={"n_iter_": found, "n_intervals_": len(intervals)}
        )


class Interval:
    """The concepts of A between two of them: those whose rows and columns lie in a block of A.

    Parameters
    ----------
    A : data
    rows, columns : of the block; all rows of the upper and all columns of the lower end
    """

    def __init__(self, A: BinaryMatrix, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> None:
        self._shape = A.shape
        self._rows, self._columns = np.flatnonzero(rows), np.flatnonzero(columns)
        block = A.take(self._rows).to_scipy(bool)[:, self._columns]
        self._cover = ConceptCover(BinaryMatrix.of(block))
        self._known = False

    @property
    def left(self) -> int:
        """Ones of the block that are not covered, which no concept of the interval can exceed."""
        return self._cover.left

    def value(self, deadline: Deadline) -> int:
        """Return how many ones the concept of the interval covers that are not covered, which is sought if needed."""
        if not self._known:
            for _ in self._cover.grow():
                if deadline.passed:
                    break
            self._known = True
        return self._cover.value

    def concept(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the rows and columns of the concept that was found."""
        rows, columns = (np.zeros(size, dtype=bool) for size in self._shape)
        rows[self._rows[self._cover.rows]] = True
        columns[self._columns[self._cover.columns]] = True
        return rows, columns

    def cover(self, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> None:
        """Cover the ones of a block of A; what was sought holds as long as no one of the interval is covered anew."""
        if self._cover.take_block(rows[self._rows], columns[self._columns]):
            self._known = False


def find_intervals(A: BinaryMatrix, concepts: ConceptCover) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Yield the blocks of intervals of concepts of A that cover the essential ones greedily.

    A concept (C, D) of the essential ones stands for the interval from the concept of A with the rows of C to that
    with the columns of D. Its block has all rows of A that hold D and all columns of A that the rows C share.
    """
    essential = ConceptCover(essential_ones(A))
    while essential.left:
        for _ in essential.grow():
            pass
        rows, columns = essential.rows, essential.columns
        shared = concepts.share(rows)
        yield concepts.hold(columns), shared
        essential.take_block(concepts.hold(shared), shared)


def best_interval(intervals: list[Interval], deadline: Deadline) -> Interval | None:
    """Return the first interval whose concept covers most; None if none covers anything."""
    best, most = None, 0
    for interval in sorted(intervals, key=lambda each: -each.left):  # stable: of equals the first comes first
        if interval.left < most:
            break
        value = interval.value(deadline)
        earlier = best is not None and value == most and intervals.index(interval) < intervals.index(best)
        if value > most or earlier:
            best, most = interval, value
        if best is not None and deadline.passed:
            break
    return best
