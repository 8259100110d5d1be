"""The process of a site's vault: ``python -m felb_sites.vault_process FOLDER``; imports no engine."""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from felb.errors import InputError, shortened
from felb.records import try_lock
from felb_sites.provisioning import Site
from felb_sites.vault import Vault
from felb_sites.vault_socket import VaultServer

if TYPE_CHECKING:
    from felb_sites.site_policy import SiteConfig
    from felb_sites.vault import Event

LOCK, LOG = "vault.lock", "vault.log"
NOTIFIED = frozenset({"pending", "roster", "refused", "budget", "ended"})
NOTIFY_SECONDS = 30.0
MOST_HOOKS, MOST_REFUSALS_TOLD = 100, 10
"""Events that wait for the hook, and refusals among them: whoever floods the vault starts no flood of processes."""
MOST_LINES, HOUR = 200, 3600.0
"""Events of a kind in `ANYBODYS` that the console shows in an hour."""
ANYBODYS = {
    "refused": "further refusals are not shown for a while; see felb site log --refused",
    "pending": "further proposals are not shown for a while; see felb site pending",
    "roster": "further rosters are not shown for a while; see felb site roster show",
}
"""Kinds of events that need no approved run, with what is shown when there are too many."""
LOG_BYTES, LOGS = 2_000_000, 3
OVERTIME = 75
"""Exit code of a vault that computed longer for a request than its policy allows; it is started again."""


def line_of(event: Event) -> str:
    """Return the line that the site's console shows of an event."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    run, text = f"run {event.run}" if event.run else "a run", shortened(event.text)
    told = {
        "pending": f"waits for approval: felb site show FOLDER {event.run}, digest {text}",
        "roster": f"proposes a roster to be confirmed: felb site roster show FOLDER, digest {text}",
        "began": f"began: {text}",
        "round": f"round {event.round} answered ({text})",
        "ended": f"ended after round {event.round}; {text}",
        "refused": f"refused: {text}",
        "budget": f"budget: {text}",
    }
    return f"{at}  {run} {told.get(event.kind, event.kind)}"


def notify(command: str, event: Event) -> None:
    """Call the site's hook with an event as JSON on its standard input; its failure is logged and changes nothing."""
    try:
        subprocess.run(
            shlex.split(command),
            input=json.dumps(asdict(event)),
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=NOTIFY_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logging.getLogger("felb.vault").warning("the hook could not be called: %s", error)


class Console:
    """Prints events, and calls the hook for those a person should know of, one after the other.

    Whoever has the socket makes events at will, so lines that come again and again are printed once, and refusals and
    proposals have a limit.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._seen: deque[Any] = deque(maxlen=MOST_LINES)
        self._recent = {kind: deque[float](maxlen=MOST_LINES) for kind in ANYBODYS}
        self._waiting: queue.Queue[tuple[str, Event]] = queue.Queue(MOST_HOOKS)
        threading.Thread(target=self._call_hooks, daemon=True).start()

    def __call__(self, event: Event) -> None:
        """Print a line and have the hook called, unless it is one too many."""
        same = (event.kind, event.run, event.text, event.round)
        if same in self._seen or (event.kind in ANYBODYS and not self._has_room(event.kind)):
            return
        self._seen.append(same)
        sys.stdout.write(line_of(event) + "\n")
        sys.stdout.flush()
        config: SiteConfig = self._site.config()
        if event.kind not in NOTIFIED or not config.notify:
            return
        if event.kind == "refused" and self._waiting.qsize() >= MOST_REFUSALS_TOLD:
            return
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait((config.notify, event))

    def _has_room(self, kind: str) -> bool:
        now, recent = time.monotonic(), self._recent[kind]
        if len(recent) == MOST_LINES and now - recent[0] < HOUR:
            return False
        recent.append(now)
        if len(recent) == MOST_LINES:
            sys.stdout.write(ANYBODYS[kind] + "\n")
        return True

    def _call_hooks(self) -> None:
        while True:
            notify(*self._waiting.get())


def run_vault(site: Site, *, group: int | None = None) -> None:
    """Answer for a site until the process is told to end, or its parent is gone."""
    site.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = try_lock(site.state / LOCK)
    if lock is None:
        raise InputError(f"{site.name} runs already; stop it before it is started again")
    handler = logging.handlers.RotatingFileHandler(site.state / LOG, maxBytes=LOG_BYTES, backupCount=LOGS)
    logging.getLogger("felb").addHandler(handler)
    vault = Vault(
        site.name,
        site.config,
        rosters=site.rosters,
        on_event=Console(site),
        end_process=lambda: os._exit(OVERTIME),
    )
    server = VaultServer(vault, site.socket, group=group)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    threading.Thread(target=_end_with_parent, args=(server, os.getppid()), daemon=True).start()
    try:
        server.serve()
    finally:
        vault.close()
        lock.close()


def _end_with_parent(server: VaultServer, parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    server.stop()


def main() -> None:
    """Run the vault of the site whose folder is given; a second argument is the group that may connect."""
    os.umask(0o077)
    group = int(sys.argv[2]) if len(sys.argv) > 2 else None
    try:
        run_vault(Site.open(sys.argv[1]), group=group)
    except InputError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
