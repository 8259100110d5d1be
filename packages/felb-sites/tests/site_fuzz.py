"""What a site and a coordinator read, as targets of fuzzing; as a program, all targets of `make fuzz`.

A relay and vaults run in this process, with their stores in memory. Mutants are of bytes, which signatures refuse, and
of headers and payloads that are then signed and sealed as a hostile coordinator or site would do it. A finding is an
exception, an answer of the relay's port that is none of a few constant ones, a traceback in a log, or growing memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import sys
from pathlib import Path

import msgspec
from loopback import FEDERATION, Loopback
from vault_parts import NAMES, exact_plan, make_shards

from felb.errors import FederationError
from felb_sites import messages
from felb_sites.carrier import Deliver, Fetch, Tell
from felb_sites.coordinator.record import RunRecord
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.courier.process import Settings
from felb_sites.envelopes import COORDINATOR, KINDS, Header, read_envelope, seal, seal_nothing, unseal
from felb_sites.keys.identity import Identity
from felb_sites.keys.members import Invitation, JoinRequest, Member, MemberList, SignedMembers
from felb_sites.relay.app import NOT_MEMBER, REFUSED, Limits, RelayApps, session_text
from felb_sites.relay.store import RelayStore, Run
from felb_sites.vault.operator import VERBS, Verbs
from felb_sites.vault.policy import SiteConfig
from felb_sites.vault.process import handle_carrier
from fuzz import run, targets
from fuzz.mutations import NUMBERS, mutate_tree, mutated
from fuzz.targets import Target

GROWTH = 1 << 26
"""Bytes by which the memory of a relay or a vault may grow: caches of SQLite, of compiled code and of a session."""
AGAIN = 100
"""Mutants after which a vault gets its first store back, since its runs have moved on or were closed by failures."""
PUBLIC = {
    *((204, b""), (403, REFUSED), (403, NOT_MEMBER), (400, REFUSED), (413, REFUSED), (404, b'{"code":"not-found"}')),
    *((409, b'{"code":"conflict"}'), (507, b'{"code":"full"}')),
}
"""What the relay's port says to whoever sends something wrong."""
WORDS = ("", "0", "-1", "nan", "1e3", "9" * 19, "9" * 30, "x", "%00", "١", "0x1", "1_0")


def mutated_record(data, rng):
    """Return MessagePack of which a byte or a node has changed."""
    if rng.random() < 0.5:
        with contextlib.suppress(msgspec.MsgspecError, OverflowError, ValueError, TypeError):
            tree = msgspec.msgpack.decode(data)
            mutate_tree(tree, rng)
            return msgspec.msgpack.encode(tree)
    return mutated([data], rng)


def mutated_header(header, rng):
    """Return a header with one or two other values of the right types."""
    other = {
        "run": lambda: rng.choice(["", "r1", "m1", "r2", "x" * 64, f"r{rng.randrange(50)}"]),
        "round": lambda: rng.choice([header.round + 1, max(0, header.round - 1), rng.choice(NUMBERS) % (1 << 41)]),
        "sender": lambda: rng.choice([COORDINATOR, *NAMES, "stranger"]),
        "receivers": lambda: rng.choice([(), NAMES, NAMES[:1], (COORDINATOR,), ("stranger",), NAMES * 300]),
        "kind": lambda: rng.choice(sorted(KINDS)),
        "number": lambda: rng.choice([header.number + 1, max(0, header.number - 1), rng.choice(NUMBERS) % (1 << 41)]),
        "receipts": lambda: rng.choice([(), (b"x" * 32,), tuple(rng.randbytes(32) for _ in range(64)), (b"",)]),
        "federation": lambda: rng.choice(["0" * 32, FEDERATION, "F" * 32]),
    }
    names = rng.sample(sorted(other), rng.choice([1, 1, 2]))
    return msgspec.structs.replace(header, **{name: other[name]() for name in names})


def is_readable(data, key):
    """Return whether bytes are an envelope that the owner of a key has signed."""
    try:
        return read_envelope(data, limit=1 << 20).is_signed_by(key)
    except FederationError:
        return False


class Watched(logging.Handler):
    """Keeps the messages of warnings that a process would not have logged of its own accord."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.said = []
        logging.getLogger("felb").addHandler(self)
        logging.getLogger("felb").setLevel(logging.CRITICAL + 1)
        for name in ("felb.relay", "felb.vault"):
            logging.getLogger(name).setLevel(logging.ERROR)

    def emit(self, record):
        if record.exc_info or record.getMessage() in ("failed", "loop"):
            self.said.append(f"{record.getMessage()} {getattr(record, 'fields', {})}")

    def check(self):
        if self.said:
            said, self.said = self.said, []
            raise AssertionError(said[0])


class HostileCoordinator:
    """Vaults in the middle of a run in the clear and of a masked one, and what was sent to them until then."""

    def __init__(self, folder):
        self.folder, self.watched, self.tried, self.sent = folder, Watched(), 0, 0
        self.loop = Loopback(folder, make_shards())
        self.seen = []
        deliver, self.loop.deliver = self.loop.deliver, self._deliver
        self._pass_on = deliver
        for plan in (exact_plan("r1"), self.loop.masked(exact_plan("m1"))):
            self.loop.propose(plan)
            transport = self.loop.transport(plan)
            transport.before = self._stop_at(2)
            with contextlib.suppress(_Stopped):
                from felb.federated.loop import play

                play(plan.algorithm(), transport, seed=plan.seed)
        self.loop.deliver = deliver
        self.next_round()
        self.by_kind, self.number = {}, 0
        for entry in self.seen:
            if entry[0].kind != "sums" or entry[0].round == 2:
                self.by_kind.setdefault(entry[0].kind, []).append(entry)
        for vault in self.loop.vaults.values():
            vault.close()
        self.loop.vaults.clear()
        self.kept = folder / "kept"
        shutil.copytree(folder / NAMES[0] / "vault", self.kept)
        self.begin_again()

    def _deliver(self, data, *, to=None):
        envelope = read_envelope(data)
        if envelope.sealed and NAMES[0] in envelope.header.receivers:
            self.seen.append((envelope.header, unseal(envelope, NAMES[0], self.loop.keys[NAMES[0]]), data))
        self._pass_on(data, to=to)

    def _stop_at(self, number):
        def stop(request):
            if request.round == number:
                raise _Stopped

        return stop

    def next_round(self):
        """Add the envelopes that were due next, with what they would hold."""
        for header, payload, _ in list(self.seen):
            if header.kind == "sums" and header.round == 1:
                later = msgspec.structs.replace(header, round=2, number=2)
                self.seen.append((later, payload, self.sealed(later, payload)))
        end = Header(FEDERATION, "r1", 0, COORDINATOR, NAMES, "end", 0)
        payload = messages.write_message(messages.End())
        self.seen.append((end, payload, self.sealed(end, payload)))

    def sealed(self, header, payload):
        keys = {NAMES[0]: self.loop.keys[NAMES[0]].seal_public}
        return seal(header, payload, self.loop.run_key, receivers=keys).to_bytes()

    def begin_again(self):
        """Give the vault the store that it had in the middle of its runs."""
        place = self.folder / NAMES[0] / "vault"
        if NAMES[0] in self.loop.vaults:
            self.loop.vaults.pop(NAMES[0]).close()
        shutil.rmtree(place)
        shutil.copytree(self.kept, place)
        self.loop.restart(NAMES[0])
        self.loop.events.clear()
        self.vault, self.sent = self.loop.vaults[NAMES[0]], 0

    def act(self, do):
        """Do something with the vault, read what it sends, and look for what it must not have done."""
        self.tried += 1
        if self.tried % AGAIN == 0:
            self.begin_again()
        do(self.vault)
        if self.tried % 8 == 0:
            for number, data in self.vault.fetch(self.sent, 0.0).envelopes:
                self.sent = number
                assert is_readable(data, self.loop.keys[NAMES[0]].sign_public), "an answer that nobody can read"
        self.watched.check()
        del self.loop.events[:-10]

    # -- what a carrier or a coordinator makes of it ---------------------------------------------------------------

    def forged(self, rng):
        """Return an envelope in which bytes have changed."""
        return mutated([data for _, _, data in self.seen], rng)

    def signed(self, rng):
        """Return an envelope of the coordinator: the next one of its kind with another content, or another header."""
        header, payload, _ = rng.choice(self.by_kind[rng.choice(sorted(self.by_kind))])
        if rng.random() < 0.3:
            return self.sealed(mutated_header(header, rng), payload)
        self.number += 1
        if header.kind == "proposal":
            said = messages.read_message(payload, messages.Proposal)
            tree = json.loads(json.dumps(said.plan))
            tree["run_id"] = f"r{self.number}"
            mutate_tree(tree, rng)
            header = msgspec.structs.replace(header, run=f"r{self.number}")
            with contextlib.suppress(OverflowError):  # numbers that MessagePack does not have
                payload = messages.write_message(messages.Proposal(tree, said.sites, said.members))
        elif header.kind == "sums":
            said = messages.read_message(payload, messages.RoundSums)
            name = rng.choice(["sums", "sums", "real"])
            changed = msgspec.structs.replace(said, **{name: mutated([getattr(said, name) or said.sums], rng)})
            payload = messages.write_message(changed)
            header = msgspec.structs.replace(header, round=2, number=2)
        elif header.kind == "secure":
            said = messages.read_message(payload, messages.SecureTrip)
            payload = messages.write_message(messages.SecureTrip(mutated_record(said.message, rng)))
            header = msgspec.structs.replace(header, number=1000 + self.number)
        if rng.random() < 0.1:
            payload = mutated_record(payload, rng)
        return self.sealed(header, payload)

    def listed(self, rng):
        """Return a member list: with changed bytes, or signed after it was changed."""
        known = self.loop.members
        if rng.random() < 0.3:
            return mutated([known.data], rng)
        number = rng.choice([0, 1, 1, rng.choice(NUMBERS) % (1 << 41)])
        payload = mutated_record(msgspec.msgpack.encode(known.listed), rng)
        header = Header(FEDERATION, "", 0, COORDINATOR, (), "members", number)
        return seal_nothing(header, payload, self.loop.authority).to_bytes()

    def framed(self, rng):
        """Return a message of a courier."""
        said = [Deliver((self.seen[0][2],)), Deliver(()), Fetch(3, 0.0), Fetch(), Tell("connected")]
        return mutated_record(msgspec.msgpack.encode(rng.choice(said)), rng)

    def asked(self, rng):
        """Return a message of an operator; no verb that would write a file where a mutant says."""
        values = {"run": "r1", "digest": "0" * 64, "by": "somebody", "verb": rng.choice(sorted(VERBS - {"backup"}))}
        keep = {"verb", *rng.sample(sorted(values), rng.randrange(len(values)))}
        return mutated([json.dumps({name: value for name, value in values.items() if name in keep}).encode()], rng)

    def targets(self):
        """Return the targets that end at the vault."""

        def deliver(data, _):
            self.act(lambda vault: vault.deliver([data]))

        def frame(data, _):
            if b"seconds" in data:  # a mutant may ask to wait
                with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                    if msgspec.msgpack.decode(data, type=dict).get("seconds"):
                        return
            self.act(lambda vault: handle_carrier(vault, data))

        def ask(data, _):
            with contextlib.suppress(ValueError, RecursionError, AttributeError):
                if json.loads(data).get("verb") == "backup":
                    return

            def handle(vault):
                answer = msgspec.json.decode(Verbs(vault).handle(data), type=dict)
                assert answer.keys() in ({"value"}, {"error"})
                if "error" in answer:
                    raise FederationError(answer["error"])

            self.act(handle)

        return {
            "envelopes at a vault": Target(self.forged, deliver, GROWTH),
            "signed envelopes": Target(self.signed, deliver, GROWTH),
            "member lists": Target(self.listed, deliver, GROWTH),
            "carrier frames": Target(self.framed, frame, GROWTH),
            "operator messages": Target(self.asked, ask, GROWTH),
        }


class _Stopped(Exception):
    pass


class HostileSite:
    """A relay with an open run, and a member that sends it what it likes."""

    def __init__(self, folder):
        self.watched = Watched()
        self.keys = {name: Identity.create() for name in NAMES}
        self.transport = {name: Identity.create() for name in NAMES}
        authority, self.run_key = Identity.create(), Identity.create()
        listed = tuple(
            Member(name, key.sign_public, key.seal_public, self.transport[name].sign_public)
            for name, key in self.keys.items()
        )
        made = MemberList(FEDERATION, 1, self.run_key.sign_public, self.run_key.seal_public, listed)
        self.members = SignedMembers.sign(made, authority)
        self.store = RelayStore(folder / "relay.sqlite", federation=FEDERATION, authority=authority.sign_public)
        self.apps = RelayApps(self.store, Limits(rate=1e12, burst=1e12, poll=0.0, sessions=1))
        self.apps.install(self.members.data)
        self.store.open_run(Run("r1", NAMES, 1 << 16))
        self.events = asyncio.new_event_loop()
        self.number, self.tried, self.seeds = 0, 0, []
        self.token = self.open()

    def call(self, app, method, path, *, query=b"", body=b"", token=None):
        """Return status and content of the answer of an app."""
        said, told = [{"type": "http.request", "body": body, "more_body": False}], []

        async def receive():
            return said.pop(0) if said else {"type": "http.disconnect"}

        async def send(message):
            told.append(message)

        headers = [(b"content-length", str(len(body)).encode())]
        headers += [] if token is None else [(b"authorization", b"Bearer " + token)]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 1),
            "scheme": "https",
            "root_path": "",
        }
        self.events.run_until_complete(app(scope, receive, send))
        self.watched.check()
        return told[0]["status"], b"".join(part.get("body", b"") for part in told[1:])

    def open(self):
        _, answer = self.call(self.apps.public, "GET", "/v1/challenge")
        challenge = json.loads(answer)["challenge"]
        signature = self.transport[NAMES[0]].sign(session_text(FEDERATION, challenge, NAMES[0])).hex()
        asked = {"site": NAMES[0], "challenge": challenge, "signature": signature}
        status, answer = self.call(self.apps.public, "POST", "/v1/session", body=json.dumps(asked).encode())
        assert status == 200
        return json.loads(answer)["token"].encode()

    def seed(self, rng):
        self.number += 1
        kind = rng.choice(["consent", "refusal", "response", "secure", "receipt"])
        receivers = () if kind == "receipt" else (COORDINATOR,)
        header = Header(FEDERATION, "" if kind == "receipt" else "r1", 0, NAMES[0], receivers, kind, self.number)
        return header, rng.randbytes(rng.choice([0, 10, 1000]))

    def forged(self, rng):
        if not self.seeds:
            self.seeds += [self.sealed(*self.seed(rng)) for _ in range(30)]
        return mutated(self.seeds, rng)

    def signed(self, rng):
        header, payload = self.seed(rng)
        return self.sealed(mutated_header(header, rng), payload)

    def sealed(self, header, payload):
        key = self.keys[NAMES[0]]
        if header.kind == "receipt":
            return seal_nothing(header, b"", key).to_bytes()
        return seal(header, payload, key, receivers={COORDINATOR: self.run_key.seal_public}).to_bytes()

    def requested(self, rng):
        """Return a request of a stranger or of a member: path, query, token and body."""
        bodies = [b"", b"{}", self.members.data, json.dumps({"site": "site-1", "challenge": "0" * 64}).encode()]
        bodies.append(json.dumps({"site": "site-1", "challenge": "0" * 64, "signature": "0" * 128}).encode())
        paths = ["/v1/next", "/v1/session", "/v1/envelope", "/v1/challenge", "/v1/health", "/v1/runs", "/", "/v1/%2e"]
        tokens = [None, self.token, mutated([self.token], rng), b"\xff\x00", b""]
        query = rng.choice([b"", *(f"after={word}".encode() for word in WORDS), b"after=1&after=2", b"\xff="])
        method = rng.choice(["GET", "POST", "POST", "PUT", "\x00"])
        return method, rng.choice(paths), query, mutated(bodies[1:], rng), rng.choice(tokens)

    def commanded(self, rng):
        """Return a request at the coordinator's socket."""
        run_ = json.dumps({"run": "r1", "sites": list(NAMES), "most_bytes": 1 << 16}).encode()
        forget = json.dumps({"run": "r1", "before": 3, "kinds": ["response"]}).encode()
        header = Header(FEDERATION, "r1", 0, COORDINATOR, NAMES, "sums", self.number)
        keys = {name: key.seal_public for name, key in self.keys.items()}
        sent = seal(mutated_header(header, rng), b"x", self.run_key, receivers=keys).to_bytes()
        batch = msgspec.msgpack.encode([sent])
        place, body = rng.choice(
            [
                *(("/v1/runs", mutated([run_], rng)), ("/v1/forget", mutated([forget], rng)), ("/v1/envelopes", batch)),
                *(("/v1/close", mutated([b'{"run": "r9"}'], rng)), ("/v1/members", mutated([self.members.data], rng))),
                ("/v1/envelopes", mutated([batch], rng)),
            ]
        )
        if rng.random() < 0.1:
            wait = rng.choice([word for word in WORDS if word not in ("1e3", "9" * 19, "9" * 30, "1_0", "١")])
            return "GET", "/v1/next", f"run=r1&after={rng.choice(WORDS)}&wait={wait}".encode(), b""
        return "POST", place, b"", body

    def targets(self):
        """Return the targets that end at the relay."""

        def post(data, _):
            self.tidy()
            answer = self.call(self.apps.public, "POST", "/v1/envelope", body=data, token=self.token)
            assert answer in PUBLIC, answer

        def ask(case, _):
            method, path, query, body, token = case
            status, answer = self.call(self.apps.public, method, path, query=query, body=body, token=token)
            assert status == 200 or (status, answer) in PUBLIC, (status, answer)

        def command(case, _):
            self.tidy()
            method, path, query, body = case
            status, answer = self.call(self.apps.private, method, path, query=query, body=body)
            assert status in (200, 204, 400, 403, 409, 413, 507), (status, answer)
            if status >= 400:
                raise FederationError(json.loads(answer)["error"])

        return {
            "envelopes at a relay": Target(self.forged, post, GROWTH),
            "signed by a site": Target(self.signed, post, GROWTH),
            "requests at the port": Target(self.requested, ask, GROWTH),
            "requests at the socket": Target(self.commanded, command, GROWTH),
        }

    def tidy(self):
        """Let the coordinator take what waits, so that quotas are not all that answers."""
        self.tried += 1
        if self.tried % AGAIN == 0:
            self.store.forget("r1", 1 << 62, ())
            for name in set(self.store.runs):
                self.store.close_run(name)
            self.store.open_run(Run("r1", NAMES, 1 << 16))


def file_targets():
    """Return the files that people send to each other or write themselves."""
    authority, vault = Identity.create(), Identity.create()
    transport = Identity.create().sign_public
    pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    invitation = Invitation("f", FEDERATION, "https://h:1", "pinned", pem, authority.sign_public.hex())
    member = Member("site-1", vault.sign_public, vault.seal_public, transport)
    request = JoinRequest(FEDERATION, member).signed(vault, old=vault)
    policy = {"min_rows": 5, "max_epsilon": 2.0, "mechanisms": ["cooccurrence"], "auto_approve": ["private"]}
    site = {"data": "d.csv", "policy": policy, "notify": "true"}
    toml = (
        'id = "r1"\ncomponents = 3\nfeatures = 20\nsites = ["a", "b", "c"]\nmethod = "bmf"\nseed = 1\n'
        '[parameters]\neffort = "fast"\n[terms]\nquorum = 2\nsecure = true\n[disclosure]\nmin_support = 5\n'
    )
    private = (
        'id = "p"\ncomponents = 2\nfeatures = 9\nsites = ["a", "b", "c"]\n[privacy]\nepsilon = 1.0\nrecords = 99\n'
    )
    courier = Settings("site-1", FEDERATION, "https://h:1", "pinned", pem, "../vault/carrier.sock")
    plan = json.dumps(exact_plan("run").to_json()).encode()
    status = json.dumps(
        {"state": "running", "round": 2, "sites": ["a"], "reasons": {"b": "late"}, "time": 1.5}
    ).encode()
    invited = msgspec.json.encode(invitation.signed(authority))
    seeds = {
        "invitations": ("i.json", invited, lambda p: Invitation.read(p / "i.json")),
        "join requests": (
            "j.json",
            msgspec.json.encode(request),
            lambda p: JoinRequest.read(p / "j.json", federation=FEDERATION).replaces(member),
        ),
        "settings of sites": ("s.json", json.dumps(site).encode(), lambda p: SiteConfig.load(p / "s.json")),
        "settings of couriers": ("courier.json", msgspec.json.encode(courier), Settings.read),
        "run.toml": ("run.toml", toml.encode(), lambda p: DeployedRun.read(p / "run.toml")),
        "plans": ("run/plan.json", plan, lambda p: RunRecord(p, "run").plan()),
        "status": ("run/status.json", status, lambda p: RunRecord(p, "run").status()),
        "private run.toml": ("run.toml", private.encode(), lambda p: DeployedRun.read(p / "run.toml")),
    }
    return {name: targets.record(file, [seed], use) for name, (file, seed, use) in seeds.items()}


@contextlib.contextmanager
def open_targets():
    """Give all targets of this package; their stores are in memory, where the system offers that."""
    with run.folder_in_memory() as folder:
        for name in ("vault", "relay"):
            (Path(folder) / name).mkdir()
        coordinator, site = HostileCoordinator(Path(folder) / "vault"), HostileSite(Path(folder) / "relay")
        try:
            yield {**coordinator.targets(), **site.targets(), **file_targets()}
        finally:
            coordinator.vault.close()
            site.store.close()
            site.events.close()


if __name__ == "__main__":
    os.fsync = lambda _: None
    with contextlib.ExitStack() as opened:
        targets.FURTHER.append(lambda: opened.enter_context(open_targets()))
        sys.exit(run.main())
