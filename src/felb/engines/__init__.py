"""Where federations run."""

from felb.engines.local import Participation, Run, Snapshot, run

__all__ = ["Participation", "Run", "Snapshot", "run"]
