"""How FLARE starts the process of a job: with the list of topics in place, and a short environment."""

from __future__ import annotations

import shlex
from typing import Any

from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher

GUARDED = "felb_sites.guarded"


def guarded_command(command: str) -> str:
    """Return FLARE's command with the guard before its module."""
    words = shlex.split(command, posix=True)
    place = words.index("-m")
    return shlex.join([*words[: place + 1], GUARDED, *words[place + 1 :]])


class SiteLauncher(ClientProcessJobLauncher):
    """Starts the process of a job at a site."""

    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        """Return the command of a job."""
        return guarded_command(super().get_command(job_meta, fl_ctx))


class ServerLauncher(ServerProcessJobLauncher):
    """Starts the process of a job at the server."""

    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        """Return the command of a job."""
        return guarded_command(super().get_command(job_meta, fl_ctx))
