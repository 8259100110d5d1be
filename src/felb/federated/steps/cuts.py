"""From relaxed to Boolean V: each row is cut at a fraction of its maximum, and records are reassigned.

Thresholds for both factors take the columns of U for comparable. Where a few records have most of the ones they are
not, and what U says is best forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.protocol import Request, Update
from felb.federated.steps.assignment import counts_array, read_counts
from felb.federated.steps.known import ClientState, Known, required
from felb.federated.steps.objective import Cost, Objective, as_array
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import FactorMasks
from felb.metrics.counts import cell_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.steps.known import Steps

CUT_COUNTS = "cut_counts"
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


def cut_at(V: NDArray[Any], share: float) -> NDArray[np.bool_]:
    """Return the entries of V above a share of the greatest entry of their row."""
    return np.asarray(np.float32(share) * V.max(axis=1, keepdims=True, initial=0.0) < V)


def cut_counts_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState | None, Update]:
    """Confusion counts of the rows, assigned anew, for each cut."""
    V, shares = (np.asarray(request.values[name]) for name in ("V", "shares"))
    one, zero = (float(weight) for weight in request.values["weights"])
    found = []
    for share in shares:
        components = cut_at(V, share)
        U = assign_rows(shard, components, weight_one=one, weight_zero=zero)
        found.append(counts_array(cell_counts(shard, FactorMasks.of(U, components))))
    return state, Update({"counts": np.stack(found)})


def cut_relaxed(known: Known, objective: Objective | None = None, *, shares: tuple[float, ...] = SHARES) -> Steps:
    """Make a relaxed V Boolean, in one round of everybody.

    Parameters
    ----------
    objective : what decides between the cuts, the first of equals; the Hamming loss if None
    shares : of the greatest entry of a row of V, at which it is cut
    """
    objective = objective or Cost()
    V = np.asarray(required(known.relaxed, "a relaxed V"), dtype=np.float32)
    weights = as_array(objective.weights(None))
    sums = yield Request(CUT_COUNTS, V=V, shares=shares, weights=weights, all_clients=True)
    values = [objective.value(read_counts(counts)) for counts in sums["counts"]]
    best = int(np.argmin(values))
    sums.report(loss=values[best])
    counts = sums["counts"][best]
    return replace(
        known,
        components=cut_at(V, shares[best]),
        counts=counts,
        supports=None,
        exclusive=None,
        value=values[best],
        weights=as_array(objective.weights(read_counts(counts))),
        settled=False,
    )
