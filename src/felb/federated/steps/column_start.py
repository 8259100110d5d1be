"""A start from the columns of the data: k columns stand for the records of k components.

Where there are nearly as many components as columns, hardly any set of columns is worth a component of its own, and a
good V groups columns by which of k chosen ones they are close to, or are a union of (see
`felb.kernels.column_choice`). The choice needs the co-occurrence of columns, a sum over rows, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from felb.federated.protocol import Request
from felb.federated.steps.known import Known
from felb.federated.steps.objective import Cost, Objective, as_array
from felb.federated.steps.reseed import PAIR_COUNTS
from felb.kernels.column_choice import columns_as_components

if TYPE_CHECKING:
    from felb.federated.steps.known import Steps

COLUMNS_AT_A_TIME = 256
"""Columns whose co-occurrence with all columns is asked for in a round."""


def choose_columns(n_features: int, n_components: int, objective: Objective | None = None) -> Steps:
    """Choose columns and return the components that they stand for.

    Parameters
    ----------
    n_features : columns of the data, at most a few thousand, since the co-occurrence of all pairs is asked for
    n_components : number of components
    objective : what cells are worth; the Hamming loss if None
    """
    weights = (objective or Cost()).weights(None)
    nothing = {"components": np.zeros((1, n_features), dtype=bool), "weights": as_array(weights)}
    parts = []
    for first in range(0, n_features, COLUMNS_AT_A_TIME):
        columns = np.arange(first, min(first + COLUMNS_AT_A_TIME, n_features))
        sums = yield Request(PAIR_COUNTS, **nothing, seeds=columns, all_clients=True)
        parts.append(sums["pairs"])
    one, zero = weights
    V = columns_as_components(np.concatenate(parts), n_components, weight_one=one, weight_zero=zero)
    return Known(components=V, weights=as_array(weights))
