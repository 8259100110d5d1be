"""The relay over loopback TLS: who may enter, what is refused, and what it survives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import msgspec
import pytest
from test_relay_store import FEDERATION, Parties

from felb.errors import FederationError, InputError
from felb_sites.envelopes import COORDINATOR, digest
from felb_sites.keys.identity import Identity
from felb_sites.keys.members import Invitation
from felb_sites.relay.app import REFUSED, Limits, session_text
from felb_sites.relay.client import RelayClient
from felb_sites.relay.process import Relay, create_certificate, main

QUICK = Limits(poll=0.3, body=1.0)


class Running:
    """A relay in a thread."""

    def __init__(self, folder, parties, limits):
        self.folder, self.parties = folder, parties
        if not (folder / "tls.pem").exists():
            create_certificate(folder, "127.0.0.1")
        self._limits, self._started = limits, threading.Event()
        self._couriers = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(20)
        self.coordinator = RelayClient(folder / "relay.sock")
        self.url = f"https://127.0.0.1:{self.relay.port}"

    async def _serve(self):
        authority = self.parties.authority.sign_public
        self.relay = Relay(self.folder, federation=FEDERATION, authority=authority, limits=self._limits)
        self.loop, event = asyncio.get_running_loop(), asyncio.Event()
        task = asyncio.create_task(self.relay.serve("127.0.0.1", 0, started=event))
        await event.wait()
        self._started.set()
        await task

    def stop(self):
        self.coordinator.close()
        for courier in self._couriers:
            courier.http.close()
        self.loop.call_soon_threadsafe(self.relay.stop)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def courier(self, site, key=None):
        self._couriers.append(Courier(self.url, self.folder, site, key or self.parties.couriers[site]))
        return self._couriers[-1]


class Courier:
    """What a courier does, step by step."""

    def __init__(self, url, folder, site, key):
        tls = ssl.create_default_context(cafile=folder / "tls.pem")
        self.http = httpx.Client(base_url=url, verify=tls, trust_env=False, timeout=20)
        self.site, self.key, self.token = site, key, ""

    def ask_session(self, *, challenge=None, site=None):
        challenge = challenge or self.http.get("/v1/challenge").json()["challenge"]
        signature = self.key.sign(session_text(FEDERATION, challenge, self.site)).hex()
        asked = {"site": site or self.site, "challenge": challenge, "signature": signature}
        return self.http.post("/v1/session", json=asked)

    def enter(self):
        self.token = self.ask_session().json()["token"]
        return self

    @property
    def headers(self):
        return {"authorization": f"Bearer {self.token}"}

    def post(self, data):
        return self.http.post("/v1/envelope", content=data, headers=self.headers)

    def next(self, after=0):
        return self.http.get("/v1/next", params={"after": after}, headers=self.headers)

    def fetch(self, after=0):
        answer = self.next(after)
        return [] if answer.status_code == 204 else [data for _, data in msgspec.msgpack.decode(answer.content)]


@contextmanager
def running(folder, parties, limits=QUICK):
    made = Running(folder, parties, limits)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def parties():
    return Parties()


@pytest.fixture
def relay(tmp_path, parties):
    with running(tmp_path / "relay", parties) as made:
        made.coordinator.put_members(parties.members())
        made.coordinator.open_run("r", ["a", "b"], 1000)
        yield made


@pytest.fixture
def courier(relay):
    return relay.courier("a").enter()


def test_an_envelope_goes_there_and_an_answer_back(relay, courier, parties):
    question, answer = parties.from_coordinator(to="ab"), parties.from_site("a")
    relay.coordinator.post(question)
    assert courier.fetch() == [parties.members(), question]
    assert courier.post(answer).status_code == 204
    assert courier.post(answer).status_code == 204
    assert [data for _, data in relay.coordinator.next("r", 0, 5)] == [answer]
    assert courier.post(parties.from_site("a", payload=b"other")).status_code == 409
    assert courier.fetch() == [parties.members(), question]  # a poll acknowledges nothing
    receipts = [digest(parties.members()), digest(question)]
    assert courier.post(parties.from_site(kind="receipt", receipts=receipts)).status_code == 204
    assert courier.fetch() == []
    (seq, _), *_ = relay.coordinator.next("r", 0, 0)
    relay.coordinator.forget("r", seq + 1, ["response"])
    assert relay.coordinator.next("r", 0, 0) == []


def test_a_stolen_token_deletes_nothing(relay, courier, parties):
    data = parties.from_coordinator(to="a")
    relay.coordinator.post(data)
    thief = Identity.create()
    forged = parties.from_site(kind="receipt", receipts=[digest(data)], signer=thief)
    assert courier.post(forged).status_code == 403
    courier.next(10**6)
    assert data in courier.fetch()


@pytest.mark.parametrize(
    "changed",
    [
        {"signer": Identity.create()},
        {"name": "b"},
        {"federation": "f" * 32},
        {"kind": "proposal"},
        {"kind": "members"},
        {"run": "closed"},
        {"receivers": ("b",)},
        {"receivers": ()},
        {"kind": "receipt", "receivers": (COORDINATOR,)},
    ],
    ids=lambda changed: "-".join(map(str, changed)),
)
def test_whatever_is_wrong_is_refused_with_the_same_bytes(relay, courier, parties, changed):
    answer = courier.post(parties.from_site(**changed))
    assert (answer.status_code, answer.content) == (403, REFUSED)
    assert relay.coordinator.next("r", 0, 0) == []


def test_bytes_that_are_no_envelope_and_tokens_that_are_none_are_refused_alike(relay, courier, parties):
    for data in (b"", b"\x93", b"x" * 500):
        assert (courier.post(data).status_code, courier.post(data).content) == (403, REFUSED)
    assert courier.next("-1").content == courier.next(10**30).content == REFUSED
    courier.token = "x"
    assert courier.post(parties.from_site()).content == courier.next().content == REFUSED


def test_a_receipt_of_a_run_that_is_over_is_taken(relay, courier, parties):
    relay.coordinator.close_run("r")
    assert courier.post(parties.from_site(kind="receipt")).status_code == 204
    assert courier.post(parties.from_site(kind="consent")).status_code == 403


def test_only_the_transport_key_opens_a_session_and_a_challenge_works_once(relay, courier, parties):
    challenge = courier.http.get("/v1/challenge").json()["challenge"]
    assert courier.ask_session(challenge=challenge).status_code == 200
    assert courier.ask_session(challenge=challenge).content == REFUSED
    assert courier.ask_session(challenge="0" * 64).content == REFUSED
    answers = [
        relay.courier("a", parties.sites["a"]).ask_session(),
        relay.courier("x", Identity.create()).ask_session(),
    ]
    answers.append(courier.ask_session(site="b"))
    assert {(answer.status_code, answer.content) for answer in answers} == {(403, b'{"code":"not-member"}')}


def test_a_challenge_and_a_token_end(tmp_path, parties):
    with running(tmp_path, parties, Limits(challenge=0.2, session=0.5, poll=0.1)) as relay:
        relay.coordinator.put_members(parties.members())
        courier = relay.courier("a").enter()
        assert courier.next().status_code == 200
        challenge = courier.http.get("/v1/challenge").json()["challenge"]
        time.sleep(0.6)
        assert courier.next().content == REFUSED
        assert courier.ask_session(challenge=challenge).content == REFUSED


def test_a_member_that_is_removed_or_has_a_new_key_loses_its_session_at_once(relay, courier, parties):
    other = relay.courier("b").enter()
    relay.coordinator.put_members(parties.members(2, "b"))
    assert courier.next().content == courier.post(parties.from_site()).content == REFUSED
    assert other.fetch() == [parties.members(2, "b")]
    assert courier.ask_session().json() == {"code": "not-member"}
    old = parties.couriers["b"]
    parties.couriers["b"] = Identity.create()
    try:
        relay.coordinator.put_members(parties.members(3))
        assert other.next().content == REFUSED
        assert relay.courier("b").ask_session().status_code == 200
        assert relay.courier("b", old).ask_session().status_code == 403
    finally:
        parties.couriers["b"] = old
    with pytest.raises(FederationError, match="only a newer one"):
        relay.coordinator.put_members(parties.members(2))


def test_an_open_poll_of_a_removed_member_ends(tmp_path, parties):
    with running(tmp_path, parties, Limits(poll=20)) as relay:
        relay.coordinator.put_members(parties.members())
        courier = relay.courier("a").enter()
        with in_thread(lambda: courier.next(10**6)) as answer:
            wait_until(lambda: relay.coordinator.sites()["a"]["seconds"] == 0)
            relay.coordinator.put_members(parties.members(2, "bc"))
        assert answer[0].content == REFUSED


def test_bodies_are_limited(relay, courier, parties):
    assert courier.post(parties.from_site(payload=bytes(70_000))).status_code == 413
    assert courier.post(bytes(66_537)).status_code == 413
    assert courier.post(bytes(66_536)).status_code == 403
    stranger = relay.courier("a")
    assert stranger.http.post("/v1/session", content=bytes(5000)).status_code == 413
    chunks = (bytes(1000) for _ in range(6))
    assert stranger.http.post("/v1/session", content=chunks).status_code == 413
    assert courier.next().status_code == 200


def test_the_body_of_a_stranger_is_not_read(relay):
    with tls_line(relay) as line:
        line.sendall(b"POST /v1/envelope HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n")
        head = line.recv(4096)
        assert head.startswith(b"HTTP/1.1 403")
        assert b"connection: close" in head.lower()


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/v1/health/"), ("HEAD", "/v1/health"), ("POST", "/v1/next"), ("GET", "/v1/sites")]
    + [("POST", f"/v1/{name}") for name in ("members", "runs", "forget", "close")],
)
def test_everything_else_is_not_found(relay, courier, method, path):
    assert courier.http.request(method, path, headers=courier.headers).status_code == 404
    assert courier.http.get("/v1/health").json() == {"status": "ok"}


def test_a_poll_waits_for_what_comes_and_ends_without(tmp_path, parties):
    with running(tmp_path, parties, Limits(poll=1)) as relay:
        relay.coordinator.put_members(parties.members())
        relay.coordinator.open_run("r", ["a"], 1000)
        courier = relay.courier("a").enter()
        last = msgspec.msgpack.decode(courier.next().content)[-1][0]
        assert courier.next(last).status_code == 204
        data = parties.from_coordinator(to="a")
        with in_thread(lambda: courier.fetch(last)) as got:
            wait_until(lambda: relay.coordinator.sites()["a"]["seconds"] == 0)
            relay.coordinator.post(data)
        assert got == [[data]]
        with in_thread(lambda: relay.coordinator.next("r", 0, 20)) as got:
            courier.post(parties.from_site())
        assert len(got[0]) == 1


def test_a_second_poll_ends_the_first(tmp_path, parties):
    with running(tmp_path, parties, Limits(poll=20)) as relay:
        relay.coordinator.put_members(parties.members())
        first, second = relay.courier("a").enter(), relay.courier("a").enter()
        with in_thread(lambda: first.next(10**6)) as answer:
            wait_until(lambda: relay.coordinator.sites()["a"]["seconds"] == 0)
            assert second.next().status_code == 200
        assert answer[0].status_code == 204


def test_a_poll_whose_courier_is_gone_ends(tmp_path, parties):
    with running(tmp_path, parties, Limits(poll=20)) as relay:
        relay.coordinator.put_members(parties.members())
        courier = relay.courier("a").enter()
        with tls_line(relay) as line:
            ask = f"GET /v1/next?after=1000 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {courier.token}\r\n\r\n"
            line.sendall(ask.encode())
            wait_until(lambda: "a" in relay.relay.apps._polls)
        wait_until(lambda: "a" not in relay.relay.apps._polls)


def test_sites_are_shown(relay, courier, parties):
    relay.coordinator.post(parties.from_coordinator(to="b"))
    found = relay.coordinator.sites()
    assert found["a"]["connected"]
    assert found["a"]["seconds"] < 40
    assert found["b"] == {"connected": False, "seconds": None, "waiting": 2}


def test_the_coordinator_hears_what_is_wrong(relay, parties):
    coordinator = relay.coordinator
    with pytest.raises(FederationError, match="x is not a member"):
        coordinator.open_run("q", ["x"], 10)
    with pytest.raises(FederationError, match="run q is not open"):
        coordinator.post(parties.from_coordinator(run="q"))
    with pytest.raises(FederationError, match="do not take part"):
        coordinator.post(parties.from_coordinator(to="c"))
    with pytest.raises(FederationError, match="not of this coordinator"):
        coordinator.post(parties.from_site())
    with pytest.raises(FederationError, match="has not signed"):
        coordinator.put_members(Parties().members(9))
    with pytest.raises(FederationError, match="no envelope"):
        coordinator.post(b"x")


def test_too_much_that_waits_is_refused(relay, courier, parties):
    relay.loop.call_soon_threadsafe(setattr, relay.relay.store, "most_waiting", 2)
    codes = [courier.post(parties.from_site(number=number)).status_code for number in range(3)]
    assert codes == [204, 204, 507]


def test_requests_of_a_token_are_slowed_down_and_then_refused(tmp_path, parties):
    with running(tmp_path, parties, Limits(rate=10, burst=3, patience=0.25)) as relay:
        relay.coordinator.put_members(parties.members())
        courier = relay.courier("a").enter()
        begun = time.monotonic()
        assert [courier.next().status_code for _ in range(6)] == [200] * 6
        assert time.monotonic() - begun > 0.2
        relay.relay.apps.limits.__dict__["patience"] = 0
        assert 429 in [courier.next().status_code for _ in range(5)]


def test_half_open_connections_are_closed_and_a_request_gets_through(tmp_path, parties):
    limits = Limits(handshake=1.0, header=1.0, idle=1.0, from_address=200)
    with running(tmp_path, parties, limits) as relay:
        relay.coordinator.put_members(parties.members())
        address = ("127.0.0.1", relay.relay.port)
        raw = [socket.create_connection(address) for _ in range(50)]  # no handshake
        shaken = [open_tls(relay) for _ in range(50)]  # no request
        for line in shaken[:25]:
            line.sendall(b"GET /v1/hea")  # half of one
        for line in shaken[25:30]:  # half of a second one
            line.sendall(b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n")
            assert line.recv(4096).startswith(b"HTTP/1.1 200")
            line.sendall(b"GET")
        assert relay.courier("a").enter().next().status_code == 200
        for line in (*raw, *shaken):
            line.settimeout(10)
            assert is_closed(line)
            line.close()
        assert relay.courier("a").http.get("/v1/health").status_code == 200
        wait_until(lambda: relay.relay._servers[0].servers[0]._open.total() <= 2)


def test_connections_from_one_address_are_limited(tmp_path, parties):
    with running(tmp_path, parties, Limits(from_address=3, handshake=1.0)) as relay:
        address = ("127.0.0.1", relay.relay.port)
        lines = [socket.create_connection(address) for _ in range(4)]
        lines[-1].settimeout(10)
        assert is_closed(lines[-1])
        for line in lines:
            line.close()
        assert relay.coordinator.is_alive()

        wait_until(lambda: relay.relay._servers[0].servers[0]._open.total() == 0)
        assert relay.courier("a").http.get("/v1/health").status_code == 200


def test_a_body_that_does_not_come_is_given_up(relay, courier):
    with tls_line(relay) as line:
        ask = f"POST /v1/envelope HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {courier.token}\r\n"
        line.sendall(ask.encode() + b"content-length: 100\r\n\r\nabc")
        assert line.recv(4096).startswith(b"HTTP/1.1 408")


def test_a_second_start_is_refused_and_a_relay_that_does_not_run_is_told(tmp_path, parties):
    with (
        running(tmp_path, parties) as relay,
        pytest.raises(InputError, match="the relay of this federation runs already"),
    ):
        Relay(relay.folder, federation=FEDERATION, authority=parties.authority.sign_public)
    with RelayClient(tmp_path / "relay.sock") as client:
        assert not client.is_alive()
        with pytest.raises(FederationError, match="the relay does not run; start it with"):
            client.sites()


@pytest.fixture
def folder(tmp_path, parties):
    """A coordinator's folder with a long path, a space and an umlaut."""
    made = tmp_path / ("Köln und " + "l" * 120)
    (made / "relay").mkdir(parents=True)
    pem = create_certificate(made / "relay", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (made / "relay" / "relay.json").write_text(json.dumps({"listen": "loopback", "port": port}))
    key = parties.authority.sign_public.hex()
    invitation = Invitation("f", FEDERATION, f"https://127.0.0.1:{port}", "pinned", pem, key)
    invitation.signed(parties.authority).write(made / "federation.json")
    (made / "members.felb").write_bytes(parties.members())
    return made


@contextmanager
def process(folder):
    command = [sys.executable, "-m", "felb_sites.relay.process", str(folder)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        with RelayClient(folder / "relay" / "relay.sock") as client:
            wait_until(client.is_alive)
            yield started, client
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


def test_a_process_is_killed_and_ended_and_loses_nothing(folder, parties, capsys):
    data = parties.from_coordinator(to="a")
    with process(folder) as (started, client):
        assert main([str(folder)]) == 1
        assert "the relay of this federation runs already" in capsys.readouterr().err
        assert (folder / "relay" / "relay.sock").stat().st_mode & 0o777 == 0o600
        client.open_run("r", ["a"], 1000)
        client.post(data)
        started.kill()
    with process(folder) as (started, client):
        client.post(data)
        url = Invitation.read(folder / "federation.json").url
        courier = Courier(url, folder / "relay", "a", parties.couriers["a"]).enter()
        assert courier.fetch() == [parties.members(), data]
        with in_thread(lambda: courier.next(10**6)) as answer:
            wait_until(lambda: client.sites()["a"]["seconds"] == 0)
            started.send_signal(signal.SIGTERM)
        assert answer[0].status_code == 204  # the poll was answered, not cut
        assert started.wait(15) == 0
        lines = [json.loads(line) for line in started.stdout.read().splitlines()]
        assert {line["event"] for line in lines} >= {"started", "session", "stopped"}
        assert all({"time", "level", "event"} <= set(line) for line in lines)
        courier.http.close()
    assert not (folder / "relay" / "relay.sock").exists()


def test_a_certificate_is_for_its_host_and_its_key_for_its_owner(tmp_path):
    for host in ("relay.example.org", "192.0.2.1", "::1"):
        pem = create_certificate(tmp_path, host)
        assert (tmp_path / "tls.pem").read_text() == pem
        assert (tmp_path / "tls.key").stat().st_mode & 0o777 == 0o600
        shown = ssl._ssl._test_decode_cert(str(tmp_path / "tls.pem"))  # as ssl itself reads it
        assert shown["subjectAltName"][0][1].lower().replace("0:0:0:0:0:0:0:1", "::1") == host
    os.chmod(tmp_path / "tls.key", 0o644)  # noqa: PTH101
    with pytest.raises(InputError, match="can be read by others"):
        Relay(tmp_path, federation=FEDERATION, authority=bytes(32))


@contextmanager
def in_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    try:
        yield found
    finally:
        thread.join(30)
    assert found


def wait_until(fact, seconds=20):
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.01)


def open_tls(relay):
    context = ssl.create_default_context(cafile=relay.folder / "tls.pem")
    plain = socket.create_connection(("127.0.0.1", relay.relay.port), timeout=20)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


@contextmanager
def tls_line(relay):
    line = open_tls(relay)
    try:
        yield line
    finally:
        line.close()


def is_closed(line):
    try:
        while line.recv(4096):
            pass
    except (ConnectionError, ssl.SSLError):
        pass
    except TimeoutError:
        return False
    return True
