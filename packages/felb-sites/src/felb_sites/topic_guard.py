"""Puts the list of topics before FLARE's dispatch, in every process of a server and a site."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from felb.errors import FederationError
from felb_sites import topics

log = logging.getLogger("felb.topics")
REFUSED = "refused"
"""All that a sender learns."""
JOBLESS = frozenset({"scheduler.check_resource", "scheduler.cancel_resource", "train.check_status"})
"""Commands that may come without the name of a job."""

_HOOKS = {
    "_process_received_msg": ["self", "endpoint", "connection", "message"],
    "_process_request": ["self", "origin", "message"],
}


class CellGuard:
    """Decides about the messages of one cell, before their content is decoded.

    Parameters
    ----------
    own : path of the cell
    """

    def __init__(self, own: str) -> None:
        self.own = own

    def sender(self, endpoint: Any, connection: Any, message: Any) -> topics.Sender | None:
        """Return from whom a message came; None if it lies about that."""
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
        from nvflare.fuel.f3.drivers.driver_params import DriverParams

        names = {} if connection is None else connection.get_conn_properties()
        origin = message.get_header(MessageHeaderKey.ORIGIN)
        if not isinstance(origin, str):
            return None
        return topics.sender_of(
            self.own,
            neighbour=str(getattr(endpoint, "name", "")),
            origin=origin,
            certificate=names.get(DriverParams.PEER_CN.value),
        )

    def passes(self, endpoint: Any, connection: Any, message: Any) -> bool:
        """Return whether a message may be looked at or passed on."""
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

        sender = self.sender(endpoint, connection, message)
        destination = message.get_header(MessageHeaderKey.DESTINATION)
        if sender is None:
            allowed = False
        elif destination == self.own:
            allowed = True
        else:
            allowed = isinstance(destination, str) and topics.forwards(self.own, sender, destination)
        if not allowed:
            self._note(message, "a message that is not for this process, or of a false origin")
        elif sender is not None:
            message.set_prop(SENDER, sender)
        return allowed

    def takes(self, message: Any) -> bool:
        """Return whether a request for this cell may reach FLARE's callbacks."""
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
        from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

        sender = message.get_prop(SENDER)
        channel = message.get_header(MessageHeaderKey.CHANNEL, "")
        topic = message.get_header(MessageHeaderKey.TOPIC, "")
        if not isinstance(sender, topics.Sender):
            allowed = False
        elif channel == topics.STREAM and topic == topics.STREAM_DATA:
            inner = message.get_header(StreamHeaderKey.CHANNEL), message.get_header(StreamHeaderKey.TOPIC)
            allowed = topics.takes_stream(self.own, sender, *inner)
        else:
            allowed = topics.takes(self.own, sender, channel, topic)
        if not allowed:
            self._note(message, "a request that is not on the list")
        return allowed

    def _note(self, message: Any, what: str) -> None:
        log.warning("felb: refused %s: %r", what, {name: str(value)[:80] for name, value in _named(message).items()})


SENDER = "felb_sender"


def install() -> None:
    """Guard all cells of this process; raises if FLARE's dispatch is not the one that was read."""
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    check_hooks(CoreCell)
    if getattr(CoreCell, "felb_guarded", False):
        return
    received, request = CoreCell._process_received_msg, CoreCell._process_request

    def guarded_received(self: Any, endpoint: Any, connection: Any, message: Any) -> Any:
        if CellGuard(self.my_info.fqcn).passes(endpoint, connection, message):
            return received(self, endpoint, connection, message)
        return None

    def guarded_request(self: Any, origin: str, message: Any) -> Any:
        from nvflare.fuel.f3.cellnet.defs import ReturnCode
        from nvflare.fuel.f3.cellnet.utils import make_reply

        if CellGuard(self.my_info.fqcn).takes(message):
            return request(self, origin, message)
        return make_reply(ReturnCode.INVALID_REQUEST, error=REFUSED)

    CoreCell._process_received_msg, CoreCell._process_request = guarded_received, guarded_request
    CoreCell.felb_guarded = True
    _limit_admin_agent()
    _limit_job_commands()
    _hide_environment()


def check_hooks(core_cell: Any) -> None:
    """Raise unless every message of this FLARE passes the two functions that are guarded."""
    for name, parameters in _HOOKS.items():
        hook = getattr(core_cell, name, None)
        if getattr(core_cell, "felb_guarded", False):
            continue
        if hook is None or list(inspect.signature(hook).parameters) != parameters:
            raise FederationError(
                f"this version of FLARE dispatches messages in another way ({name}), so they cannot be guarded; "
                f"install nvflare {topics.FLARE_VERSION}"
            )


def _limit_admin_agent() -> None:
    """Let FLARE's admin agent know only the commands on the list, and jobs only by names that FLARE makes."""
    from nvflare.private.admin_defs import error_reply
    from nvflare.private.defs import RequestHeader
    from nvflare.private.fed.client.admin import FedAdminAgent, RequestProcessor

    class Limited(RequestProcessor):
        """A processor for those of its topics that are on the list."""

        def __init__(self, processor: Any) -> None:
            self._processor = processor

        def get_topics(self) -> list[str]:
            return [topic for topic in self._processor.get_topics() if topic in topics.SITE_COMMANDS]

        def process(self, req: Any, app_ctx: Any) -> Any:
            job = req.get_header(RequestHeader.JOB_ID)
            if not topics.is_job_id(job) and not (job in (None, "") and req.topic in JOBLESS):
                log.warning("felb: refused %s of a job with an odd name", req.topic)
                return error_reply(REFUSED)
            return self._processor.process(req, app_ctx)

    register = FedAdminAgent.register_processor

    def register_limited(self: Any, processor: Any) -> None:
        if isinstance(processor, RequestProcessor):
            processor = Limited(processor)
        register(self, processor)

    FedAdminAgent.register_processor = register_limited


def _limit_job_commands() -> None:
    from nvflare.private.fed.client.admin_commands import AdminCommands

    AdminCommands.commands = [
        command for command in AdminCommands.commands if command.get_command_name() in topics.JOB_COMMANDS
    ]


def _hide_environment() -> None:
    """Fill no variables of this process's environment into the settings of a job, which come from outside."""
    from nvflare.fuel.utils import wfconf

    begin = wfconf._EnvUpdater.__init__

    def without_environment(self: Any, vs: dict[str, Any], element_filter: Any = None) -> None:
        begin(self, vs, element_filter)
        self.vars = {name: value for name, value in self.vars.items() if name in vs or not name.startswith("$")}

    wfconf._EnvUpdater.__init__ = without_environment


def _named(message: Any) -> dict[str, Any]:
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
    from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

    return {
        "from": message.get_header(MessageHeaderKey.ORIGIN),
        "to": message.get_header(MessageHeaderKey.DESTINATION),
        "channel": message.get_header(MessageHeaderKey.CHANNEL),
        "topic": message.get_header(MessageHeaderKey.TOPIC),
        "within": message.get_header(StreamHeaderKey.CHANNEL),
    }
