"""Kill processes of a real federation at random instants and compare the results with undisturbed ones.

A coordinator and three sites as processes on this machine, over mutual TLS, play one run after the other: exact with
sums in the clear, private, and exact with masked sums, in turn. Meanwhile a random process dies by SIGKILL at random
instants: the vault, the courier or the job worker of a site, a whole site, the server, or the coordinator's `felb run`.
What an operating system would start again (systemd) is started again. At the end of each run:

- the components of an exact or masked run, and its history, are those of the same run in one process, bit for bit;
- those of a private run, whose noise is nobody's to know, follow from the one response of each site to each round;
- the log of each site has the lines of an undisturbed run of its kind, each once, and its chain verifies;
- each site has charged what it charged in the undisturbed run, neither twice nor too little.

    python benchmarks/kills.py                     100 kills, about 20 minutes on a quiet machine
    python benchmarks/kills.py --kills 10          a try; writes nothing

Prints a line for every run and writes a table to benchmarks/KILLS.md after each; ends with an error at the first run
that differs, and leaves its folder.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from common import listed, make_parser, write_page

from felb.data import partition
from felb.data.files import load
from felb.data.partition import split
from felb.engines.local import run
from felb.federated.journal import read_entry
from felb.federated.loop import Execution
from felb.federated.protocol import Release
from felb.metrics.counts import History
from felb.privacy.outbound_log import verify
from felb.runs.result import Result
from felb_sites.deployed import DeployedRun
from felb_sites.flare import environment
from felb_sites.local_federation import SERVER, LocalFederation
from felb_sites.rounds import summed
from felb_sites.site_budget import Spent
from felb_sites.site_logs import OUTBOUND, read_outbound
from felb_sites.site_session import ATTEMPTS, RESPONSES

if TYPE_CHECKING:
    import argparse

    from felb_sites.run_plan import Plan

ZOO = load("zoo")
SITES = ("site-1", "site-2", "site-3")
SHARDS = split(ZOO, [SITES[i] for i in partition.even(101, 3)])[0]
VICTIMS = ("vault", "courier", "worker", "site", "server", "coordinator")
FULL = 100
PAUSES = 0.5, 6.0
"""Seconds between two kills, drawn between these."""
KILLS_A_RUN = 10
MOST_FAILURES = 3
"""Of `felb run` for one run, while nothing was killed."""
POLICY = {"exact_after_private": True}
"""The same rows are used in runs of all kinds."""
OUT = Path(__file__).with_name("KILLS.md")
COMMON = """
id = "{name}"
columns = "{columns}"
sites = ["site-1", "site-2", "site-3"]
seed = {seed}
"""
TERMS = """
[terms]
quorum = 3
round_timeout = 60
rounds_per_job = 25
"""
EXACT = f"""{COMMON}
method = "felb-mu"
components = 4
disclosure = "none"
[parameters]
max_iter = 60
{TERMS}"""
PRIVATE = f"""{COMMON}
components = 3
[parameters]
effort = "fast"
[privacy]
epsilon = 1.0
delta = 1e-6
records = 101
mechanism = "statistics"
rounds = 25
{TERMS}"""
KINDS = {
    "exact": f"{EXACT}secure = false\n",
    "private": f"{PRIVATE}secure = false\n",
    "masked": f"{EXACT}secure = true\n",
}


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


@dataclass
class Undisturbed:
    """What each site has logged and charged in a run of one kind without kills."""

    lines: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    charged: dict[str, Any] = field(default_factory=dict)


def settings(federation: LocalFederation, kind: str, name: str) -> Path:
    """Write the settings of a run; return their file."""
    columns, config = federation.folder / "columns.txt", federation.folder / f"{name}.toml"
    columns.write_text("\n".join(ZOO.columns or ()) + "\n", encoding="utf-8")
    config.write_text(KINDS[kind].format(name=name, columns=columns, seed=len(name)), encoding="utf-8")
    return config


def play(federation: LocalFederation, killer: Killer, config: Path, *, most: int) -> int:
    """Play a run to its end under at most so many kills; return how many there were."""
    folder, name = federation.folder, config.stem
    command = [sys.executable, "-m", "felb", "run", str(federation.coordinator.folder)]
    command += ["--config", str(config), "--out", str(folder / f"{name}-out")]
    kills, failures, next_at = 0, 0, time.monotonic() + killer.pause()
    with (folder / f"{name}.log").open("ab") as log:
        while failures < MOST_FAILURES:
            before = kills
            started = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment())
            while started.poll() is None:
                time.sleep(0.05)
                if kills < most and time.monotonic() > next_at:
                    kills += killer.strike(started)
                    next_at = time.monotonic() + killer.pause()
            if started.returncode == 0:
                return kills
            failures += kills == before
    raise AssertionError("does not end")


def check(federation: LocalFederation, config: Path, undisturbed: Undisturbed) -> None:
    """Compare a finished run with an undisturbed one; the first of its kind is that, and is set down."""
    name, plan = config.stem, DeployedRun.read(config).plan
    result, algorithm = Result.read(federation.folder / f"{name}-out"), plan.algorithm()
    if algorithm.privacy is None:
        local = run(algorithm, SHARDS, seed=plan.seed)
        components, history = local.outcome.components, list(local.history)
    else:
        execution = replayed(federation, plan)
        assert execution.outcome is not None
        components, history = execution.outcome.components, list(History(execution.rows))
    assert np.array_equal(result.components, components), "other components"
    assert [row["task"] for row in result.history] == [row["task"] for row in history], "other rounds"
    assert all(row["clients"] == len(SITES) for row in result.history), "a round without one of the sites"
    for site in federation.sites.values():
        lines = read_outbound(site.state, run_id=name)
        keys = [(line["round"], line["task"], line["what"]) for line in lines]
        assert len(keys) == len(set(keys)), f"{site.name} has logged a value twice"
        assert keys == undisturbed.lines.setdefault(site.name, keys), f"{site.name} has logged other values"
        assert verify(site.state / name / OUTBOUND).lines == len(keys), f"{site.name} has a log that does not verify"
        assert not list((site.state / name / ATTEMPTS).iterdir()), f"{site.name} has a request that failed"
        spent = {key: fact for key, fact in Spent(site.state).runs().get(name, {}).items() if key != "began"}
        charged = [spent, *(line["total"] for line in lines)]
        assert charged == undisturbed.charged.setdefault(site.name, charged), f"{site.name} has charged otherwise"
        assert bool(spent) == (algorithm.privacy is not None)


def replayed(federation: LocalFederation, plan: Plan) -> Execution:
    """Return a private run as it follows from what each site keeps: one response to each round, with its noise."""
    execution = Execution(plan.algorithm(), seed=plan.seed)
    while (request := execution.request) is not None:
        releases = {}
        for site in federation.sites.values():
            (path,) = (site.state / plan.run_id / RESPONSES).glob(f"response-{request.round:07}-*")
            arrays = read_entry(path, advice="")[1]
            values = {part.removeprefix("value/"): array for part, array in arrays.items() if part.startswith("value/")}
            releases[site.name] = Release(values)
        execution.receive(summed(request, releases, {}))
    return execution


def table(killer: Killer, runs: Counter[str], arguments: argparse.Namespace) -> str:
    """Return what KILLS.md says."""
    facts = listed()
    return "\n".join(
        [
            "# Processes killed in a running federation",
            "",
            f"Written by `benchmarks/kills.py --seed {arguments.seed}`: {killer.count.total()} kills by SIGKILL at",
            f"random instants in {runs.total()} runs over three sites, beside one undisturbed run of each kind. Every",
            "run ended with the undisturbed result; each site logged what it logs in an undisturbed run, each value",
            "once, and charged neither twice nor too little.",
            "",
            "| killed | times | | kind of run | runs |",
            "|---|---|---|---|---|",
            *(
                f"| {victim} | {killer.count[victim]} | | {kind} | {runs[kind] if kind else ''} |"
                for victim, kind in zip(VICTIMS, (*KINDS, *[""] * (len(VICTIMS) - len(KINDS))), strict=True)
            ),
            "",
            *facts,
            "",
        ]
    )


def main() -> None:
    """Play runs until enough processes have died."""
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=FULL)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    place, runs = Path(tempfile.mkdtemp(prefix="felb-kills-")), Counter[str]()
    undisturbed = {kind: Undisturbed() for kind in KINDS}
    with LocalFederation(place / "fed", SHARDS, policy=POLICY) as federation:
        killer, number = Killer(federation, random.Random(arguments.seed)), 0
        while (done := killer.count.total()) < arguments.kills:
            kind = list(KINDS)[number % len(KINDS)]
            most = 0 if number < len(KINDS) else min(KILLS_A_RUN, arguments.kills - done)
            config = settings(federation, kind, f"run-{number:03}")
            try:
                kills = play(federation, killer, config, most=most)
                check(federation, config, undisturbed[kind])
            except AssertionError as error:
                sys.exit(f"{config.stem} ({kind}): {error}; see {place}")
            runs[kind] += bool(most)
            number += 1
            print(
                f"{config.stem} ({kind}): as undisturbed after {kills} kills; {killer.count.total()} in all", flush=True
            )
            if arguments.kills >= FULL:
                write_page(OUT, table(killer, runs, arguments))
    print(table(killer, runs, arguments))
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
