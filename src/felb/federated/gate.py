"""The gate: the one function through which anything leaves a client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import FederationError
from felb.federated.messages import Broadcast, Release, Update
from felb.privacy.ledger import Charge, Ledger
from felb.privacy.mechanisms import Mechanism, NoNoise
from felb.privacy.outbound import OutboundRecord

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Gate:
    """The exit of one client: applies the privacy mechanism, charges the ledger, then writes down what leaves.

    Parameters
    ----------
    client : name of the client whose exit this is
    write : takes the record of every array that leaves; an engine passes the client's own log
    mechanism : what is done to a value before it leaves, and what that costs
    ledger : adds up the costs; refuses what is unprotected or exceeds the agreed total, and then nothing is sent
    run : name of the run, so that a round that is played again with the same answer is charged once
    """

    client: str
    write: Callable[[OutboundRecord], None]
    mechanism: Mechanism = field(default_factory=NoNoise)
    ledger: Ledger | None = None
    run: str = ""

    def release(self, update: Update, broadcast: Broadcast, *, rng: np.random.Generator) -> Release:
        """Turn a private update into a release; values that are not finite are refused, nothing is sent then."""
        for name, value in update.values.items():
            if not np.all(np.isfinite(value)):
                raise FederationError(
                    f"{self.client}: {name} of task {broadcast.task!r} holds NaN or infinity; nothing was sent. "
                    "Try a smaller l2 or dtype='float64'"
                )
        released = {
            name: self.mechanism.release(name, np.asarray(value), rng=rng) for name, value in update.values.items()
        }
        total = None
        if self.ledger is not None:
            # All of the round or nothing: a refusal must come before anything was told.
            self.ledger.charge(
                *(Charge(self.run, broadcast.round, name, value, cost) for name, (value, cost) in released.items())
            )
            total = self.ledger.total()
        for name, (value, cost) in released.items():
            self.write(
                OutboundRecord(
                    client=self.client,
                    round=broadcast.round,
                    task=broadcast.task,
                    what=name,
                    shape=value.shape,
                    dtype=value.dtype.name,
                    bytes=value.nbytes,
                    mechanism=self.mechanism.name,
                    cost=cost,
                    total=total,
                )
            )
        return Release({name: value for name, (value, _) in released.items()})
