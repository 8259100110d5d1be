"""``felb run``."""

from __future__ import annotations

import shlex

import click

from felb.cli import options
from felb.cli.output import print_result
from felb.cli.progress import run_progress
from felb.engines.nvflare.provisioning import Coordinator
from felb.runs.deployed import DeployedRun, run_deployed


@click.command("run")
@click.argument("folder", type=click.Path())
@click.option("--config", required=True, type=click.Path(), help="TOML file with the settings of the run.")
@click.option("-o", "--out", required=True, type=click.Path(), help="Folder for the result.")
@click.option("--late", is_flag=True, help="Repeat the last round of a finished run for sites that missed it.")
@options.force
@options.as_json
def command(folder: str, config: str, out: str, late: bool, force: bool, as_json: bool) -> None:
    """Execute a run over the sites of the federation in FOLDER, whose server must be running.

    An interrupted run continues from its last completed round when the same command is run again. The result contains
    the components, the history and the summed scores; assignments and outbound logs stay at the sites.
    """
    run = DeployedRun.read(config)
    coordinator = Coordinator.open(folder)
    try:
        with run_progress(run.plan.parameters.get("max_iter")) as (advance, tell):
            result = run_deployed(coordinator, run, out, force=force, late=late, on_status=advance, on_event=tell)
    except KeyboardInterrupt as error:
        error.add_note(
            f"resume with: felb run {shlex.quote(folder)} --config {shlex.quote(config)} --out {shlex.quote(out)}"
        )
        raise
    print_result(result, out, as_json=as_json)
