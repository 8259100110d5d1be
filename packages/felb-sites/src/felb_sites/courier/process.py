"""The courier of a site: it carries envelopes between the relay and the vault, and knows nothing of what is in them.

``python -m felb_sites.courier.process FOLDER`` reads ``courier.json`` and ``transport.key`` of its folder and nothing
else. It asks the relay for envelopes and gives them to the vault; it asks the vault for envelopes and gives them to the
relay. It writes no file, unpacks nothing and starts nothing; what it says are lines of JSON on its standard output.

Whatever fails is tried again for ever: envelopes wait at the relay until the vault acknowledges them, and in the vault
until the relay has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import importlib.util
import os
import random
import signal
import ssl
import stat
import sys
import time
import traceback
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import httpx
import msgspec

from felb.errors import FederationError, InputError
from felb_sites.carrier import MOST_AT_ONCE, Deliver, Fetch, Outgoing, Tell, ToVault
from felb_sites.keys.identity import Identity
from felb_sites.sockets import SocketClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SETTINGS, KEY = "courier.json", "transport.key"
MOST_WAITING = 1 << 26
"""Bytes of envelopes that wait for the vault, unless a single one has more."""
MOST_POLLED = (1 << 30) + (1 << 26)
"""Bytes of an answer of the relay: one envelope of any size, or several of 32 MB together."""
MOST_WORDS = 1 << 16
"""Bytes of an answer in JSON."""
POLL_SECONDS, FETCH_SECONDS, ANSWER_SECONDS = 35.0, 25.0, 60.0
"""For the relay's next envelopes, the vault's, and any other answer."""
VAULT_SECONDS = 3600.0
"""For the vault to take envelopes: it may compute meanwhile."""
MEMBER_SECONDS = 30.0
"""Between two tries of a site that is not on the list of members."""
SHORTEST, LONGEST = 0.1, 30.0
"""Seconds between two tries of anything else."""
TAKEN = frozenset({204, 409, 413})
"""Codes after which an envelope is not sent again. The vault keeps what it sent."""
_SESSION = b"felb session 1"
_TO_VAULT = msgspec.msgpack.Encoder()
_OUTGOING = msgspec.msgpack.Decoder(Outgoing)
_POLLED = msgspec.msgpack.Decoder(list[tuple[int, bytes]])
_TROUBLE = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, msgspec.MsgspecError)
"""What a network, a proxy or a relay can do to a request. `ValueError`: a proxy's or relay's answer that is none."""


if importlib.util.find_spec("sniffio") is None:
    # httpcore tries to import it several times a request, which would be a search of the whole path each time.
    sys.modules["sniffio"] = None  # type: ignore[assignment]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``courier.json`` says.

    Parameters
    ----------
    site, federation : names of the site and identifier of the federation
    url : of the relay
    trust : "pinned" (exactly the certificate), "authority" (certificates that it has signed) or "system"
    certificate : in PEM; empty for "system"
    socket : path of the vault's carrier socket, from the courier's folder
    proxy : URL; without it, HTTPS_PROXY and NO_PROXY of the environment hold
    ca : file with further authorities, as of a proxy that looks into TLS; not with "pinned"
    """

    site: str
    federation: str
    url: Annotated[str, msgspec.Meta(pattern="^https://")]
    trust: Literal["pinned", "authority", "system"]
    certificate: str
    socket: str
    proxy: str | None = None
    ca: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Read the file of a courier's folder."""
        path = folder / SETTINGS
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise InputError(f"{path} cannot be read; start the site again with `felb site start`") from error


def pin(certificate: str) -> type[ssl.SSLObject]:
    """Return connections whose other end must show this very certificate, and not one that it has signed."""
    if certificate.count("BEGIN CERTIFICATE") != 1:
        raise ValueError("a relay has one certificate")
    pinned = ssl.PEM_cert_to_DER_cert(certificate.strip())

    class PinnedSSLObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            if self.getpeercert(binary_form=True) != pinned:
                raise ssl.SSLCertVerificationError("the relay shows another certificate than the invitation")

    return PinnedSSLObject


def make_context(settings: Settings, folder: Path) -> ssl.SSLContext:
    """Return how the relay's TLS is checked; no variable of the environment has a part in it, but for "system"."""
    if settings.trust == "pinned" and settings.ca is not None:
        raise InputError("the invitation pins the relay's certificate, so that further authorities cannot count")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates and names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if settings.trust == "system":
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=settings.certificate)
        if settings.trust == "pinned":
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.sslobject_class = pin(settings.certificate)
        if settings.ca is not None:
            context.load_verify_locations(cafile=folder / settings.ca)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InputError("the certificates of courier.json cannot be read; ask for a new invitation") from error
    return context


def write_log(event: str, **fields: str | float | None) -> None:
    """Write a line: what has happened, codes and counts, and never what an envelope or an answer holds."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    sys.stdout.write(msgspec.json.encode({"time": now, "event": event, **fields}).decode() + "\n")
    sys.stdout.flush()


class Backoff:
    """How long to wait before the next try: longer each time, and not as long as others do."""

    def __init__(self) -> None:
        self._next = SHORTEST

    def reset(self) -> None:
        """Something has succeeded."""
        self._next = SHORTEST

    async def wait(self) -> None:
        """Wait; at most `LONGEST` seconds."""
        seconds, self._next = self._next, min(LONGEST, 2 * self._next)
        await asyncio.sleep(seconds * random.uniform(0.5, 1.0))


class Queue:
    """Envelopes that wait for the vault: at most 64, and 64 MB, so that a relay cannot fill the memory."""

    def __init__(self) -> None:
        self._items: deque[bytes] = deque()
        self._bytes = 0
        self._changed = asyncio.Condition()

    async def wait_for_room(self) -> None:
        """Wait until the next answer of the relay may be asked for."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._items) < MOST_AT_ONCE and self._bytes < MOST_WAITING)

    async def put(self, envelope: bytes) -> None:
        """Add an envelope as soon as there is room."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: (
                    not self._items or (len(self._items) < MOST_AT_ONCE and self._bytes + len(envelope) <= MOST_WAITING)
                )
            )
            self._items.append(envelope)
            self._bytes += len(envelope)
            self._changed.notify_all()

    async def take(self) -> tuple[bytes, ...]:
        """Return all that wait, and at least one."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._items))
            taken = tuple(self._items)
            self._empty()
            self._changed.notify_all()
            return taken

    async def clear(self) -> None:
        """Forget what waits; the relay has it still."""
        async with self._changed:
            self._empty()
            self._changed.notify_all()

    def _empty(self) -> None:
        self._items.clear()
        self._bytes = 0


class Courier:
    """Carries until it is stopped.

    Parameters
    ----------
    folder : the courier's own
    transport : carries the requests to the relay in the place of HTTPS
    """

    def __init__(self, folder: Path, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._transport = transport
        self._settings = Settings.read(folder)
        self._key = Identity.read(folder / KEY)
        self._context = make_context(self._settings, folder)
        socket = Path(os.path.normpath(folder / self._settings.socket))
        self._fetching = SocketClient(socket, seconds=FETCH_SECONDS + 30, again=False)
        self._delivering = SocketClient(socket, seconds=VAULT_SECONDS)
        self._telling = SocketClient(socket, seconds=30.0)
        self._stopped = False
        self._token = ""
        self._renew_at = 0.0
        self._after = self._rewinds = 0
        self._poll: asyncio.Task[list[tuple[int, bytes]] | None] | None = None
        self._state = ""

    async def run(self) -> None:
        """Carry until the task is cancelled."""
        self._queue, self._opening, self._news = Queue(), asyncio.Lock(), asyncio.Event()
        limits = httpx.Limits(max_connections=8, max_keepalive_connections=4, keepalive_expiry=120.0)
        async with httpx.AsyncClient(
            base_url=self._settings.url,
            verify=self._context,
            transport=self._transport,
            proxy=self._settings.proxy if self._transport is None else None,
            trust_env=self._transport is None,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=10.0),
            limits=limits,
            headers={"accept-encoding": "identity", "user-agent": "felb-courier"},
        ) as self._http:
            try:
                async with asyncio.TaskGroup() as group:
                    for loop in (self._poll_relay, self._deliver, self._send, self._tell):
                        group.create_task(loop())
            finally:
                self._stopped = True
                for client in (self._fetching, self._delivering, self._telling):
                    client.close()  # threads that wait for an answer end

    # -- The session with the relay --

    async def _session(self, *, bad: str = "") -> str:
        """Return a token that is not `bad` and will hold for some time, as soon as the relay gives one."""
        async with self._opening:
            if self._token and self._token != bad and time.monotonic() < self._renew_at:
                return self._token
            backoff = Backoff()
            while True:
                try:
                    return await self._open_session()
                except _NotMemberError:
                    self._say("not-member")
                    await asyncio.sleep(MEMBER_SECONDS * random.uniform(0.9, 1.0))
                except _TROUBLE as error:
                    self._say_trouble(error)
                    await backoff.wait()

    async def _open_session(self) -> str:
        answer = await self._request("GET", "/v1/challenge")
        challenge = msgspec.json.decode(answer.expect(200), type=_Challenge)
        if challenge.federation != self._settings.federation:
            raise ValueError("the relay of another federation")
        value = bytes.fromhex(challenge.challenge)
        if len(value) != 32:
            raise ValueError("no challenge")
        text = _SESSION
        for part in (self._settings.federation.encode(), value, self._settings.site.encode()):
            text += len(part).to_bytes(8, "big") + part
        asked = {"site": self._settings.site, "challenge": challenge.challenge, "signature": self._key.sign(text).hex()}
        answer = await self._request("POST", "/v1/session", content=msgspec.json.encode(asked))
        if answer.code == 403:
            raise _NotMemberError
        opened = msgspec.json.decode(answer.expect(200), type=_Session)
        self._token = opened.token
        self._renew_at = time.monotonic() + opened.seconds - min(60.0, opened.seconds / 4)
        self._say("connected")
        return self._token

    async def _request(
        self, method: str, path: str, *, token: str = "", content: bytes | None = None, limit: int = MOST_WORDS
    ) -> _Answer:
        """Return code and content of an answer, as it came: what a relay has compressed is not unpacked."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        if content is not None:
            headers["content-type"] = "application/octet-stream" if token else "application/json"
        timeout = httpx.Timeout(POLL_SECONDS if token and content is None else ANSWER_SECONDS, connect=10.0)
        async with self._http.stream(method, path, headers=headers, content=content, timeout=timeout) as response:
            parts, size = [], 0
            async for part in _raw(response):
                size += len(part)
                if size > limit:
                    raise ValueError("an answer that is too large")
                parts.append(part)
            return _Answer(response.status_code, b"".join(parts))

    # -- From the relay to the vault --

    async def _poll_relay(self) -> None:
        backoff, known = Backoff(), ""
        while True:
            await self._queue.wait_for_room()
            token, begun, rewinds = await self._session(), time.monotonic(), self._rewinds
            if token != known:  # with every session all comes again that the vault has not acknowledged
                known, self._after = token, 0
            self._poll = asyncio.create_task(self._next(token))
            try:
                await asyncio.wait({self._poll})
            finally:
                poll = self._poll
                poll.cancel()
            if self._rewinds != rewinds:
                continue
            error = poll.exception()
            if isinstance(error, _TROUBLE):
                self._say_trouble(error)
                await backoff.wait()
                continue
            if error is not None:
                raise error
            found = poll.result()
            if found is None:  # the relay does not know the token
                await self._session(bad=token)
                await backoff.wait()
                continue
            self._say("connected")
            if not found and time.monotonic() - begun < 1.0:  # somebody else polls for this site
                await backoff.wait()
                continue
            backoff.reset()
            for number, envelope in found:
                await self._queue.put(envelope)
                if self._rewinds != rewinds:
                    break
                self._after = number

    async def _next(self, token: str) -> list[tuple[int, bytes]] | None:
        """Return the next envelopes, perhaps none; None if the token does not hold."""
        after = self._after
        answer = await self._request("GET", f"/v1/next?after={after}", token=token, limit=MOST_POLLED)
        if answer.code in (401, 403):
            return None
        if answer.code == 204:
            return []
        found = _POLLED.decode(answer.expect(200))
        if not found or found != sorted(found, key=lambda item: item[0]) or found[0][0] <= after:
            raise ValueError("envelopes out of order")
        return found

    async def _deliver(self) -> None:
        """Give the vault all that waits, so that a site that was away has many rounds at once."""
        while True:
            envelopes = await self._queue.take()
            while envelopes:
                batch = first_batch(envelopes)
                await self._ask_for_ever(self._delivering, Deliver(batch))
                write_log("delivered", envelopes=len(batch), bytes=sum(map(len, batch)))
                envelopes = envelopes[len(batch) :]

    async def _rewind(self) -> None:
        """Ask the relay for everything again that the vault has not acknowledged."""
        self._after = 0
        self._rewinds += 1
        await self._queue.clear()
        if self._poll is not None:
            self._poll.cancel()

    # -- From the vault to the relay --

    async def _send(self) -> None:
        sent, is_new, was_there, backoff = 0, True, False, Backoff()
        while True:
            begun = time.monotonic()
            asked = Fetch(0, 0.0) if is_new else Fetch(sent, FETCH_SECONDS)  # a new vault may count anew
            try:
                raw = await asyncio.to_thread(self._fetching.ask, _TO_VAULT.encode(asked))
            except FederationError:
                if not is_new:
                    write_log("vault-away", verb="fetch")
                is_new = True
                await backoff.wait()
                continue
            backoff.reset()
            if is_new and was_there:  # it may have lost what it was about to do
                write_log("vault-back")
                await self._rewind()
                self._news.set()
            was_new, is_new, was_there = is_new, False, True
            try:
                found = _OUTGOING.decode(raw).envelopes
            except (msgspec.MsgspecError, ValueError):
                write_log("vault-malformed")
                await asyncio.sleep(1.0)
                continue
            for number, envelope in found:
                await self._post(envelope)
                sent = number
            if not found and not was_new and time.monotonic() - begun < 0.5:
                await asyncio.sleep(0.5)

    async def _post(self, envelope: bytes) -> None:
        """Send an envelope until the relay has said what it thinks of it."""
        backoff, refused = Backoff(), False
        while True:
            token = await self._session()
            try:
                answer = await self._request("POST", "/v1/envelope", token=token, content=envelope)
            except _TROUBLE as error:
                self._say_trouble(error)
                await backoff.wait()
                continue
            if answer.code in TAKEN or (answer.code == 403 and refused):
                write_log("sent", code=answer.code, bytes=len(envelope))
                return
            if answer.code in (401, 403):  # the token may be of a relay that was started again
                refused = answer.code == 403
                await self._session(bad=token)
                if refused:
                    continue
            else:
                write_log("not-sent", code=answer.code, bytes=len(envelope))
            await backoff.wait()

    # -- The vault --

    async def _ask_for_ever(self, client: SocketClient, message: ToVault) -> bytes:
        backoff, raw, away = Backoff(), _TO_VAULT.encode(message), False
        while True:
            try:
                return await asyncio.to_thread(client.ask, raw)
            except FederationError:
                if self._stopped:
                    raise
                if not away:
                    write_log("vault-away", verb=type(message).__name__.lower())
                away = True
            await backoff.wait()

    def _say(self, state: str, **fields: str) -> None:
        """Log how the connection is, and tell the vault, if it has changed."""
        if state != self._state:
            write_log(state, **fields)
            self._state = state
            self._news.set()

    def _say_trouble(self, error: BaseException) -> None:
        self._say("certificate" if _is_certificate(error) else "unreachable", error=type(error).__name__)

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if self._state:
                await self._ask_for_ever(self._telling, Tell(self._state))


class _NotMemberError(Exception):
    """The relay does not know the site, or not by this key."""


class _Challenge(msgspec.Struct, frozen=True):
    challenge: str
    federation: str


class _Session(msgspec.Struct, frozen=True):
    token: Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,512}$")]
    seconds: Annotated[float, msgspec.Meta(gt=0)]


class _Answer(msgspec.Struct, frozen=True):
    code: int
    content: bytes

    def expect(self, code: int) -> bytes:
        """Return the content, if the code is the one that it should be."""
        if self.code != code:
            raise ValueError(f"code {self.code}")
        return self.content


async def _raw(response: httpx.Response) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(response.aiter_raw()) as parts:  # type: ignore[type-var]
        async for part in parts:
            yield part


def first_batch(envelopes: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return as many of the first envelopes as fit into a message, and at least one."""
    size, count = 0, 0
    for envelope in envelopes[:MOST_AT_ONCE]:
        size += len(envelope)
        if count and size > MOST_WAITING:
            break
        count += 1
    return envelopes[:count]


def _is_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def die_with_parent() -> None:
    """Let the kernel end this process together with the one that has started it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def give_up_rights() -> None:
    """Let the kernel refuse what a courier never does: more rights by a program, dumps of memory, growing files."""
    if sys.platform == "linux":
        import ctypes
        import resource

        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not any(stat.S_ISREG(os.fstat(out).st_mode) for out in (1, 2)):
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


async def carry(folder: Path) -> None:
    """Carry until SIGTERM or SIGINT."""
    task = asyncio.create_task(Courier(folder).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    write_log("stopped")


def main() -> None:
    """Run the courier of a folder."""
    if len(sys.argv) != 2:
        raise SystemExit("give the courier's folder")
    if os.environ.get("FELB_DIES_WITH_PARENT") == "1":
        die_with_parent()
    give_up_rights()
    try:
        asyncio.run(carry(Path(sys.argv[1])))
    except InputError as error:
        write_log("error", text=str(error))
        raise SystemExit(1) from error
    except Exception as error:  # its text and a traceback could repeat what the relay or the vault has said
        inner: BaseException = error
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        at = traceback.extract_tb(inner.__traceback__)[-1]
        write_log("failed", error=type(inner).__name__, file=Path(at.filename).name, line=at.lineno)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
