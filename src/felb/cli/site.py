"""``felb site``: what a site does."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import click

from felb.cli import options
from felb.cli.log_table import print_outbound
from felb.cli.output import print_facts, print_json
from felb.engines.nvflare.certificates import read_fingerprint
from felb.engines.nvflare.flare import environment
from felb.engines.nvflare.provisioning import Invitation, Site
from felb.engines.nvflare.refusals import read_refusals
from felb.engines.nvflare.site_budget import USUAL, Spent
from felb.engines.nvflare.site_policy import TOTAL_DELTA
from felb.engines.nvflare.site_session import read_outbound, verify_outbound
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
@click.option(
    "--fingerprint",
    required=True,
    metavar="SHA256:…",
    help="What the coordinator read out; must agree with the invitation.",
)
@options.as_json
def join(folder: str, invitation: str, name: str, fingerprint: str, as_json: bool) -> None:
    """Make this site's key in FOLDER, and a request to send to the coordinator.

    The private key stays in FOLDER. Send the request, and tell the coordinator the name and the key fingerprint on
    another way, for example by telephone.
    """
    invited = Invitation.read(invitation)
    expected = read_fingerprint(invited.fingerprint, name="the fingerprint in the invitation")
    if read_fingerprint(fingerprint, name="--fingerprint") != expected:
        raise InputError("the fingerprint is not the invitation's: it was changed on its way; ask the coordinator")
    site, request = Site.join(folder, invited, name=name)
    facts = {"send": str(request), "key fingerprint": site.key_fingerprint(), "folder": str(site.folder)}
    print_facts(facts, as_json=as_json)


@command.command("rotate")
@click.argument("folder", type=click.Path())
@options.as_json
def rotate(folder: str, as_json: bool) -> None:
    """Make a new key for the site in FOLDER, and a request for it; the old key serves until the approval is there.

    The coordinator approves it with `felb federation approve --rotate`, which revokes the old key; then start the site
    with --approval.
    """
    site = Site.open(folder)
    request = site.rotate()
    print_facts({"send": str(request), "key fingerprint": site.key_fingerprint(rotated=True)}, as_json=as_json)


@command.command("start")
@click.argument("folder", type=click.Path())
@click.option("--approval", type=click.Path(), help="The file the coordinator has sent back; needed once.")
@click.option("--data", type=click.Path(), help="This site's data file; remembered.")
@click.option("--header/--no-header", default=None, help="Whether a text file names its columns; else detected.")
@click.option("--binarize-threshold", type=float, metavar="X", help="Make ones of values above this.")
@click.option("--missing", type=click.Choice(["error", "unknown", "zero"]), help="What an empty cell of the data is.")
@click.option("--allow", multiple=True, metavar="METHOD", help="Run only this method; may be repeated.")
@click.option("--min-rows", help="Take part only with at least this many rows.", **options.COUNT)
@click.option("--require-privacy/--no-require-privacy", default=None, help="Refuse runs that guarantee no privacy.")
@click.option("--max-epsilon", type=POSITIVE, metavar="X", help="Most ε of a run.")
@click.option("--max-delta", type=POSITIVE, metavar="X", help="Most δ of a run.")
@click.option("--total-epsilon", type=POSITIVE, metavar="X", help="Most ε of all runs together.")
@options.disclosure
@click.option("--total-delta", type=POSITIVE, metavar="X", help="Most δ of all runs together (default: 1e-4).")
@click.option("--max-sites", help="Most sites that share noise in the aggregate (default: 50).", **options.COUNT)
@click.option(
    "--exact-after-private/--no-exact-after-private",
    default=None,
    help="Answer exact runs after private ones, which ends their guarantee (default: no).",
)
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

    Settings are remembered in kit/local/felb.json, so that later starts need none.
    """
    site = Site.open(folder)
    if approval is not None:
        site.admit(approval)
    arguments = site.command()
    policy = options.given(allowed_methods=list(allow) or None, mechanisms=list(mechanism) or None, **conditions)
    where = None if data is None else str(Path(data).absolute())
    config = site.configure(
        **options.given(data=where, header=header, binarize_threshold=binarize_threshold, missing=missing),
        policy=policy,
    )
    if check or as_json:
        rows, columns = config.read().shape
        print_facts({"site": site.name, "data": config.data, "rows": rows, "columns": columns}, as_json=as_json)
        return
    if not Path(config.data).exists():
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


@command.command("verify-log")
@click.argument("folder", type=click.Path())
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@options.as_json
def verify_log(folder: str, run_id: str | None, as_json: bool) -> None:
    """Check that the outbound logs of the site in FOLDER are as they were written; name the first wrong line.

    Each line holds the hash of the line before. Keep the last hash that is shown elsewhere: whoever may write the log
    could make all of it anew, and then it differs.
    """
    heads = verify_outbound(Site.open(folder).state, run_id=run_id)
    if as_json:
        print_json({run: asdict(head) for run, head in heads.items()})
        return
    for run, head in heads.items():
        click.echo(f"run {run}: {head.lines} lines, last hash {head.hash}")
    if not heads:
        click.echo("nothing has left this site")


@command.command("budget")
@click.argument("folder", type=click.Path())
@options.as_json
def budget(folder: str, as_json: bool) -> None:
    """Show what the runs of the site in FOLDER may have cost in privacy: each, all together, and what is left.

    A run counts in full from its first answer on, also if it broke off. Guarantees for different units or neighbour
    relations stand apart: they cannot be added up.
    """
    site = Site.open(folder)
    spent, policy = Spent(site.state), site.config().policy
    limits = {"total_epsilon": policy.total_epsilon, "total_delta": policy.total_delta or TOTAL_DELTA}
    if as_json:
        totals = [
            {"unit": unit, "neighbours": neighbours, "epsilon": epsilon, "delta": delta}
            for (unit, neighbours), (epsilon, delta) in spent.totals().items()
        ]
        epsilon, delta = spent.total()
        print_json({"runs": spent.runs(), "epsilon": epsilon, "delta": delta, "totals": totals, **limits})
        return
    facts = {f"run {run}": f"epsilon {f['epsilon']:g}, delta {f['delta']:.3g}" for run, f in spent.runs().items()}
    for kind, (epsilon, delta) in (spent.totals() or {USUAL: (0.0, 0.0)}).items():
        limit = limits["total_epsilon"]
        left = "no limit is set" if limit is None else f"{max(0.0, limit - epsilon):g} of {limit:g} is left"
        named = "in all" if kind == USUAL else f"in all, {kind[0]}, {kind[1]}"
        facts[named] = f"epsilon {epsilon:g}, delta {delta:.3g} of {limits['total_delta']:g}; {left}"
    print_facts(facts, as_json=False)
