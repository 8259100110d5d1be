"""A bare relay, for comparison: what a round costs at least with the cryptography and the commits of a federation.

The coordinator seals and signs a message for all sites; the relay checks the signature and commits it (SQLite, full
sync); each site fetches it, checks and opens it, commits an attempt, seals an answer of a given size, commits it and
sends it; the relay checks and commits the answer; the coordinator checks and opens all answers and commits once. There
is no algorithm, no policy, no log, no courier and no repetition. A masked round is three such exchanges, the first one
with masks over the answers.

``python benchmarks/bare_relay.py relay|site ...`` are its processes; `measure_bare` is for `federation.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from felb_sites.envelopes import COORDINATOR, Header, read_envelope, seal, unseal
from felb_sites.keys.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

FEDERATION = "0" * 32
Exchange = tuple[int, int]
"""Bytes to each site, and from each site."""


def identity(name: str) -> Identity:
    """Return the keys of a party; everybody knows them here."""
    return Identity(name.encode().ljust(32, b"."))


def open_store(path: Path) -> sqlite3.Connection:
    """Open a file in which every statement is a commit with full sync."""
    made = sqlite3.connect(path, isolation_level=None)
    for statement in ("journal_mode=wal", "synchronous=full", "wal_autocheckpoint=8192"):
        made.execute(f"pragma {statement}")
    made.execute("create table if not exists kept(name text primary key, body blob)")
    return made


def keep(store: sqlite3.Connection, name: str, body: bytes) -> None:
    """Commit some bytes under a name, which is used again."""
    store.execute("insert or replace into kept values(?, ?)", (name, body))


def checked(data: bytes, sender: str) -> Any:
    """Read an envelope and check its signature."""
    envelope = read_envelope(data)
    assert envelope.is_signed_by(identity(sender).sign_public)
    return envelope


# -- processes -------------------------------------------------------------------------------------------------------


def run_relay(folder: Path, port: int) -> None:
    """Serve until the process is ended."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    store, changed = open_store(folder / "relay.sqlite"), asyncio.Condition()
    current: dict[str, Any] = {"number": 0, "body": b""}
    answers: dict[str, bytes] = {}

    async def ask(request: Request) -> Response:
        body, number, wanted = await request.body(), int(request.headers["number"]), int(request.headers["wanted"])
        checked(body, COORDINATOR)
        keep(store, "question", body)
        async with changed:
            answers.clear()
            current.update(number=number, body=body)
            changed.notify_all()
            await changed.wait_for(lambda: len(answers) >= wanted)
        return Response(msgspec.msgpack.encode(list(answers.values())))

    async def following(request: Request) -> Response:
        after = int(request.query_params["after"])
        async with changed:
            await changed.wait_for(lambda: current["number"] > after)
            return Response(current["body"], headers={"number": str(current["number"])})

    async def answer(request: Request) -> Response:
        body, site = await request.body(), request.headers["site"]
        checked(body, site)
        keep(store, site, body)
        async with changed:
            answers[site] = body
            changed.notify_all()
        return Response(status_code=204)

    routes = [
        Route("/ask", ask, methods=["POST"]),
        Route("/next", following),
        Route("/answer", answer, methods=["POST"]),
    ]
    keys = {"ssl_keyfile": str(folder / "tls.key"), "ssl_certfile": str(folder / "tls.pem")}
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="error", **keys)


def run_site(folder: Path, port: int, name: str, masks: int) -> None:
    """Answer until the relay is gone; the first bytes of a question say how large the answer is."""
    import httpx

    store, own, last = open_store(folder / f"{name}.sqlite"), identity(name), 0
    keys = {COORDINATOR: identity(COORDINATOR).seal_public}
    with connect(folder, port) as client:
        while True:
            try:
                came = client.get("/next", params={"after": last})
            except httpx.HTTPError:
                return
            last = int(came.headers["number"])
            question = unseal(checked(came.content, COORDINATOR), name, own)
            keep(store, "attempt", question)
            told = mask(bytes(int.from_bytes(question[:8], "big")), masks if question[8] else 0)
            header = Header(FEDERATION, "bare", last, name, (COORDINATOR,), "response", last)
            data = seal(header, told, own, receivers=keys).to_bytes()
            keep(store, "answer", data)
            client.post("/answer", content=data, headers={"site": name})


def mask(data: bytes, masks: int) -> bytes:
    """Add so many masks to a vector."""
    if not masks or len(data) < 8:
        return data
    import numpy as np

    from felb.secure_sum.protocol import add_mask_into

    total = np.frombuffer(data[: len(data) // 8 * 8], np.uint64).copy()
    for number in range(masks):
        add_mask_into(total, bytes([number]) * 32, sign=1)
    return total.tobytes()


def connect(folder: Path, port: int) -> Any:
    """Return a client of the relay that keeps its connection."""
    import httpx

    context = ssl.create_default_context(cafile=str(folder / "tls.pem"))
    return httpx.Client(verify=context, base_url=f"https://localhost:{port}", timeout=600, trust_env=False)


# -- the measurement -------------------------------------------------------------------------------------------------


def measure_bare(sites: int, exchanges: Sequence[Exchange], rounds: int, *, masked: bool) -> tuple[float, float]:
    """Return seconds, and seconds of processor time of the processes, that a round of these exchanges takes."""
    from felb_sites.relay.process import create_certificate

    names = [f"site-{number:02}" for number in range(sites)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        create_certificate(folder, "localhost")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        start = [sys.executable, __file__]
        started = [subprocess.Popen([*start, "relay", scratch, port])]
        try:
            wait_for(int(port))
            masks = str(sites if masked else 0)
            started += [subprocess.Popen([*start, "site", scratch, port, name, masks]) for name in names]
            return play_rounds(folder, int(port), names, exchanges, rounds, [process.pid for process in started])
        finally:
            for process in started:
                process.kill()
                process.wait()


def play_rounds(
    folder: Path, port: int, names: Sequence[str], exchanges: Sequence[Exchange], rounds: int, processes: Sequence[int]
) -> tuple[float, float]:
    """Play rounds as the coordinator, the first one unmeasured, and return what each of the others takes."""
    store, own, number = open_store(folder / "run.sqlite"), identity(COORDINATOR), 0
    keys = {name: identity(name).seal_public for name in names}
    begun = used = 0.0
    with connect(folder, port) as client:
        for played in range(rounds + 1):
            for step, (down, up) in enumerate(exchanges):
                number += 1
                question = up.to_bytes(8, "big") + bytes([step == 0]) + bytes(max(0, down - 9))
                header = Header(FEDERATION, "bare", number, COORDINATOR, tuple(names), "sums", number)
                data = seal(header, question, own, receivers=keys).to_bytes()
                keep(store, "question", data)
                headers = {"number": str(number), "wanted": str(len(names))}
                came = msgspec.msgpack.decode(client.post("/ask", content=data, headers=headers).content)
                for answer in came:
                    envelope = read_envelope(answer)
                    unseal(checked(answer, envelope.header.sender), COORDINATOR, own)
            if not played:
                begun, used = time.perf_counter(), processor_seconds(processes)
    return (time.perf_counter() - begun) / rounds, (processor_seconds(processes) - used) / rounds


def processor_seconds(processes: Sequence[int]) -> float:
    """Return the processor time that this process and others have used."""
    total = time.process_time()
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def wait_for(port: int) -> None:
    """Wait until somebody listens."""
    for _ in range(600):
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the bare relay does not listen")


if __name__ == "__main__":
    role, place, at, *more = sys.argv[1:]
    if role == "relay":
        run_relay(Path(place), int(at))
    else:
        run_site(Path(place), int(at), more[0], int(more[1]))
