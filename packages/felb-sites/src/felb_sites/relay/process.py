"""The relay as a process: one TLS port for couriers and one Unix socket for the coordinator, in one event loop.

Connections are accepted here and not by uvicorn, so that they are counted before the TLS handshake, and so that
everything a stranger can leave half done has a time limit: the handshake, the head of a request, its body, and the
reading of an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import ipaddress
import json
import logging
import os
import signal
import socket
import ssl
import sys
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from uvicorn.protocols.http.h11_impl import H11Protocol

from felb.errors import FelbError, InputError
from felb.records import read_bounded, read_record, replacing, sync_folder, try_lock
from felb_sites.keys.members import MOST_BYTES, Invitation
from felb_sites.relay.app import Limits, RelayApps
from felb_sites.relay.client import SOCKET, folder_descriptor, through
from felb_sites.relay.store import ConflictError, RelayStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

log = logging.getLogger("felb.relay")

GRACE = 10
"""Seconds that requests have to finish when the relay ends."""
_LINES_A_SECOND = 100
_HEAD = 1 << 14


class RelaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What relay.json says: where the relay listens.

    Parameters
    ----------
    listen : on all addresses of the machine, or on loopback alone (behind a proxy, or for tests)
    port : of TCP
    """

    listen: Literal["all", "loopback"]
    port: int


class Relay:
    """A relay in the event loop that runs.

    Parameters
    ----------
    folder : of the relay: relay.sqlite, tls.pem, tls.key, relay.sock and lock
    federation, authority : identifier of the federation, and its offline key
    limits : of time and number
    """

    def __init__(self, folder: Path, *, federation: str, authority: bytes, limits: Limits | None = None) -> None:
        self.folder, self.limits = folder, limits or Limits()
        self.port = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = try_lock(folder / "lock")
        if lock is None:
            raise InputError("the relay of this federation runs already")
        self._lock = lock
        try:
            self._tls = _tls_context(folder)
            self.store = RelayStore(folder / "relay.sqlite", federation=federation, authority=authority)
        except BaseException:
            lock.close()
            raise
        self.apps = RelayApps(self.store, self.limits)
        self._servers: list[_Server] = []
        self._stopped = False

    def install_newer(self, path: Path) -> None:
        """Install the member list of a file if it is newer than the one that is known."""
        if not path.exists():
            return
        try:
            self.apps.install(read_bounded(path, advice="sign the list again", limit=2 * MOST_BYTES))
        except ConflictError:
            log.info("members", extra={"fields": {"kept": True}})

    async def serve(self, host: str, port: int, *, started: asyncio.Event | None = None) -> None:
        """Listen, and answer until `stop` is called.

        Parameters
        ----------
        host : an address, or "" for all
        port : 0 for one that is free; `port` of the relay says which
        started : is set as soon as connections are accepted
        """
        try:
            listening = _listen(host, port)
            try:
                private = _listen_unix(self.folder)
            except BaseException:
                listening.close()
                raise
            self.port = listening.getsockname()[1]
            self._servers = [
                _Server(_config(self.apps.public, self.limits), listening, self.limits, self._tls),
                _Server(_config(self.apps.private, self.limits), private, self.limits, None),
            ]
            tasks = [asyncio.create_task(server.serve()) for server in self._servers]
            while not all(server.started for server in self._servers) and not any(task.done() for task in tasks):
                await asyncio.sleep(0)
            log.info("started", extra={"fields": {"port": self.port, "process": os.getpid()}})
            if started is not None:
                started.set()
            if self._stopped:
                self.stop()
            await asyncio.gather(*tasks)
        finally:
            with contextlib.suppress(FileNotFoundError):
                (self.folder / SOCKET).unlink()
            self.close()
            log.info("stopped")

    def stop(self) -> None:
        """Accept nothing more, end polls, and finish what is being written."""
        self._stopped = True
        self.apps.stop()
        for server in self._servers:
            server.should_exit = True

    def close(self) -> None:
        """Close the store and give up the lock."""
        self.store.close()
        self._lock.close()


def run_relay(
    folder: Path,
    *,
    host: str,
    port: int,
    federation: str,
    authority_key: bytes,
    members: Path | None = None,
    limits: Limits | None = None,
) -> None:
    """Run a relay until SIGTERM or SIGINT.

    Parameters
    ----------
    folder : of the relay
    host, port : where it listens; "" for all addresses
    federation, authority_key : identifier of the federation, and its offline key
    members : file of the newest member list; installed if the relay has an older one
    limits : of time and number
    """
    _allow_many_files()
    relay = Relay(folder, federation=federation, authority=authority_key, limits=limits)
    try:
        if members is not None:
            relay.install_newer(members)
    except BaseException:
        relay.close()
        raise

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_exception)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, relay.stop)
        await relay.serve(host, port)

    asyncio.run(run())


def create_certificate(folder: Path, host: str) -> str:
    """Write a new TLS key and its self-signed certificate, valid for ten years; return the certificate in PEM.

    Parameters
    ----------
    folder : of the relay
    host : name or address under which sites reach the relay
    """
    bare = host.strip("[]")
    try:
        said: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(bare))
    except ValueError:
        try:
            said = x509.DNSName(host.encode("idna").decode("ascii"))
        except UnicodeError as error:
            raise InputError(f"{host!r} is neither a host name nor an address", parameter="host") from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "felb relay")])
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(True, False, False, False, False, True, False, False, False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=3653))
        .add_extension(x509.SubjectAlternativeName([said]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(folder / "tls.key", secret, 0o600)
    _write(folder / "tls.pem", pem, 0o644)
    sync_folder(folder)
    return pem.decode("ascii")


def main(arguments: list[str] | None = None) -> int:
    """Run the relay of a coordinator's folder: ``python -m felb_sites.relay.process FOLDER``."""
    parser = argparse.ArgumentParser(prog="felb-relay", description="Run the relay of a federation.")
    parser.add_argument("folder", type=Path, help="folder of the coordinator")
    parser.add_argument("--plain", action="store_true", help="log for people, not as JSON")
    given = parser.parse_args(arguments)
    folder: Path = given.folder
    _log_lines(_PlainLines() if given.plain else _Lines())
    if os.environ.get("FELB_DIES_WITH_PARENT") == "1" and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # a local federation ends with its process
    try:
        invitation = Invitation.read(folder / "federation.json")
        settings = read_record(folder / "relay" / "relay.json", RelaySettings, advice="restore it from a backup")
        run_relay(
            folder / "relay",
            host="" if settings.listen == "all" else "127.0.0.1",
            port=settings.port,
            federation=invitation.federation,
            authority_key=invitation.authority,
            members=folder / "members.felb",
        )
    except (FelbError, OSError) as error:
        if not given.plain:
            log.error("not started", extra={"fields": {"reason": str(error)}})
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


class _Protocol(H11Protocol):
    """HTTP/1.1 of uvicorn, with a time limit for the head of each request and for somebody who does not read."""

    limits: Limits
    _timer: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._disarm()  # a request is being answered; the application limits its body
        elif self._timer is None and self.timeout_keep_alive_task is None:
            self._arm()  # a part of the next request came, which ended the time of keep-alive

    def on_response_complete(self) -> None:
        self._disarm()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(self.limits.write, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self._writing is not None:
            self._writing.cancel()
        self.on_lost()

    def on_lost(self) -> None:
        """Is replaced by whoever counts connections."""

    def _arm(self) -> None:
        self._timer = self.loop.call_later(self.limits.header, self._abort)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        self.transport.abort()


class _Server(uvicorn.Server):
    """A server whose connections are accepted by a `_Door`; signals are dealt with elsewhere."""

    def __init__(
        self, config: uvicorn.Config, listening: socket.socket, limits: Limits, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(config)
        self._listening, self._limits, self._tls = listening, limits, tls

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        del sockets
        await self.lifespan.startup()

        def make() -> _Protocol:
            made = _Protocol(self.config, self.server_state, self.lifespan.state)
            made.limits = self._limits
            return made

        self.servers = [_Door(self._listening, make, self._limits, self._tls)]  # type: ignore[list-item]
        self.started = True


class _Door:
    """Accepts connections: counts them in all and by address, and limits the time of a handshake."""

    def __init__(self, listening: socket.socket, make: Any, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self._listening, self._make, self._limits, self._tls = listening, make, limits, tls
        self._open: Counter[str] = Counter()
        self._entering: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Accept nothing more, and end handshakes."""
        for task in (self._accepting, *self._entering):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until that is done."""
        await asyncio.gather(self._accepting, *self._entering, return_exceptions=True)
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                line, address = await loop.sock_accept(self._listening)
            except OSError as error:  # no files left, or the other side is gone already
                log.warning("accept", extra={"fields": {"error": type(error).__name__}})
                await asyncio.sleep(0.1)
                continue
            who = _network(address)
            if self._open.total() >= self._limits.connections or self._open[who] >= self._limits.from_address > 0:
                line.close()
                log.warning("too many connections", extra={"fields": {"address": who}})
                continue
            self._open[who] += 1
            task = asyncio.create_task(self._enter(line, who))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _enter(self, line: socket.socket, who: str) -> None:
        protocol = self._make()
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self._open[who] -= 1
                if not self._open[who]:
                    del self._open[who]

        protocol.on_lost = leave
        line.setblocking(False)
        if line.family != socket.AF_UNIX:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else the second part of an answer waits 40 ms
        times = {"ssl_handshake_timeout": self._limits.handshake, "ssl_shutdown_timeout": 1.0} if self._tls else {}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, line, ssl=self._tls, **times)
        except OSError:  # no TLS, or not in time
            leave()
        except BaseException:
            line.close()
            leave()
            raise


def _network(address: Any) -> str:
    """Return what stands for the owner of an address: of IPv6 the first 64 bits; nothing for a Unix socket."""
    if not isinstance(address, tuple):
        return ""
    found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)


def _config(app: Any, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=limits.connections + 1,
        timeout_keep_alive=limits.idle,  # type: ignore[arg-type]
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=_HEAD,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        if host:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            found = socket.create_server((host, port), family=family, backlog=1024)
        else:
            found = _listen_everywhere(port)
    except OSError as error:
        reason = "unknown error" if error.errno is None else os.strerror(error.errno)
        raise InputError(f"port {port} cannot be used ({reason}); end who uses it, or choose another") from error
    found.setblocking(False)
    return found


def _listen_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=1024)


def _listen_unix(folder: Path) -> socket.socket:
    """Bind the coordinator's socket, for its owner only; the lock says that nobody uses an old one."""
    with contextlib.suppress(FileNotFoundError):
        (folder / SOCKET).unlink()
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _descriptor(folder) as descriptor:
            before = os.umask(0o177)
            try:
                found.bind(through(descriptor, folder))
            finally:
                os.umask(before)
        found.listen(64)
        found.setblocking(False)
    except BaseException:
        found.close()
        raise
    return found


@contextmanager
def _descriptor(folder: Path) -> Iterator[int]:
    descriptor = folder_descriptor(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _tls_context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if (folder / "tls.key").stat().st_mode & 0o077:
            raise InputError(f"{folder / 'tls.key'} can be read by others; take that right away: chmod 600")
        context.load_cert_chain(folder / "tls.pem", folder / "tls.key")
    except OSError as error:
        raise InputError(f"{folder} holds no certificate with its key (tls.pem, tls.key); restore them") from error
    return context


def _write(path: Path, data: bytes, mode: int) -> None:
    with replacing(path) as partial:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


def _allow_many_files() -> None:
    """Take as many files as the system grants: each connection is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(hard, 8192)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _log_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    del loop
    error = context.get("exception")
    fields = {"error": type(error).__name__, "message": str(context.get("message", ""))[:200]}
    log.error("loop", extra={"fields": fields})


class _Lines(logging.Formatter):
    """One JSON object a line; of an exception its kind, not its text, which might quote what was sent."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage().strip()[:200],
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line, ensure_ascii=True)


class _PlainLines(_Lines):
    """The same facts for people: the time, the event, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = json.loads(super().format(record))
        known = {name: line.pop(name) for name in ("time", "level", "event")}
        fields = "  ".join(f"{name} {value}" for name, value in line.items())
        return f"{known['time'][11:19]}  {known['event']}  {fields}".rstrip()


class _Quiet(logging.Filter):
    """Lets so many lines through a second, and says how many it dropped: strangers must not fill the disk."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._second, self._lines, self._dropped = most, 0, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > self._most:
            self._dropped += 1
            return False
        if self._dropped:
            record.fields = {**getattr(record, "fields", {}), "dropped": self._dropped}
            self._dropped = 0
        return True


def _log_lines(form: logging.Formatter) -> None:
    """Log to standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(form)
    handler.addFilter(_Quiet(_LINES_A_SECOND))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
