"""A whole federation on this machine: a relay, and a vault and a courier for each site, as processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from felb.data.storage import save_matrix
from felb.errors import FederationError
from felb_sites.coordinator.folder import Federation
from felb_sites.loader import load
from felb_sites.relay.client import RelayClient
from felb_sites.site_folder import Site
from felb_sites.supervise import SiteProcesses
from felb_sites.vault.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

    from felb.data.binary import BinaryMatrix

RELAY = "relay"
START_SECONDS = 20.0
"""For each site to be connected; a busy machine takes long to start processes."""
END_SECONDS = 10.0


class LocalFederation:
    """A coordinator and sites in subfolders of a folder; within ``with``, their processes run.

    Parameters
    ----------
    folder : a new one
    shards : rows of the sites by name
    policy : of every site
    confirm : let every site confirm the keys of the others, as people do by telephone
    proxies : URL of the proxy of a site, by its name
    settings : of the coordinator, beside those of the loopback interface, see `Federation.create`

    Attributes
    ----------
    federation : the coordinator's folder
    sites : folders of the sites by name
    processes : that run now, see `names`
    """

    def __init__(
        self,
        folder: Path,
        shards: Mapping[str, BinaryMatrix],
        *,
        policy: Mapping[str, Any] | None = None,
        confirm: bool = True,
        proxies: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.folder, self._confirm, self._proxies = folder, confirm, dict(proxies or {})
        settings = {"name": "local", "host": "localhost", "listen": "loopback", **settings}
        self.federation = Federation.create(
            folder / "coordinator", **{**settings, "port": settings.get("port") or find_free_port()}
        )
        self.sites: dict[str, Site] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in shards:
            site, request = Site.join(folder / name, self.federation.invitation, name=name)
            self.federation.approve(request, name=name, fingerprint=site.fingerprint)
            site.configure(data=str(site.folder / "data.felb"), policy=dict(policy or {}))
            self.sites[name] = site
        self.load(shards)

    def load(self, shards: Mapping[str, BinaryMatrix]) -> None:
        """Give sites other rows, which later runs are about."""
        for name, rows in shards.items():
            site = self.sites[name]
            save_matrix(rows, site.folder / "data.felb")
            load(site.vault)

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_until_connected()
            if self._confirm:
                for site in self.sites.values():
                    operator = Operator(site.vault)
                    operator.confirm(operator.roster()["digest"], by="local")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def names(self) -> list[str]:
        """Names of the processes: ``relay``, and ``vault:SITE`` and ``courier:SITE`` for each site."""
        return [RELAY, *(f"{kind}:{name}" for name in self.sites for kind in ("vault", "courier"))]

    def start(self, *names: str) -> None:
        """Start processes, all of them if none is named."""
        for name in names or self.names:
            kind, _, site = name.partition(":")
            folder = self.federation.folder if kind == RELAY else getattr(self.sites[site], kind)
            if kind == "courier":
                proxy = self._proxies.get(site)
                made = SiteProcesses(
                    self.sites[site], courier_user=None, one_user=True, tell=lambda _: None, proxy=proxy
                )
                made.prepare()
            path = self.folder / f"{kind}-{site or 'coordinator'}.log"
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", f"felb_sites.{kind}.process", str(folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "FELB_DIES_WITH_PARENT": "1"},
                )

    def kill(self, name: str) -> None:
        """End a process at once, as ``kill -9`` does."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def wait_until_connected(self) -> None:
        """Wait until the relay has heard of every site."""
        end = time.monotonic() + START_SECONDS * len(self.sites)
        while time.monotonic() < end:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise FederationError(f"{name} has ended; its log is in {self.folder}")
            if self._connected() and self._have_members():
                return
            time.sleep(0.05)
        raise FederationError("the sites of the local federation were not connected in time")

    def _connected(self) -> bool:
        with RelayClient(self.federation.relay_socket) as client:
            seen = client.sites() if client.is_alive() else {}
        return all(seen.get(name, {}).get("connected") for name in self.sites)

    def _have_members(self) -> bool:
        """Whether every vault has the newest member list."""
        number = self.federation.members.listed.number
        listening = all(site.operator_socket.exists() for site in self.sites.values())
        return listening and all(Operator(s.vault).status()["members"] == number for s in self.sites.values())


def find_free_port() -> int:
    """Return a TCP port of the loopback interface that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
