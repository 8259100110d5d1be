"""Time a round over a real federation: a relay, vaults and couriers as processes of this machine, over TLS.

A run of FELB with a fixed number of rounds is played over random rows, in the clear and masked. The time of a round is
that of the whole run without its start, divided by its rounds; processor time is that of all processes. From the same
machine and run, the local engine shows what the computation alone takes.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from common import Figure, facts, make_parser, write_page

from felb.data import BinaryMatrix
from felb.engines.local import run as simulate
from felb_sites.coordinator.local import LocalFederation
from felb_sites.coordinator.run import run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms

PAGE = Path(__file__).with_name("FEDERATION.md")
ROWS = 300
CASES = (  # sites, components, features, rounds, masked, bar in ms
    (3, 8, 200, 60, False, 12),
    (3, 8, 200, 30, True, 45),
    (3, 20, 62_423, 6, False, 300),
    (3, 20, 62_423, 4, True, 700),
)
MANY = (50, 8, 200, 20, False, 150)
RESIDENT = {"courier": 60, "relay": 80, "vault": 150}
"""Megabytes that the processes of three sites should stay below."""


def main() -> None:
    """Measure and write the page."""
    options = make_parser(__doc__)
    options.add_argument("--many", action="store_true", help="also with 50 sites")
    given = options.parse_args()
    figures: list[Figure] = []
    for case in (*CASES, *((MANY,) if given.many else ())):
        figures += measure(*case)
        for figure in figures[-3:]:
            print(figure.what, figure.measured, figure.verdict)
    lines = [
        "# Rounds over a federation of processes",
        "",
        "Printed by `python benchmarks/federation.py`: a relay, vaults and couriers on one machine, TLS on loopback,",
        f"random rows ({ROWS} a site), FELB. The relaxed components are those of the local engine, bit for bit.",
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
    rng = np.random.default_rng(0)
    shards = {f"site-{i:02}": BinaryMatrix.of(rng.random((ROWS, m)) < 0.1) for i in range(sites)}
    plan = Plan("bench", "felb", k, m, {"max_iter": rounds, "tol": 0.0})
    policy = {"auto_approve": ["all"], "require_privacy": False, "disclosure": "none"}
    run = DeployedRun(plan, Terms(quorum=sites), tuple(shards), None, disclosure="none", secure=masked)
    what = f"{sites} sites, {k} x {m}, {'masked' if masked else 'in the clear'}"
    with tempfile.TemporaryDirectory() as scratch, LocalFederation(Path(scratch) / "f", shards, policy=policy) as local:
        begun, before = time.perf_counter(), processor_seconds(local)
        result = run_deployed(local.federation, run, Path(scratch) / "out")
        seconds, used = time.perf_counter() - begun, processor_seconds(local) - before
        memory = resident(local)
    alone = time.perf_counter()
    simulated = simulate(plan.algorithm(), shards, seed=0)
    alone = time.perf_counter() - alone
    assert result is not None
    assert np.array_equal(result.outcome.relaxed, simulated.outcome.relaxed)
    count = len(result.history)
    each = 1e3 * seconds / count
    return [
        Figure(f"{what}: ms a round, start included", f"{each:.1f}", f"{bar}", each <= bar),
        Figure(f"{what}: ms of processor time a round", f"{1e3 * used / count:.1f}"),
        Figure(f"{what}: ms a round of the local engine", f"{1e3 * alone / count:.1f}"),
        *(
            Figure(f"{what}: MB resident, {kind}", f"{most:.0f}", f"{RESIDENT[kind]}", most <= RESIDENT[kind])
            for kind, most in memory.items()
            if m < 1_000 and sites == 3 and not masked
        ),
    ]


def processor_seconds(local: LocalFederation) -> float:
    """Return the processor time of this process and those of the federation."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    tick = 100
    total = own.ru_utime + own.ru_stime
    for process in local.processes.values():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / tick
    return total


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
