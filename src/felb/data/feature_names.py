"""Feature names of tabular data, and the columns of new data by the names of a fitted model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.data.coercion import Columns
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SHOWN = 5
"""Names that a message lists."""


def text_names(X: Any, matrix: BinaryMatrix) -> BinaryMatrix:
    """Return the matrix that was read from X without names, if X is a frame whose columns are only numbered.

    As in scikit-learn, names are texts: numbers are positions, and a mixture of both is a `TypeError`.
    """
    columns = Columns.of(X)
    if columns is None:
        return matrix
    texts = {isinstance(name, str) for name in columns.names}
    if len(texts) > 1:
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has both; "
            "convert them with X.columns = X.columns.astype(str)"
        )
    return matrix if texts == {True} else matrix.with_columns(None)


def mismatch(fitted: Sequence[str], given: Sequence[str]) -> str:
    """Say how names differ from those of the fit, in the words of scikit-learn."""
    known, present = set(fitted), set(given)
    unseen, missing = sorted(present - known), sorted(known - present)
    text = "The feature names should match those that were passed during fit.\n"
    if unseen:
        text += "Feature names unseen at fit time:\n" + _listed(unseen)
    if missing:
        text += "Feature names seen at fit time, yet now missing:\n" + _listed(missing)
    if not unseen and not missing:
        text += "Feature names must be in the same order as they were in fit.\n"
    return f'{text}align="name" brings the columns into the order of the fit'


def _listed(names: Sequence[str]) -> str:
    lines = [f"- {name}\n" for name in names[:SHOWN]]
    return "".join([*lines, "- ...\n"] if len(names) > SHOWN else lines)


@dataclass(frozen=True, slots=True)
class Alignment:
    """How the columns of new data stand to the features of a model.

    Parameters
    ----------
    missing : features of the model that the data does not have; their cells are unknown
    new : columns of the data that the model does not have; they are ignored
    reordered : whether the common features are in another order than in the model
    """

    missing: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    reordered: bool = False

    @classmethod
    def of(cls, fitted: Sequence[str], given: Sequence[str]) -> Alignment:
        """Compare names by their text; having none in common is an error."""
        known, present = set(fitted), set(given)
        common = [name for name in given if name in known]
        if not common:
            raise InputError(
                f"none of the {len(given)} columns has the name of a feature of the model, such as {fitted[0]!r}; "
                "check that this is the same kind of data"
            )
        return cls(
            missing=tuple(name for name in fitted if name not in present),
            new=tuple(name for name in given if name not in known),
            reordered=common != [name for name in fitted if name in present],
        )

    @property
    def same(self) -> bool:
        """Whether the columns are the features of the model, in their order."""
        return not (self.missing or self.new or self.reordered)


def select_known(X: Any, fitted: Sequence[str]) -> tuple[Any, Alignment]:
    """Return tabular data without the columns that are new, which need not be binary, and how its columns stand."""
    given = names_of(X)
    if given is None:
        raise InputError("align='name' needs data with column names: a frame, AnnData, or BinaryMatrix with columns")
    found, known = Alignment.of(fitted, given), set(fitted)
    if isinstance(X, BinaryMatrix) or not found.new:
        return X, found
    kept = [at for at, name in enumerate(given) if name in known]
    columns = Columns.of(X)
    if columns is not None:
        return columns.select(kept), found
    # AnnData, which has no views of views whose X is still in its file.
    return (X.to_memory() if X.isbacked and X.is_view else X)[:, kept], found


def names_of(X: Any) -> tuple[str, ...] | None:
    """Return the column names of tabular data; None if it has none."""
    if isinstance(X, BinaryMatrix):
        return X.columns
    columns = Columns.of(X)
    if columns is not None:
        return tuple(map(str, columns.names))
    return tuple(map(str, X.var_names)) if hasattr(X, "var_names") else None


def in_order_of(fitted: Sequence[str], matrix: BinaryMatrix) -> BinaryMatrix:
    """Return the matrix with the features of the fit as its columns; cells of those it does not have are unknown."""
    if matrix.columns is None:
        raise InputError("the data has no column names to align; name its columns, or leave out align")
    if matrix.columns == tuple(fitted):
        return matrix
    place = {name: at for at, name in enumerate(fitted)}
    target = np.array([place.get(name, -1) for name in matrix.columns], dtype=np.int64)
    ordered = _moved(matrix, target, len(fitted)).with_columns(fitted)
    absent = np.setdiff1d(np.arange(len(fitted)), target)
    unknown = None if matrix.unknown is None else _moved(matrix.unknown, target, len(fitted)).to_scipy(bool)
    if absent.size:
        whole = _whole_columns(absent, (len(matrix), len(fitted))).to_scipy(bool)
        unknown = whole if unknown is None else unknown + whole
    return ordered if unknown is None else ordered.with_unknown(unknown)


def _moved(matrix: BinaryMatrix, target: NDArray[np.int64], n_columns: int) -> BinaryMatrix:
    """Return the ones of column j in column target[j]; without those of a negative target."""
    import scipy.sparse as sp

    ones = matrix.to_scipy(bool)
    place = target[ones.indices]
    kept = place >= 0
    indptr = np.concatenate(([0], np.cumsum(kept)))[ones.indptr]
    moved = sp.csr_array((ones.data[kept], place[kept], indptr), shape=(len(matrix), n_columns))
    moved.sort_indices()
    return BinaryMatrix(moved.indptr.astype(np.int64), moved.indices, n_columns)


def _whole_columns(columns: NDArray[np.int64], shape: tuple[int, int]) -> BinaryMatrix:
    """Return a matrix whose ones are all cells of the given columns."""
    n, m = shape
    return BinaryMatrix(np.arange(n + 1, dtype=np.int64) * columns.size, np.tile(columns, n), m)
