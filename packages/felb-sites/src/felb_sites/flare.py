"""Programs of FLARE that run as separate processes: provisioning, server and site."""

from __future__ import annotations

import importlib.util
import json
import os
import site
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from felb.errors import FelbError, InputError, MissingExtraError

if TYPE_CHECKING:
    from pathlib import Path

COORDINATOR_ORG = "coordinator"
KEPT = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "VIRTUAL_ENV",
     "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
     "http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy"}
)  # fmt: skip
KEPT_PREFIXES = ("LC_", "NUMBA_", "OMP_", "OPENBLAS_", "MKL_", "GRPC_", "PYTHONWARN", "COVERAGE_", "FELB_")
"""Variables that the server's and the sites' processes get."""


class FlareError(FelbError, RuntimeError):
    """A program of FLARE refused; the message is its own."""


def require_flare() -> None:
    """Raise an error that says what to install unless FLARE is there."""
    if importlib.util.find_spec("nvflare") is None:
        raise MissingExtraError("a federation over a network needs NVIDIA FLARE: pip install felb-sites")
    if sys.platform == "win32":
        raise InputError("federations over a network run on Linux and macOS; use a container or WSL on Windows")


def flare(*arguments: str | os.PathLike[str], home: Path) -> dict[str, Any]:
    """Run a command of FLARE and return what it says; `home` keeps its bookkeeping out of the user's home."""
    require_flare()
    command = [sys.executable, "-m", "nvflare.cli", "--format", "json", *(str(argument) for argument in arguments)]
    # Packages installed for a user alone are looked for in the home folder.
    base = os.environ.get("PYTHONUSERBASE") or site.getuserbase() or ""
    env = {**os.environ, "HOME": str(home), "PYTHONUSERBASE": base}
    done = subprocess.run(command, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL, check=False)
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            said = json.loads(line)
            if said.get("status") == "ok":
                return dict(said.get("data") or {})
            raise FlareError(f"{said.get('message', 'FLARE refused')} {said.get('hint', '')}".strip())
    raise FlareError(f"`nvflare {' '.join(command[5:7])}` failed: {(done.stderr or done.stdout).strip()[-500:]}")


def server_command(kit: Path) -> list[str]:
    """Return the command that runs a coordinator's server in the foreground."""
    return _command("server", kit, f"org={COORDINATOR_ORG}")


def site_command(kit: Path, *, name: str, org: str) -> list[str]:
    """Return the command that runs a site in the foreground."""
    return _command("client", kit, f"uid={name}", f"org={org}")


def environment() -> dict[str, str]:
    """Return the environment for these commands: what they need of this process's own, and few arenas of memory.

    A job's settings may name variables, which FLARE fills in; so those of the person who starts a site stay outside.
    """
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    return {**kept, "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "4")}


def _command(kind: str, kit: Path, *settings: str) -> list[str]:
    program = f"nvflare.private.fed.app.{kind}.{kind}_train"
    options = ["-m", str(kit), "-s", f"fed_{kind}.json", "--set", "secure_train=true", *settings, "config_folder="]
    return [sys.executable, "-u", "-m", "felb_sites.guarded", program, *options]
