"""``felb site``: what a site does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import click

from felb.cli import options
from felb.cli.log_table import print_outbound
from felb.cli.output import print_facts, print_json
from felb.data.database_url import check_no_password
from felb.data.raw_source import is_url
from felb.engines.nvflare.flare import environment
from felb.engines.nvflare.provisioning import Invitation, Site
from felb.engines.nvflare.refusals import read_refusals
from felb.engines.nvflare.site_budget import Spent
from felb.engines.nvflare.site_session import read_outbound
from felb.errors import InputError
from felb.privacy.cost import Unit
from felb.privacy.spec import MechanismName, NoisePlace

POSITIVE = click.FloatRange(0, min_open=True)


@click.group("site")
def command() -> None:
    """Take part in a federation as a site that keeps its data.

    A site needs no open port: it connects to the coordinator. Needs felb[nvflare].
    """


@command.command("join")
@click.argument("folder", type=click.Path())
@click.option("--invitation", required=True, type=click.Path(), help="The file the coordinator has sent.")
@click.option("--name", required=True, help="Name of this site in the federation.")
@click.option("--fingerprint", help="What the coordinator read out; must agree with the invitation.")
@options.as_json
def join(folder: str, invitation: str, name: str, fingerprint: str | None, as_json: bool) -> None:
    """Make this site's key in FOLDER, and a request to send to the coordinator.

    The private key stays in FOLDER.
    """
    invited = Invitation.read(invitation)
    if fingerprint is not None and fingerprint.strip().upper() != invited.fingerprint.upper():
        raise InputError("the fingerprint is not the invitation's: it was changed on its way; ask the coordinator")
    site, request = Site.join(folder, invited, name=name)
    print_facts({"send": str(request), "fingerprint": invited.fingerprint, "folder": str(site.folder)}, as_json=as_json)


@command.command("start")
@click.argument("folder", type=click.Path())
@click.option("--approval", type=click.Path(), help="The file the coordinator has sent back; needed once.")
@click.option("--data", type=click.Path(), help="This site's data file, or the URL of its database; remembered.")
@click.option("--schema", type=click.Path(), help="Schema by which raw data is read; runs must be under the same.")
@click.option("--header/--no-header", default=None, help="Whether a text file names its columns; else detected.")
@click.option("--binarize-threshold", type=float, metavar="X", help="Make ones of values above this.")
@click.option("--missing", type=click.Choice(["error", "unknown", "zero"]), help="What an empty cell of the data is.")
@click.option("--allow", multiple=True, metavar="METHOD", help="Run only this method; may be repeated.")
@click.option("--min-rows", help="Take part only with at least this many rows.", **options.COUNT)
@click.option("--require-privacy/--no-require-privacy", default=None, help="Refuse runs that guarantee no privacy.")
@click.option("--max-epsilon", type=POSITIVE, metavar="X", help="Most ε of a run.")
@click.option("--max-delta", type=POSITIVE, metavar="X", help="Most δ of a run.")
@click.option("--total-epsilon", type=POSITIVE, metavar="X", help="Most ε of all runs together.")
@click.option(
    "--mechanism",
    multiple=True,
    type=click.Choice(get_args(MechanismName)),
    help="Accept only this one; may be repeated.",
)
@click.option("--unit", type=click.Choice(get_args(Unit)), help="Whose presence a run must hide.")
@click.option("--noise", type=click.Choice(get_args(NoisePlace)), help="Accept noise that is added there.")
@click.option("--check", is_flag=True, help="Check everything, read the data, and do not start.")
@options.as_json
def start(
    folder: str,
    approval: str | None,
    data: str | None,
    schema: str | None,
    header: bool | None,
    binarize_threshold: float | None,
    missing: str | None,
    allow: tuple[str, ...],
    mechanism: tuple[str, ...],
    check: bool,
    as_json: bool,
    **conditions: object,
) -> None:
    """Run the site in FOLDER until it is stopped; its data never leaves this machine.

    Settings are remembered in kit/local/felb.json, so that later starts need none. The password of a database comes
    from the environment (PGPASSWORD) or a password file of mode 0600.
    """
    site = Site.open(folder)
    if approval is not None:
        site.admit(approval)
    arguments = site.command()
    policy = options.given(allowed_methods=list(allow) or None, mechanisms=list(mechanism) or None, **conditions)
    where, rules = (None if path is None or is_url(path) else str(Path(path).absolute()) for path in (data, schema))
    if data is not None and is_url(data):
        check_no_password(data)
        where = data
    config = site.configure(
        **options.given(
            data=where, header=header, binarize_threshold=binarize_threshold, missing=missing, schema=rules
        ),
        policy=policy,
    )
    if check or as_json:
        rows, columns = config.read().shape
        print_facts({"site": site.name, "data": config.data, "rows": rows, "columns": columns}, as_json=as_json)
        return
    if not is_url(config.data) and not Path(config.data).exists():
        raise InputError(f"there is no data at {config.data}; give it with --data")
    os.execve(arguments[0], arguments, environment())


@command.command("log")
@click.argument("folder", type=click.Path())
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@click.option("--refused", is_flag=True, help="What was refused instead, and why.")
@options.as_json
def log(folder: str, run_id: str | None, refused: bool, as_json: bool) -> None:
    """Show what has left the site in FOLDER: run, rounds, what, shape, bytes, mechanism, cost, running total.

    The full log is in state/RUN/outbound.jsonl.
    """
    state = Site.open(folder).state
    lines = read_refusals(state, run_id=run_id) if refused else read_outbound(state, run_id=run_id)
    if as_json:
        print_json(lines)
    elif refused:
        for line in lines:
            click.echo(f"{line.get('time')}  run {line.get('run')}: {line.get('reason')}")
    else:
        print_outbound(lines, nothing="nothing has left this site")


@command.command("budget")
@click.argument("folder", type=click.Path())
@options.as_json
def budget(folder: str, as_json: bool) -> None:
    """Show what the runs of the site in FOLDER may have cost in privacy: each, all together, and what is left.

    A run counts in full from its first answer on, also if it broke off.
    """
    site = Site.open(folder)
    spent, limit = Spent(site.state), site.config().policy.total_epsilon
    epsilon, delta = spent.total()
    runs = {run: (facts["epsilon"], facts["delta"]) for run, facts in spent.runs().items()}
    if as_json:
        print_json({"runs": spent.runs(), "epsilon": epsilon, "delta": delta, "total_epsilon": limit})
        return
    facts = {f"run {run}": f"epsilon {e:g}, delta {d:.3g}" for run, (e, d) in runs.items()}
    left = "no limit is set" if limit is None else f"{max(0.0, limit - epsilon):g} of {limit:g} is left"
    print_facts({**facts, "in all": f"epsilon {epsilon:g}, delta {delta:.3g}; {left}"}, as_json=False)
