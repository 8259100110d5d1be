"""The gate: the one function through which anything leaves a client.

In this order: a request that was answered before gets the same response; values must be finite; without a privacy plan,
disclosure rules hide what too few records have; noise is added by the mechanism of the privacy plan, which refuses a
value without a bound; the accountant charges all values of the response or none; the outbound log is written; the
response is kept. Nothing has left until all of it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import FederationError, PrivacyError
from felb.federated.protocol import Release, Request, Update
from felb.federated.responses import Responses
from felb.privacy.accountant import Accountant, Charge
from felb.privacy.mechanisms import Mechanism, NoNoise
from felb.privacy.names import SUPPORTS, UPLOADS
from felb.privacy.outbound_log import OutboundRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from felb.federated.journal import Journal
    from felb.federated.protocol import Algorithm
    from felb.privacy.disclosure import Disclosure
    from felb.privacy.plan import PrivacyPlan


@dataclass(frozen=True, slots=True)
class Gate:
    """The exit of one client.

    Parameters
    ----------
    client : name of the client whose exit this is
    write : takes the record of every array that leaves; an engine passes the client's own log
    mechanism : what is done to a value before it leaves, and what that costs
    accountant : adds up the costs; refuses what is unprotected or exceeds the agreed total, and then nothing is sent
    run : name of the run, so that a round that is played again with the same response is charged once
    plan : noise that is calibrated to each value by the bound that comes with it, in place of `mechanism`; a value
        without a bound does not leave
    responses : what was released for earlier requests of this run, and is released again for the same ones
    disclosure : rules for what leaves without a privacy plan; no rules if None
    """

    client: str
    write: Callable[[OutboundRecord], None]
    mechanism: Mechanism = field(default_factory=NoNoise)
    accountant: Accountant | None = None
    run: str = ""
    plan: PrivacyPlan | None = None
    responses: Responses | None = None
    disclosure: Disclosure | None = None

    @classmethod
    def private(
        cls, client: str, write: Callable[[OutboundRecord], None], *, plan: PrivacyPlan, responses: Responses
    ) -> Gate:
        """Make the exit of a client under a privacy plan."""
        return cls(client, write, accountant=responses.accountant, plan=plan, responses=responses)

    def release(self, update: Update, request: Request, *, rng: np.random.Generator, state: Any = None) -> Release:
        """Turn a private update into a release; `state`, the client's own after it, is kept with the response."""
        known = None if self.responses is None else self.responses.find(request)
        if known is not None:
            return Release(known)
        for name, value in update.values.items():
            if not np.all(np.isfinite(value)):
                raise FederationError(
                    f"{self.client}: {name} of task {request.task!r} holds NaN or infinity; nothing was sent. "
                    "Try a smaller l2 or dtype='float64'"
                )
        mechanisms = {name: self._mechanism(name, update) for name in update.values}
        released = {
            name: mechanisms[name].release(name, self._disclosed(name, update), rng=rng) for name in update.values
        }
        total = None
        if self.accountant is not None:
            # All of the response or nothing: a refusal must come before anything was told.
            self.accountant.charge(
                *(Charge(self.run, request.round, name, value, cost) for name, (value, cost) in released.items())
            )
            total = self.accountant.total()
        for name, (value, cost) in released.items():
            self.write(
                OutboundRecord(
                    client=self.client,
                    round=request.round,
                    task=request.task,
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
        if self.responses is not None:
            self.responses.keep(request, release.values, state)
        return release

    def _disclosed(self, name: str, update: Update) -> NDArray[Any]:
        """Return a value as the disclosure rules let it leave; under a privacy plan noise protects it instead."""
        value = np.asarray(update.values[name])
        if self.disclosure is None or self.plan is not None:
            return value
        if name == SUPPORTS:
            return self.disclosure.of_counts(value)
        return self.disclosure.of_components(value, update.supports[name]) if name in update.supports else value

    def _mechanism(self, name: str, update: Update) -> Mechanism:
        if self.plan is None:
            return self.mechanism
        if self.plan.uploads is not None and name == UPLOADS:
            return self.plan.upload_mechanism()
        if name not in update.record_sums or self.plan.uploads is not None:
            raise PrivacyError(
                f"{self.client}: how much one {self.plan.unit} can change {name} is not bounded, so no noise protects "
                "it; nothing was sent"
            )
        return self.plan.mechanism_for(name, update.record_sums[name])


def client_gate(
    name: str,
    algorithm: Algorithm,
    write: Callable[[OutboundRecord], None],
    *,
    responses: Callable[[str], Responses] | None = None,
    mechanism: Mechanism | None = None,
    secure: bool = False,
) -> Gate:
    """Make the exit that an algorithm asks for: as it is, with noise for a study, or under its privacy plan.

    Parameters
    ----------
    name : of the client
    write : takes the record of every array that leaves
    responses : gives the client's responses in this run; new ones if not given
    mechanism : noise for studies, where the algorithm is not private
    secure : what leaves is masked, so that only the sum over clients can be read; distributed noise needs it
    """
    plan = algorithm.privacy
    if plan is None:
        return Gate(name, write) if mechanism is None else Gate(name, write, mechanism)
    if mechanism is not None:
        raise PrivacyError("a private algorithm brings its own noise; leave out the mechanism")
    if plan.distributed and not secure:
        raise PrivacyError(
            "each client adds a share of distributed noise, which protects in a secure sum only; use secure=True, or "
            "noise='client'",
            parameter="secure",
        )
    kept = Responses(plan.accountant()) if responses is None else responses(name)
    return Gate.private(name, write, plan=plan, responses=kept)


def check_resumable(
    algorithm: Algorithm, journal: Journal | None, responses: Callable[[str], Responses] | None
) -> None:
    """Raise if a private run was interrupted and what it has spent is not known."""
    if algorithm.privacy is not None and responses is None and journal is not None and journal.next_round > 0:
        raise PrivacyError(
            "the privacy budget that the clients have spent before the interruption is not known; give the responses "
            "of the run, or start it again"
        )
