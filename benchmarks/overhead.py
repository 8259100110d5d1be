"""What a round costs over a real federation, beside the same rounds in one process.

A coordinator and three sites as processes on this machine, over mutual TLS, play FELB-MU with one local step on a few
random rows, so that nearly all of the time is what the federation adds: questions and answers on their way, checks,
checkpoints and the sites' memories. The same run on the local engine is measured right after it. The first rounds,
with compilation and reading, are left out.

    python benchmarks/overhead.py                  both shapes, 100 rounds each: about two minutes on a quiet machine
    python benchmarks/overhead.py --rounds 10      a try; writes nothing

Prints a Markdown table and writes it to benchmarks/OVERHEAD.md; ends with an error if a round takes more than twice the
reference or the two engines disagree.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import machine
import numpy as np
import scipy.sparse as sp

from felb.data.binary import BinaryMatrix
from felb.engines.local import run
from felb.engines.nvflare.local_federation import LocalFederation
from felb.engines.nvflare.run_plan import Plan
from felb.engines.nvflare.terms import Terms
from felb.runs.deployed import DeployedRun, run_deployed

SITES = 3
SKIPPED = 2
"""Rounds at the beginning that are not measured."""
FULL = 100
OUT = Path(__file__).with_name("OVERHEAD.md")


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


def measure(shape: Shape, rounds: int) -> Measured:
    """Play a run over processes, then in this one."""
    rng = np.random.default_rng(0)
    shards = {
        f"site-{number}": BinaryMatrix.of(
            sp.random_array((shape.rows, shape.features), density=shape.density, rng=rng, format="csr") > 0
        )
        for number in range(SITES)
    }
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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=FULL)
    parser.add_argument("--shape", choices=[shape.name for shape in SHAPES], help="only this one")
    options = parser.parse_args()
    lines = [
        "| V | seconds a round | on the local engine | the federation adds | reference | "
        f"{options.rounds} rounds end to end |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    slow, facts = False, machine.facts()
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
        about = [f"- {name}: {fact}" for name, fact in facts.items()]
        head = [
            "# A round over a real federation",
            "",
            f"Written by `benchmarks/overhead.py`: FELB-MU, {SITES} sites and a coordinator as processes on one",
            "machine, mutual TLS on loopback, 300 random rows a site. End to end is from `felb run` to the result,",
            "with the start of the job; founding the federation is not in it.",
            "",
        ]
        OUT.write_text("\n".join([*head, *lines, "", *about, ""]), encoding="utf-8")
    if slow:
        sys.exit("a round takes more than twice the reference; is the machine quiet?")


if __name__ == "__main__":
    main()
