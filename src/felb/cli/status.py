"""``felb status``."""

from __future__ import annotations

import click

from felb.cli import options
from felb.cli.output import print_json, print_status


@click.command("status")
@click.argument("folder", type=click.Path())
@options.as_json
def command(folder: str, as_json: bool) -> None:
    """Show the server, the connected sites and the state of the runs of the federation in FOLDER."""
    from felb.engines.nvflare.provisioning import Coordinator

    coordinator = Coordinator.open(folder)
    from felb.engines.nvflare.supervisor import overview  # slow to import, and not needed to refuse a wrong folder

    seen = overview(coordinator)
    if as_json:
        print_json(seen)
    else:
        print_status(seen)
