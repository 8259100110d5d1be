"""Frames over Unix sockets: the vault answers, couriers and the command line ask.

A frame is its length in 8 bytes, big-endian, and so many bytes. A connection carries one question and one answer after
the other. Who connects is known by the kernel's word (SO_PEERCRED), not by his own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import struct
import threading
import time
from typing import TYPE_CHECKING, Self

from felb.errors import FederationError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

PART_SECONDS = 30.0
"""Whoever begins a message has this long for each part of it."""
PART = 1 << 20
"""Bytes of a part."""
LARGE = 1 << 24
"""Bytes from which on messages are dealt with one after the other, so that together they need the memory of one."""
MOST_ANSWER = 1 << 31
"""Bytes of an answer."""
AWAY = "the vault does not run; start the site with `felb site start FOLDER`"

_LENGTH = struct.Struct("!Q")
_CREDENTIALS = struct.Struct("3i")
_log = logging.getLogger(__name__)


class _Closed(Exception):
    """The other end has closed the connection, or does not speak in frames."""


class SocketServer:
    """Answers at a socket, with a thread for each connection.

    The path may be long: the socket is bound through the folder's descriptor. An old socket is replaced.

    Parameters
    ----------
    path : of the socket
    handle : takes a message and returns the answer; it is called in several threads at once. An exception closes the
        connection; its kind is logged, what was said is not.
    limit : bytes of a message; a larger one ends the connection before it is read
    group : id of the group whose users may connect beside the owner
    uids : ids of the users that are answered, beside root and the user of this process
    connections : at a time; further ones are closed at once
    """

    def __init__(
        self,
        path: Path,
        handle: Callable[[bytes], bytes],
        *,
        limit: int,
        group: int | None = None,
        uids: frozenset[int] | None = None,
        connections: int = 8,
    ) -> None:
        self.path, self._handle, self._limit = path, handle, limit
        self._uids = frozenset({0, os.geteuid()}) | (uids or frozenset())
        self._large = threading.Lock()
        self._places = threading.Semaphore(connections)
        self._stopped = threading.Event()
        self._lines: set[socket.socket] = set()
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._inode = self._bind(group)
            self._listener.listen(connections)
        except BaseException:
            self._listener.close()
            raise

    def _bind(self, group: int | None) -> int:
        name = self.path.name
        with _folder_of(self.path) as folder:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise InputError(f"{self.path} is no socket; move it away, then start again")
                os.unlink(name, dir_fd=folder)
            os.fchmod(self._listener.fileno(), 0o600)  # the file gets this mode at once, whatever the umask allows more
            self._listener.bind(_through(folder, name))
            os.chmod(name, 0o600, dir_fd=folder)
            if group is not None:
                os.chown(name, -1, group, dir_fd=folder)
                os.chmod(name, 0o660, dir_fd=folder)
            return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino

    def serve(self) -> None:
        """Answer until `stop` is called."""
        while not self._stopped.is_set():
            try:
                line, _ = self._listener.accept()
            except OSError:
                if self._stopped.is_set():
                    return
                time.sleep(0.05)  # no descriptors left: some connection will end
                continue
            if not self._may_enter(line) or not self._places.acquire(blocking=False):
                line.close()
                continue
            with self._changing:
                self._lines.add(line)
            threading.Thread(target=self._talk, args=(line,), name="felb socket", daemon=True).start()

    def start(self) -> None:
        """Begin to serve in a thread."""
        self._thread = threading.Thread(target=self.serve, name="felb sockets", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End `serve` and all connections, and remove the socket."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with contextlib.suppress(OSError), _folder_of(self.path) as folder:
            if os.stat(self.path.name, dir_fd=folder, follow_symlinks=False).st_ino == self._inode:
                os.unlink(self.path.name, dir_fd=folder)
        with self._changing:
            lines = list(self._lines)
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(5)

    def _may_enter(self, line: socket.socket) -> bool:
        _, uid, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid not in self._uids:
            _log.warning("user %d may not talk at %s", uid, self.path.name)
            return False
        return True

    def _talk(self, line: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError, _Closed):
                while not self._stopped.is_set():
                    line.settimeout(None)
                    if not line.recv(1, socket.MSG_PEEK):
                        return
                    if not self._answer(line):
                        return
        finally:
            with self._changing:
                self._lines.discard(line)
            line.close()
            self._places.release()

    def _answer(self, line: socket.socket) -> bool:
        size = _read_length(line)
        if size > self._limit:
            _log.warning("a message of %d bytes at %s is too large", size, self.path.name)
            return False
        in_turn: AbstractContextManager[object] = self._large if size > LARGE else contextlib.nullcontext()
        with in_turn:
            message = _read(line, size)
            try:
                answer = self._handle(message)
            except Exception as error:
                # Neither its text nor a traceback: both can repeat what was said.
                _log.error("%s while a message at %s was answered", type(error).__name__, self.path.name)
                return False
        del message
        _write(line, answer)
        return True


class SocketClient:
    """Asks at a socket, and keeps the connection for the next question.

    One thread asks at a time. A connection that was kept and has died is made again once: the question is then asked
    again, so that it must be one that can be repeated.

    Parameters
    ----------
    path : of the socket
    seconds : to wait for an answer
    limit : bytes of an answer
    again : whether a connection that has died is made again; otherwise that is an error as any other
    """

    def __init__(self, path: Path, *, seconds: float, limit: int = MOST_ANSWER, again: bool = True) -> None:
        self.path, self._seconds, self._limit, self._again = path, seconds, limit, again
        self._line: socket.socket | None = None
        self._closed = False
        self._changing = threading.Lock()
        self.connections = 0
        """Made until now."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, message: bytes) -> bytes:
        """Return the answer; a `FederationError` if there is none."""
        kept = self._again and self._line is not None
        try:
            return self._ask(message)
        except TimeoutError as error:
            self._drop()
            raise FederationError(f"the vault has not answered for {self._seconds:g} seconds; try again") from error
        except (OSError, _Closed) as error:
            self._drop()
            if not kept:
                raise FederationError(_explain(error)) from error
        try:
            return self._ask(message)
        except (OSError, _Closed) as error:
            self._drop()
            raise FederationError(_explain(error)) from error

    def close(self) -> None:
        """End the connection, for ever; a thread that waits for an answer gets its error."""
        with self._changing:
            self._closed = True
            if self._line is not None:
                with contextlib.suppress(OSError):
                    self._line.shutdown(socket.SHUT_RDWR)
                self._line.close()
                self._line = None

    def _ask(self, message: bytes) -> bytes:
        line = self._connect()
        _write(line, message)
        line.settimeout(self._seconds)
        if not line.recv(1, socket.MSG_PEEK):
            raise _Closed
        size = _read_length(line)
        if size > self._limit:
            raise _Closed
        return _read(line, size)

    def _connect(self) -> socket.socket:
        if self._line is not None:
            return self._line
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.settimeout(PART_SECONDS)
            with _folder_of(self.path) as folder:
                line.connect(_through(folder, self.path.name))
            with self._changing:
                if self._closed:
                    raise _Closed
                self._line = line
                self.connections += 1
        except BaseException:
            line.close()
            raise
        return line

    def _drop(self) -> None:
        with self._changing:
            if self._line is not None:
                self._line.close()
                self._line = None


def _explain(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "this user may not talk to the vault; ask as the user who has started the site"
    return AWAY


@contextlib.contextmanager
def _folder_of(path: Path) -> Iterator[int]:
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def _through(folder: int, name: str) -> str:
    """Return a short path: an address has room for 107 bytes."""
    return f"/proc/self/fd/{folder}/{name}"


def _read_length(line: socket.socket) -> int:
    size: int = _LENGTH.unpack(_read(line, _LENGTH.size))[0]
    return size


def _read(line: socket.socket, size: int) -> bytes:
    """Read so many bytes; memory is taken as they come, and every part has its own time."""
    parts = []
    while size > 0:
        part = bytearray(min(PART, size))
        _fill(line, memoryview(part))
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _fill(line: socket.socket, part: memoryview) -> None:
    end = time.monotonic() + PART_SECONDS
    while part:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        line.settimeout(left)
        got = line.recv_into(part)
        if not got:
            raise _Closed
        part = part[got:]


def _write(line: socket.socket, message: bytes) -> None:
    line.settimeout(PART_SECONDS)  # sendall has this long in all
    line.sendall(_LENGTH.pack(len(message)))
    view = memoryview(message)
    for first in range(0, len(view), PART):
        line.settimeout(PART_SECONDS)
        line.sendall(view[first : first + PART])
