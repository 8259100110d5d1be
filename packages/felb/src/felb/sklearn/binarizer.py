"""Raw tables into binary matrices, as a scikit-learn transformer."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from felb.data.binary import BinaryMatrix
from felb.errors import InputError, SchemaWarning
from felb.tables.apply import apply_schema
from felb.tables.propose import infer
from felb.tables.schema import Schema

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

OUTPUTS = ("sparse", "matrix")


class BinarizedRows(sp.csr_array):
    """0/1 features as a SciPy CSR array, which any estimator takes; felb's find names and unknown cells in it.

    A part or a product of it is an array without them.
    """

    binary_matrix: BinaryMatrix | None = None

    @classmethod
    def of(cls, matrix: BinaryMatrix) -> BinarizedRows:
        """Return the ones of a matrix, and the matrix with them."""
        rows = cls(matrix.to_scipy(np.float64))
        rows.binary_matrix = matrix
        return rows


@dataclass(eq=False, repr=False)
class Binarizer(TransformerMixin, BaseEstimator):
    """Make 0/1 features of categories, numbers and events by a schema: a given one, or one inferred by `fit`.

    Parameters
    ----------
    schema : Schema or path, optional
        The rules. Without it, `fit` proposes some from its data, as ``felb schema infer`` does.
    min_count : int
        Records that an inferred category or code needs for a feature of its own.
    max_features : int
        Inferred features at most; the most frequent are kept.
    max_categories : int
        Inferred features of a column at most, and distinct numbers up to which numbers count as categories.
    bins : int
        Inferred bins of a column of numbers.
    missing : "unknown", "zero", "category" or "error"
        What a missing value is in an inferred schema. `felb.FederatedBMF` takes unknown cells.
    output : "sparse" or "matrix"
        What `transform` returns: a SciPy CSR array, in which unknown cells are 0 for other estimators and unknown for
        those of felb, or a `BinaryMatrix`. After ``set_output(transform="pandas")`` it is a frame, in which unknown
        cells are missing.

    Attributes
    ----------
    schema_ : Schema
        The rules that `transform` applies.
    applied_ : felb.tables.apply.Applied
        What the last `transform` met: new values, missing values.

    See Also
    --------
    felb.data.read : files and databases of any size.

    Examples
    --------
    >>> import pandas as pd
    >>> import felb
    >>> people = pd.DataFrame({"sex": ["F", "M", "F"], "smokes": ["no", "yes", "no"]})
    >>> binarizer = felb.Binarizer(min_count=1).fit(people)
    >>> binarizer.get_feature_names_out().tolist()
    ['sex: F', 'sex: M', 'smokes: no', 'smokes: yes']
    >>> binarizer.transform(people).toarray().tolist()
    [[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]]
    """

    schema: Schema | str | PathLike[str] | None = None
    _: KW_ONLY
    min_count: int = 10
    max_features: int = 1000
    max_categories: int = 20
    bins: int = 4
    missing: str = "unknown"
    output: str = "sparse"

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Take the schema, or infer one from a frame of pandas, Polars or Arrow, a file, or the URL of a database."""
        if self.output not in OUTPUTS:
            raise InputError(f"output={self.output!r} is not known; use {' or '.join(OUTPUTS)}")
        if isinstance(self.schema, Schema):
            self.schema_ = self.schema
        elif self.schema is not None:
            self.schema_ = Schema.read(self.schema)
        else:
            own = {name: value for name, value in self.get_params().items() if name not in ("schema", "output")}
            self.schema_, self.skipped_ = infer(X, **own)
        self.n_features_out_ = len(self.schema_.features)
        return self

    def transform(self, X: Any) -> Any:
        """Apply the schema; values that are new to it are told as a `SchemaWarning` where it says to leave them out."""
        check_is_fitted(self, "schema_")
        blocks = list(apply_schema(X, self.schema_))
        self.applied_ = blocks[0][2]
        for note in self.applied_.notes():
            warnings.warn(note, SchemaWarning, stacklevel=2)
        matrix = BinaryMatrix.vstack([block[0] for block in blocks])
        container = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        if container != "default":  # scikit-learn makes a frame of the array
            values = matrix.to_scipy(np.float64).toarray()
            if matrix.unknown is not None:
                values[matrix.unknown.toarray()] = np.nan
            return values
        return matrix if self.output == "matrix" else BinarizedRows.of(matrix)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the names of the features."""
        check_is_fitted(self, "schema_")
        return np.array(self.schema_.names, dtype=object)
