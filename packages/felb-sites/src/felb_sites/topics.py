"""Which messages of FLARE a process of a federation takes: a closed list; whatever is not on it is refused.

FLARE's processes are *cells* named by paths: ``server`` and ``hospital-a`` are main cells, ``server.JOB`` and
``hospital-a.JOB`` those of a job. A cell takes requests on channels, each with topics. Some of them are commands: run a
shell command, read a file, delete a folder, stop. FLARE asks its authorization about these only if the sender wishes
so, so a list of what a run needs stands before all of them, whoever asks.

The list was recorded from runs over FLARE 2.9. A later version that needs another topic fails in the open: the topic is
refused and logged, and a test names every topic of the installed version that nobody has decided about.
"""

from __future__ import annotations

import re
from enum import Enum

FLARE_VERSION = "2.9"
"""The version whose topics were read; the guard of another one refuses more, never less."""

SERVER, ADMIN_PREFIX = "server", "_admin_"
STREAM, STREAM_DATA, STREAM_REPLY = "sm__STREAM", "sm__DATA", "return_only"
STREAM_CONTROL = frozenset({"sm__ACK", "sm__ERROR"})
ANY = "*"
JOB_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""FLARE names jobs and their folders by UUIDs; another name could be that of a folder with keys or policies."""


class Cell(Enum):
    """The kinds of cells."""

    SERVER = "server"
    SERVER_JOB = "server's job"
    SITE = "site"
    SITE_JOB = "site's job"


class Sender(Enum):
    """From whom a message came, as its connection shows; its own headers can say anything."""

    OWN = "a process of this machine"
    SERVER = "the server"
    SITE = "a site"
    COORDINATOR = "the coordinator's person"


SITE_COMMANDS = frozenset(
    {
        "scheduler.check_resource",
        "scheduler.cancel_resource",
        "train.deploy",
        "train.start_job",
        "train.abort",
        "train.check_status",
        "train.notify_job_status",
    }
)
"""Topics of FLARE's admin agent at a site, inside of messages on the channel ``admin``: jobs come, start and end."""

JOB_COMMANDS = frozenset({"abort", "check_status", "shutdown"})
"""Commands that a site's own main process may give to the process of a job."""

Route = tuple[Cell, Sender]
TAKEN: dict[Route, frozenset[tuple[str, str]]] = {
    (Cell.SITE, Sender.SERVER): frozenset({("admin", "admin"), ("cellnet.channel", "bye")}),
    (Cell.SITE, Sender.OWN): frozenset({("admin", "train.notify_job_status"), ("cellnet.channel", "bye")}),
    (Cell.SITE_JOB, Sender.SERVER): frozenset(
        {
            ("aux_communication", "__end_run__"),
            ("aux_communication", "__abort_task__"),
            ("cellnet.channel", "bye"),
        }
    ),
    (Cell.SITE_JOB, Sender.OWN): frozenset(
        {*(("client_command", command) for command in JOB_COMMANDS), ("cellnet.channel", "bye")}
    ),
    (Cell.SERVER, Sender.SITE): frozenset(
        {
            ("task", "challenge"),
            ("task", "register"),
            ("task", "quit"),
            ("task", "heart_beat"),
            ("task", "report_job_failure"),
            ("cellnet.channel", "bye"),
        }
    ),
    (Cell.SERVER, Sender.COORDINATOR): frozenset(
        {
            ("task", "challenge"),
            ("task", "register"),
            ("task", "quit"),
            ("hci_channel", ANY),  # the server's own authorization asks for the right of each of these commands
            ("aux_communication", "ObjectStreamer.Request"),
            ("aux_communication", "ObjectStreamer.Abort"),
            ("cellnet.channel", "bye"),
        }
    ),
    (Cell.SERVER, Sender.OWN): frozenset({("server_parent_listener", ANY), ("cellnet.channel", "bye")}),
    (Cell.SERVER_JOB, Sender.SITE): frozenset(
        {
            ("server_command", "get_task"),
            ("server_command", "submit_update"),
            ("aux_communication", "__sync_runner__"),
            ("aux_communication", "__job_heartbeat__"),
            ("aux_communication", "__task_check__"),
        }
    ),
    (Cell.SERVER_JOB, Sender.OWN): frozenset({("server_command", ANY), ("cellnet.channel", "bye")}),
}
"""Channel and topic of the requests that a kind of cell takes from whom."""


def cell_of(path: str) -> Cell:
    """Return the kind of a cell of a server or a site."""
    main, _, job = path.partition(".")
    if main == SERVER:
        return Cell.SERVER_JOB if job else Cell.SERVER
    return Cell.SITE_JOB if job else Cell.SITE


def main_of(path: str) -> str:
    """Return whose cell it is: a site's name, or ``server``."""
    return path.partition(".")[0]


def sender_of(own: str, *, neighbour: str, origin: str, certificate: str | None) -> Sender | None:
    """Return from whom a message came; None if what it says of itself does not fit its connection.

    Parameters
    ----------
    own : path of the cell that received it
    neighbour : path of the cell at the other end of the connection, from its handshake
    origin : path of the cell that wrote the message, as the message says
    certificate : name in the certificate of the connection; None for those inside of a machine and to a server
    """
    kind, near, far = cell_of(own), main_of(neighbour), main_of(origin)
    if kind is Cell.SERVER:
        if certificate is None:
            return Sender.OWN if near == far == SERVER else None
        if near != far or far == SERVER:
            return None
        if near.startswith(ADMIN_PREFIX):
            return Sender.COORDINATOR if "@" in certificate else None
        return Sender.SITE if near == certificate else None
    if kind is Cell.SERVER_JOB:  # reached through the server's main cell alone, which has looked at the certificate
        if near != SERVER:
            return None
        return Sender.OWN if far == SERVER else Sender.SITE
    if near == SERVER:
        return Sender.SERVER if far == SERVER else None
    if near != main_of(own):
        return None
    if far == near:
        return Sender.OWN
    return Sender.SERVER if kind is Cell.SITE_JOB and far == SERVER else None


def takes(own: str, sender: Sender, channel: str, topic: str) -> bool:
    """Return whether a cell takes requests of a topic from a sender."""
    if channel == STREAM:
        return topic in STREAM_CONTROL
    taken = TAKEN.get((cell_of(own), sender), frozenset())
    return (channel, topic) in taken or (channel, ANY) in taken


def takes_stream(own: str, sender: Sender, channel: str | None, topic: str | None) -> bool:
    """Return whether a cell takes a streamed request, whose channel and topic are within; replies are always taken."""
    if not isinstance(channel, str) or not isinstance(topic, str) or channel == STREAM:
        return False
    return channel == STREAM_REPLY or takes(own, sender, channel, topic)


def forwards(own: str, sender: Sender, destination: str) -> bool:
    """Return whether a cell passes a message on: between a site's processes and the server's, never between sites."""
    kind, to = cell_of(own), main_of(destination)
    if kind is Cell.SERVER:
        return sender is Sender.OWN or to == SERVER
    if kind is Cell.SITE:
        return to == main_of(own) or (sender is Sender.OWN and to == SERVER)
    return False


def is_job_id(value: object) -> bool:
    """Return whether FLARE could have made this name of a job."""
    return isinstance(value, str) and JOB_ID.fullmatch(value) is not None
