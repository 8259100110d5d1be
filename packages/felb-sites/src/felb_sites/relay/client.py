"""How the coordinator's commands speak with its relay: by the Unix socket in the folder of the relay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import msgspec

from felb.errors import FederationError

if TYPE_CHECKING:
    from collections.abc import Sequence

SOCKET = "relay.sock"
AWAY = "the relay does not run; start it with `felb federation start FOLDER`"
_SECONDS = 60.0
_GONE = (httpx.TransportError, OSError)


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
        self._client: httpx.Client | None = None

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
        self._ask("POST", "/v1/members", content=data)

    def open_run(self, run: str, sites: Sequence[str], most_bytes: int) -> None:
        """Let sites send for a run, with payloads of so many bytes at most."""
        self._ask("POST", "/v1/runs", json={"run": run, "sites": list(sites), "most_bytes": most_bytes})

    def post(self, data: bytes) -> None:
        """Send an envelope; again is as once."""
        self._ask("POST", "/v1/envelope", content=data)

    def next(self, run: str, after: int, wait: float) -> list[tuple[int, bytes]]:
        """Return envelopes to the coordinator behind a number, as soon as there are any; none after `wait` seconds."""
        query = {"run": run, "after": str(after), "wait": str(wait)}
        return msgspec.msgpack.decode(self._ask("GET", "/v1/next", params=query).content, type=list[tuple[int, bytes]])

    def forget(self, run: str, before: int, kinds: Sequence[str] = ()) -> None:
        """Let the relay delete what it keeps for the coordinator with smaller numbers; no kinds are all kinds."""
        self._ask("POST", "/v1/forget", json={"run": run, "before": before, "kinds": list(kinds)})

    def close_run(self, run: str) -> None:
        """End a run: of its envelopes only those of kind "end" are still delivered."""
        self._ask("POST", "/v1/close", json={"run": run})

    def sites(self) -> dict[str, dict[str, Any]]:
        """Return for each member whether it is connected, seconds since its last contact, and how much waits for it."""
        return msgspec.json.decode(self._ask("GET", "/v1/sites").content, type=dict[str, dict[str, Any]])

    def is_alive(self) -> bool:
        """Return whether the relay answers."""
        try:
            self._ask("GET", "/v1/health")
        except FederationError:
            return False
        return True

    def _ask(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            try:
                answer = self._connected().request(method, path, **content)
            except _GONE:
                self.close()  # a relay that was started again has another socket
                answer = self._connected().request(method, path, **content)
        except _GONE as error:
            self.close()
            raise FederationError(AWAY) from error
        if answer.status_code >= 400:
            raise FederationError(f"the relay refuses: {_reason(answer)}")
        return answer

    def _connected(self) -> httpx.Client:
        if self._client is None:
            if not self._path.exists():
                raise FileNotFoundError(self._path)
            self._descriptor = folder_descriptor(self._path.parent)
            transport = httpx.HTTPTransport(uds=through(self._descriptor, self._path.parent, self._path.name))
            time_out = httpx.Timeout(_SECONDS, read=2 * _SECONDS)
            self._client = httpx.Client(transport=transport, base_url="http://relay", timeout=time_out, trust_env=False)
        return self._client


def folder_descriptor(folder: Path) -> int:
    """Open a folder, so that a socket in it can be reached however long its path is."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def through(descriptor: int, folder: Path, name: str = SOCKET) -> str:
    """Return a short path of a socket in an open folder."""
    if Path("/proc/self/fd").exists():
        return f"/proc/self/fd/{descriptor}/{name}"
    return str(folder / name)


def _reason(answer: httpx.Response) -> str:
    try:
        return str(msgspec.json.decode(answer.content, type=dict[str, str])["error"])
    except (msgspec.MsgspecError, KeyError):
        return f"status {answer.status_code}"
