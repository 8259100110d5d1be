"""A site's part of a run whose sums are masked: the vault answers, and what leaves it is masked.

The site's own answer to a request goes through the gate as always and is kept at the site; what leaves has masks that
only a sum over the sites of the confirmed roster takes off. What the protocol must remember for ever, such as which
survivors were signed, is on disk before a reply leaves, so that a crash does not make the site say two things.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from felb.errors import FederationError
from felb.federated.journal import digest
from felb.records import replacing, sync_folder
from felb.secure_sum.protocol import Terms
from felb.secure_sum.releases import as_vector, read_bits
from felb.secure_sum.site import SecureSite, SiteState
from felb_sites.approvals import plan_digest
from felb_sites.site_policy import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from felb.federated.protocol import Request, Sums
    from felb.secure_sum.protocol import MaskOrder, Roster
    from felb_sites.run_plan import Plan
    from felb_sites.site_roster import SiteRosters
    from felb_sites.site_session import SiteSession

STATE = "secure.state"


def sum_terms(plan: Plan, roster: Roster) -> Terms:
    """Return what all secure sums of a run have in common, as coordinator and sites derive it from the plan."""
    return Terms(plan.run_id, plan_digest(plan), roster.digest, plan.dropouts or 0)


def secure_site(plan: Plan, rosters: SiteRosters) -> SecureSite:
    """Return the site's side of the secure sums of a run, or refuse a roster that no person has confirmed."""
    roster = None if plan.roster is None else rosters.find(plan.roster)
    if roster is None or rosters.own not in roster.members:
        raise Refusal(
            "no person has confirmed the roster of this run; see `felb site roster show`, compare it with the other "
            "sites by telephone, then `felb site roster confirm`",
            code="roster",
        )
    if plan.sites != len(roster.members):
        raise Refusal(f"the plan counts {plan.sites} sites and the roster {len(roster.members)}", code="plan")
    return SecureSite(rosters.own.name, roster, sum_terms(plan, roster), rosters.sign)


class MaskedSession:
    """One site in one run with masked sums.

    Parameters
    ----------
    session : answers requests
    site : masks the answers
    """

    def __init__(self, session: SiteSession, site: SecureSite) -> None:
        self._session, self._site = session, site
        self._path = session.folder / STATE
        self._state = self._load()

    def _load(self) -> SiteState:
        if not self._path.is_file():
            if self._session.answered:
                raise Refusal("this site has lost what it has signed in this run", code="known")
            return SiteState()
        try:
            return SiteState.from_bytes(self._path.read_bytes())
        except FederationError as error:
            raise Refusal(f"{self._path} is damaged, so that it is not known what was signed", code="known") from error

    def reply(self, message: bytes, request: Request | None = None, sums: Sequence[Sums] = ()) -> bytes:
        """Return the reply to a message of the protocol; one that orders an input comes with its request.

        Raises a `Refusal`, and nothing else that depends on the data.
        """

        def answer(order: MaskOrder) -> tuple[NDArray[np.int64], bytes]:
            if request is None or (order.round, order.request) != (request.round, digest(request)):
                raise Refusal("an input was ordered for another request", code="request")
            values = self._session.answer(request, sums)
            try:
                bits = read_bits(self._session.algorithm, request)
                return as_vector(values, bits, sites=len(self._site.roster.names))
            except FederationError as error:  # it speaks of the data
                raise Refusal(str(error), code="failed") from error

        try:
            state, reply = self._site.respond(self._state, message, answer)
        except FederationError as error:
            raise Refusal(str(error), code="request") from error
        if state is not self._state:
            self._keep(state)
        return reply

    def _keep(self, state: SiteState) -> None:
        try:
            with replacing(self._path) as partial:
                descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(state.to_bytes())
            sync_folder(self._path.parent)
        except OSError as error:  # nothing has left
            raise Refusal(f"what was signed could not be kept: {error}", code="failed") from error
        self._state = state
