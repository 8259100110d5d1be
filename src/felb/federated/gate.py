"""The gate: the one function through which anything leaves a client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import FederationError, PrivacyError
from felb.federated.messages import Broadcast, Release, Update
from felb.privacy.ledger import Charge, Ledger
from felb.privacy.mechanisms import Mechanism, NoNoise
from felb.privacy.names import UPLOADS
from felb.privacy.outbound import OutboundRecord

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from felb.federated.messages import Values
    from felb.privacy.plan import PrivacyPlan


@dataclass(frozen=True, slots=True)
class Book:
    """What one client remembers of a private run: what it has spent, and what it has answered.

    A round that is asked for again, after an interruption, gets the very same answer, which tells nothing new.
    """

    ledger: Ledger | None
    answers: MutableMapping[tuple[int, str], Values] = field(default_factory=dict)


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
    plan : noise that is calibrated to each value by the bound that comes with it, in place of `mechanism`; a value
        without a bound does not leave
    answers : what was answered in each round of this run, by round and task, and is answered again
    """

    client: str
    write: Callable[[OutboundRecord], None]
    mechanism: Mechanism = field(default_factory=NoNoise)
    ledger: Ledger | None = None
    run: str = ""
    plan: PrivacyPlan | None = None
    answers: MutableMapping[tuple[int, str], Values] | None = None

    @classmethod
    def private(cls, client: str, write: Callable[[OutboundRecord], None], *, plan: PrivacyPlan, book: Book) -> Gate:
        """Make the exit of a client under an agreement."""
        return cls(client, write, ledger=book.ledger, plan=plan, answers=book.answers)

    def release(self, update: Update, broadcast: Broadcast, *, rng: np.random.Generator) -> Release:
        """Turn a private update into a release; values that are not finite are refused, nothing is sent then."""
        asked = broadcast.round, broadcast.task
        if self.answers is not None and asked in self.answers:
            return Release(self.answers[asked])
        for name, value in update.values.items():
            if not np.all(np.isfinite(value)):
                raise FederationError(
                    f"{self.client}: {name} of task {broadcast.task!r} holds NaN or infinity; nothing was sent. "
                    "Try a smaller l2 or dtype='float64'"
                )
        mechanisms = {name: self._mechanism(name, update) for name in update.values}
        released = {
            name: mechanisms[name].release(name, np.asarray(value), rng=rng) for name, value in update.values.items()
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
                    mechanism=mechanisms[name].name,
                    cost=cost,
                    total=total,
                )
            )
        release = Release({name: value for name, (value, _) in released.items()})
        if self.answers is not None:
            self.answers[asked] = release.values
        return release

    def _mechanism(self, name: str, update: Update) -> Mechanism:
        if self.plan is None:
            return self.mechanism
        if self.plan.uploads is not None and name == UPLOADS:
            return self.plan.upload_mechanism()
        if name not in update.sums or self.plan.uploads is not None:
            raise PrivacyError(
                f"{self.client}: how much one {self.plan.unit} can change {name} is not bounded, so no noise protects "
                "it; nothing was sent"
            )
        return self.plan.mechanism_for(name, update.sums[name])
