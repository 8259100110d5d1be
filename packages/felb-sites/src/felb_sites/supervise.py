"""A site's two processes: the vault, which has the data, and the courier, which has the connection.

The courier runs as another user, who can read neither the data nor the policy nor the state. One user runs both only if
that was asked for; what then keeps them apart is that the courier has no code that reads files of others.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec

from felb.errors import InputError, printable
from felb.records import replacing, try_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from felb_sites.keys.members import Invitation

RUNNING, COURIER_LOG, COURIER_SETTINGS, TRANSPORT_KEY = "running.lock", "courier.log", "courier.json", "transport.key"
LOG_BYTES, LOGS = 5_000_000, 3
SHORTEST, LONGEST = 0.2, 5.0
"""Seconds before a process that has ended is started again."""
STEADY_SECONDS = 30.0
"""A process that ran for so long is started again after the shortest pause."""
END_SECONDS = 10.0
"""For a process to end by itself."""
LONGEST_LINE = 1 << 16
"""Bytes of a line in the courier's log; what is longer is cut into several."""
COURIER = "felb-courier"
"""The user that a courier runs as, unless another one is named."""
COURIER_ENVIRONMENT = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"),
)
"""Variables that a courier gets. Others may hold what is only for the vault, as the password of a database."""


class SiteFolder(Protocol):
    """What is needed of a site."""

    @property
    def name(self) -> str:
        """Of the site."""

    @property
    def folder(self) -> Path:
        """Of the site."""

    @property
    def vault(self) -> Path:
        """The vault's folder."""

    @property
    def courier(self) -> Path:
        """The courier's folder."""

    @property
    def invitation(self) -> Invitation:
        """To the federation."""

    @property
    def carrier_socket(self) -> Path:
        """Where the vault listens to the courier."""


class SiteProcesses:
    """Runs a site until it is stopped; either process is started again when it ends.

    Parameters
    ----------
    site : which
    courier_user : name of the courier's user; only root can choose one
    one_user : whether the same user runs both
    tell : takes lines for the person who has started the site
    private : files that the courier's user must not be able to read, as the data
    proxy : URL of the proxy to the relay; without it, the environment's
    ca : file with authorities of the network that the courier trusts beside those of the invitation
    """

    def __init__(
        self,
        site: SiteFolder,
        *,
        courier_user: str | None,
        one_user: bool,
        tell: Callable[[str], None],
        private: Iterable[Path] = (),
        proxy: str | None = None,
        ca: Path | None = None,
    ) -> None:
        self._site, self._tell, self._private = site, tell, tuple(private)
        self._proxy, self._ca = proxy, ca
        self._user = courier_account(courier_user, one_user=one_user)
        self._stopped = threading.Event()
        self._both = (
            _Kept("vault", self._start_vault),
            _Kept("courier", self._start_courier),
        )

    def run(self) -> None:
        """Start both and watch them, until SIGTERM or SIGINT; call it in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        self.watch()

    def watch(self) -> None:
        """Start both and watch them, until `stop`.

        The kernel ends the processes with the thread that has started them, so it must be one that lasts.
        """
        lock = try_lock(self._site.folder / RUNNING)
        if lock is None:
            raise InputError(f"{self._site.name} runs already; stop it before it is started again")
        with lock:
            try:
                self.prepare()
                while not self._stopped.is_set():
                    for kept in self._both:
                        kept.look_after(self._tell)
                    self._stopped.wait(0.1)
            finally:
                for kept in reversed(self._both):
                    kept.end()

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    def prepare(self) -> None:
        """Write the courier's settings, and give each user what is his."""
        site, user = self._site, self._user
        site.vault.mkdir(parents=True, exist_ok=True)
        settings = self._courier_settings()
        if user is None:
            site.vault.chmod(0o700)
            write_settings(site.courier / COURIER_SETTINGS, settings)
            self._tell("one user runs vault and courier (--one-user); without it, root gives the courier its own")
            return
        uid, gid = user
        site.folder.chmod(0o711)
        hand_over(site.courier, uid, gid)
        if not is_allowed("-x", site.courier, uid, gid):
            raise InputError(f"the courier's user cannot get to {site.courier}; let others pass the folders above it")
        write_as(site.courier / COURIER_SETTINGS, settings, uid, gid)
        key = site.courier / TRANSPORT_KEY
        if not readable_by(key, uid, gid):
            raise InputError(f"the courier's user cannot read {key}; give it to that user with chown, then start")
        self._shut_vault(uid, gid)
        check_python(uid, gid)

    def _shut_vault(self, uid: int, gid: int) -> None:
        """Let the courier's user pass the vault's folder to its socket, and read nothing there."""
        vault = self._site.vault
        os.chown(vault, -1, gid)
        vault.chmod(0o710)
        for entry in vault.iterdir():
            if not entry.is_symlink() and not entry.is_socket():
                entry.chmod(0o700 if entry.is_dir() else 0o600)
        inside = (entry for entry in vault.iterdir() if not entry.is_socket())
        for path in (vault, *inside, *self._private):
            if readable_by(path, uid, gid):
                raise InputError(f"the courier's user can read {path}; take that right away (chmod 600), then start")

    def _courier_settings(self) -> bytes:
        site, invitation = self._site, self._site.invitation
        settings = {
            "site": site.name,
            "federation": invitation.federation,
            "url": invitation.url,
            "trust": invitation.trust,
            "certificate": invitation.certificate,
            "socket": os.path.relpath(site.carrier_socket, site.courier),
        }
        if self._proxy is not None:
            settings["proxy"] = self._proxy
        if self._ca is not None:
            settings["ca"] = str(self._ca.absolute())
        return msgspec.json.format(msgspec.json.encode(settings), indent=1) + b"\n"

    def _start_vault(self) -> subprocess.Popen[bytes]:
        user = [] if self._user is None else ["--group", str(self._user[1]), "--courier-uid", str(self._user[0])]
        return subprocess.Popen(
            [*python(), "-m", "felb_sites.vault.process", str(self._site.vault), *user],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "FELB_DIES_WITH_PARENT": "1"},
            start_new_session=True,  # an interrupt from the terminal goes to this process, which ends both in order
        )

    def _start_courier(self) -> subprocess.Popen[bytes]:
        user: dict[str, Any] = {}
        if self._user is not None:
            user = {"user": self._user[0], "group": self._user[1], "extra_groups": []}
        courier = subprocess.Popen(
            [*python(), "-m", "felb_sites.courier.process", str(self._site.courier.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=courier_environment(),
            cwd="/",
            umask=0o077,
            start_new_session=True,  # no controlling terminal, into which it could type for the user of the vault
            **user,
        )
        assert courier.stdout is not None
        log = self._site.folder / COURIER_LOG
        threading.Thread(target=keep_lines, args=(courier.stdout, log), daemon=True).start()
        return courier


class _Kept:
    """A process that is started again when it ends, after a pause that grows while it does not last."""

    def __init__(self, name: str, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._name, self._start = name, start
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = self._due = 0.0
        self._pause = SHORTEST

    def look_after(self, tell: Callable[[str], None]) -> None:
        now = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            if now - self._begun > STEADY_SECONDS:
                self._pause = SHORTEST
            see = f"; see {COURIER_LOG}" if self._name == "courier" else ""
            tell(f"the {self._name} has ended with code {code} and is started again{see}")
            self._process, self._due = None, now + self._pause
            self._pause = min(LONGEST, 2 * self._pause)
        if now >= self._due:
            self._process, self._begun = self._start(), now

    def end(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def python() -> list[str]:
    """Return how Python is started: without the folder in which somebody stands among its modules (-P)."""
    return [sys.executable, "-P", "-B"]


def courier_environment() -> dict[str, str]:
    """Return the variables that a courier gets."""
    kept = {name: os.environ[name] for name in COURIER_ENVIRONMENT if name in os.environ}
    return {**kept, "FELB_DIES_WITH_PARENT": "1"}


class _PrivateLog(logging.handlers.RotatingFileHandler):
    """A log of mode 0600."""

    def _open(self) -> Any:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")


def keep_lines(stream: IO[bytes], path: Path) -> None:
    """Write what a process says to a file that rotates; what a terminal would obey is replaced."""
    handler = _PrivateLog(path, maxBytes=LOG_BYTES, backupCount=LOGS, encoding="utf-8")
    with contextlib.closing(handler), stream:
        for line in iter(lambda: stream.readline(LONGEST_LINE), b""):
            text = printable(line.decode("utf-8", "replace").rstrip())
            handler.emit(logging.LogRecord("courier", logging.INFO, "", 0, text, None, None))


def courier_account(name: str | None, *, one_user: bool) -> tuple[int, int] | None:
    """Return the ids of the courier's user and group; None if the same user runs both."""
    if one_user:
        if name is not None:
            raise InputError("give either --one-user or --courier-user, not both")
        return None
    if os.geteuid() != 0:
        raise InputError(
            "vault and courier run as two users, which only root can start: start the site with sudo, or give "
            "--one-user to run both as this user"
        )
    wanted = COURIER if name is None else name
    try:
        account = pwd.getpwnam(wanted)
    except KeyError as error:
        raise InputError(
            f"there is no user {wanted!r} for the courier; make one with `useradd --system {wanted}`, or give "
            "--one-user to run vault and courier as one user"
        ) from error
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


def write_settings(path: Path, text: bytes) -> None:
    """Write a file for its owner only."""
    with replacing(path) as partial:
        partial.touch(0o600)
        partial.write_bytes(text)


def write_as(path: Path, text: bytes, uid: int, gid: int) -> None:
    """Write a file in a folder of a user as that user: where root would write, the user could have laid a link."""
    done = subprocess.run(
        ["tee", os.fspath(path)],
        input=text,
        user=uid,
        group=gid,
        extra_groups=[],
        umask=0o077,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise InputError(f"the courier's user cannot write {path}; remove it, then start")


def readable_by(path: str | os.PathLike[str], uid: int, gid: int) -> bool:
    """Return whether a user can list a folder or read a file; tried by a process that has become the user."""
    return is_allowed("-r", path, uid, gid)


def is_allowed(what: str, path: str | os.PathLike[str], uid: int, gid: int) -> bool:
    """Return whether a user may read ("-r") or pass or execute ("-x") something."""
    code = _run_as(["test", what, os.fspath(path)], uid, gid)
    if code not in (0, 1):  # not to know must not count as not to be allowed
        raise InputError(
            f"it cannot be found out whether the courier's user may read {path}: the user cannot run `test`"
        )
    return code == 0


def check_python(uid: int, gid: int) -> None:
    """Raise unless a user can run the courier's program."""
    if _run_as([*python(), "-c", "import felb_sites.courier.process"], uid, gid):
        raise InputError(
            f"the courier's user cannot run {sys.executable} with felb; install felb where all users can read it, "
            "or give --one-user"
        )


def _run_as(command: list[str], uid: int, gid: int) -> int:
    try:
        return subprocess.run(
            command,
            user=uid,
            group=gid,
            extra_groups=[],
            cwd="/",
            env=courier_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
    except OSError:  # the user cannot even reach the program
        return 126
