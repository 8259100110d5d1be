"""The process of a vault: ``python -m felb_sites.vault.process FOLDER``; two Unix sockets and no network.

The carrier socket takes and gives envelopes; the operator socket answers the people of the site. Their verbs are
disjoint, and so are the users who may connect.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from felb.errors import FederationError, FelbError, InputError, shortened
from felb.records import wait_for_lock
from felb_sites.carrier import CONNECTED, Deliver, Fetch, Tell, ToVault
from felb_sites.envelopes import MOST_PAYLOAD
from felb_sites.keys.identity import Identity
from felb_sites.sockets import SocketServer
from felb_sites.vault.operator import LOCK, MOST_BYTES, Verbs
from felb_sites.vault.policy import SiteConfig
from felb_sites.vault.store import Store
from felb_sites.vault.vault import Vault

if TYPE_CHECKING:
    from collections.abc import Callable

    from felb_sites.vault.vault import Event

NOTIFIED = frozenset({"pending", "roster", "refused", "budget", "ended", "members"})
NOTIFY_SECONDS = 30.0
MOST_HOOKS, MOST_REFUSALS_TOLD = 100, 10
"""Events that wait for the hook, and refusals among them: whoever floods the vault starts no flood of processes."""
MOST_LINES, HOUR = 200, 3600.0
"""Refusals that the console shows in an hour."""
LOCK_SECONDS = 5.0
"""A command that looks at the store while no vault runs holds it for a moment."""
OVERTIME = 75
"""Exit code of a vault that computed longer for a request than its policy allows; it is started again."""


class ReadSettings:
    """Reads the settings of a site as they are now; the file is read again only if it is another one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[int, int, int], SiteConfig] | None = None

    def __call__(self) -> SiteConfig:
        """Return the settings."""
        try:
            found = self._path.stat()
        except OSError:
            return SiteConfig.load(self._path)  # which says what is wrong
        now = found.st_ino, found.st_mtime_ns, found.st_size
        if self._known is None or self._known[0] != now:
            self._known = now, SiteConfig.load(self._path)
        return self._known[1]


def make_vault(
    folder: Path,
    *,
    on_event: Callable[[Event], None] = lambda _: None,
    end_process: Callable[[], None] | None = None,
) -> Vault:
    """Make the vault of a site from its folder."""
    from felb_sites.site_folder import Site

    site = Site.open(folder.parent)
    return Vault(
        site.name,
        Identity.read(folder / "vault.key"),
        federation=site.invitation.federation,
        authority=site.invitation.authority,
        store=Store(folder, name=site.name),
        config=ReadSettings(folder / "settings.json"),
        on_event=on_event,
        end_process=end_process,
    )


def describe(event: Event) -> str:
    """Return the line that the site's console shows of an event."""
    run, text = f"run {event.run}" if event.run else "the site", shortened(event.text)
    told = {
        "pending": f"waits for approval: felb site show FOLDER {event.run}",
        "roster": f"waits for confirmation of keys: felb site roster show FOLDER ({text})",
        "approved": "is approved",
        "began": f"began: {text}",
        "round": f"round {event.round} answered ({text})",
        "ended": f"ended; {text}",
        "refused": f"refused: {text}",
        "members": f"has a new member list: {text}",
        "connection": f"is {text}" if text == CONNECTED else f"is not connected: {text}",
        "budget": f"budget: {text}",
    }
    return f"{run} {told.get(event.kind, event.kind)}"


def notify(command: str, event: Event) -> None:
    """Call the site's hook with an event as JSON on its standard input; its failure is logged and changes nothing."""
    try:
        done = subprocess.run(
            shlex.split(command),
            input=json.dumps(asdict(event)),
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=NOTIFY_SECONDS,
            check=False,
        )
        if done.returncode:
            logging.getLogger("felb.vault").warning("the hook ended with exit code %s", done.returncode)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logging.getLogger("felb.vault").warning("the hook could not be called: %s", error)


class Console:
    """Prints events as JSON lines, and calls the hook for those a person should know of, one after the other.

    Whoever brings envelopes makes refusals at will, so lines that come again are printed once, and there is a limit.
    """

    def __init__(self, config: Callable[[], SiteConfig]) -> None:
        self._config = config
        self._seen: deque[Any] = deque(maxlen=MOST_LINES)
        self._refused: deque[float] = deque(maxlen=MOST_LINES)
        self._waiting: queue.Queue[tuple[str, Event]] = queue.Queue(MOST_HOOKS)
        threading.Thread(target=self._call_hooks, daemon=True).start()

    def __call__(self, event: Event) -> None:
        """Print a line and have the hook called, unless it is one too many."""
        same = (event.kind, event.run, event.text, event.round)
        if same in self._seen or (event.kind == "refused" and not self._has_room()):
            return
        self._seen.append(same)
        said = {name: value for name, value in asdict(event).items() if name != "time"}
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **said, "message": describe(event)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        with contextlib.suppress(InputError, queue.Full):
            command = self._config().notify
            full = event.kind == "refused" and self._waiting.qsize() >= MOST_REFUSALS_TOLD
            if command and event.kind in NOTIFIED and not full:
                self._waiting.put_nowait((command, event))

    def _has_room(self) -> bool:
        now = time.monotonic()
        if len(self._refused) == MOST_LINES and now - self._refused[0] < HOUR:
            return False
        self._refused.append(now)
        return True

    def _call_hooks(self) -> None:
        while True:
            notify(*self._waiting.get())


def handle_carrier(vault: Vault, message: bytes) -> bytes:
    """Answer a message of the courier."""
    try:
        said = msgspec.msgpack.decode(message, type=ToVault)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FederationError("a message of another form") from error
    match said:
        case Deliver():
            vault.deliver(said.envelopes)
        case Fetch():
            return msgspec.msgpack.encode(vault.fetch(said.sent, said.seconds))
        case Tell():
            vault.note_connection(said.state)
    return b""


def prepare() -> None:
    """Load the default method and its compiled code while nobody waits, so that the first run begins at once."""
    from felb.data.binary import BinaryMatrix
    from felb.federated.algorithms.registry import DEFAULT, make_algorithm
    from felb.federated.loop import fit_centralized

    with contextlib.suppress(FelbError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = BinaryMatrix.of(np.kron(np.eye(2, dtype=bool), np.ones((8, 4), dtype=bool)))
        fit_centralized(make_algorithm(DEFAULT, 8, 2, {"effort": "fast"}), rows, seed=0)


def run_vault(folder: Path, *, group: int | None = None, courier: int | None = None) -> None:
    """Answer for a site until the process is told to end, or its parent is gone."""
    try:
        lock = wait_for_lock(folder / LOCK, seconds=LOCK_SECONDS)
    except TimeoutError as error:
        raise InputError(f"the vault in {folder} runs already; stop it before it is started again") from error
    console = Console(ReadSettings(folder / "settings.json"))
    vault = make_vault(folder, on_event=console, end_process=lambda: os._exit(OVERTIME))
    carrier = SocketServer(
        folder / "carrier.sock",
        lambda message: handle_carrier(vault, message),
        limit=2 * MOST_PAYLOAD,
        group=group,
        uids=None if courier is None else frozenset({courier}),
    )
    operator = SocketServer(folder / "operator.sock", Verbs(vault, one_user=courier is None).handle, limit=MOST_BYTES)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    parent = os.getppid()
    try:
        carrier.start()
        operator.start()
        threading.Thread(target=prepare, name="felb prepare", daemon=True).start()
        while not stopped.wait(0.5):
            if os.environ.get("FELB_DIES_WITH_PARENT") and os.getppid() != parent:
                break
    finally:
        carrier.stop()
        operator.stop()
        vault.close()
        lock.close()


def main() -> None:
    """Run the vault whose folder is given."""
    os.umask(0o077)
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--group", type=int, help="id of the group that may open the carrier socket")
    arguments.add_argument("--courier-uid", type=int, help="id of the courier's user, if it is another one")
    given = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    try:
        run_vault(given.folder.absolute(), group=given.group, courier=given.courier_uid)
    except InputError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
