"""A relay that is played over TLS and a vault that is played at a socket, for tests of the courier between them."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time

import msgspec
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from felb_sites.carrier import Deliver, Fetch, Outgoing, Tell, ToVault
from felb_sites.keys.identity import Identity
from felb_sites.sockets import SocketServer

FEDERATION = "f" * 32


def wait_for(is_true, seconds=20.0):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def make_certificate(folder, name="tls", *, signed_by=None):
    """Make a certificate; `signed_by` is the name of an authority that is made with it, and whose PEM is returned."""
    authority = None if signed_by is None else ec.generate_private_key(ec.SECP256R1())
    if authority is not None:
        above = build(authority.public_key(), signed_by, signed_by, authority, is_authority=True)
    key = ec.generate_private_key(ec.SECP256R1())
    made = build(key.public_key(), "relay", signed_by or "relay", authority or key)
    pem = made.public_bytes(serialization.Encoding.PEM)
    (folder / f"{name}.pem").write_bytes(pem)
    raw = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *raw))
    return (made if authority is None else above).public_bytes(serialization.Encoding.PEM).decode()


def build(public, subject, issuer, key, *, is_authority=False):
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    subject, issuer = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, n)]) for n in (subject, issuer))
    made = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=2))
    made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if is_authority:
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return made.sign(key, hashes.SHA256())


class Relay:
    """Plays the relay: what it keeps outlives a restart, its tokens do not."""

    def __init__(self, folder, public):
        self.folder, self.public = folder, public
        self.kept, self.posted, self.polls, self.codes = [], [], [], []
        self.is_member, self.sessions = True, 0
        self.tokens, self.challenges = set(), set()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.server = None

    def start(self):
        routes = [
            Route("/v1/challenge", self.challenge),
            Route("/v1/session", self.session, methods=["POST"]),
            Route("/v1/next", self.next),
            Route("/v1/envelope", self.envelope, methods=["POST"]),
        ]
        self.tokens.clear()
        tls = {"ssl_keyfile": self.folder / "tls.key", "ssl_certfile": self.folder / "tls.pem"}
        more = {"log_level": "critical", "timeout_graceful_shutdown": 1, "lifespan": "off", "ws": "none"}
        self.server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=self.port, **tls, **more))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        wait_for(lambda: self.server.started)

    def stop(self):
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(10)

    async def challenge(self, _):
        value = secrets.token_hex(32)
        self.challenges.add(value)
        return JSONResponse({"challenge": value, "federation": FEDERATION})

    async def session(self, request):
        said = await request.json()
        self.challenges.remove(said["challenge"])
        parts = FEDERATION.encode(), bytes.fromhex(said["challenge"]), said["site"].encode()
        text = b"felb session 1" + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        Ed25519PublicKey.from_public_bytes(self.public).verify(bytes.fromhex(said["signature"]), text)
        if not self.is_member:
            return JSONResponse({"code": "not-member"}, 403)
        token = secrets.token_hex(16)
        self.tokens.add(token)
        self.sessions += 1
        return JSONResponse({"token": token, "seconds": 600})

    def knows(self, request):
        return request.headers.get("authorization", "").removeprefix("Bearer ") in self.tokens

    async def next(self, request):
        after = int(request.query_params["after"])
        if not self.knows(request):
            return Response(status_code=403)
        self.polls.append(after)
        for _ in range(40):
            found = [(seq, data) for seq, data in self.kept if seq > after][:64]
            if found:
                return Response(msgspec.msgpack.encode(found))
            await asyncio.sleep(0.05)
            if not self.knows(request):
                return Response(status_code=403)
        return Response(status_code=204)

    async def envelope(self, request):
        if not self.knows(request):
            return Response(status_code=403)
        data = await request.body()
        code = self.codes.pop(0) if self.codes else 204
        self.posted.append((code, data))
        return Response(status_code=code)


class Vault:
    """Plays the vault."""

    def __init__(self, path):
        self.path, self.delivered, self.told, self.outgoing = path, [], [], []
        self.server = None

    def start(self):
        self.server = SocketServer(self.path, self.handle, limit=1 << 28)
        self.server.start()

    def stop(self):
        self.server.stop()

    def handle(self, message):
        said = msgspec.msgpack.decode(message, type=ToVault)
        match said:
            case Deliver():
                self.delivered.append(said.envelopes)
            case Tell():
                self.told.append(said.state)
            case Fetch():
                server, end = self.server, time.monotonic() + said.seconds
                while time.monotonic() < end and server is self.server and not server._stopped.is_set():
                    found = [(number, data) for number, data in self.outgoing if number > said.sent]
                    if found:
                        return msgspec.msgpack.encode(Outgoing(tuple(found[:64])))
                    time.sleep(0.02)
                return msgspec.msgpack.encode(Outgoing())
        return b""

    @property
    def got(self):
        return [envelope for batch in self.delivered for envelope in batch]


class World:
    def __init__(self, folder):
        self.folder = folder
        self.courier = folder / "courier"
        self.courier.mkdir()
        (folder / "vault").mkdir()
        key = Identity.create()
        key.write(self.courier / "transport.key")
        self.certificate = make_certificate(folder)
        self.relay = Relay(folder, key.sign_public)
        self.vault = Vault(folder / "vault" / "carrier.sock")
        self.process = None
        self.write()

    def write(self, **more):
        settings = {
            "site": "berlin",
            "federation": FEDERATION,
            "url": f"https://127.0.0.1:{self.relay.port}",
            "trust": "pinned",
            "certificate": self.certificate,
            "socket": "../vault/carrier.sock",
            **more,
        }
        (self.courier / "courier.json").write_text(json.dumps(settings))

    def carry(self, *before, **environment):
        command = [sys.executable, "-P", "-B", *(before or ("-m", "felb_sites.courier.process")), str(self.courier)]
        clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**clean, **environment}
        )
        self.lines = []
        threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True).start()

    def events(self):
        return [json.loads(line)["event"] for line in list(self.lines)]

    def stop(self):
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        if self.relay.server is not None:
            self.relay.stop()
        if self.vault.server is not None:
            self.vault.stop()


AUDITED = """
import os, runpy, sys
BAD = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn",
       "pickle.find_class",
       "shutil.", "os.remove", "os.rename", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
       "tempfile.")
def hook(event, arguments):
    written = False
    if event == "open":
        path, mode, flags = arguments
        written = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)) if flags else False
        written = written or (isinstance(mode, str) and any(letter in mode for letter in "wax+"))
    if written or event.startswith(BAD):
        os.write(1, b'{"event": "AUDIT %s"}\\n' % event.encode())
        os._exit(99)
sys.addaudithook(hook)
sys.argv = ["courier", *sys.argv[1:]]
runpy.run_module("felb_sites.courier.process", run_name="__main__", alter_sys=True)
"""
