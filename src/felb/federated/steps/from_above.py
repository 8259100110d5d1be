"""Factorization from above: every one can be covered, because every column that has ones is in some component.

With a false negative dearer than a row of false positives, a row takes components until its ones are covered, if they
can be. The components of a search need not contain rare columns; those that are left join the component in which they
gain most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from felb.federated.protocol import Request
from felb.federated.steps.known import required
from felb.federated.steps.refine import FLIP_GAINS, weighed
from felb.federated.steps.reseed import RESIDUAL_COUNTS

if TYPE_CHECKING:
    from collections.abc import Generator

    from felb.federated.protocol import Sums
    from felb.federated.steps.known import Known


def cover_all(known: Known) -> Generator[Request, Sums, Known]:
    """Add the columns that have ones but are in no component to that with the largest summed gain."""
    V, weights = known.boolean(), required(known.weights, "the weights of cells")
    asked = {"components": V, "weights": weights}
    sums = yield Request(RESIDUAL_COUNTS, **asked, all_clients=True)
    missing = np.flatnonzero((sums["residual"] > 0) & ~V.any(axis=0))
    if not len(missing) or not len(V):
        return known
    sums = yield Request(FLIP_GAINS, **asked, all_clients=True)
    gains = weighed(sums, (float(weights[0]), float(weights[1])))
    whole = V.copy()
    whole[np.argmax(gains[:, missing], axis=0), missing] = True
    return replace(known, components=whole, belief=None, settled=False)
