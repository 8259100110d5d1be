"""The history of a run: one row of metrics per round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = Mapping[str, Any]

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
