"""The wire between a courier and the vault: a Unix socket, one message and one reply at a time, sizes limited."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import FederationError, InputError
from felb.federated.journal import MAX_BYTES
from felb_sites.vault_words import Reply

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from felb_sites.vault import Vault

MOST_WORDS = 1 << 16
"""Bytes of the table of a message."""
MOST_CONNECTIONS = 8
LARGE = 1 << 24
"""Bytes from which on messages are received one after the other, so that together they need the memory of one."""
IDLE_SECONDS = 30.0
"""A courier that begins a message has this long for each part of it."""
LONGEST_PATH = 100
"""Of a socket; systems allow little more."""

_SIZES = struct.Struct("!IQ")


class Closed(FederationError):
    """The other end has closed the connection."""


def send(line: socket.socket, words: dict[str, Any], values: bytes = b"") -> None:
    """Send a table and bytes."""
    table = json.dumps(words, separators=(",", ":")).encode()
    line.sendall(_SIZES.pack(len(table), len(values)) + table)
    if values:
        line.sendall(values)


def receive(
    line: socket.socket, *, limit: int = MAX_BYTES, in_turn: AbstractContextManager[Any] | None = None
) -> tuple[Any, bytes]:
    """Receive a table and bytes; raises on what is too large or no table, before it is read.

    `in_turn` is held while a large message is received.
    """
    table, values = _SIZES.unpack(_exactly(line, _SIZES.size))
    if table > MOST_WORDS or values > limit:
        raise FederationError("a message that is too large")
    raw = _exactly(line, table)
    with in_turn if in_turn is not None and values > LARGE else contextlib.nullcontext():
        content = _exactly(line, values)
    try:
        words = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FederationError("a message that is no table") from error
    return words, content


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _exactly(line: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = line.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise Closed("the connection was closed")
        parts += part
    return bytes(parts)


class VaultServer:
    """Lets couriers talk to a vault, one message at a time.

    Parameters
    ----------
    vault : answers
    path : of the socket; an old one is replaced
    group : id of the group that may connect beside the owner; nobody else may
    """

    def __init__(self, vault: Vault, path: str | os.PathLike[str], *, group: int | None = None) -> None:
        self._vault, self.path = vault, Path(path)
        if len(os.fsencode(self.path)) > LONGEST_PATH:
            raise InputError(f"the path {self.path} is too long for a socket; put the site into a folder nearer to /")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            self._listener.bind(str(self.path))
        finally:
            os.umask(old)
        if group is not None:
            os.chown(self.path, -1, group)
            self.path.chmod(0o660)
        self._listener.listen(MOST_CONNECTIONS)
        self._one_at_a_time, self._large = threading.Lock(), threading.Lock()
        self._places = threading.Semaphore(MOST_CONNECTIONS)
        self._stopped = threading.Event()

    def serve(self) -> None:
        """Answer until `stop` is called."""
        while not self._stopped.is_set():
            try:
                line, _ = self._listener.accept()
            except OSError:
                break
            if not self._places.acquire(blocking=False):
                line.close()  # a courier that floods waits
                continue
            threading.Thread(target=self._talk, args=(line,), daemon=True).start()

    def stop(self) -> None:
        """End `serve`."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _talk(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError), line:
            try:
                while not self._stopped.is_set():
                    line.settimeout(None)
                    if not line.recv(1, socket.MSG_PEEK):
                        return
                    line.settimeout(IDLE_SECONDS)
                    words, values = receive(line, in_turn=self._large)
                    with self._one_at_a_time:
                        reply = self._vault.handle(words, values)
                    send(line, {"code": reply.code, "have": reply.have}, reply.values)
            except FederationError:  # it speaks another language; nothing is said to that
                return
            finally:
                self._places.release()


def ask(path: str | os.PathLike[str], words: dict[str, Any], values: bytes = b"", *, seconds: float = 3600.0) -> Reply:
    """Ask a vault as a courier does; "away" if nobody listens."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(seconds)
            line.connect(str(path))
            send(line, words, values)
            told, content = receive(line)
    except (OSError, FederationError):
        return Reply("away")
    code = told.get("code") if isinstance(told, dict) else None
    have = told.get("have") if isinstance(told, dict) else None
    return Reply(code, content, have if type(have) is int else None) if isinstance(code, str) else Reply("away")
