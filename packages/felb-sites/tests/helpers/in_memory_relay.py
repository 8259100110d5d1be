"""A relay without its process, in front of real vaults: what is posted to sites is delivered at once."""

from __future__ import annotations

from types import SimpleNamespace

from felb_sites.envelopes import COORDINATOR, read_envelope


class Killed(BaseException):
    """The process of the coordinator was killed."""


class InMemoryRelay:
    """Implements what `felb run` asks of a relay.

    Parameters
    ----------
    loopback : the sites
    """

    def __init__(self, loopback):
        self.loopback, self.kept, self.seq = loopback, [], 0
        self.away, self.calls, self.die_at = set(), 0, None
        self.lost = lambda header: False
        self.before_post = lambda header: None

    def _call(self):
        self.calls += 1
        if self.die_at is not None and self.calls >= self.die_at:
            self.die_at = None
            raise Killed

    def open_run(self, run, sites, most_bytes):
        self._call()

    def post(self, *envelopes):
        self._call()
        for data in envelopes:
            header = read_envelope(data).header
            self.before_post(header)
            for name in header.receivers:
                if name not in self.away:
                    self.loopback.vaults[name].deliver([data])
                    self.collect(name)

    def collect(self, name):
        for seq, data in self.loopback.vaults[name].fetch(self.loopback.read_up_to[name], 0.0).envelopes:
            self.loopback.read_up_to[name] = seq
            header = read_envelope(data).header
            if header.receivers == (COORDINATOR,) and not self.lost(header):
                self.seq += 1
                self.kept.append((self.seq, header, data))

    def next(self, run, after, wait, count=1):
        self._call()
        for name in self.loopback.vaults:
            if name not in self.away:
                self.collect(name)
        return [(seq, data) for seq, header, data in self.kept if header.run == run and seq > after]

    def forget(self, run, before, kinds):
        self._call()
        self.kept = [
            (seq, header, data)
            for seq, header, data in self.kept
            if not (header.run == run and seq < before and (not kinds or header.kind in kinds))
        ]

    def close_run(self, run):
        self._call()
        self.kept = [entry for entry in self.kept if entry[1].run != run]

    def sites(self):
        return {name: {"connected": name not in self.away, "seconds": 0, "waiting": 0} for name in self.loopback.vaults}

    def is_alive(self):
        return True


def host(loopback):
    """Return a coordinator's folder for the sites of a loopback."""
    folder = loopback.folder / "coordinator"
    folder.mkdir(exist_ok=True)
    loopback.run_key.write(folder / "run.key")
    invitation = SimpleNamespace(name="loopback", federation="f" * 32, url="https://localhost:1")
    return SimpleNamespace(folder=folder, invitation=invitation, members=loopback.members)
