"""The transport over FLARE for a run whose sums are masked: a round is three trips to the sites instead of one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nvflare.apis.fl_constant import ReturnCode

from felb_sites.controller import ConnectedSites
from felb_sites.messages import CODE, ROUND, VALUES, write_request, write_trip
from felb_sites.reasons import sentence
from felb_sites.rounds import ABSENT, NOT_ANSWERED, Answers, quorum_error

if TYPE_CHECKING:
    from nvflare.apis.controller_spec import ClientTask
    from nvflare.apis.fl_context import FLContext

    from felb.federated.protocol import Request, Sums
    from felb.secure_sum.server import Trip
    from felb_sites.masked_rounds import MaskedRounds

MASKED = "masked input"


class MaskedSites(ConnectedSites):
    """The sites of a job, which tell nobody but each other's sum.

    Parameters
    ----------
    rounds : the coordinator's side of secure aggregation
    """

    def __init__(self, *connection: Any, rounds: MaskedRounds) -> None:
        super().__init__(*connection)
        self._rounds = rounds

    def _round(self, request: Request) -> tuple[Sums, dict[str, str]]:
        sums, reasons = self._rounds.play(request, partial(self._trip, request))
        self._validator.check_sum(sums, request)
        self.last = tuple(sorted(set(self._rounds.server.sites) - set(reasons))), reasons
        return sums, reasons

    def _trip(self, request: Request, trip: Trip) -> tuple[dict[str, bytes], dict[str, str]]:
        """Bring the messages of a trip to the sites that are connected."""
        terms, needed = self._controller.terms, self._rounds.server.needed(trip)
        sites = [site for site in self.connected() if site in trip.messages]
        ordered = trip.step == MASKED
        order = write_request(request, self._missing_sums(request, sites)) if ordered else None
        replies = Answers[bytes]()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:  # noqa: ARG001
            site, result = client_task.client.name, client_task.result
            client_task.result = None
            self._note_sums(site, result)
            if result.get_return_code() != ReturnCode.OK:
                replies.fail(site, sentence(result.get(CODE)))
            elif result.get(ROUND) == request.round and isinstance(result.get(VALUES), bytes):
                replies.add(site, result.get(VALUES))
            else:
                replies.fail(site, sentence(None))

        def allowance() -> float:
            silent = set(sites) - replies.heard() <= self._silent
            if silent and not ordered:
                return 0.0  # they have had their moment in this round
            return terms.allowance(everyone=ordered and request.all_clients, silent=silent)

        self._carry(
            write_trip({site: trip.messages[site] for site in sites}, request.round, order),
            sites,
            replace(terms, quorum=max(needed, terms.quorum) if ordered else needed),
            received=received,
            counts=replies.counts,
            allowance=allowance,
        )
        came, reasons = replies.taken()
        silent = {site for site in sites if site not in came and site not in reasons}
        self._silent = (self._silent - set(came)) | silent
        reasons |= dict.fromkeys(silent, NOT_ANSWERED)
        reasons |= {site: ABSENT for site in trip.messages if site not in sites}
        if ordered and len(came) < terms.quorum:  # before survivors are named, since sites confirm a round once
            raise quorum_error(request, len(came), terms.quorum, reasons=reasons)
        return came, reasons
