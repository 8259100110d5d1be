"""Kill processes of a real federation at random instants and compare the results with undisturbed ones.

A coordinator and three sites as processes on this machine, over mutual TLS, play one run after the other, exact and
private in turn. Meanwhile a random process dies by SIGKILL at random instants: the vault, the courier or the job
worker of a site, a whole site, the server, or the coordinator's `felb run`. What an operating system would start again
(systemd) is started again. At the end of each run:

- the components of an exact run are those of the same run in one process, bit for bit;
- no value was logged twice, and every log verifies;
- a private run has charged each site what its plan says, neither twice nor too little.

    python benchmarks/kills.py                     100 kills, about 20 minutes on a quiet machine
    python benchmarks/kills.py --kills 10          a try; writes nothing

Prints a Markdown table and writes it to benchmarks/KILLS.md; ends with an error at the first run that differs.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import machine
import numpy as np
import psutil

from felb.data import partition
from felb.data.registry import load
from felb.data.shards import split
from felb.engines.local import run
from felb.engines.nvflare.flare import environment
from felb.engines.nvflare.local_federation import SERVER, LocalFederation
from felb.engines.nvflare.site_budget import Spent
from felb.engines.nvflare.site_logs import OUTBOUND, read_outbound
from felb.privacy.log_chain import verify
from felb.runs.deployed import DeployedRun
from felb.runs.result import Result

ZOO = load("zoo")
SITES = ("site-1", "site-2", "site-3")
SHARDS = split(ZOO, [SITES[i] for i in partition.even(101, 3)])[0]
VICTIMS = ("vault", "courier", "worker", "site", "server", "coordinator")
FULL = 100
PAUSES = 0.5, 6.0
"""Seconds between two kills, drawn between these."""
KILLS_A_RUN = 10
OUT = Path(__file__).with_name("KILLS.md")
EXACT = """
id = "{name}"
method = "felb-mu"
components = 4
columns = "{columns}"
sites = ["site-1", "site-2", "site-3"]
disclosure = "none"
seed = {seed}
[parameters]
max_iter = 60
[terms]
quorum = 3
round_timeout = 60
rounds_per_job = 25
"""
PRIVATE = """
id = "{name}"
components = 3
columns = "{columns}"
sites = ["site-1", "site-2", "site-3"]
seed = {seed}
[privacy]
epsilon = 1.0
delta = 1e-5
records = 101
[parameters]
effort = "fast"
[terms]
quorum = 3
round_timeout = 60
rounds_per_job = 25
"""


class Killer:
    """Ends processes of a federation.

    Parameters
    ----------
    federation : whose processes die
    rng : decides which, and when
    """

    def __init__(self, federation: LocalFederation, rng: random.Random) -> None:
        self.federation, self._rng = federation, rng
        self.count: Counter[str] = Counter()

    def pause(self) -> float:
        """Return the seconds until the next death."""
        return self._rng.uniform(*PAUSES)

    def strike(self, coordinator: subprocess.Popen[bytes]) -> bool:
        """Kill something; return whether there was something to kill."""
        victim, site = self._rng.choice(VICTIMS), self._rng.choice(SITES)
        struck = self._strike(victim, site, coordinator)
        self.count[victim] += struck
        return struck

    def _strike(self, victim: str, site: str, coordinator: subprocess.Popen[bytes]) -> bool:
        if victim == "coordinator":
            coordinator.kill()
            coordinator.wait()
            return True
        if victim in ("site", "server"):
            name = site if victim == "site" else SERVER
            self.federation.kill(name)
            self.federation.start(name)
            return True
        found = self.federation.workers(site) if victim == "worker" else self._children(site, vault=victim == "vault")
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(process).kill()
        return bool(found)

    def _children(self, site: str, *, vault: bool) -> list[int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.federation.processes[site].pid).children()
            return [c.pid for c in children if any("vault_process" in word for word in c.cmdline()) == vault]
        return []


def play(federation: LocalFederation, killer: Killer, name: str, *, private: bool, most: int) -> int:
    """Play a run to its end under at most so many kills; return how many there were."""
    folder = federation.folder
    columns, config, out = folder / "columns.txt", folder / f"{name}.toml", folder / f"{name}-out"
    columns.write_text("\n".join(ZOO.columns or ()) + "\n", encoding="utf-8")
    text = (PRIVATE if private else EXACT).format(name=name, columns=columns, seed=len(name))
    config.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "felb", "run", str(federation.coordinator.folder)]
    command += ["--config", str(config), "--out", str(out)]
    kills, next_at = 0, time.monotonic() + killer.pause()
    with (folder / f"{name}.log").open("ab") as log:
        for _ in range(200):
            started = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment())
            while started.poll() is None:
                time.sleep(0.05)
                if kills < most and time.monotonic() > next_at:
                    kills += killer.strike(started)
                    next_at = time.monotonic() + killer.pause()
            if started.returncode == 0:
                break
        else:
            sys.exit(f"{name} does not end; see {folder}")
    check(federation, config, name, out)
    return kills


def check(federation: LocalFederation, config: Path, name: str, out: Path) -> None:
    """Compare a finished run with an undisturbed one."""
    plan = DeployedRun.read(config).plan
    result = Result.read(out)
    algorithm = plan.algorithm()
    if algorithm.privacy is None:
        expected = run(algorithm, SHARDS, seed=plan.seed).outcome
        if not np.array_equal(result.components, expected.components):
            sys.exit(f"{name}: other components than in one process")
    for site in federation.sites.values():
        lines = read_outbound(site.state, run_id=name)
        if len(lines) != len({(line["round"], line["task"], line["what"]) for line in lines}):
            sys.exit(f"{name}: {site.name} has logged a value twice")
        verify(site.state / name / OUTBOUND)
        if algorithm.privacy is not None:
            charged = [line for line in lines if line["cost"] is not None]
            if not charged or name not in Spent(site.state).runs():
                sys.exit(f"{name}: {site.name} has charged nothing")
            total = charged[-1]["total"]["epsilon"]
            if not 0.9 * algorithm.privacy.total_epsilon <= total <= algorithm.privacy.total_epsilon * (1 + 1e-9):
                sys.exit(
                    f"{name}: {site.name} has charged {total}, and the plan says {algorithm.privacy.total_epsilon}"
                )


def main() -> None:
    """Play runs until enough processes have died."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=FULL)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    done = runs = 0
    with tempfile.TemporaryDirectory() as folder, LocalFederation(Path(folder) / "fed", SHARDS) as federation:
        killer = Killer(federation, random.Random(arguments.seed))
        while done < arguments.kills:
            private = runs % 2 == 1
            done += play(
                federation, killer, f"run-{runs}", private=private, most=min(KILLS_A_RUN, arguments.kills - done)
            )
            runs += 1
            print(f"{done} kills in {runs} runs", flush=True)
    rows = "\n".join(f"| {name} | {killer.count[name]} |" for name in VICTIMS)
    text = (
        "# Processes killed in a running federation\n\n"
        f"`python benchmarks/kills.py --seed {arguments.seed}`: {done} kills at random instants in {runs} runs, exact "
        "and\nprivate in turn. Every run ended with the undisturbed result, nothing was logged twice, and every site "
        f"has\ncharged what the plan says. Load average: {machine.load_average()}.\n\n"
        f"| killed | times |\n|---|---|\n{rows}\n"
    )
    print(text)
    if arguments.kills >= FULL:
        OUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
