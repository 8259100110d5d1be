"""A complete federation on this machine: coordinator and sites as processes over mutual TLS, for demos and tests."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from typing import IO, TYPE_CHECKING

import scipy.sparse as sp

from felb_sites.coordinator_session import Line, Unreachable
from felb_sites.flare import environment
from felb_sites.guarded import JOBS
from felb_sites.provisioning import Coordinator, Site
from felb_sites.site_roster import write_roster
from felb_sites.terms import FEWEST_SITES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import psutil

    from felb.data.binary import BinaryMatrix

SERVER = "server"
GONE_WITHIN = 10.0
OPEN = {"auto_approve": ["all"], "require_privacy": False}
"""The policy of sites that one person plays: every run is approved, exact ones too."""


class LocalFederation:
    """Coordinator and one site per shard under one folder; the processes end with the block.

    Parameters
    ----------
    folder : an empty or new folder for keys, kits, data and logs
    shards : rows of each site by its name
    policy : of every site, see `Policy`; unless it says otherwise, runs are approved by themselves, and there are no
        disclosure rules, for small public data
    """

    def __init__(
        self, folder: Path, shards: Mapping[str, BinaryMatrix], *, policy: Mapping[str, object] | None = None
    ) -> None:
        self.folder = folder
        self.coordinator = Coordinator.found(folder / "coordinator", name="demo", host="localhost", port=free_port())
        few = {"require_replay": False} if len(shards) < FEWEST_SITES else {}
        self.sites = {
            name: self._site(name, shard, {**OPEN, **few, **(policy or {})}) for name, shard in shards.items()
        }
        if len(shards) >= FEWEST_SITES:
            self._confirm_roster()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, float] = {}
        self._logs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self.start(SERVER)
            for name in self.sites:
                self.start(name)
            self.wait_for_sites()
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    def start(self, name: str, *, env: Mapping[str, str] | None = None) -> None:
        """Start the server or a site, in a session of its own, so that Ctrl-C reaches only whoever started it."""
        command = self.command(name)
        log = (self.folder / f"{name}.log").open("ab")
        self._logs.append(log)
        self._started[name] = time.time()
        self.processes[name] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**environment(), **(env or {})},
            start_new_session=True,
        )

    def command(self, name: str) -> list[str]:
        """Return what `start` starts."""
        return self.coordinator.command() if name == SERVER else self.sites[name].command()

    def kill(self, name: str) -> None:
        """End the server or a site with all its workers at once, as a power cut would."""
        import psutil  # comes with FLARE

        process = self.processes.pop(name)
        frozen: set[psutil.Process] = set()
        # Until nobody new is found: what is frozen can neither end by itself nor start another worker.
        while met := set(_family(process)) - frozen:
            for member in met:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.suspend()
            frozen |= met
        for member in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()
        # A worker holds the lock of its run until it is gone.
        psutil.wait_procs(frozen, timeout=GONE_WITHIN)

    def workers(self, name: str) -> list[int]:
        """Return the processes that play a job for the server or a site."""
        import psutil

        found = []
        for child in _family(self.processes[name])[1:]:
            with contextlib.suppress(psutil.NoSuchProcess):
                if not JOBS.isdisjoint(child.cmdline()):
                    found.append(child.pid)
        return found

    def stop_all(self) -> None:
        """End everything that was started here."""
        for name in list(self.processes):
            self.kill(name)
        for log in self._logs:
            log.close()
        self._logs.clear()

    def wait_for_sites(self, *, seconds: float = 90.0) -> None:
        """Wait until every running site is connected, and not only remembered from before it was started."""
        wanted = [name for name in self.processes if name != SERVER]
        end = time.monotonic() + seconds
        with Line(self.coordinator) as line:
            line.wait(seconds)
            while True:
                heard: Mapping[str, float] = {}
                with contextlib.suppress(Unreachable):  # a busy machine may answer late
                    heard = line.heard()
                if all(heard.get(name, 0) > self._started[name] for name in wanted):
                    return
                if time.monotonic() > end:
                    raise TimeoutError(f"sites did not connect within {seconds:.0f} s; see {self.folder}/*.log")
                time.sleep(0.3)

    def _confirm_roster(self) -> None:
        """Confirm the roster of all sites at each of them, as the people there would after a telephone call."""
        roster = self.coordinator.roster(sorted(self.sites))
        for site in self.sites.values():
            site.rosters.propose(write_roster(roster))
            site.rosters.confirm(roster.digest)

    def _site(self, name: str, shard: BinaryMatrix, policy: dict[str, object]) -> Site:
        site, request = Site.join(self.folder / name, self.coordinator.invitation, name=name)
        signed, key = self.folder / f"{name}.signed.zip", site.key_fingerprint()
        site.admit(self.coordinator.approve(request, signed, name=name, key_fingerprint=key))
        data = site.folder / "data.npz"
        sp.save_npz(data, shard.to_scipy(bool))
        if shard.columns is not None:
            (site.folder / "data.columns.txt").write_text("\n".join(shard.columns) + "\n", encoding="utf-8")
        site.configure(data=str(data), policy={"disclosure": "none", **policy})
        return site


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return a process and all that it has started; nothing if it has ended."""
    import psutil

    if process.poll() is not None:
        return []
    try:
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
