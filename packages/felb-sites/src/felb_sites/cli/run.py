"""``felb run`` and ``felb status``."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from felb.cli import options
from felb.cli.output import print_json, print_result, print_status, progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from felb_sites.run_record import Status

NOT_EVERYBODY = 3
"""Exit code of a run that is finished without some sites in some rounds."""


@contextmanager
def run_progress(total: int | None) -> Iterator[tuple[Callable[[Status], None], Callable[[str], None]]]:
    """Show a progress bar over the rounds of a federation; failures and recoveries are printed on stderr."""
    with progress_bar("rounds", total) as update:
        yield (
            lambda status: update(completed=status.round, description=status.state),
            lambda line: click.echo(f"note: {line}", err=True),
        )


@click.command("run")
@click.argument("folder", type=click.Path())
@click.option("--config", required=True, type=click.Path(), help="TOML file with the settings of the run.")
@click.option("-o", "--out", required=True, type=click.Path(), help="Folder for the result.")
@click.option("--late", is_flag=True, help="Repeat the last round of a finished run for sites that missed it.")
@click.option("--without", multiple=True, metavar="NAME", help="Site of the run to leave out; can be repeated.")
@click.option("--refit", help="Execute refit N of the run instead, for `felb stability`.", **options.COUNT)
@options.force
@options.as_json
@click.pass_context
def run_command(
    context: click.Context,
    folder: str,
    config: str,
    out: str,
    late: bool,
    without: tuple[str, ...],
    refit: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Execute a run over the sites of the federation in FOLDER, whose server must be running.

    The run begins when every site that it names has agreed to its plan; otherwise the command stops and lists the sites
    that have not, and why.

    An interrupted run continues from its last completed round when the same command is run again. The result contains
    the components, the history and the summed scores; assignments and outbound logs stay at the sites. The exit code is
    3 if the run is finished, but a site has missed rounds or was left out.

    With --refit, each site takes part with a random half of its records, in a run of its own name, ID-refit-N, which it
    approves like any other. `felb stability` tells from several of them how stable the components are.
    """
    from felb_sites.provisioning import Coordinator

    coordinator = Coordinator.open(folder)
    from felb_sites.deployed import DeployedRun, participation, run_deployed

    run = DeployedRun.read(config, without=without)
    run = run if refit is None else run.refit(refit)
    try:
        with run_progress(run.plan.parameters.get("max_iter")) as (advance, tell):
            result = run_deployed(coordinator, run, out, force=force, late=late, on_status=advance, on_event=tell)
    except KeyboardInterrupt as error:
        error.add_note(
            f"resume with: felb run {shlex.quote(folder)} --config {shlex.quote(config)} --out {shlex.quote(out)}"
        )
        raise
    print_result(result, out, as_json=as_json)
    missed = participation(run, result.history)["missed_rounds"]
    for site, count in sorted(missed.items()):
        click.echo(f"note: {site} has missed {count} of {len(result.history)} rounds", err=True)
    for site in without:
        click.echo(f"note: {site} was left out", err=True)
    if missed or without:
        context.exit(NOT_EVERYBODY)


# -- ``felb status`` -------------------------------------------------------------------------------------------------


@click.command("status")
@click.argument("folder", type=click.Path())
@options.as_json
def status_command(folder: str, as_json: bool) -> None:
    """Show the server, the connected sites and the state of the runs of the federation in FOLDER."""
    from felb_sites.provisioning import Coordinator

    coordinator = Coordinator.open(folder)
    from felb_sites.supervisor import overview  # slow to import, and not needed to refuse a wrong folder

    seen = overview(coordinator)
    if as_json:
        print_json(seen)
    else:
        print_status(seen)
