"""The variables of AnnData under a schema: columns of numbers, thousands of them, in blocks of rows.

A table with so many columns is nothing for a database. The rules for a number are evaluated here on the stored entries
of each column, and once for the zeros that a sparse matrix does not store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.data.hdf5_probe import check_hdf5
from felb.errors import InputError, missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.data.schema import Schema

    Numbers = NDArray[np.float64]
    Which = NDArray[np.bool_]
    Keep = Callable[[NDArray[np.int64], NDArray[np.int64]], None]

CELLS = 1 << 22
"""Cells of a block of rows, or stored entries if it is sparse."""
ZERO = np.zeros(1)
LARGEST_WHOLE = 1e15
"""Whole numbers below it are written without a point, as `felb.data.duck.as_text` does."""


def opened(path: Path) -> Any:
    """Open an ``.h5ad`` file whose `X` stays on disk; who opens it closes its `file`."""
    try:
        import anndata
    except ImportError as error:
        missing_extra("reading .h5ad files", "anndata", error)
    check_hdf5(path)
    try:
        return anndata.read_h5ad(path, backed="r")
    except Exception as error:  # what the readers of HDF5 raise on damage is nearly anything
        raise InputError(f"{path}: the file is damaged or no AnnData file ({error}); write it again") from error


@dataclass(frozen=True)
class Variables:
    """Columns of `X` in an ``.h5ad`` file.

    Parameters
    ----------
    path : the file
    positions : number of the column of each variable, by its name
    """

    path: Path
    positions: dict[str, int]

    def blocks(self) -> Iterator[tuple[int, sp.csc_array]]:
        """Yield blocks of rows, each with the number of its first row; columns are in the order of `positions`."""
        data, chosen = opened(self.path), list(self.positions.values())
        try:
            start, step = 0, max(1, CELLS // max(1, data.n_vars))
            while start < data.n_obs:
                rows = data.X[start : start + step]
                yield start, sp.csc_array(sp.csc_array(rows, dtype=np.float64)[:, chosen])
                start += step
                if hasattr(rows, "nnz"):  # as many rows as have so many stored entries
                    step = max(1, CELLS * rows.shape[0] // max(1, rows.nnz))
        except (OSError, ValueError, IndexError, TypeError) as error:
            raise InputError(f"{self.path}: X cannot be read ({error}); write the file again") from error
        finally:
            data.file.close()


def as_texts(values: Numbers) -> list[str]:
    """Return numbers as canonical texts: whole ones without a point.

    Examples
    --------
    >>> as_texts(np.array([2.0, 0.5, 1e20]))
    ['2', '0.5', '1e+20']
    """
    return [str(int(x)) if x == np.trunc(x) and abs(x) < LARGEST_WHOLE else repr(x) for x in values.tolist()]


class ColumnRules:
    """The features of one column as functions of a number.

    Parameters
    ----------
    schema : the schema
    column : a name that features are about, or that is a code; a code holds 0 or 1
    """

    def __init__(self, schema: Schema, column: str) -> None:
        self.column, self.is_code = column, column not in schema.column_features
        self.numbers = schema.of_code(column) if self.is_code else schema.column_features[column]
        self.missing: str = "zero"
        self._listed: dict[str, tuple[int, ...]] = {"1": self.numbers} if self.is_code else schema.listed(column)
        self._zeros: tuple[str, ...] = ("0",)
        self._intervals: list[tuple[int, Any]] = []
        self._any: list[int] = []
        self._other: int | None = None
        self._own_missing: int | None = None
        self.told = True
        """Whether values without a rule are counted; of numbers outside all bins they are no news."""
        if not self.is_code:
            rules, handling = [(number, schema.features[number]) for number in self.numbers], schema.handling(column)
            self.missing, self._zeros = handling.missing, handling.zeros
            self._intervals = [(number, rule) for number, rule in rules if rule.numeric]
            self._any = [number for number, rule in rules if rule.any]
            self._other = next((number for number, rule in rules if rule.other), None)
            self._own_missing = next((number for number, rule in rules if rule.missing), None)
            self.told = handling.unlisted != "ignore" or not (self._intervals or self._any)

    def features(self, values: Numbers) -> tuple[list[tuple[int, Which]], Which]:
        """Return which of the known `values` make a one of each feature, and which no rule lists."""
        found: list[tuple[int, Which]] = [(number, np.ones(values.shape, bool)) for number in self._any]
        rest = np.ones(values.shape, bool)
        if self._listed or self._zeros:
            distinct, inverse = np.unique(values, return_inverse=True)
            texts = as_texts(distinct)
            for number in dict.fromkeys(number for own in self._listed.values() for number in own):
                found.append((number, np.array([number in self._listed.get(t, ()) for t in texts], bool)[inverse]))
            rest = np.array([t not in self._listed and t not in self._zeros for t in texts], bool)[inverse]
        outside = rest.copy()
        for number, rule in self._intervals:
            inside = rest & _within(rule, values)
            found.append((number, inside))
            outside &= ~inside
        if self._other is not None:
            found.append((self._other, outside))
        return found, outside

    def of_missing(self) -> tuple[int, ...]:
        """Return the features that are a one where the column has no value."""
        return () if self._own_missing is None else (self._own_missing,)


def _within(rule: Any, values: Numbers) -> Which:
    inside = np.ones(values.shape, bool)
    if rule.lower is not None:
        inside &= values > rule.lower if rule.lower_open else values >= rule.lower
    if rule.upper is not None:
        inside &= values <= rule.upper if rule.upper_closed else values < rule.upper
    return inside


@dataclass
class VariableFacts:
    """What a variable holds that its rules do not cover.

    Parameters
    ----------
    unlisted : number of observations, and the first one, of each value that no rule lists
    missing : number of observations without a value
    first_missing : the first of them
    """

    unlisted: dict[str, tuple[int, int]] = field(default_factory=dict)
    missing: int = 0
    first_missing: int | None = None

    def note_unlisted(self, values: Numbers, rows: NDArray[np.int64]) -> None:
        """Count the values of rows."""
        distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        firsts = np.full(distinct.size, np.iinfo(np.int64).max)
        np.minimum.at(firsts, inverse, rows)
        for value, count, row in zip(as_texts(distinct), counts.tolist(), firsts.tolist(), strict=True):
            known, first = self.unlisted.get(value, (0, row))
            self.unlisted[value] = known + count, min(first, row)

    def note_missing(self, rows: NDArray[np.int64]) -> None:
        """Count rows without a value."""
        if rows.size:
            first = int(rows.min())
            self.missing += rows.size
            self.first_missing = first if self.first_missing is None else min(self.first_missing, first)


def apply_rules(
    variables: Variables, schema: Schema, order: NDArray[np.int64], keep: Keep
) -> dict[str, tuple[ColumnRules, VariableFacts]]:
    """Apply the rules of a schema to variables, block by block.

    Parameters
    ----------
    variables : columns of numbers
    schema : with features about them, or codes of their names
    order : row of the matrix of each observation
    keep : is given the ones and the unknown cells of each block, as ``row * n_features + feature``
    """
    found = {name: (ColumnRules(schema, name), VariableFacts()) for name in variables.positions}
    n_features = len(schema.features)
    for start, block in variables.blocks():
        rows = order[start : start + block.shape[0]]
        ones: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        unknown: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        for j, (rules, facts) in enumerate(found.values()):
            own = slice(block.indptr[j], block.indptr[j + 1])
            values, at = block.data[own], block.indices[own]
            known = ~np.isnan(values)
            absent, values, at = rows[at[~known]], values[known], at[known]
            facts.note_missing(absent)
            ones += [absent * n_features + number for number in rules.of_missing()]
            if rules.missing == "unknown":
                unknown += [absent * n_features + number for number in rules.numbers]
            zeros = np.ones(len(rows), bool)
            zeros[block.indices[own]] = False
            for number, where in (*_taken(rules, facts, values, rows[at]), *_taken(rules, facts, ZERO, rows[zeros])):
                ones.append(where * n_features + number)
        keep(np.concatenate(ones), np.concatenate(unknown))
    return found


def _taken(
    rules: ColumnRules, facts: VariableFacts, values: Numbers, rows: NDArray[np.int64]
) -> list[tuple[int, NDArray[np.int64]]]:
    """Return each feature with the rows that have it; `values` are those of the rows, or the one that all have."""
    if not rows.size:
        return []
    matches, outside = rules.features(values)
    if rules.told and outside.any():
        which = np.broadcast_to(outside, rows.shape)
        facts.note_unlisted(np.broadcast_to(values, rows.shape)[which], rows[which])
    return [(number, rows[np.broadcast_to(which, rows.shape)]) for number, which in matches if which.any()]
