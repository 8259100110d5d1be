"""What a round over a real federation costs here and in another version of felb, in alternation.

A coordinator and three sites as processes on this machine, over mutual TLS, play FELB-MU with one local step on a few
random rows, so that nearly all of the work is the federation's: messages on their way, checks, replayed requests,
journals. Measured are the seconds of a round, and the processor time of all processes together, which other work on the
machine changes little. The first rounds, with compilation and reading, are left out.

    git worktree add ../before COMMIT
    python benchmarks/round_cost.py --against ../before      writes benchmarks/ROUND_COST.md
    python benchmarks/round_cost.py                          this version alone, as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import machine
import numpy as np
import psutil
from figures import write_page

SITES, ROWS, DENSITY, SKIPPED = 3, 300, 0.1, 4
LIMIT = 1.3
"""Of processor time a round, against the other version."""
OUT = Path(__file__).with_name("ROUND_COST.md")


def processor_seconds(processes: list[psutil.Process]) -> float:
    """Return the processor time of processes and their descendants."""
    family = {member for process in processes for member in (process, *process.children(recursive=True))}
    return sum(sum(member.cpu_times()[:2]) for member in family)


def measure(components: int, features: int, rounds: int) -> dict[str, float]:
    """Play a run; return seconds and processor seconds a round."""
    from felb.data.binary import BinaryMatrix
    from felb_sites.deployed import DeployedRun, run_deployed
    from felb_sites.local_federation import LocalFederation
    from felb_sites.run_plan import Plan
    from felb_sites.terms import Terms

    rng = np.random.default_rng(0)
    shards = {f"site-{i}": BinaryMatrix.of(rng.random((ROWS, features)) < DENSITY) for i in range(SITES)}
    # Without a pull towards Boolean values, nothing settles before the last round.
    parameters = {"max_iter": rounds, "local_steps": 1, "tol": 0.0, "l1": 0.0, "l2": 0.0}
    plan = Plan("overhead", "felb-mu", components, features, parameters)
    terms = Terms(quorum=SITES, rounds_per_job=rounds + 1)
    seen: dict[int, tuple[float, float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="felb-cost-") as folder,
        LocalFederation(Path(folder) / "f", shards) as federation,
    ):

        def note(number: int) -> None:
            if number not in seen:
                members = [psutil.Process(process.pid) for process in federation.processes.values()]
                seen[number] = time.monotonic(), processor_seconds([psutil.Process(), *members])

        run = DeployedRun(plan, terms, tuple(shards))
        run_deployed(federation.coordinator, run, Path(folder) / "r", on_status=lambda status: note(status.round))
    played = sorted(number for number in seen if SKIPPED <= number <= rounds)
    (start, busy), (end, busy_then), count = seen[played[0]], seen[played[-1]], played[-1] - played[0]
    return {"seconds": (end - start) / count, "processor": (busy_then - busy) / count}


def measured_in(checkout: Path, options: argparse.Namespace) -> dict[str, float]:
    """Measure the version of a checkout in a process of its own."""
    shape = ["--components", str(options.components), "--features", str(options.features)]
    command = [sys.executable, __file__, *shape, "--rounds", str(options.rounds)]
    env = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(checkout.name, found, flush=True)
    return found


def compare(options: argparse.Namespace) -> None:
    """Measure both versions in alternation, print and write a table."""
    other, here = Path(options.against), Path(__file__).parents[1]
    facts, found = (
        machine.facts(),
        [(measured_in(other, options), measured_in(here, options)) for _ in range(options.pairs)],
    )
    named = subprocess.run(
        ["git", "-C", str(other), "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False
    )
    lines = [
        "# A round here and in another version",
        "",
        f"Written by `benchmarks/round_cost.py --against`: {options.pairs} runs of {options.rounds} rounds each, in",
        f"alternation; V of {options.components} x {options.features}, {SITES} sites on one machine. The other version",
        f"is {named.stdout.strip() or 'unknown'}. Medians.",
        "",
        "| of a round | other | here | ratio |",
        "|---|---|---|---|",
    ]
    for key, name in (("processor", "processor seconds, all processes"), ("seconds", "seconds")):
        before, now = (median(pair[i][key] for pair in found) for i in (0, 1))
        lines.append(f"| {name} | {before:.3f} | {now:.3f} | {now / before:.2f} |")
        if key == "processor":
            slow = now > LIMIT * before
    lines += ["", *(f"- {name}: {fact}" for name, fact in facts.items()), ""]
    print("\n".join(lines))
    write_page(OUT, "\n".join(lines))
    if slow:
        sys.exit(f"a round takes more than {LIMIT} times the processor time of the other version")


def main() -> None:
    """Measure this version, or compare with another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", help="checkout of another version")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--components", type=int, default=8)
    parser.add_argument("--features", type=int, default=200)
    options = parser.parse_args()
    if options.against:
        compare(options)
    else:
        print(json.dumps(measure(options.components, options.features, options.rounds)))


if __name__ == "__main__":
    main()
