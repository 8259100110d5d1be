"""What a round costs over a real federation, beside the same rounds in one process.

A coordinator and three sites as processes on this machine, over mutual TLS, play FELB-MU with one local step on a few
random rows, so that nearly all of the time is what the federation adds: questions and answers on their way, checks,
checkpoints and the sites' memories. The same run on the local engine is measured right after it. The first rounds,
with compilation and reading, are left out.

    python benchmarks/overhead.py                  both shapes, 100 rounds each: about two minutes on a quiet machine
    python benchmarks/overhead.py --rounds 10      a try; writes nothing
    python benchmarks/overhead.py --secure         masked sums beside sums in the clear, over the same processes

Prints a Markdown table and writes it to benchmarks/OVERHEAD.md, that of masked sums to benchmarks/OVERHEAD_SECURE.md;
ends with an error if a round takes more than twice the reference, if masked sums take longer than their limit, or if
the results disagree.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from common import facts, make_parser, write_page

from felb.data import partition, planted
from felb.data.binary import BinaryMatrix
from felb.data.partition import split
from felb.engines.local import run
from felb_sites.deployed import ALL_ROUNDS, DeployedRun, run_deployed
from felb_sites.local_federation import LocalFederation
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SITES = 3
SKIPPED = 2
"""Rounds at the beginning that are not measured."""
FULL = 100
REPEATED = 2
"""Runs of either kind with masked sums."""
LARGE_ROUNDS = 20
"""Of the large messages with masked sums."""
OUT = Path(__file__).with_name("OVERHEAD.md")
SECURE_OUT = Path(__file__).with_name("OVERHEAD_SECURE.md")


@dataclass(frozen=True)
class Shape:
    """V's shape, rows of a site, their density, and the seconds a round took when this was first measured."""

    components: int
    features: int
    rows: int
    density: float
    reference: float

    @property
    def name(self) -> str:
        """The shape in words."""
        return f"{self.components} x {self.features}"


SHAPES = (Shape(8, 200, 300, 0.1, 0.40), Shape(20, 62_423, 300, 0.0015, 0.65))


@dataclass(frozen=True)
class Measured:
    """Seconds a round in both engines, and of the whole deployed run from its call to its result."""

    deployed: float
    local: float
    whole: float


def random_shards(shape: Shape) -> dict[str, BinaryMatrix]:
    """Return a few random rows for each site."""
    rng = np.random.default_rng(0)
    return {
        f"site-{number}": BinaryMatrix.of(
            sp.random_array((shape.rows, shape.features), density=shape.density, rng=rng, format="csr") > 0
        )
        for number in range(SITES)
    }


@dataclass(frozen=True)
class Masked:
    """A run of which masked sums may take so many times as long as sums in the clear."""

    name: str
    plan: Plan
    shards: Mapping[str, BinaryMatrix]
    limit: float


def masked_runs(rounds: int) -> Iterator[Masked]:
    """Return the default method on small data, and large messages."""
    data = planted(900, 60, 8, noise=0.05, seed=0).A
    shards = split(data, [f"site-{number}" for number in partition.even(len(data), SITES)])[0]
    yield Masked("default method, 8 x 60", Plan("small", "bmf", 8, 60), shards, 3.5)
    large = SHAPES[-1]
    parameters = {"max_iter": rounds, "local_steps": 1, "tol": 0.0, "l1": 0.0, "l2": 0.0}
    plan = Plan("large", "felb-mu", large.components, large.features, parameters)
    yield Masked(f"FELB-MU, {large.name}", plan, random_shards(large), 2.5)


def measure_masks(case: Masked) -> tuple[float, float, int]:
    """Return seconds a round in the clear and masked, over the same processes, and the rounds of the run.

    They are medians over the rounds of runs in turns, since a machine may be busy with other things for a while.
    """
    took: dict[bool, list[float]] = {False: [], True: []}
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="felb-overhead-") as folder,
        LocalFederation(Path(folder) / "federation", case.shards) as federation,
    ):
        for number, secure in enumerate((False, True) * REPEATED):
            seen: dict[int, float] = {}
            plan = replace(case.plan, run_id=f"{case.plan.run_id}-{number}")
            terms = Terms(quorum=SITES, rounds_per_job=ALL_ROUNDS)
            run = DeployedRun(plan, terms, tuple(case.shards), secure=secure, disclosure="none")
            results.append(
                run_deployed(
                    federation.coordinator,
                    run,
                    Path(folder) / plan.run_id,
                    on_status=lambda status, seen=seen: seen.setdefault(status.round, status.time),
                )
            )
            ends = [seen[number] for number in sorted(seen) if number >= SKIPPED]
            took[secure] += np.diff(ends).tolist()
    first = results[0]
    if any(not np.array_equal(first.components, r.components) or first.scores != r.scores for r in results):
        sys.exit("masked sums give another result")
    return float(np.median(took[False])), float(np.median(took[True])), len(first.history)


def main_masked(rounds: int, only: str | None) -> None:
    """Measure masked sums, print, compare."""
    lines = ["| run | rounds | seconds a round, in the clear | masked | ratio | limit |", "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    slow, known = False, facts()
    for case in masked_runs(rounds):
        if only is not None and only not in case.name:
            continue
        plain, masked, played = measure_masks(case)
        slow |= masked > case.limit * plain
        ratio = masked / plain
        lines.append(f"| {case.name} | {played} | {plain:.2f} | {masked:.2f} | {ratio:.2f} | {case.limit} |")
        print(lines[-1], flush=True)
    if only is None:
        about = [f"- {name}: {fact}" for name, fact in {**known, "load at the end": os.getloadavg()[0]}.items()]
        head = [
            "# Masked sums over a real federation",
            "",
            f"Written by `benchmarks/overhead.py --secure`: {SITES} sites and a coordinator as processes on one",
            "machine, mutual TLS on loopback; the same run in the clear, then masked. Both give the same components.",
            "",
        ]
        write_page(SECURE_OUT, "\n".join([*head, *lines, "", *about]))
    if slow:
        sys.exit("masked sums take longer than their limit; is the machine quiet?")


def measure(shape: Shape, rounds: int) -> Measured:
    """Play a run over processes, then in this one."""
    shards = random_shards(shape)
    # Without a pull towards Boolean values, nothing settles before the last round.
    parameters = {"max_iter": rounds, "local_steps": 1, "tol": 0.0, "l1": 0.0, "l2": 0.0}
    plan = Plan("overhead", "felb-mu", shape.components, shape.features, parameters)
    terms = Terms(quorum=SITES, rounds_per_job=rounds + 1)
    seen: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="felb-overhead-") as folder:
        federation = LocalFederation(Path(folder) / "federation", shards)
        with federation:
            started = time.perf_counter()
            result = run_deployed(
                federation.coordinator,
                DeployedRun(plan, terms, tuple(shards)),
                Path(folder) / "result",
                on_status=lambda status: seen.setdefault(status.round, status.time),
            )
            whole = time.perf_counter() - started
    ends: list[float] = []
    local = run(plan.algorithm(), shards, seed=plan.seed, on_round=lambda _: ends.append(time.perf_counter()))
    if not np.array_equal(local.outcome.components, result.components):
        sys.exit("the engines disagree")
    if len(ends) != rounds + 1 or len(result.history) != rounds + 1:  # the last one assigns
        sys.exit(f"{len(ends)} and {len(result.history)} rounds were played, not {rounds} and the assignment")
    played = sorted(number for number in seen if SKIPPED <= number <= rounds)
    deployed = (seen[played[-1]] - seen[played[0]]) / (played[-1] - played[0])
    alone = (ends[rounds - 1] - ends[SKIPPED - 1]) / (rounds - SKIPPED)
    return Measured(deployed, alone, whole)


def main() -> None:
    """Measure, print, compare."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=FULL)
    parser.add_argument("--shape", choices=[shape.name for shape in SHAPES], help="only this one")
    parser.add_argument("--secure", action="store_true", help="masked sums beside sums in the clear")
    parser.add_argument("--only", help="with --secure: only runs with this in their name")
    options = parser.parse_args()
    if options.secure:
        main_masked(min(options.rounds, LARGE_ROUNDS), options.only)
        return
    lines = [
        "| V | seconds a round | on the local engine | the federation adds | reference | "
        f"{options.rounds} rounds end to end |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    slow, known = False, facts()
    for shape in SHAPES:
        if options.shape not in (None, shape.name):
            continue
        found = measure(shape, options.rounds)
        slow |= found.deployed > 2 * shape.reference
        lines.append(
            f"| {shape.name} | {found.deployed:.2f} | {found.local:.3f} | {found.deployed - found.local:.2f} | "
            f"{shape.reference:.2f} | {found.whole:.0f} s |"
        )
        print(lines[-1], flush=True)
    if options.rounds == FULL and options.shape is None:
        about = [f"- {name}: {fact}" for name, fact in known.items()]
        head = [
            "# A round over a real federation",
            "",
            f"Written by `benchmarks/overhead.py`: FELB-MU, {SITES} sites and a coordinator as processes on one",
            "machine, mutual TLS on loopback, 300 random rows a site. End to end is from `felb run` to the result,",
            "with the start of the job; founding the federation is not in it.",
            "",
        ]
        write_page(OUT, "\n".join([*head, *lines, "", *about]))
    if slow:
        sys.exit("a round takes more than twice the reference; is the machine quiet?")


if __name__ == "__main__":
    main()
