"""Time a round over a real federation: a relay, vaults and couriers as processes of this machine, over TLS.

A run of FELB with a fixed number of rounds is played over planted rows, in the clear and masked. The time of a round is
that of the whole run without its start, divided by its rounds; processor time is that of all processes. From the same
machine and run, the local engine shows what the computation alone takes, and a bare relay (`bare_relay.py`) what
sealing, checking and committing messages of the same sizes take without an algorithm. Where a bar of the specification
is below twice the bare relay, twice the bare relay is the bar: other processes of the machine slow both down.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from bare_relay import measure_bare, processor_seconds
from common import Figure, facts, make_parser, write_page

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run as simulate
from felb_sites.coordinator.local import LocalFederation
from felb_sites.coordinator.record import RUNNING
from felb_sites.coordinator.run import run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms

if TYPE_CHECKING:
    from bare_relay import Exchange

    from felb_sites.coordinator.record import Status

PAGE = Path(__file__).with_name("FEDERATION.md")
ROWS = 300
CASES = (  # sites, components, features, rounds, masked, bar in ms
    (3, 8, 200, 60, False, 12),
    (3, 8, 200, 30, True, 45),
    (3, 20, 62_423, 4, False, 300),
    (3, 20, 62_423, 3, True, 700),
)
MANY = (50, 8, 200, 20, False, 150)
START, DEMO = 1.0, 20.0
"""Seconds from `felb run` to the first round, and of `felb federation demo` with kernels that are compiled."""
RESIDENT = {"courier": 60, "relay": 80, "vault": 150}
"""Megabytes that the processes of three sites should stay below."""


def main() -> None:
    """Measure and write the page."""
    options = make_parser(__doc__)
    options.add_argument("--many", action="store_true", help="also with 50 sites")
    options.add_argument("--demo", action="store_true", help="also the time of `felb federation demo`")
    given = options.parse_args()
    figures: list[Figure] = []
    for case in (*CASES, *((MANY,) if given.many else ())):
        measured = measure(*case)
        figures += measured
        for figure in measured:
            print(figure.what, figure.measured, figure.bar, figure.verdict, flush=True)
        write(figures)
    if given.demo:
        write([*figures, measure_demo()])


def write(figures: list[Figure]) -> None:
    """Write the page, after each case, since the large ones take long on a busy machine."""
    lines = [
        "# Rounds over a federation of processes",
        "",
        "Printed by `python benchmarks/federation.py`: a relay, vaults and couriers on one machine, TLS on loopback,",
        f"planted rows ({ROWS} a site), FELB. The components are those of the local engine, bit for bit.",
        "The bare relay seals, checks and commits messages of the same sizes without an algorithm. A bar is that of",
        "the specification, or twice the bare relay of the same run where that is more.",
        "",
        "| figure | measured | bar | |",
        "|---|---|---|---|",
        *(f"| {figure.what} | {figure.measured} | {figure.bar} | {figure.verdict} |" for figure in figures),
        "",
        *(f"- {name}: {value}" for name, value in facts().items()),
    ]
    write_page(PAGE, "\n".join(lines))


def measure(sites: int, k: int, m: int, rounds: int, masked: bool, bar: int) -> list[Figure]:
    """Play one run and return its figures."""
    rows = planted(ROWS * sites, m, k, noise=0.05, seed=0).A
    shards, _ = split(rows, [f"site-{number:02}" for number in partition.even(len(rows), sites)])
    plan = Plan("bench", "felb", k, m, {"max_iter": rounds, "tol": 0.0})
    policy = {"auto_approve": ["all"], "require_privacy": False, "disclosure": "none"}
    run = DeployedRun(plan, Terms(quorum=sites), tuple(shards), None, disclosure="none", secure=masked)
    what = f"{sites} sites, {k} x {m}, {'masked' if masked else 'in the clear'}"
    began: list[float] = []

    def note(status: Status) -> None:
        if status.state == RUNNING:
            began.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as scratch, LocalFederation(Path(scratch) / "f", shards, policy=policy) as local:
        processes = [process.pid for process in local.processes.values()]
        begun, before = time.perf_counter(), processor_seconds(processes)
        result = run_deployed(local.federation, run, Path(scratch) / "out", on_status=note)
        seconds, used = time.perf_counter() - began[0], processor_seconds(processes) - before
        memory, exchanges = resident(local), read_exchanges(local, masked=masked)
    alone = time.perf_counter()
    simulated = simulate(plan.algorithm(), shards, seed=0)
    alone = time.perf_counter() - alone
    assert result is not None
    expected = simulated.outcome.components.copy()
    expected[list(result.withheld)] = False
    assert expected.any()
    assert np.array_equal(result.components, expected)
    count = len(result.history)
    bare, bare_used = measure_bare(sites, exchanges, max(3, count // 4), masked=masked)
    each, most = 1e3 * seconds / count, max(bar, 2e3 * bare)
    said = f"{bar}" if most == bar else f"{most:.0f} (twice the bare relay; {bar} on an idle machine)"
    of_bytes = ", ".join(f"{down:,} and {up:,}" for down, up in exchanges)
    return [
        Figure(f"{what}: ms a round", f"{each:.1f}", said, each <= most),
        Figure(
            f"{what}: ms a round of the bare relay, with {of_bytes} bytes to and from each site", f"{1e3 * bare:.1f}"
        ),
        Figure(f"{what}: ms a round of the local engine", f"{1e3 * alone / count:.1f}"),
        Figure(f"{what}: ms of processor time a round, start included", f"{1e3 * used / count:.1f}"),
        Figure(f"{what}: ms of processor time a round of the bare relay", f"{1e3 * bare_used:.1f}"),
        Figure(f"{what}: s to the first round", f"{began[0] - begun:.2f}", f"{START:g}", began[0] - begun <= START),
        *(
            Figure(f"{what}: MB resident, {kind}", f"{most:.0f}", f"{RESIDENT[kind]}", most <= RESIDENT[kind])
            for kind, most in memory.items()
            if m < 1_000 and sites == 3 and not masked
        ),
    ]


def read_exchanges(local: LocalFederation, *, masked: bool) -> list[Exchange]:
    """Return the usual sizes of what a site gets and sends in each exchange of a round, by the log of its courier."""
    lines = [json.loads(line) for line in (local.folder / f"courier-{min(local.sites)}.log").read_text().splitlines()]
    down = [line["bytes"] for line in lines if line["event"] == "delivered"][3:]
    up = [line["bytes"] for line in lines if line["event"] == "sent"][3:]
    if not masked:
        return [(int(statistics.median(down)), int(statistics.median(up)))]
    thirds = (sorted(sizes, reverse=True) for sizes in (down, up))
    sizes = [
        [int(statistics.median(part[i * len(part) // 3 : (i + 1) * len(part) // 3])) for i in range(3)]
        for part in thirds
    ]
    return list(zip(*sizes, strict=True))


def measure_demo() -> Figure:
    """Run `felb federation demo`, whose kernels have been compiled by the cases before or are now."""
    command = [sys.executable, "-m", "felb", "federation", "demo"]
    subprocess.run(command, check=True, capture_output=True)
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - begun
    return Figure("`felb federation demo`: s", f"{seconds:.1f}", f"{DEMO:g}", seconds <= DEMO)


def resident(local: LocalFederation) -> dict[str, float]:
    """Return the most memory that a process of each kind has, in megabytes."""
    found: dict[str, float] = {}
    for name, process in local.processes.items():
        kind = name.partition(":")[0]
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        found[kind] = max(found.get(kind, 0.0), pages * resource.getpagesize() / 1e6)
    return found


if __name__ == "__main__":
    main()
