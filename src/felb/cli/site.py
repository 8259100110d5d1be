"""``felb site``: what a site does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from felb.cli import options
from felb.cli.log_table import print_outbound
from felb.cli.output import print_facts, print_json
from felb.cli.site_runs import RUN_VERBS
from felb.engines.nvflare.approvals import Approvals
from felb.engines.nvflare.provisioning import Invitation, Site
from felb.engines.nvflare.refusals import read_refusals
from felb.engines.nvflare.site_budget import Spent
from felb.engines.nvflare.site_policy import Policy
from felb.engines.nvflare.site_processes import SiteProcesses
from felb.engines.nvflare.site_session import read_outbound
from felb.errors import InputError
from felb.privacy.cost import Unit
from felb.privacy.spec import MechanismName, NoisePlace
from felb.runs.deployed import read_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_LIMIT = "none"


class Limit(click.FloatRange):
    """A positive number, or the word that removes a limit."""

    name = "number or none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the word."""
        return NO_LIMIT if value == NO_LIMIT else super().convert(value, param, ctx)


POSITIVE = Limit(0, min_open=True)


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
@click.option("--data", type=click.Path(), help="This site's data file; remembered.")
@click.option("--header/--no-header", default=None, help="Whether a text file names its columns; else detected.")
@click.option("--binarize-threshold", type=float, metavar="X", help="Make ones of values above this.")
@click.option("--missing", type=click.Choice(["error", "unknown", "zero"]), help="What an empty cell of the data is.")
@click.option("--allow", multiple=True, metavar="METHOD", help="Run only this method; may be repeated.")
@click.option("--min-rows", help="Take part only with at least this many rows.", **options.COUNT)
@click.option(
    "--require-privacy/--allow-exact",
    default=None,
    help="Refuse runs that guarantee no privacy (default), or take part in them too.",
)
@click.option(
    "--auto-approve",
    multiple=True,
    metavar="WORD",
    help="Approve these runs without a person: private, all, or a method; none ends that. May be repeated.",
)
@click.option("--max-epsilon", type=POSITIVE, metavar="X|none", help="Most ε of a run.")
@click.option("--max-delta", type=POSITIVE, metavar="X|none", help="Most δ of a run.")
@click.option("--total-epsilon", type=POSITIVE, metavar="X|none", help="Most ε of all runs together.")
@click.option(
    "--mechanism",
    multiple=True,
    type=click.Choice(get_args(MechanismName)),
    help="Accept only this one; may be repeated.",
)
@click.option("--unit", type=click.Choice(get_args(Unit)), help="Whose presence a run must hide.")
@click.option("--noise", type=click.Choice(get_args(NoisePlace)), help="Accept noise that is added there.")
@click.option("--notify", metavar="CMD", help="Call this with JSON on stdin when a run asks, ends or is refused.")
@click.option("--courier-user", metavar="NAME", help="Run the courier as this user; root only (default: felb-courier).")
@click.option("--check", is_flag=True, help="Check everything, read the data, and do not start.")
@click.option("--columns", type=click.Path(), help="With --check: name the first column that differs from this file.")
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
    auto_approve: tuple[str, ...],
    notify: str | None,
    courier_user: str | None,
    check: bool,
    columns: str | None,
    as_json: bool,
    **conditions: object,
) -> None:
    """Run the site in FOLDER until it is stopped; its data never leaves this machine.

    Two processes are started: the vault, which has the data, and the courier, which has the connection; FLARE's lines
    are in courier.log. Settings are remembered in vault/felb.json, so that later starts need none.
    """
    site = Site.open(folder)
    if approval is not None:
        site.admit(approval)
    site.command()  # refuses a site that is not admitted yet
    if columns is not None and not check:
        raise InputError("--columns compares a file with the data and goes with --check")
    approved = None if not auto_approve else [word for word in auto_approve if word != NO_LIMIT]
    policy = options.given(
        allowed_methods=list(allow) or None, mechanisms=list(mechanism) or None, auto_approve=approved, **conditions
    )
    policy = {name: None if value == NO_LIMIT else value for name, value in policy.items()}
    check_agreement(site, policy)
    where = None if data is None else str(Path(data).absolute())
    config = site.configure(
        **options.given(
            data=where, header=header, binarize_threshold=binarize_threshold, missing=missing, notify=notify
        ),
        policy=policy,
    )
    if check or as_json:
        matrix = config.read()
        if columns is not None:
            check_columns(matrix.columns, Path(columns))
        facts = {"site": site.name, "data": config.data, "rows": matrix.shape[0], "columns": matrix.shape[1]}
        print_facts(facts, as_json=as_json)
        return
    if not Path(config.data).exists():
        raise InputError(f"there is no data at {config.data}; give it with --data")
    for waiting in Approvals(site.state).pending():
        click.echo(f"run {waiting.run} waits for approval: felb site show {folder} {waiting.run}")
    SiteProcesses(site, courier_user=courier_user, tell=click.echo).run()


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


def check_agreement(site: Site, changes: Mapping[str, Any]) -> None:
    """Refuse settings that contradict each other: exact runs together with a condition on privacy."""
    known = asdict(site.config().policy) if site.configured else {}
    policy = Policy(**{**known, **changes})
    if changes.get("require_privacy") is False and policy.asks_for_privacy:
        raise InputError(
            "--allow-exact takes runs without a guarantee, and another setting asks for one, such as --max-epsilon; "
            "remove that with --max-epsilon none, or leave out --allow-exact"
        )


def check_columns(own: Sequence[str] | None, path: Path) -> None:
    """Raise at the first column of a site's data that is not the one of a list; the names stay at the site."""
    wanted = read_columns(path)
    if own is None:
        raise InputError("the data has no column names; give a file with a header, or a .columns.txt beside it")
    for number, (mine, other) in enumerate(zip(own, wanted, strict=False), start=1):
        if mine != other:
            raise InputError(f"column {number} is {mine!r} in the data and {other!r} in {path}")
    if len(own) != len(wanted):
        raise InputError(f"the data has {len(own)} columns and {path} has {len(wanted)}")


for verb in RUN_VERBS:
    command.add_command(verb)
