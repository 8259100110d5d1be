"""Kill every process of a federation, and lose, delay, double and reorder its envelopes: nothing else may change.

A relay, three vaults and three couriers run as processes over TLS, and `felb run` is a process as well. Runs in the
clear, masked and private ones are played in turn. While a run is played, processes of one kind are killed by SIGKILL at
random moments and started again; or a proxy between couriers and relay disturbs envelopes. Afterwards

- the components are those of an undisturbed run (of a private run: those that its noise gives, so only their shape);
- the outbound log of every site has the lines of the undisturbed run, and its chain holds;
- the charge of the run is the undisturbed one.

    python benchmarks/federation_faults.py               100 kills of each kind and 1,000 faults; writes the page
    python benchmarks/federation_faults.py --seconds 300 as far as that; the next call goes on

Counts are kept in measured/federation_faults.json after every run.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import numpy as np
import scipy.sparse as sp
import uvicorn
from common import facts, make_parser, write_page
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from felb.data import partition, planted
from felb.data.partition import split
from felb.records import replacing
from felb_sites.coordinator.local import LocalFederation, find_free_port
from felb_sites.vault.operator import Operator

if TYPE_CHECKING:
    from starlette.requests import Request

PAGE = Path(__file__).with_name("FEDERATION_FAULTS.md")
KEPT = Path(__file__).parent / "measured" / "federation_faults.json"
SITES = ("site-1", "site-2", "site-3")
N, M, K = 1_200, 12, 3
POLICY = {"auto_approve": ["all"], "require_privacy": False, "exact_after_private": True}
KINDS = ("relay", "vault", "courier", "run")
FAULTS = ("lost request", "lost answer", "delayed", "doubled", "reordered")
RUNS = ("clear", "masked", "private")
LOG = "run.log"
MOST_A_RUN = 8
"""Kills in one run: a request that was begun five times without an end is given up on purpose."""
FELB = [sys.executable, "-P", "-c", "from felb.cli import main; main()"]


class FaultyProxy:
    """Stands between couriers and the relay with the relay's own certificate, and disturbs what holds envelopes.

    Parameters
    ----------
    port : where couriers connect
    behind : port of the relay
    folder : with tls.pem and tls.key
    share : of the requests with envelopes that are disturbed
    seed : of the faults
    """

    def __init__(self, port: int, behind: int, folder: Path, *, share: float, seed: int) -> None:
        self.share, self.faults, self._rng = share, Counter[str](), random.Random(seed)
        self._behind, self._older = f"https://localhost:{behind}", dict[str, bytes]()
        routes = [Route("/{path:path}", self._forward, methods=["GET", "POST"])]
        tls = {"ssl_keyfile": folder / "tls.key", "ssl_certfile": folder / "tls.pem"}
        config = uvicorn.Config(Starlette(routes=routes), port=port, log_level="critical", lifespan="off", **tls)
        self._server = uvicorn.Server(config)
        self._context = ssl.create_default_context(cafile=str(folder / "tls.pem"))
        self._client: httpx.AsyncClient | None = None

    def __enter__(self) -> FaultyProxy:
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)

    async def _forward(self, request: Request) -> Response:
        if self._client is None:
            self._client = httpx.AsyncClient(base_url=self._behind, verify=self._context, timeout=60, trust_env=False)
        body, site = await request.body(), request.headers.get("authorization", "")
        sends = request.url.path == "/v1/envelope"
        fault = self._rng.choice(FAULTS) if self._rng.random() < self.share else ""
        if sends and fault == "lost request":
            return self._lose(fault)
        try:
            answer = await self._ask(request, body)
            if sends and fault == "doubled":
                answer = await self._ask(request, body)
                self.faults[fault] += 1
            if sends and fault == "reordered" and site in self._older:  # an older one comes after the newer one
                await self._ask(request, self._older[site])
                self.faults[fault] += 1
        except httpx.HTTPError:
            return Response(status_code=502)
        if sends:
            self._older[site] = body
        holds = sends or (request.url.path == "/v1/next" and answer.status_code == 200)
        if holds and fault == "lost answer":
            return self._lose(fault)
        if holds and fault == "delayed":
            await asyncio.sleep(self._rng.uniform(0.05, 1.0))
            self.faults[fault] += 1
        content = answer.content
        if holds and not sends and fault in ("doubled", "reordered"):
            content = self._disturb(content, fault)
        return Response(content, answer.status_code, media_type=answer.headers.get("content-type"))

    async def _ask(self, request: Request, body: bytes) -> httpx.Response:
        assert self._client is not None
        kept = {name: request.headers[name] for name in ("authorization", "content-type") if name in request.headers}
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return await self._client.request(request.method, target, content=body, headers=kept)

    def _lose(self, fault: str) -> Response:
        self.faults[fault] += 1
        return Response(status_code=502)

    def _disturb(self, content: bytes, fault: str) -> bytes:
        """Give envelopes of an answer twice, or in another order; a single one is followed by one from before."""
        came: list[tuple[int, bytes]] = msgspec.msgpack.decode(content, type=list[tuple[int, bytes]])
        older, self._older["answer"] = self._older.get("answer", came[-1][1]), came[-1][1]
        if fault == "doubled":
            came = [pair for pair in came for _ in range(2)]
        elif len(came) > 1:
            bodies = [body for _, body in came]
            self._rng.shuffle(bodies)
            came = [(number, body) for (number, _), body in zip(came, bodies, strict=True)]
        else:
            came = [*came, (came[0][0], older)]
        self.faults[fault] += 1
        return msgspec.msgpack.encode(came)


@dataclass
class Counts:
    """What was played until now."""

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    runs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RUNS, 0))
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls) -> Counts:
        """Return what is kept."""
        return cls(**json.loads(KEPT.read_text())) if KEPT.is_file() else cls()

    def keep(self) -> None:
        """Write it down."""
        with replacing(KEPT) as partial:
            partial.write_text(json.dumps(vars(self), indent=1) + "\n")


def rounded(value: Any) -> Any:
    """Return plain data with numbers of nine digits: the last bits of a cost depend on the noise of the run."""
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return float(f"{value:.9g}") if isinstance(value, float) else value


class Disturbed:
    """A federation whose couriers go through a proxy, and the runs that are played over it."""

    def __init__(self, folder: Path, seed: int) -> None:
        data = planted(N, M, K, noise=0.1, seed=1)
        shards = split(data.A, np.array(SITES)[partition.even(N, 3)])[0]
        self.local = LocalFederation(folder / "f", shards, policy=POLICY)
        self.folder, self.rng, self.number = folder, random.Random(seed), 0
        place = self.local.federation.folder / "relay"
        settings = json.loads((place / "relay.json").read_text())
        port, behind = settings["port"], find_free_port()
        (place / "relay.json").write_text(json.dumps({**settings, "port": behind}))
        self.proxy = FaultyProxy(port, behind, place, share=0.0, seed=seed)
        self.expected: dict[str, tuple[Any, ...]] = {}

    def __enter__(self) -> Disturbed:
        self.proxy.__enter__()
        self.local.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.local.__exit__()
        self.proxy.__exit__()

    def begin(self, kind: str) -> tuple[str, list[str]]:
        """Return the id of a new run, and the command that plays it, or goes on with it."""
        self.number += 1
        run = f"{kind}-{self.number}-{self.rng.randrange(10**6)}"
        config = self.folder / f"{run}.toml"
        sites = ", ".join(f'"{name}"' for name in SITES)
        terms = f"[terms]\nquorum = 3\nround_timeout = 600\npatience = 600\nsecure = {str(kind == 'masked').lower()}\n"
        privacy = f"[privacy]\nepsilon = 0.05\ndelta = 1e-7\nrecords = {N}\n" if kind == "private" else ""
        head = f'id = "{run}"\ncomponents = {K}\nfeatures = {M}\nmethod = "bmf"\nsites = [{sites}]\n'
        config.write_text(f'{head}[parameters]\neffort = "fast"\n{terms}{privacy}')
        where = ["--config", str(config), "--out", str(self.folder / f"out-{run}")]
        return run, [*FELB, "run", str(self.local.federation.folder), *where]

    def play(self, kind: str, victims: str | None = None, most: int = 0) -> tuple[str, int]:
        """Play a run to its end while processes of a kind are killed; return its id and the number of kills."""
        run, command = self.begin(kind)
        kills = 0
        process = self.start(command)
        while (code := process.poll()) is None:
            if kills == most:
                code = process.wait(1200)
                break
            time.sleep(self.rng.uniform(0.05, 1.5))
            if process.poll() is not None:
                continue
            if victims == "run":
                process.kill()
                process.wait()
                process = self.start(command)
            else:
                name = "relay" if victims == "relay" else f"{victims}:{self.rng.choice(SITES)}"
                self.local.kill(name)
                self.local.start(name)
            kills += 1
        if code:
            said = (self.folder / LOG).read_text()[-500:]
            raise AssertionError(f"run {run} has ended with {code}: {said}")
        return run, kills

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start `felb run`."""
        with (self.folder / LOG).open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)

    def outcome(self, kind: str, played: tuple[str, int]) -> tuple[Any, ...]:
        """Return what a run has left: its result, the lines of the logs, and the charges."""
        run = played[0]
        components = sp.load_npz(self.folder / f"out-{run}" / "components.npz").toarray()
        shown: Any = components.shape if kind == "private" else components.tolist()
        ignored = {"time", "previous", "hash", "run", "roster"}
        lines, charges = [], []
        for site in self.local.sites.values():
            operator = Operator(site.vault)
            lines.append([rounded({k: v for k, v in line.items() if k not in ignored}) for line in operator.log(run)])
            charge = operator.budget()["runs"].get(run, {})
            charges.append({k: v for k, v in charge.items() if k != "began"})
            operator.verify()
        return shown, lines, charges

    def check(self, kind: str, played: tuple[str, int], counts: Counts) -> None:
        """Compare a run with the undisturbed one."""
        self.local.wait_until_connected()
        if kind not in self.expected:
            self.expected[kind] = self.outcome(kind, self.play(kind))
        names = ("result", "log", "charges")
        for name, found, expected in zip(names, self.outcome(kind, played), self.expected[kind], strict=True):
            if found != expected:
                counts.wrong.append(f"{played[0]}: {name}")
        counts.runs[kind] += 1


def main() -> None:
    """Play until all is counted or the time is up, and write the page."""
    options = make_parser(__doc__)
    options.add_argument("--kills", type=int, default=100, help="of each kind of process")
    options.add_argument("--faults", type=int, default=1000, help="of envelopes")
    options.add_argument("--seconds", type=float, default=float("inf"))
    given = options.parse_args()
    counts, end = Counts.read(), time.monotonic() + given.seconds
    seed = sum(counts.runs.values())
    with tempfile.TemporaryDirectory() as scratch, Disturbed(Path(scratch), seed) as played:
        while time.monotonic() < end:
            kind = RUNS[sum(counts.runs.values()) % len(RUNS)]
            few = [name for name in KINDS if counts.kills[name] < given.kills]
            faults = sum(counts.faults.values())
            if few and (faults >= given.faults or played.rng.random() < 0.7):
                victims = min(few, key=lambda name: counts.kills[name])
                most = min(MOST_A_RUN, given.kills - counts.kills[victims])
                done = played.play(kind, victims, most)
                counts.kills[victims] += done[1]
            elif faults < given.faults:
                played.proxy.share = 0.4
                done = played.play(kind)
                played.proxy.share = 0.0
                for name, number in played.proxy.faults.items():
                    counts.faults[name] += number
                played.proxy.faults.clear()
            else:
                break
            played.check(kind, done, counts)
            counts.keep()
            print(counts.kills, counts.faults, counts.wrong, flush=True)
    write(counts)
    if counts.wrong:
        raise SystemExit(f"{len(counts.wrong)} runs differ: {counts.wrong[:3]}")


def write(counts: Counts) -> None:
    """Write the page."""
    wrong = "none" if not counts.wrong else "; ".join(counts.wrong)
    lines = [
        "# Faults of a federation",
        "",
        "Written by `python benchmarks/federation_faults.py`: a relay, three vaults and three couriers over TLS on one",
        f"machine, and `felb run`; {N} x {M} planted rows, {K} components, low effort. Runs in the clear, masked and",
        "private ones were played in turn while processes were killed or envelopes were disturbed. Result, log and",
        "charges of each were compared with those of an undisturbed run. Components of private runs depend on their",
        "noise, so only their shape was compared. Goals: 100 kills of each kind of process, and 1,000 faults.",
        "",
        "| killed process | kills |",
        "|---|---|",
        *(f"| {name} | {number} |" for name, number in counts.kills.items()),
        "",
        "| fault of an envelope | number |",
        "|---|---|",
        *(f"| {name} | {number} |" for name, number in counts.faults.items()),
        f"| together | {sum(counts.faults.values())} |",
        "",
        f"Runs: {', '.join(f'{number} {name}' for name, number in counts.runs.items())}. Differences: {wrong}.",
        "",
        *(f"{note}\n" for note in counts.notes),
        *(f"- {name}: {value}" for name, value in facts().items()),
    ]
    write_page(PAGE, "\n".join(lines))


if __name__ == "__main__":
    main()
