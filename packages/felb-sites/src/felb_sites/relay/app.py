"""What the relay answers: at its port to couriers, at its Unix socket to the coordinator.

A courier proves with its transport key who it is and gets a token for ten minutes. A token lets it fetch what waits for
its site and hand in what the vault of its site has signed; it deletes nothing. Whatever is wrong is refused with the
same bytes, and the reason is written to the log of the relay alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import hashlib
import hmac
import logging
import os
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from felb.errors import FederationError, shortened
from felb_sites.envelopes import COORDINATOR, KINDS, MOST_HEADER, MOST_PAYLOAD, Name, RunName, read_envelope
from felb_sites.keys.members import MOST_BYTES
from felb_sites.relay.store import BATCH, ConflictError, FullError, RelayStore, Run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.types import Receive, Scope, Send

    from felb_sites.envelopes import Header
    from felb_sites.keys.members import MemberList

    Handler = Callable[[Request], Awaitable[Response]]

T = TypeVar("T")
log = logging.getLogger("felb.relay")

SITE_KINDS = frozenset({"consent", "refusal", "response", "secure", "receipt"})
COORDINATOR_KINDS = frozenset({"proposal", "sums", "secure", "end"})
SESSION_TEXT = b"felb session 1"
MOST_STRANGER = 4096
"""Bytes of a body that are read from somebody who has no token."""
_DRAINED = 1 << 20
"""Bytes of a body beyond its limit that are thrown away, so that a member hears the refusal."""
_MOST_SEQ = (1 << 63) - 1
LINGER = 0.02
"""Seconds that a poll waits for the other envelopes that are wanted, once one is there."""
REFUSED = b'{"code":"refused"}'
NOT_MEMBER = b'{"code":"not-member"}'


@dataclass(frozen=True)
class Limits:
    """How much and how long the relay puts up with; times in seconds.

    Parameters
    ----------
    poll : until a poll is answered with nothing
    session, challenge : how long tokens and challenges are valid
    handshake, header, body : for a TLS handshake, for the head of a request, and for each next part of its body
    write : until somebody who does not read what he asked for is cut off
    idle : for the next request of a connection
    connections, from_address : at a time in all, and from one address (of IPv6: one /64)
    rate, burst : requests of a token a second, and at once; those of strangers are counted by address
    patience : a request that comes too soon waits so long at most, then it is refused with 429
    uploads : bodies of one member that are read at a time
    sessions : tokens of one member; the oldest one ends
    contact : since when a site that does not poll counts as connected
    """

    poll: float = 25.0
    session: float = 600.0
    challenge: float = 60.0
    handshake: float = 10.0
    header: float = 15.0
    body: float = 30.0
    write: float = 60.0
    idle: float = 60.0
    connections: int = 4096
    from_address: int = 512
    rate: float = 200.0
    burst: float = 400.0
    patience: float = 5.0
    uploads: int = 2
    sessions: int = 4
    contact: float = 10.0


class _RefusedError(Exception):
    """A request is not granted; the reason is for the log."""

    def __init__(self, reason: str, *, status: int = 403, body: bytes = REFUSED) -> None:
        super().__init__(reason)
        self.reason, self.status, self.body = reason, status, body


class _SessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    site: Name
    challenge: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    signature: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]


class _RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: Annotated[RunName, msgspec.Meta(min_length=1)]
    sites: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=1000)]
    most_bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST_PAYLOAD)]


class _ForgetRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: RunName
    before: Annotated[int, msgspec.Meta(ge=0, le=_MOST_SEQ)]
    kinds: Annotated[tuple[str, ...], msgspec.Meta(max_length=len(KINDS))] = ()


_Batch = Annotated[tuple[bytes, ...], msgspec.Meta(min_length=1, max_length=BATCH)]


class _CloseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: RunName


def session_text(federation: str, challenge: str, site: str) -> bytes:
    """Return what a transport key signs to open a session; the challenge is in hexadecimal, and signed as bytes."""
    parts = (federation.encode(), bytes.fromhex(challenge), site.encode())
    return SESSION_TEXT + b"".join(len(part).to_bytes(8, "big") + part for part in parts)


@dataclass
class _Bucket:
    """Lets so many requests through a second, and some at once."""

    rate: float
    burst: float
    left: float
    at: float

    def take(self, now: float) -> float:
        """Take one, and return after how many seconds it is due."""
        self.left = min(self.burst, self.left + (now - self.at) * self.rate) - 1
        self.at = now
        return max(0.0, -self.left / self.rate)

    def give_back(self) -> None:
        """Give back the one that was taken, as it was refused."""
        self.left += 1


@dataclass
class _Session:
    site: str
    transport: bytes
    until: float
    bucket: _Bucket


@dataclass(eq=False)
class _Poll:
    """An open poll: it is woken when something came, and ended when nobody wants its answer any more."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def end(self) -> None:
        self.ended = True
        self.event.set()


@dataclass(frozen=True)
class _Look:
    """What waits for a receiver behind a number, in one run or in all; `check` raises if it may not be told."""

    store: RelayStore
    receiver: str
    after: int
    run: str | None = None
    check: Callable[[], object] = lambda: None

    def count(self) -> int:
        self.check()
        return self.store.count(self.receiver, self.after, run=self.run)

    def read(self) -> list[tuple[int, bytes]]:
        return self.store.waiting(self.receiver, self.after, run=self.run)


class _Challenges:
    """Challenges that need no memory until a member has used them: a time, and a code under a key of this process."""

    def __init__(self, seconds: float) -> None:
        self._key, self._seconds = os.urandom(32), seconds
        self._used: OrderedDict[bytes, float] = OrderedDict()

    def make(self) -> bytes:
        text = int(time.monotonic() * 1000).to_bytes(8, "big") + os.urandom(8)
        return text + self._code(text)

    def is_valid(self, challenge: bytes) -> bool:
        if not hmac.compare_digest(self._code(challenge[:16]), challenge[16:]):
            return False
        age = time.monotonic() - int.from_bytes(challenge[:8], "big") / 1000
        return age <= self._seconds and challenge not in self._used

    def use(self, challenge: bytes) -> None:
        now = time.monotonic()
        while self._used and next(iter(self._used.values())) < now:
            self._used.popitem(last=False)
        self._used[challenge] = now + self._seconds

    def _code(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, "sha256")[:16]


class RelayApps:
    """Both faces of a relay over one store: `public` and `private` are ASGI applications.

    Parameters
    ----------
    store : what is kept
    limits : of time and number
    """

    def __init__(self, store: RelayStore, limits: Limits | None = None) -> None:
        self.store, self.limits = store, limits or Limits()
        self._challenges = _Challenges(self.limits.challenge)
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._strangers: OrderedDict[str, _Bucket] = OrderedDict()
        self._uploads: dict[str, asyncio.Semaphore] = {}
        self._contacts: dict[str, float] = {}
        self._polls: dict[str, _Poll] = {}
        self._runs_polled: dict[str, set[_Poll]] = {}
        self._unwritten: list[tuple[Header, bytes, asyncio.Future[None]]] = []
        self._stopping = False
        self.public = _App(
            {
                ("GET", "/v1/health"): self._health,
                ("GET", "/v1/challenge"): self._challenge,
                ("POST", "/v1/session"): self._session,
                ("GET", "/v1/next"): self._next,
                ("POST", "/v1/envelope"): self._take,
            },
            tells=False,
        )
        self.private = _App(
            {
                ("GET", "/v1/health"): self._health,
                ("GET", "/v1/sites"): self._sites,
                ("GET", "/v1/next"): self._next_of_run,
                ("POST", "/v1/envelopes"): self._send,
                ("POST", "/v1/members"): self._install,
                ("POST", "/v1/runs"): self._open_run,
                ("POST", "/v1/close"): self._close_run,
                ("POST", "/v1/forget"): self._forget,
            },
            tells=True,
        )

    def stop(self) -> None:
        """End all polls; new ones end at once."""
        self._stopping = True
        for poll in self._all_polls():
            poll.end()

    def install(self, data: bytes) -> None:
        """Install a member list: whoever lost his place loses his session at once."""
        before = self.store.members
        lost = set(self.store.install(data))
        if self.store.members is before:
            return
        for key in [key for key, session in self._sessions.items() if session.site in lost]:
            del self._sessions[key]
        for site in lost:
            if poll := self._polls.get(site):
                poll.end()
            self._contacts.pop(site, None)
        log.info("members", extra={"fields": {"number": self._listed().number, "ended": sorted(lost)}})
        for poll in self._polls.values():
            poll.event.set()

    # The port: couriers

    async def _health(self, request: Request) -> Response:
        del request
        told = _json({"status": "ok"})
        told.headers["date"] = email.utils.formatdate(usegmt=True)  # a site compares its clock before it starts
        return told

    async def _challenge(self, request: Request) -> Response:
        await self._slow_down_stranger(request)
        return _json({"challenge": self._challenges.make().hex(), "federation": self.store.federation})

    async def _session(self, request: Request) -> Response:
        await self._slow_down_stranger(request)
        asked = _decode(await _read(request, MOST_STRANGER, self.limits.body), _SessionRequest)
        challenge = bytes.fromhex(asked.challenge)
        if not self._challenges.is_valid(challenge):
            raise _RefusedError("challenge", status=400)  # not 403: a courier may ask for another one
        member = None if self.store.members is None else self._listed().find(asked.site)
        if member is None:
            raise _RefusedError("not a member", body=NOT_MEMBER)
        text = session_text(self.store.federation, asked.challenge, asked.site)
        if not _verifies(member.transport, bytes.fromhex(asked.signature), text):
            raise _RefusedError("transport key", body=NOT_MEMBER)
        self._challenges.use(challenge)
        now, token = time.monotonic(), secrets.token_urlsafe(32)
        mine = [key for key, session in self._sessions.items() if session.site == member.name]
        for key in mine[: max(0, len(mine) + 1 - self.limits.sessions)]:
            del self._sessions[key]
        self._sessions[_token_key(token)] = _Session(
            member.name, member.transport, now + self.limits.session, self._new_bucket(now)
        )
        self._contacts[member.name] = now
        log.info("session", extra={"fields": {"site": member.name, "address": _address(request)}})
        return _json({"token": token, "seconds": int(self.limits.session)})

    async def _next(self, request: Request) -> Response:
        session = await self._admit(request)
        after = _whole(request.query_params.get("after", "0"))
        poll, old = _Poll(), self._polls.get(session.site)
        if old is not None:
            old.end()
        self._polls[session.site] = poll

        look = _Look(self.store, session.site, after, check=lambda: self._find_session(request))
        try:
            return await self._wait(request, poll, look, self.limits.poll)
        finally:
            if self._polls.get(session.site) is poll:
                del self._polls[session.site]
            if session.site in self._contacts:
                self._contacts[session.site] = time.monotonic()

    async def _take(self, request: Request) -> Response:
        session = await self._admit(request)
        async with self._uploads.setdefault(session.site, asyncio.Semaphore(self.limits.uploads)):
            most = self.store.most_bytes(session.site) + MOST_HEADER
            data = await _read(request, most, self.limits.body, drained=_DRAINED)
            self._find_session(request)  # a member may have been removed while it sent
            header = self._check(data, session.site)
            loop = asyncio.get_running_loop()
            kept: asyncio.Future[None] = loop.create_future()
            self._unwritten.append((header, data, kept))
            if len(self._unwritten) == 1:
                loop.call_soon(self._write)
            await kept
        return Response(status_code=204)

    def _check(self, data: bytes, site: str) -> Header:
        """Return the header of an envelope that a site may send."""
        try:
            envelope = read_envelope(data)
        except FederationError as error:
            raise _RefusedError("no envelope") from error
        header, run = envelope.header, self.store.runs.get(envelope.header.run)
        if header.sender != site:
            raise _RefusedError("sender")
        if header.federation != self.store.federation:
            raise _RefusedError("federation")
        if header.kind not in SITE_KINDS:
            raise _RefusedError("kind")
        if header.receivers != (() if header.kind == "receipt" else (COORDINATOR,)):
            raise _RefusedError("receivers")
        if header.kind != "receipt" and (run is None or site not in run.sites):
            raise _RefusedError("run")
        most = 0 if header.kind == "receipt" or run is None else run.most_bytes
        if len(data) > most + MOST_HEADER:
            raise _RefusedError("size", status=413)
        key = self._listed().key_of(site)
        if key is None or not envelope.is_signed_by(key):
            raise _RefusedError("signature")
        return header

    # The Unix socket: the coordinator

    async def _install(self, request: Request) -> Response:
        self.install(await _read(request, MOST_BYTES + MOST_HEADER, self.limits.body))
        return Response(status_code=204)

    async def _open_run(self, request: Request) -> Response:
        asked = _decode(await _read(request, MOST_HEADER, self.limits.body), _RunRequest)
        known = () if self.store.members is None else [member.name for member in self._listed().members]
        unknown = sorted(set(asked.sites) - set(known))
        if unknown:
            raise FederationError(f"{unknown[0]} is not a member of the federation")
        self.store.open_run(Run(asked.run, asked.sites, asked.most_bytes))
        log.info("run opened", extra={"fields": {"run": asked.run, "sites": len(asked.sites)}})
        return Response(status_code=204)

    async def _close_run(self, request: Request) -> Response:
        asked = _decode(await _read(request, MOST_HEADER, self.limits.body), _CloseRequest)
        self.store.close_run(asked.run)
        log.info("run closed", extra={"fields": {"run": asked.run}})
        return Response(status_code=204)

    async def _forget(self, request: Request) -> Response:
        asked = _decode(await _read(request, MOST_HEADER, self.limits.body), _ForgetRequest)
        self.store.forget(asked.run, asked.before, asked.kinds)
        return Response(status_code=204)

    async def _send(self, request: Request) -> Response:
        most = max((run.most_bytes for run in self.store.runs.values()), default=0) + BATCH * MOST_HEADER
        try:
            sent = msgspec.msgpack.decode(await _read(request, most, self.limits.body, drained=_DRAINED), type=_Batch)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise FederationError("no envelopes") from error
        checked = [(self._check_own(data), data) for data in sent]
        found = self.store.put_all(checked)
        self._announce(header for (header, _), new in zip(checked, found, strict=True) if new is True)
        for wrong in found:
            if isinstance(wrong, FederationError):
                raise wrong
        return Response(status_code=204)

    def _check_own(self, data: bytes) -> Header:
        """Return the header of an envelope that the coordinator may send."""
        envelope = read_envelope(data)
        header, run = envelope.header, self.store.runs.get(envelope.header.run)
        if (header.sender, header.federation) != (COORDINATOR, self.store.federation):
            raise FederationError("an envelope that is not of this coordinator")
        if header.kind not in COORDINATOR_KINDS:
            raise FederationError(f"the coordinator sends no {header.kind}")
        if run is None:
            raise FederationError(f"run {header.run} is not open at the relay")
        if not header.receivers or not set(header.receivers) <= set(run.sites):
            raise FederationError("an envelope to sites that do not take part in its run")
        if len(data) > run.most_bytes + MOST_HEADER:
            raise _RefusedError("size", status=413)
        if self.store.members is None or not envelope.is_signed_by(self._listed().run_sign):
            raise FederationError("an envelope that the run key of the newest member list has not signed")
        gone = [name for name in header.receivers if self._listed().find(name) is None]
        if gone:
            raise FederationError(f"{gone[0]} is not a member of the federation any more")
        return header

    async def _next_of_run(self, request: Request) -> Response:
        run = request.query_params.get("run", "")
        after = _whole(request.query_params.get("after", "0"))
        try:
            seconds = min(max(0.0, float(request.query_params.get("wait", "0"))), 60.0)  # of nan: 0
        except ValueError as error:
            raise FederationError("wait must be a number of seconds") from error
        wanted = _whole(request.query_params.get("count", "1"))
        poll = _Poll()
        polls = self._runs_polled.setdefault(run, set())
        polls.add(poll)
        try:
            look = _Look(self.store, COORDINATOR, after, run)
            return await self._wait(request, poll, look, seconds, nothing=200, wanted=wanted)
        finally:
            polls.discard(poll)
            if not polls and self._runs_polled.get(run) is polls:
                del self._runs_polled[run]

    async def _sites(self, request: Request) -> Response:
        del request
        now, waiting = time.monotonic(), self.store.count_waiting()
        found = {}
        for member in () if self.store.members is None else self._listed().members:
            contact = self._contacts.get(member.name)
            seconds = None if contact is None else 0.0 if member.name in self._polls else now - contact
            found[member.name] = {
                "connected": seconds is not None and seconds <= self.limits.contact,
                "seconds": None if seconds is None else round(seconds, 3),
                "waiting": waiting.get(member.name, 0),
            }
        return _json(found)

    # Parts of both

    def _write(self) -> None:
        """Keep the envelopes that came since the last time in one transaction, and say so to those who have sent them.

        What several sites send at the same time is written to the disk once.
        """
        came, self._unwritten = self._unwritten, []
        try:
            found = self.store.put_all((header, data) for header, data, _ in came)
        except Exception as error:  # a full disk, which each of them is told
            for _, _, kept in came:
                if not kept.done():
                    kept.set_exception(error)
            return
        self._announce(header for (header, _, _), new in zip(came, found, strict=True) if new is True)
        for (_, _, kept), new in zip(came, found, strict=True):
            if kept.done():  # the sender is gone; the envelope is kept
                continue
            if isinstance(new, FederationError):
                kept.set_exception(new)
            else:
                kept.set_result(None)

    def _announce(self, headers: Iterable[Header]) -> None:
        """Wake the polls of those who receive envelopes that are new."""
        for header in headers:
            for name in header.receivers:
                if name == COORDINATOR:
                    for poll in self._runs_polled.get(header.run, ()):
                        poll.event.set()
                elif waiting := self._polls.get(name):
                    waiting.event.set()

    async def _wait(
        self,
        request: Request,
        poll: _Poll,
        look: _Look,
        seconds: float,
        *,
        nothing: int = 204,
        wanted: int = 1,
    ) -> Response:
        """Answer with what waits, as soon as there is something; if more is wanted, a moment later at most."""
        end, lingers = time.monotonic() + seconds, False
        gone: asyncio.Task[None] | None = None
        try:
            while True:
                poll.event.clear()
                waiting, now = look.count(), time.monotonic()
                if waiting and not lingers:
                    end, lingers = min(end, now + LINGER), True
                over = poll.ended or self._stopping or now >= end
                if waiting >= wanted or (waiting and over):
                    return Response(msgspec.msgpack.encode(look.read()), media_type="application/msgpack")
                if over:
                    return Response(msgspec.msgpack.encode([]) if nothing == 200 else None, nothing)
                if gone is None:
                    gone = asyncio.create_task(_until_gone(request))
                    gone.add_done_callback(lambda _: poll.end())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(end - now):
                        await poll.event.wait()
        finally:
            if gone is not None:
                gone.cancel()

    async def _admit(self, request: Request) -> _Session:
        """Return the session of a request; one that comes too soon waits."""
        session = self._find_session(request)
        self._contacts[session.site] = time.monotonic()
        await self._slow_down(session.bucket)
        return session

    def _find_session(self, request: Request) -> _Session:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        session = self._sessions.get(_token_key(token)) if scheme.lower() == "bearer" else None
        if session is None:
            raise _RefusedError("token")
        member = None if self.store.members is None else self._listed().find(session.site)
        if session.until < time.monotonic() or member is None or member.transport != session.transport:
            self._sessions.pop(_token_key(token), None)
            raise _RefusedError("token that has ended")
        return session

    async def _slow_down_stranger(self, request: Request) -> None:
        address, now = _address(request), time.monotonic()
        bucket = self._strangers.pop(address, None) or self._new_bucket(now)
        self._strangers[address] = bucket
        while len(self._strangers) > 10_000:
            self._strangers.popitem(last=False)
        await self._slow_down(bucket)

    async def _slow_down(self, bucket: _Bucket) -> None:
        seconds = bucket.take(time.monotonic())
        if seconds > self.limits.patience:
            bucket.give_back()
            raise _RefusedError("too many requests", status=429)
        if seconds:
            await asyncio.sleep(seconds)

    def _new_bucket(self, now: float) -> _Bucket:
        return _Bucket(self.limits.rate, self.limits.burst, self.limits.burst, now)

    def _listed(self) -> MemberList:
        if self.store.members is None:
            raise _RefusedError("no member list")
        return self.store.members.listed

    def _all_polls(self) -> list[_Poll]:
        return [*self._polls.values(), *(poll for polls in self._runs_polled.values() for poll in polls)]


class _App:
    """An ASGI application with exactly these routes.

    Parameters
    ----------
    routes : by method and path
    tells : whether errors say what is wrong
    """

    def __init__(self, routes: Mapping[tuple[str, str], Handler], *, tells: bool) -> None:
        self._routes, self._tells = routes, tells

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body_ended = False

        async def watch() -> Any:
            nonlocal body_ended
            message = await receive()
            body_ended = body_ended or not message.get("more_body", False)
            return message

        request = Request(scope, watch)
        response = await self._answer(request)
        if response is None:
            return
        has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
        if has_body and not body_ended:
            response.headers["connection"] = "close"  # what was not read is not wanted
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        handler = self._routes.get((request.method, request.scope["path"]))
        if handler is None:
            return _json_bytes(b'{"code":"not-found"}', 404)
        try:
            return await handler(request)
        except ClientDisconnect:
            return None
        except _RefusedError as error:
            fields = {"path": request.scope["path"], "reason": error.reason, "address": _address(request)}
            log.warning("refused", extra={"fields": fields})
            return _json_bytes(error.body if not self._tells else _said(error.reason), error.status)
        except ConflictError as error:
            log.warning("conflict", extra={"fields": {"path": request.scope["path"], "address": _address(request)}})
            return self._tell(409, "conflict", error)
        except FullError as error:
            log.error("full", extra={"fields": {"path": request.scope["path"], "reason": str(error)}})
            return self._tell(507, "full", error)
        except FederationError as error:
            return self._tell(400, "wrong", error)
        except Exception as error:
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = "" if place is None else f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
            fields = {"path": request.scope["path"], "error": type(error).__name__, "at": where}
            log.error("failed", extra={"fields": fields})
            return _json_bytes(b'{"code":"failed"}', 500)

    def _tell(self, status: int, code: str, error: FederationError) -> Response:
        return _json_bytes(_said(str(error)) if self._tells else msgspec.json.encode({"code": code}), status)


async def _read(request: Request, limit: int, seconds: float, *, drained: int = 0) -> bytes:
    """Read a body of at most so many bytes; each part must come in time, and all of it faster than 16 kB/s."""
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise _RefusedError("length")
    too_large = int(length) > limit
    if too_large and int(length) > limit + drained:
        raise _RefusedError("size", status=413)
    parts: list[bytes] = []
    size = 0
    begun = asyncio.get_running_loop().time()
    stream = request.stream()
    try:
        while True:
            async with asyncio.timeout_at(
                min(asyncio.get_running_loop().time() + seconds, begun + 2 * seconds + size / 16_384)
            ):
                part = await anext(stream, None)
            if part is None:
                break
            size += len(part)
            too_large = too_large or size > limit
            if too_large:
                parts.clear()
                if size > limit + drained:
                    break
            else:
                parts.append(part)
    except TimeoutError as error:
        raise _RefusedError("time", status=408) from error
    finally:
        await stream.aclose()
    if too_large:
        raise _RefusedError("size", status=413)
    return b"".join(parts)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _RefusedError("not understood") from error


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > _MOST_SEQ:
        raise _RefusedError("number")
    return int(text)


def _verifies(public: bytes, signature: bytes, text: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def _token_key(token: str) -> bytes:
    """Return under what a token is found, so that the time of the search says nothing about it."""
    return hashlib.sha256(token.encode()).digest()


def _address(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _said(text: str) -> bytes:
    return msgspec.json.encode({"error": shortened(text)})


def _json(content: object) -> Response:
    return _json_bytes(msgspec.json.encode(content), 200)


def _json_bytes(content: bytes, status: int) -> Response:
    return Response(content, status, media_type="application/json")
