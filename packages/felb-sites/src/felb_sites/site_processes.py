"""A site's two processes: the vault, which has the data, and the courier, which has the connection.

As root, the courier runs as another user, who can read neither the data nor the policy nor the state. Otherwise one
user runs both, and what keeps them apart is that the courier is not asked for files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from felb.errors import InputError
from felb.records import try_lock
from felb_sites.flare import environment
from felb_sites.hardening import write_json
from felb_sites.provisioning import Site

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNING, COURIER_LOG = "running.lock", "courier.log"
LOG_BYTES, LOGS = 5_000_000, 3
VAULT_SECONDS = 60.0
"""For the vault to listen."""
PAUSE = 3.0
"""Seconds before a process that has ended is started again."""
LONGEST_LINE = 1 << 16
"""Bytes of a line in the courier's log; what is longer is cut into several."""
COURIER = "felb-courier"
"""The user that a courier runs as, if root starts the site and such a user exists."""


class SiteProcesses:
    """Runs a site until it is stopped; either process is started again when it ends.

    Parameters
    ----------
    site : which
    courier_user : name of the courier's user; only root can choose one
    tell : takes lines for the person who has started the site
    """

    def __init__(self, site: Site, *, courier_user: str | None = None, tell: Callable[[str], None]) -> None:
        self._site, self._tell = site, tell
        self._user = courier_account(courier_user)
        self._vault: subprocess.Popen[bytes] | None = None
        self._courier: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()

    def run(self) -> None:
        """Start both and watch them."""
        lock = try_lock(self._site.folder / RUNNING)
        if lock is None:
            raise InputError(f"{self._site.name} runs already; stop it before it is started again")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopped.set())
        with lock:
            try:
                self._prepare()
                while not self._stopped.is_set():
                    self._look_after_both()
                    self._stopped.wait(0.5)
            finally:
                self._end()

    def _prepare(self) -> None:
        site, user = self._site, self._user
        site.socket.parent.mkdir(exist_ok=True)
        for private in (site.state, site.vault):
            private.mkdir(parents=True, exist_ok=True)
            private.chmod(0o700)
        told = {"socket": str(site.socket)}
        if user is None:
            write_json(site.courier_file, told)
            self._tell("one user runs vault and courier; started by root with --courier-user, they are two")
            return
        uid, gid = user
        site.folder.chmod(0o711)
        hand_over(site.kit, uid, gid)
        write_as(site.courier_file, json.dumps(told), uid, gid)
        os.chown(site.socket.parent, -1, gid)
        site.socket.parent.chmod(0o710)
        data = site.config().data
        for path in (site.vault, site.state, data, Path(data).with_suffix(".columns.txt")):
            if readable_by(path, uid, gid):
                raise InputError(f"the courier's user can read {path}; take that right away (chmod 600), then start")

    def _look_after_both(self) -> None:
        if self._vault is None or self._vault.poll() is not None:
            if self._vault is not None:
                self._tell("the vault has ended and is started again")
                self._stopped.wait(PAUSE)
            self._start_vault()
        if self._courier is None or self._courier.poll() is not None:
            if self._courier is not None:
                self._tell(f"the courier has ended and is started again; see {COURIER_LOG}")
                self._stopped.wait(PAUSE)
            if not self._stopped.is_set():
                self._start_courier()

    def _start_vault(self) -> None:
        group = [] if self._user is None else [str(self._user[1])]
        command = [sys.executable, "-m", "felb_sites.vault_process", str(self._site.folder), *group]
        self._vault = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        end = time.monotonic() + VAULT_SECONDS
        while not self._site.socket.exists() and self._vault.poll() is None and not self._stopped.is_set():
            if time.monotonic() > end:
                raise InputError(f"the vault of {self._site.name} does not begin")
            time.sleep(0.05)

    def _start_courier(self) -> None:
        user: dict[str, object] = {}
        if self._user is not None:
            user = {"user": self._user[0], "group": self._user[1], "extra_groups": []}
        self._courier = subprocess.Popen(  # type: ignore[call-overload]
            self._site.courier_command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment(), "FELB_DIES_WITH_PARENT": "1"},
            start_new_session=True,  # no controlling terminal, into which it could type for the user of the vault
            **user,
        )
        assert self._courier is not None
        assert self._courier.stdout is not None
        threading.Thread(
            target=keep_lines, args=(self._courier.stdout, self._site.folder / COURIER_LOG), daemon=True
        ).start()

    def _end(self) -> None:
        for process in (self._courier, self._vault):
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def keep_lines(stream: IO[bytes], path: Path) -> None:
    """Write what a process says to a file that rotates."""
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOGS, encoding="utf-8")
    with contextlib.closing(handler):
        for line in iter(lambda: stream.readline(LONGEST_LINE), b""):
            text = line.decode("utf-8", "replace").rstrip()
            handler.emit(logging.LogRecord("flare", logging.INFO, "", 0, text, None, None))


def courier_account(name: str | None) -> tuple[int, int] | None:
    """Return the ids of the courier's user and group; None if the same user runs both."""
    import pwd

    if os.geteuid() != 0:
        if name is not None:
            raise InputError("only root can run the courier as another user; start the site with sudo")
        return None
    try:
        account = pwd.getpwnam(COURIER if name is None else name)
    except KeyError as error:
        if name is None:
            return None
        raise InputError(f"there is no user {name!r}; make one with `useradd --system {name}`") from error
    if account.pw_uid == 0:
        raise InputError("the courier must not run as root; give another user with --courier-user")
    return account.pw_uid, account.pw_gid


def hand_over(folder: Path, uid: int, gid: int) -> None:
    """Make a folder and all in it a user's own, unless it is.

    Until the folder itself is handed over, last of all, nobody else can get into it. What is in it is never followed:
    neither a symbolic link nor a second name of a file may bring the user something from elsewhere.
    """
    if folder.stat().st_uid == uid:
        return
    os.chown(folder, os.geteuid(), -1)
    folder.chmod(0o700)
    for _, folders, files, place in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            try:
                entry = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
            except OSError:  # a link, or a socket
                continue
            try:
                if name in folders or os.fstat(entry).st_nlink == 1:
                    os.fchown(entry, uid, gid)
            finally:
                os.close(entry)
    os.chown(folder, uid, gid)


def write_as(path: Path, text: str, uid: int, gid: int) -> None:
    """Write a file in a folder of a user as that user: where root would write, the user could have laid a link."""
    done = subprocess.run(
        ["tee", os.fspath(path)],
        input=text.encode(),
        user=uid,
        group=gid,
        extra_groups=[],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise InputError(f"the courier's user cannot write {path}; remove it, then start")


def readable_by(path: str | os.PathLike[str], uid: int, gid: int) -> bool:
    """Return whether a user can list a folder or read a file; tried by a process that has become the user."""
    tried = subprocess.run(
        ["ls" if os.path.isdir(path) else "cat", os.fspath(path)],  # noqa: PTH112
        user=uid,
        group=gid,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return tried.returncode == 0


def main() -> None:
    """Run the site whose folder is given; a second argument names the courier's user."""
    user = sys.argv[2] if len(sys.argv) > 2 else None

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    try:
        SiteProcesses(Site.open(sys.argv[1]), courier_user=user, tell=tell).run()
    except InputError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
