"""``felb site``: the commands of a site."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.table import Table

from felb.cli import options
from felb.cli.output import plain_console, print_facts, print_json
from felb.cli.privacy import print_outbound
from felb.errors import InputError
from felb.privacy import MechanismName, Neighbours, NoisePlace, Unit
from felb_sites.cli.roster import site_roster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from felb_sites.provisioning import Site


# -- ``felb site pending``, ``show``, ``approve`` and ``deny``: which runs a site takes part in ----------------------


@click.command("pending")
@click.argument("folder", type=click.Path())
@options.as_json
def pending(folder: str, as_json: bool) -> None:
    """List the runs that wait for the approval of the site in FOLDER."""
    from felb_sites.approvals import Approvals
    from felb_sites.provisioning import Site

    waiting = Approvals(Site.open(folder).state).pending()
    if as_json:
        print_json([{"run": a.run, "digest": a.digest, "method": a.plan.get("method")} for a in waiting])
        return
    for approval in waiting:
        asked = time.strftime("%Y-%m-%d %H:%M", time.localtime(approval.asked))
        click.echo(f"{approval.run}  {approval.plan.get('method')}  asked {asked}")
        click.echo(f"  felb site show {folder} {approval.run}")
    if not waiting:
        click.echo("no run waits for approval")


@click.command("show")
@click.argument("folder", type=click.Path())
@click.argument("run")
@options.as_json
def show(folder: str, run: str, as_json: bool) -> None:
    """Show what RUN would take from the site in FOLDER: what leaves, how often, with which noise, at what cost."""
    from felb_sites import SHORT
    from felb_sites.approvals import Approvals
    from felb_sites.provisioning import Site

    site = Site.open(folder)
    approval = Approvals(site.state).find(run)
    from felb_sites.plan_summary import in_words, leaving
    from felb_sites.run_plan import Plan

    plan = Plan.of(approval.plan)
    rows = leaving(plan)
    sums = "in the clear"
    if plan.roster is not None:
        sums = f"masked, roster {'not ' if site.rosters.find(plan.roster) is None else ''}confirmed here"
    if as_json:
        told = [{name: getattr(row, name) for name in row.__slots__} for row in rows]
        known = {"run": run, "digest": approval.digest, "status": approval.status, "sums": sums}
        print_json({**known, "roster": plan.roster, "leaves": told})
        return
    facts = {
        "run": run,
        "status": approval.status,
        "method": plan.method,
        "components": plan.n_components,
        "features": plan.n_features,
        "sums": sums,
        **({"records": "a random half, drawn here (refit)"} if plan.resample else {}),
        **dict(plan.parameters),
    }
    print_facts(facts, as_json=False)
    console = plain_console()
    console.print()
    console.print(in_words(plan))
    console.print()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("what leaves", "size", "how often", "noise", "cost"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(row.meaning, row.size, row.times, row.noise, row.cost)
    console.print(table)
    console.print()
    if plan.roster is not None and site.rosters.find(plan.roster) is None:
        click.echo(f"felb site roster show {folder}")
    click.echo(f"felb site approve {folder} {run} {approval.digest[:SHORT]}")


@click.command("approve")
@click.argument("folder", type=click.Path())
@click.argument("run")
@click.argument("digest")
@options.as_json
def approve(folder: str, run: str, digest: str, as_json: bool) -> None:
    """Let the site in FOLDER take part in RUN, as `felb site show` describes it; DIGEST is the one shown there."""
    from felb_sites.approvals import Approvals
    from felb_sites.provisioning import Site

    done = Approvals(Site.open(folder).state).approve(run, digest)
    print_facts({"run": run, "status": done.status}, as_json=as_json)


@click.command("deny")
@click.argument("folder", type=click.Path())
@click.argument("run")
@options.as_json
def deny(folder: str, run: str, as_json: bool) -> None:
    """Refuse RUN at the site in FOLDER, also if it was approved; nothing more of it leaves."""
    from felb_sites.approvals import Approvals
    from felb_sites.provisioning import Site

    done = Approvals(Site.open(folder).state).deny(run)
    print_facts({"run": run, "status": done.status}, as_json=as_json)


RUN_VERBS = (pending, show, approve, deny)

NO_LIMIT = "none"
LIMITS = ("max_epsilon", "max_delta", "total_epsilon", "total_delta")
"""Conditions that the word removes."""


class Limit(click.FloatRange):
    """A positive number, or the word that removes a limit."""

    name = "number or none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the word."""
        return NO_LIMIT if value == NO_LIMIT else super().convert(value, param, ctx)


POSITIVE = Limit(0, min_open=True)


@click.group("site")
def site_command() -> None:
    """Take part in a federation as a site that keeps its data.

    A site connects to the coordinator and needs no open port.
    """


@site_command.command("join")
@click.argument("folder", type=click.Path())
@click.option("--invitation", required=True, type=click.Path(), help="Invitation file from the coordinator.")
@click.option("--name", required=True, help="Name of this site in the federation.")
@click.option(
    "--fingerprint",
    required=True,
    metavar="SHA256:…",
    help="Fingerprint from the coordinator, by telephone; it must match the invitation.",
)
@options.as_json
def join(folder: str, invitation: str, name: str, fingerprint: str, as_json: bool) -> None:
    """Generate the key of this site in FOLDER and a request for admission.

    Send the request to the coordinator, and give the name and the key fingerprint over another channel, for
    example by telephone. The private key stays in FOLDER.
    """
    from felb_sites.certificates import read_fingerprint, written
    from felb_sites.provisioning import Invitation, Site

    invited = Invitation.read(invitation)
    expected = read_fingerprint(invited.fingerprint, name="the fingerprint in the invitation")
    if read_fingerprint(fingerprint, name="--fingerprint") != expected:
        raise InputError(
            "fingerprint does not match the invitation, which may have been changed in transit; ask the coordinator"
        )
    site, request = Site.join(folder, invited, name=name)
    keys = {"key fingerprint": site.key_fingerprint(), "vault key fingerprint": written(site.rosters.own.fingerprint)}
    print_facts({"send": str(request), **keys, "folder": str(site.folder)}, as_json=as_json)


@site_command.command("rotate")
@click.argument("folder", type=click.Path())
@options.as_json
def rotate(folder: str, as_json: bool) -> None:
    """Generate a new key for the site in FOLDER, and a request for it; the old key is used until the approval.

    The coordinator approves it with `felb federation approve --rotate`, which revokes the old key; then start the site
    with --approval.
    """
    from felb_sites.provisioning import Site

    site = Site.open(folder)
    request = site.rotate()
    print_facts({"send": str(request), "key fingerprint": site.key_fingerprint(rotated=True)}, as_json=as_json)


@site_command.command("start")
@click.argument("folder", type=click.Path())
@click.option("--approval", type=click.Path(), help="Approval file from the coordinator; required once.")
@click.option("--data", type=click.Path(), help="Data file or database URL of this site; stored in the settings.")
@click.option(
    "--schema", type=click.Path(), help="Schema that converts raw data to features; a run must use the same schema."
)
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first line of a text file holds column names (default: detected).",
)
@click.option("--binarize-threshold", type=float, metavar="X", help="Convert values above X to 1 and others to 0.")
@click.option(
    "--missing",
    type=click.Choice(["error", "unknown", "zero"]),
    help="How to read missing cells of the data (default: error).",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="METHOD",
    help="Method that this site runs; can be repeated (default: all federated methods).",
)
@click.option("--min-rows", help="Minimum number of rows for taking part in a run (default: 20).", **options.COUNT)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Maximum time that this site computes for one request, in seconds (default: 3600).",
)
@click.option(
    "--require-privacy/--allow-exact",
    default=None,
    help="Refuse runs without a privacy guarantee, or accept exact runs too (default: refuse).",
)
@click.option(
    "--auto-approve",
    multiple=True,
    metavar="WORD",
    help="Runs that are approved automatically: private, all, the name of a method, or none; can be repeated (default: "
    "none).",
)
@click.option("--max-epsilon", type=POSITIVE, metavar="X|none", help="Maximum ε of one run (default: 4).")
@click.option("--max-delta", type=POSITIVE, metavar="X|none", help="Maximum δ of one run (default: 1e-5).")
@click.option(
    "--total-epsilon",
    type=POSITIVE,
    metavar="X|none",
    help="Maximum ε of all runs of this site together (default: no limit; 10 for runs by --auto-approve).",
)
@options.disclosure("strict")
@click.option(
    "--total-delta",
    type=POSITIVE,
    metavar="X|none",
    help="Maximum δ of all runs of this site together (default: 1e-4).",
)
@click.option(
    "--max-sites", help="Maximum number of sites that share distributed noise (default: 50).", **options.COUNT
)
@click.option(
    "--exact-after-private/--no-exact-after-private",
    default=None,
    help="Accept exact runs after private runs, which ends the guarantee of the private runs (default: no).",
)
@click.option(
    "--require-secure/--allow-plain-sums",
    default=None,
    help="Refuse runs whose sums are not masked, or accept them too (default: accept).",
)
@click.option(
    "--mechanism",
    multiple=True,
    type=click.Choice(get_args(MechanismName)),
    help="Privacy mechanism that this site accepts; can be repeated (default: all).",
)
@click.option("--unit", type=click.Choice(get_args(Unit)), help="Unit that a run must protect (default: record).")
@click.option(
    "--neighbours",
    type=click.Choice(get_args(Neighbours)),
    help="Neighbour relation that a run must guarantee (default: add_remove).",
)
@click.option(
    "--noise",
    type=click.Choice(get_args(NoisePlace)),
    help="Whether this site must add the full noise (client) or may add only a share of it (distributed) (default: "
    "client).",
)
@click.option(
    "--notify",
    metavar="CMD",
    help="Command that is called with JSON on stdin when a run waits for approval, ends or is refused.",
)
@click.option(
    "--courier-user",
    metavar="NAME",
    help="User that runs the courier if the site is started by root (default: felb-courier).",
)
@click.option("--check", is_flag=True, help="Check the settings, read the data, and exit without starting the site.")
@click.option(
    "--columns",
    type=click.Path(),
    help="With --check: file of column names to compare with the data; the first difference is shown.",
)
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
    auto_approve: tuple[str, ...],
    notify: str | None,
    courier_user: str | None,
    check: bool,
    columns: str | None,
    as_json: bool,
    **conditions: object,
) -> None:
    """Run the site in FOLDER until it is stopped. Its records never leave this machine.

    Two processes are started: the vault, which holds the data, and the courier, which holds the connection; the log of
    FLARE is in courier.log. The settings are stored in vault/felb.json, so that later starts need no options. The
    password of a database comes from the environment (PGPASSWORD) or from a password file of mode 0600.
    """
    from felb.tables.sources import check_no_password, is_url
    from felb_sites.approvals import Approvals
    from felb_sites.provisioning import Site
    from felb_sites.site_processes import SiteProcesses

    site = Site.open(folder)
    if approval is not None:
        site.admit(approval)
    site.check_admitted()
    if columns is not None and not check:
        raise InputError("--columns compares a file with the data and goes with --check")
    approved = None if not auto_approve else [word for word in auto_approve if word != NO_LIMIT]
    policy = options.given(
        allowed_methods=list(allow) or None, mechanisms=list(mechanism) or None, auto_approve=approved, **conditions
    )
    policy |= {name: None for name in LIMITS if policy.get(name) == NO_LIMIT}
    check_agreement(site, policy)
    where, rules = (None if path is None or is_url(path) else str(Path(path).absolute()) for path in (data, schema))
    if data is not None and is_url(data):
        check_no_password(data)
        where = data
    config = site.configure(
        **options.given(
            data=where,
            header=header,
            binarize_threshold=binarize_threshold,
            missing=missing,
            schema=rules,
            notify=notify,
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
    if not is_url(config.data) and not Path(config.data).exists():
        raise InputError(f"data file {config.data} does not exist; set it with --data")
    for waiting in Approvals(site.state).pending():
        click.echo(f"run {waiting.run} waits for approval: felb site show {folder} {waiting.run}")
    SiteProcesses(site, courier_user=courier_user, tell=click.echo).run()


@site_command.command("log")
@click.argument("folder", type=click.Path())
@click.option("--run", "run_id", metavar="ID", help="Show only this run.")
@click.option("--refused", is_flag=True, help="Show refused runs and requests with their reasons instead.")
@options.as_json
def log(folder: str, run_id: str | None, refused: bool, as_json: bool) -> None:
    """Show the outbound log of the site in FOLDER: rounds, arrays, shape, bytes, mechanism, cost, running total.

    The complete log is in state/RUN/outbound.jsonl.
    """
    from felb_sites.provisioning import Site
    from felb_sites.refusals import read_refusals
    from felb_sites.site_logs import read_outbound

    state = Site.open(folder).state
    lines = read_refusals(state, run_id=run_id) if refused else read_outbound(state, run_id=run_id)
    if as_json:
        print_json(lines)
    elif refused:
        for line in lines:
            click.echo(f"{line.get('time')}  run {line.get('run')}: {line.get('reason')}")
    else:
        print_outbound(lines, nothing="nothing has left this site")


@site_command.command("verify-log")
@click.argument("folder", type=click.Path())
@click.option("--run", "run_id", metavar="ID", help="Check only the log of this run.")
@options.as_json
def verify_log(folder: str, run_id: str | None, as_json: bool) -> None:
    """Check that the outbound logs of the site in FOLDER were not changed; show the first wrong line.

    Each line contains the hash of the previous line. The command shows the last hash; store it in another place.
    Someone with write access to the log could rewrite all of it, but the last hash would then differ.
    """
    from felb_sites.provisioning import Site
    from felb_sites.site_logs import verify_outbound

    heads = verify_outbound(Site.open(folder).state, run_id=run_id)
    if as_json:
        print_json({run: asdict(head) for run, head in heads.items()})
        return
    for run, head in heads.items():
        click.echo(f"run {run}: {head.lines} lines, last hash {head.hash}")
    if not heads:
        click.echo("nothing has left this site")


@site_command.command("budget")
@click.argument("folder", type=click.Path())
@options.as_json
def budget(folder: str, as_json: bool) -> None:
    """Show the privacy budget of the site in FOLDER: the cost of each run, the total, and the remaining budget.

    A run counts with its whole budget from its first response on, even if it was interrupted. Guarantees for different
    units or neighbour relations are listed separately: they cannot be added up.
    """
    from felb_sites.provisioning import Site
    from felb_sites.site_budget import USUAL, Spent

    site = Site.open(folder)
    spent = Spent(site.state)
    limits = dict(zip(("total_epsilon", "total_delta"), site.config().policy.total_limits(), strict=True))
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


def check_agreement(site: Site, changes: Mapping[str, Any]) -> None:
    """Refuse settings that contradict each other: exact runs together with a condition on privacy."""
    from felb_sites.site_policy import Policy

    known = asdict(site.config().policy) if site.configured else {}
    policy = Policy(**{**known, **changes})
    if changes.get("require_privacy") is False and policy.asks_for_privacy:
        raise InputError(
            "--allow-exact takes runs without a guarantee, and another setting asks for one, such as --max-epsilon; "
            "remove that with --max-epsilon none, or leave out --allow-exact"
        )


def check_columns(own: Sequence[str] | None, path: Path) -> None:
    """Raise at the first column of a site's data that is not the one of a list; the names stay at the site."""
    from felb_sites.deployed import read_columns

    wanted = read_columns(path)
    if own is None:
        raise InputError("the data has no column names; give a file with a header, or a .columns.txt beside it")
    for number, (mine, other) in enumerate(zip(own, wanted, strict=False), start=1):
        if mine != other:
            raise InputError(f"column {number} is {mine!r} in the data and {other!r} in {path}")
    if len(own) != len(wanted):
        raise InputError(f"the data has {len(own)} columns and {path} has {len(wanted)}")


for verb in (*RUN_VERBS, site_roster):
    site_command.add_command(verb)
