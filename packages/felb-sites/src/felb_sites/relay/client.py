"""How the coordinator's commands speak with its relay: by the Unix socket in the folder of the relay."""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

import msgspec

from felb.errors import FederationError

if TYPE_CHECKING:
    from collections.abc import Sequence

SOCKET = "relay.sock"
AWAY = "the relay does not run; start it with `felb federation start FOLDER`"
_SECONDS = 120.0
"""For an answer; a poll takes half of it at most."""
_GONE = (http.client.HTTPException, OSError)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("relay", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class RelayClient:
    """Asks the relay of a federation.

    The path of the socket may be long: it is reached through the descriptor of its folder. A relay that does not run is
    a `FederationError`. A request whose connection broke is sent once more: all of them may be repeated.

    Parameters
    ----------
    path : of the socket
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(path)
        self._descriptor = -1
        self._client: _UnixConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def put_members(self, data: bytes) -> None:
        """Install a signed member list; one that is not newer is a `FederationError`."""
        self._ask("POST", "/v1/members", data)

    def open_run(self, run: str, sites: Sequence[str], most_bytes: int) -> None:
        """Let sites send for a run, with payloads of so many bytes at most."""
        self._tell("/v1/runs", {"run": run, "sites": list(sites), "most_bytes": most_bytes})

    def post(self, *envelopes: bytes) -> None:
        """Send envelopes, all of them or none; again is as once."""
        self._ask("POST", "/v1/envelopes", msgspec.msgpack.encode(envelopes))

    def next(self, run: str, after: int, wait: float, count: int = 1) -> list[tuple[int, bytes]]:
        """Return envelopes to the coordinator behind a number, as soon as there are any; none after `wait` seconds.

        Where several are expected, the relay waits a moment for the others once the first one is there.
        """
        query = urlencode({"run": run, "after": after, "wait": wait, "count": count})
        return msgspec.msgpack.decode(self._ask("GET", f"/v1/next?{query}"), type=list[tuple[int, bytes]])

    def forget(self, run: str, before: int, kinds: Sequence[str] = ()) -> None:
        """Let the relay delete what it keeps for the coordinator with smaller numbers; no kinds are all kinds."""
        self._tell("/v1/forget", {"run": run, "before": before, "kinds": list(kinds)})

    def close_run(self, run: str) -> None:
        """End a run: of its envelopes only those of kind "end" are still delivered."""
        self._tell("/v1/close", {"run": run})

    def sites(self) -> dict[str, dict[str, Any]]:
        """Return for each member whether it is connected, seconds since its last contact, and how much waits for it."""
        return msgspec.json.decode(self._ask("GET", "/v1/sites"), type=dict[str, dict[str, Any]])

    def is_alive(self) -> bool:
        """Return whether the relay answers."""
        try:
            self._ask("GET", "/v1/health")
        except FederationError:
            return False
        return True

    def _tell(self, path: str, content: Any) -> None:
        self._ask("POST", path, msgspec.json.encode(content))

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            try:
                status, content = self._request(method, path, body)
            except _GONE:
                self.close()  # a relay that was started again has another socket
                status, content = self._request(method, path, body)
        except _GONE as error:
            self.close()
            raise FederationError(AWAY) from error
        if status >= 400:
            raise FederationError(f"the relay refuses: {_reason(status, content)}")
        return content

    def _request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        client = self._connected()
        client.request(method, path, body)
        answer = client.getresponse()
        return answer.status, answer.read()

    def _connected(self) -> _UnixConnection:
        if self._client is None:
            if not self._path.exists():
                raise FileNotFoundError(self._path)
            self._descriptor = folder_descriptor(self._path.parent)
            self._client = _UnixConnection(through(self._descriptor, self._path.parent, self._path.name))
        return self._client


def folder_descriptor(folder: Path) -> int:
    """Open a folder, so that a socket in it can be reached however long its path is."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def through(descriptor: int, folder: Path, name: str = SOCKET) -> str:
    """Return a short path of a socket in an open folder."""
    if Path("/proc/self/fd").exists():
        return f"/proc/self/fd/{descriptor}/{name}"
    return str(folder / name)


def _reason(status: int, content: bytes) -> str:
    try:
        return str(msgspec.json.decode(content, type=dict[str, str])["error"])
    except (msgspec.MsgspecError, KeyError):
        return f"status {status}"
