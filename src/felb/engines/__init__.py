"""Where federations run."""

from felb.engines.local import Participation, run
from felb.federated.loop import Run, RunProgress

__all__ = ["Participation", "Run", "RunProgress", "run"]
