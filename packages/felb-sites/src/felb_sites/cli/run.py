"""``felb run`` and ``felb status``."""

from __future__ import annotations

import shlex
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from felb.cli import options
from felb.cli.output import WIDTH, print_facts, print_json, print_result, progress_bar
from felb.errors import FelbError, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOT_EVERYBODY = 3
"""Exit code of a run that is finished without some sites in some rounds."""


@contextmanager
def run_progress(total: int | None) -> Iterator[tuple[Callable[[Any], None], Callable[[str], None]]]:
    """Show a progress bar over the rounds of a federation; failures and recoveries are printed on stderr."""
    with progress_bar("rounds", total) as update:
        yield (
            lambda status: update(completed=status.round, description=status.state),
            lambda line: click.echo(f"note: {line}", err=True),
        )


@contextmanager
def naming_settings() -> Iterator[None]:
    """Let an error name no option: what a run is, its file of settings says."""
    try:
        yield
    except FelbError as error:
        error.parameter = None
        raise


@click.command("run")
@click.argument("folder", type=click.Path())
@click.option("--config", required=True, type=click.Path(), help="TOML file with the settings of the run.")
@click.option("-o", "--out", type=click.Path(), help="Folder for the result; not with --rehearse.")
@click.option("--late", is_flag=True, help="Repeat the last round of a finished run for sites that missed it.")
@click.option("--without", multiple=True, metavar="NAME", help="Site of the run to leave out; can be repeated.")
@click.option("--refit", help="Execute refit N of the run instead, for `felb stability`.", **options.COUNT)
@click.option("--rehearse", is_flag=True, help="Play the run on synthetic rows instead, and keep no result.")
@options.force
@options.as_json
@click.pass_context
def run_command(
    context: click.Context,
    folder: str,
    config: str,
    out: str | None,
    late: bool,
    without: tuple[str, ...],
    refit: int | None,
    rehearse: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Execute a run over the sites of the federation in FOLDER, whose relay must be running.

    The run begins when every site that it names has agreed to its plan; otherwise the command stops and lists the sites
    that have not, and why.

    An interrupted run continues from its last completed round when the same command is run again. The result contains
    the components, the history and the summed scores; assignments and outbound logs stay at the sites. The exit code is
    3 if the run is finished, but a site has missed rounds or was left out.

    With --refit, each site takes part with a random half of its records, in a run of its own name, ID-refit-N, which it
    approves like any other. `felb stability` tells from several of them how stable the components are.

    With --rehearse, the whole run is played over all sites with synthetic rows, which each site draws itself, in a run
    of its own name, ID-rehearsal-N. It tries the network, the users, the approvals and the masks; no record is read,
    and no privacy budget is spent.
    """
    from felb_sites.coordinator.folder import Federation

    federation = Federation.open(folder)
    from felb_sites.coordinator.run import run_deployed
    from felb_sites.coordinator.settings import DeployedRun

    with naming_settings():
        run = DeployedRun.read(config, without=without)
        run = run if refit is None else run.refit(refit)
    if rehearse:
        if out is not None or late or force:
            raise click.UsageError("A rehearsal keeps no result: leave out --out, --late and --force.")
        run = run.rehearsal(federation)
    elif out is None:
        raise click.UsageError("Give the folder for the result, --out, or --rehearse.")
    try:
        with naming_settings(), run_progress(run.plan.parameters.get("max_iter")) as (advance, tell):
            result = run_deployed(federation, run, out, force=force, late=late, on_status=advance, on_event=tell)
    except KeyboardInterrupt as error:
        words = ("felb", "run", folder, "--config", config, *(("--rehearse",) if out is None else ("--out", out)))
        error.add_note(f"resume with: {shlex.join(words)}")
        raise
    if out is None:
        facts = {
            "rehearsal": run.plan.run_id,
            "sites": len(result.clients),
            "rounds": len(result.history),
            "records read": 0,
            "result": "none",
        }
        print_facts(facts, as_json=as_json)
    else:
        print_result(result, out, as_json=as_json)
    from felb_sites.coordinator.run import participation

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
    """Show the relay, the connected sites and the state of the runs of the federation in FOLDER."""
    from felb_sites.coordinator.folder import Federation

    federation = Federation.open(folder)
    from felb_sites.coordinator.run import overview  # slow to import, and not needed to refuse a wrong folder

    seen = overview(federation)
    if as_json:
        print_json(seen)
    else:
        print_overview(seen)


def print_overview(seen: dict[str, Any]) -> None:
    """Print the relay, the sites and the runs of a federation."""
    facts = {
        "federation": seen["federation"],
        "relay": f"{seen['relay']} ({'running' if seen['reachable'] else 'not running'})",
    }
    print_facts(facts, as_json=False)
    for name, site in seen["sites"].items():
        seconds = site["seconds"]
        heard = "" if seconds is None or site["connected"] else f", last heard {seconds:.0f} s ago"
        waiting = f", {site['waiting']} envelopes wait for it" if site["waiting"] else ""
        print_wrapped(f"site {name}: {'connected' if site['connected'] else 'not connected'}{heard}{waiting}")
    if not seen["sites"]:
        click.echo("no sites; admit them with `felb federation approve`")
    for run in seen["runs"]:
        changed = str(run["changed"])[:16].replace("T", " ")
        click.echo()
        print_wrapped(f"run {run['run']}: {run['state']}, round {run['round']}, {changed}")
        if run["sites"]:
            print_wrapped(f"answered: {', '.join(run['sites'])}", indent="  ")
        for site, reason in run["reasons"].items():
            print_wrapped(f"{site}: {reason}", indent="  ")
        if run["message"]:
            print_wrapped(run["message"], indent="  ")


def print_wrapped(text: str, *, indent: str = "") -> None:
    """Print a text in at most 80 columns; its further lines are indented by two more."""
    further = f"{indent}  "
    lines = textwrap.wrap(
        printable(text), WIDTH, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False
    )
    click.echo("\n".join(lines))
