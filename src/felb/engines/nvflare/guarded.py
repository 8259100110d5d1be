"""Runs a program of FLARE with the list of topics in place: ``python -m felb.engines.nvflare.guarded MODULE …``."""

from __future__ import annotations

import runpy
import sys

from felb.engines.nvflare.topic_guard import install

PROGRAMS = frozenset(
    {
        "nvflare.private.fed.app.client.client_train",
        "nvflare.private.fed.app.client.worker_process",
        "nvflare.private.fed.app.server.server_train",
        "nvflare.private.fed.app.server.runner_process",
    }
)


def main() -> None:
    """Guard this process, then become the program."""
    if len(sys.argv) < 2 or sys.argv[1] not in PROGRAMS:
        raise SystemExit(f"give one of {', '.join(sorted(PROGRAMS))}")
    install()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
