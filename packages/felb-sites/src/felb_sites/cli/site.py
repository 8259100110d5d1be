"""``felb site``: the commands of a site."""

from __future__ import annotations

import email.utils
import os
import shlex
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.table import Table

from felb.cli import options
from felb.cli.output import plain_console, print_facts, print_json
from felb.cli.privacy import print_outbound
from felb.errors import FelbError, InputError, printable
from felb.privacy import MechanismName, Neighbours, NoisePlace, Unit
from felb_sites.carrier import CONNECTED, CONNECTIONS, NOT_CONNECTED
from felb_sites.cli.federation import print_problems
from felb_sites.cli.roster import print_told, site_roster
from felb_sites.cli.run import print_wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from felb_sites.keys.members import Invitation
    from felb_sites.site_folder import Site

CLOCK_SECONDS = 120.0
"""By which clocks may differ before a person is told."""

NO_LIMIT = "none"
LIMITS = ("max_epsilon", "max_delta", "total_epsilon", "total_delta")
"""Conditions that the word removes."""


SHELL_WORDS = ("|", "||", "&", "&&", ";", ">", ">>", "<", "<<", "2>", "2>&1")
"""Words that only a shell understands."""


def check_hook(command: str) -> None:
    """Raise unless a command can be called: no shell reads it."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"{command!r} is no command ({error}); check its quotes", parameter="notify") from error
    for word in words:
        if word in SHELL_WORDS or word.startswith(tuple("|&;<>")) or word.endswith(";") or "$(" in word or "`" in word:
            raise InputError(
                f"{command!r} holds {word!r}, which only a shell understands; put it into a script and give that",
                parameter="notify",
            )
    if not words or shutil.which(words[0]) is None:
        raise InputError(f"{command!r} names no program that can be run; check its path", parameter="notify")


class Limit(click.FloatRange):
    """A positive number, or the word that removes a limit."""

    name = "number or none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the word."""
        return NO_LIMIT if value == NO_LIMIT else super().convert(value, param, ctx)


POSITIVE = Limit(0, min_open=True)


site_folder = click.argument("folder", type=click.Path())


@click.group("site")
def site_command() -> None:
    """Take part in a federation as a site that keeps its data.

    A site connects to the relay of the coordinator and needs no open port.
    """


def _operator(folder: str) -> Any:
    """Return what speaks to the vault of a site, or to its store if no vault runs."""
    from felb_sites.site_folder import Site

    site = Site.open(folder)
    from felb_sites.vault.operator import Operator

    return Operator(site.vault)


def _person() -> str:
    """Return who decides: with sudo, the person who has called it."""
    from felb_sites.vault.operator import current_user

    return os.environ.get("SUDO_USER") or current_user()


def _when(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return str(seconds)
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _sure(question: str, *, yes: bool) -> None:
    """Ask a person, unless the command line says yes; a program cannot be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"{question} Say --yes")
    click.confirm(question, abort=True, err=True)


# -- keys ------------------------------------------------------------------------------------------------------------


@site_command.command("join")
@site_folder
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
    """Generate the keys of this site in FOLDER and a request for admission.

    Send the request to the coordinator, and give the name and the key fingerprint over another channel, for
    example by telephone. The private keys stay in FOLDER.
    """
    from felb_sites.keys.identity import read_fingerprint
    from felb_sites.keys.members import Invitation
    from felb_sites.site_folder import Site

    invited = Invitation.read(invitation)
    expected = read_fingerprint(invited.fingerprint, name="the fingerprint of the invitation")
    if read_fingerprint(fingerprint, name="--fingerprint") != expected:
        raise InputError(
            "fingerprint does not match the invitation, which may have been changed in transit; ask the coordinator"
        )
    site, request = Site.join(folder, invited, name=name)
    facts = {"send": str(request), "key fingerprint": site.fingerprint, "folder": str(site.folder)}
    print_told(facts, as_json=as_json)


@site_command.command("rotate")
@site_folder
@options.as_json
def rotate(folder: str, as_json: bool) -> None:
    """Generate new keys for the site in FOLDER, and a request for them; the old ones are used until the approval.

    The coordinator approves it with `felb federation approve --rotate`, which revokes the old keys. The site takes the
    new ones when it receives the list of members.
    """
    from felb_sites.site_folder import Site

    site = Site.open(folder)
    request = site.rotate()
    member = site.next_member
    assert member is not None
    print_told({"send": str(request), "key fingerprint": member.fingerprint}, as_json=as_json)


# -- runs: which ones a site takes part in ---------------------------------------------------------------------------


@site_command.command("pending")
@site_folder
@options.as_json
def pending(folder: str, as_json: bool) -> None:
    """List the runs that wait for a decision of the site in FOLDER."""
    waiting = _operator(folder).pending()
    if as_json:
        print_json(waiting)
        return
    for run in waiting:
        kind = ", rehearsal" if run["rehearsal"] else ""
        print_wrapped(f"{run['run']}  {run['method']}{kind}  asked {_when(run['asked'])}")
        if run.get("reason"):
            print_facts({"  ": printable(str(run["reason"]))}, as_json=False)
        click.echo(f"  felb site show {shlex.quote(folder)} {run['run']}")
    if not waiting:
        click.echo("no run waits for approval")


@site_command.command("show")
@site_folder
@click.argument("run")
@options.as_json
def show(folder: str, run: str, as_json: bool) -> None:
    """Show what RUN would take from the site in FOLDER: what leaves, how often, with which noise, at what cost."""
    from felb_sites import SHORT

    found = _operator(folder).show(run)
    if as_json:
        print_json(found)
        return
    print_facts({name: printable(str(fact)) for name, fact in found["facts"].items()}, as_json=False)
    console = plain_console()
    console.print()
    console.print(printable(found["words"]))
    console.print()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("what leaves", "size", "how often", "noise", "cost"):
        table.add_column(name, overflow="fold")
    for row in found["leaves"]:
        table.add_row(*(printable(str(row[name])) for name in ("meaning", "size", "times", "noise", "cost")))
    console.print(table)
    console.print()
    click.echo(f"felb site approve {shlex.quote(folder)} {run} {found['digest'][:SHORT]}")


@site_command.command("approve")
@site_folder
@click.argument("run")
@click.argument("digest")
@options.as_json
def approve(folder: str, run: str, digest: str, as_json: bool) -> None:
    """Let the site in FOLDER take part in RUN, as `felb site show` describes it; DIGEST is the one shown there."""
    done = _operator(folder).approve(run, digest, _person())
    print_facts({name: fact for name, fact in done.items() if fact != ""}, as_json=as_json)


@site_command.command("deny")
@site_folder
@click.argument("run")
@options.as_json
def deny(folder: str, run: str, as_json: bool) -> None:
    """Refuse RUN at the site in FOLDER, also if it was approved; nothing more of it leaves."""
    print_facts(_operator(folder).deny(run, _person()), as_json=as_json)


# -- start -----------------------------------------------------------------------------------------------------------


@site_command.command("start")
@site_folder
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
@click.option("--one-user", is_flag=True, help="Run vault and courier as one user, which protects the data less.")
@click.option("--check", is_flag=True, help="Check users, paths, data and the connection, without starting the site.")
@click.option(
    "--columns",
    type=click.Path(),
    help="With --check: file of column names to compare with the data; the first difference is shown.",
)
@options.as_json
@click.pass_context
def start(
    context: click.Context,
    /,
    folder: str,
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
    one_user: bool,
    check: bool,
    columns: str | None,
    as_json: bool,
    **conditions: object,
) -> None:
    """Run the site in FOLDER until it is stopped. Its records never leave this machine.

    Two processes are started: the vault, which holds the data, and the courier, which holds the connection. They run as
    two users if root starts them; otherwise say --one-user. The settings are stored in vault/settings.json, so that
    later starts need no options. The password of a database comes from the environment (PGPASSWORD) or from a password
    file of mode 0600.
    """
    from felb.records import is_url
    from felb.tables.sources import check_no_password
    from felb_sites.site_folder import Site

    site = Site.open(folder)
    if columns is not None and not check:
        raise InputError("--columns compares a file with the data and goes with --check")
    approved = None if not auto_approve else [word for word in auto_approve if word != NO_LIMIT]
    policy = options.given(
        allowed_methods=list(allow) or None, mechanisms=list(mechanism) or None, auto_approve=approved, **conditions
    )
    policy |= {name: None for name in LIMITS if policy.get(name) == NO_LIMIT}
    check_agreement(site, policy)
    if data is not None:
        check_no_password(data)
        check_exists(data)
    if notify:
        check_hook(notify)
    config = site.configure(
        **options.given(
            data=data,
            schema=schema,
            header=header,
            binarize_threshold=binarize_threshold,
            missing=missing,
            notify=notify,
        ),
        policy=policy,
    )
    if check or as_json:
        found = check_site(site, courier_user=courier_user, one_user=one_user, columns=columns)
        if as_json:
            print_json(found)
        else:
            print_told({name: fact for name, fact in found.items() if name not in ("ok", "problems")}, as_json=False)
            print_problems(found["problems"])
        context.exit(0 if found["ok"] else 1)
    check_exists(config.data)
    take_first_snapshot(site)
    from felb_sites.supervise import SiteProcesses

    private = () if is_url(config.data) else (Path(config.data),)
    SiteProcesses(site, courier_user=courier_user, one_user=one_user, tell=click.echo, private=private).run()


def check_exists(data: str) -> None:
    """Raise unless a file of data is there; a database is asked when it is read."""
    from felb.records import is_url

    if not is_url(data) and not Path(data).exists():
        raise InputError(f"data file {data} does not exist; set it with --data")


def take_first_snapshot(site: Site) -> None:
    """Read the data if there is no snapshot yet, or one of other settings; later ones are for `felb site refresh`."""
    from felb_sites.loader import refresh as take_snapshot
    from felb_sites.vault.snapshot import Snapshot

    found = Snapshot.read(site.vault)
    if found is None or found.settings != site.config().data_digest:
        taken = take_snapshot(site.vault)
        click.echo(f"the data was read: {taken.rows} rows, {taken.columns} columns")


@site_command.command("refresh")
@site_folder
@options.as_json
def refresh(folder: str, as_json: bool) -> None:
    """Read the data of the site in FOLDER again; runs that begin later are about this snapshot."""
    from felb_sites.site_folder import Site

    site = Site.open(folder)
    _ = site.config()
    from felb_sites.loader import refresh as take_snapshot

    taken = take_snapshot(site.vault)
    facts = {"site": site.name, "rows": taken.rows, "columns": taken.columns, "snapshot": taken.fingerprint}
    print_facts(facts, as_json=as_json)


# -- what has left, and what it cost ---------------------------------------------------------------------------------


@site_command.command("log")
@site_folder
@click.option("--run", "run_id", metavar="ID", help="Show only this run.")
@click.option("--refused", is_flag=True, help="Show refused runs and requests with their reasons instead.")
@options.as_json
def log(folder: str, run_id: str | None, refused: bool, as_json: bool) -> None:
    """Show the outbound log of the site in FOLDER: rounds, arrays, shape, bytes, mechanism, cost, running total."""
    operator = _operator(folder)
    lines = operator.refusals(run_id) if refused else operator.log(run_id)
    if as_json:
        print_json(lines)
    elif refused:
        for line in lines:
            what = "" if line.get("run") is None else f"run {line['run']}: "
            click.echo(printable(f"{_when(line.get('time'))}  {what}{line.get('reason')}"))
        if not lines:
            click.echo("nothing was refused")
    else:
        print_outbound(lines, nothing="nothing has left this site")


@site_command.command("verify-log")
@site_folder
@options.as_json
def verify_log(folder: str, as_json: bool) -> None:
    """Check that the outbound log of the site in FOLDER was not changed; show the first wrong line.

    Each line contains the hash of the previous line. The command shows the last hash; store it in another place.
    Someone with write access to the log could rewrite all of it, but the last hash would then differ.
    """
    head = _operator(folder).verify()
    if as_json:
        print_json(head)
    elif head["lines"]:
        click.echo(f"{head['lines']} lines, last hash\n{head['hash']}")
    else:
        click.echo("nothing has left this site")


@site_command.command("budget")
@site_folder
@options.as_json
def budget(folder: str, as_json: bool) -> None:
    """Show the privacy budget of the site in FOLDER: the cost of each run, the total, and the remaining budget.

    A run counts with its whole budget from its first response on, even if it was interrupted. Guarantees for different
    units or neighbour relations are listed separately: they cannot be added up.
    """
    spent = _operator(folder).budget()
    if as_json:
        print_json(spent)
        return
    runs, limits = spent["runs"], spent["limits"]
    facts = {f"run {run}": f"epsilon {f['epsilon']:g}, delta {f['delta']:.3g}" for run, f in runs.items()}
    none = {"unit": "record", "neighbours": "add_remove", "epsilon": 0.0, "delta": 0.0}
    for total in spent["totals"] or [none]:
        limit = limits["total_epsilon"]
        left = "no limit is set" if limit is None else f"{max(0.0, limit - total['epsilon']):g} of {limit:g} is left"
        kind = total["unit"], total["neighbours"]
        named = "in all" if kind == ("record", "add_remove") else f"in all, {kind[0]}, {kind[1]}"
        cost = f"epsilon {total['epsilon']:g}, delta {total['delta']:.3g}"
        facts[named] = f"{cost} of {limits['total_delta']:g}; {left}"
    print_facts(facts, as_json=False)


# -- operations ------------------------------------------------------------------------------------------------------


@site_command.command("status")
@site_folder
@options.as_json
def status(folder: str, as_json: bool) -> None:
    """Show the connection, the runs and the log of the site in FOLDER."""
    found = _operator(folder).status()
    if as_json:
        print_json(found)
        return
    log = found["log"]
    users = {True: "one runs vault and courier", False: "vault and courier have their own"}
    facts = {
        "site": found["site"],
        **({"fingerprint": found["fingerprint"]} if found["fingerprint"] else {}),
        "connection": f"{CONNECTIONS.get(found['connection'], NOT_CONNECTED)}, since {_when(found['since'])}",
        "members": describe_membership(found),
        "users": users.get(found["one_user"], "the vault does not run"),
        "log": f"{log['lines']} lines",
        "last hash": log["hash"],
    }
    print_told(facts, as_json=False)
    for run in found["runs"]:
        where = "not begun" if run["round"] < 0 else f"round {run['round']}"
        click.echo()
        print_wrapped(f"run {run['run']}: {run['state']}, {run['status']}, {where}")
        kind = ", rehearsal on synthetic rows" if run["rehearsal"] else ""
        print_facts({"  method": f"{run['method']}{kind}"}, as_json=False)
        if run.get("reason"):
            print_facts({"  reason": printable(str(run["reason"]))}, as_json=False)


def describe_membership(found: Mapping[str, Any]) -> str:
    """Return whether a site is a member, as far as it knows; one that was revoked may not get the list that says so."""
    if not found["members"]:
        return "no list has arrived"
    if not found["member"]:
        return f"list {found['members']}; this site is NOT on it: it was revoked, or its keys were replaced"
    newest = ", which may not be the newest" if found["connection"] != CONNECTED else ""
    return f"list {found['members']}{newest}; this site is on it"


@site_command.command("health")
@site_folder
@options.as_json
@click.pass_context
def health(context: click.Context, folder: str, as_json: bool) -> None:
    """Check the site in FOLDER: connection, membership and data. The exit code is 1 if there is a problem."""
    found = _operator(folder).health()
    if as_json:
        print_json(found)
    else:
        print_problems([printable(problem) for problem in found["problems"]])
    if not found["ok"]:
        context.exit(1)


@site_command.command("backup")
@site_folder
@click.argument("path", type=click.Path())
@options.as_json
def backup(folder: str, path: str, as_json: bool) -> None:
    """Copy the store of the site in FOLDER to the file PATH, also while the site runs.

    It holds decisions, charges, logs and states of runs; keys and settings are files in FOLDER. Store the hash that is
    shown in another place.
    """
    where = Path(path).absolute()
    if where.exists():
        raise InputError(f"{path} exists; choose another file")
    print_facts(_operator(folder).backup(str(where)), as_json=as_json)


@site_command.command("restore")
@site_folder
@click.argument("path", type=click.Path())
@click.option("--head", metavar="HASH", help="Last hash of the log that is known; the backup must contain it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.as_json
def restore(folder: str, path: str, head: str | None, yes: bool, as_json: bool) -> None:
    """Replace the store of the site in FOLDER, which must not run, by the backup PATH.

    Runs that were open do not go on, and are charged in full.
    """
    operator = _operator(folder)
    where = Path(path).absolute()
    if not where.is_file():
        raise InputError(f"{path} does not exist; give a file that `felb site backup` has written")
    _sure("This replaces the store, and runs that are open end.", yes=yes)
    print_facts(operator.restore(str(where), head=head), as_json=as_json)


@site_command.command("purge")
@site_folder
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.as_json
def purge(folder: str, run: str, yes: bool, as_json: bool) -> None:
    """Delete what the site in FOLDER has computed in RUN, which must be over; log and charges stay."""
    operator = _operator(folder)
    _sure(f"This deletes the states and assignments of run {run}.", yes=yes)
    print_facts(operator.purge(run), as_json=as_json)


@site_command.command("leave")
@site_folder
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.as_json
def leave(folder: str, yes: bool, as_json: bool) -> None:
    """Withdraw the site in FOLDER from all open runs; then stop it, and ask the coordinator to revoke it."""
    operator = _operator(folder)
    _sure("This withdraws the site from all of its runs.", yes=yes)
    print_facts(operator.leave(_person()), as_json=as_json)


def check_agreement(site: Site, changes: Mapping[str, Any]) -> None:
    """Refuse settings that contradict each other: exact runs together with a condition on privacy."""
    from felb_sites.vault.policy import Policy

    known = asdict(site.config().policy) if site.configured else {}
    policy = Policy(**{**known, **changes})
    if changes.get("require_privacy") is False and policy.asks_for_privacy:
        raise InputError(
            "--allow-exact takes runs without a guarantee, and another setting asks for one, such as --max-epsilon; "
            "remove that with --max-epsilon none, or leave out --allow-exact"
        )


def check_columns(own: Sequence[str] | None, path: Path) -> None:
    """Raise at the first column of a site's data that is not the one of a list; the names stay at the site."""
    from felb_sites.coordinator.settings import read_columns

    wanted = read_columns(path)
    if own is None:
        raise InputError("the data has no column names; give a file with a header, or a .columns.txt beside it")
    for number, (mine, other) in enumerate(zip(own, wanted, strict=False), start=1):
        if mine != other:
            raise InputError(f"column {number} is {mine!r} in the data and {other!r} in {path}")
    if len(own) != len(wanted):
        raise InputError(f"the data has {len(own)} columns and {path} has {len(wanted)}")


# -- ``felb site start --check`` -------------------------------------------------------------------------------------


def check_site(site: Site, *, courier_user: str | None, one_user: bool, columns: str | None) -> dict[str, Any]:
    """Return what a site can be told before it starts: users, paths, Python, data, proxy, relay and clock."""
    from felb_sites.supervise import check_python, courier_account

    problems: list[str] = []
    facts: dict[str, Any] = {"site": site.name}

    def look(step: Callable[[], Mapping[str, Any]]) -> None:
        try:
            facts.update(step())
        except (FelbError, OSError) as error:
            problems.append(str(error))

    account: list[tuple[int, int] | None] = [None]

    def users() -> Mapping[str, Any]:
        account[0] = courier_account(courier_user, one_user=one_user)
        return {"users": "one runs vault and courier" if account[0] is None else "vault and courier have their own"}

    def python() -> Mapping[str, Any]:
        if account[0] is not None:
            check_python(*account[0])
        return {"python": sys.executable}

    look(users)
    look(lambda: check_paths(site, account[0]))
    look(python)
    look(lambda: check_data(site, columns))
    look(lambda: check_relay(site.invitation))
    return {"ok": not problems, **facts, "problems": problems}


def check_paths(site: Site, account: tuple[int, int] | None) -> dict[str, Any]:
    """Raise unless keys are of use and private, and the data is there, and not the courier's to read."""
    from felb.records import is_url

    found: dict[str, Any] = {"key fingerprint": site.fingerprint}
    data = site.config().data
    check_exists(data)
    if account is None:
        return found
    from felb_sites.supervise import readable_by

    for path in [site.vault] if is_url(data) else [site.vault, Path(data)]:
        if readable_by(path, *account):
            raise InputError(
                f"the courier's user can read {path}; take that right away: chmod go= {shlex.quote(str(path))}"
            )
    return found


def check_data(site: Site, columns: str | None) -> dict[str, Any]:
    """Read the data under its schema."""
    from felb_sites.loader import read_data

    config = site.config()
    matrix = read_data(config)
    if columns is not None:
        check_columns(matrix.columns, Path(columns))
    found = {"data": config.data, "rows": matrix.shape[0], "columns": matrix.shape[1]}
    return found if config.schema is None else {**found, "schema": config.schema}


def check_relay(invitation: Invitation) -> dict[str, Any]:
    """Ask the relay for its health over the connection that the courier will use, and compare the clocks."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    import httpx

    from felb_sites.courier.process import Settings, make_context

    parts = invitation
    settings = Settings("", parts.federation, parts.url, parts.trust, parts.certificate, "")  # type: ignore[arg-type]
    used = getproxies()
    proxy = used.get("https") or used.get("all")
    if proxy is not None and proxy_bypass(urlsplit(parts.url).hostname or ""):
        proxy = None
    facts = {"proxy": "none" if proxy is None else shown_proxy(proxy)}
    advice = "check the address, the firewall, HTTPS_PROXY, and that the coordinator's relay runs"
    try:
        answer = httpx.get(f"{parts.url}/v1/health", verify=make_context(settings, Path()), timeout=10)
        alive = answer.status_code == 200 and answer.json().get("status") == "ok"
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, AttributeError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{parts.url} does not answer ({said}); {advice}") from error
    if not alive:
        raise InputError(f"{parts.url} answers, but is no relay of felb (code {answer.status_code}); {advice}")
    facts["relay"] = f"{parts.url} answers"
    date = email.utils.parsedate_to_datetime(answer.headers["date"]) if "date" in answer.headers else None
    if date is None:
        return {**facts, "clock": "the relay does not tell its time"}
    off = time.time() - date.timestamp()
    if abs(off) > CLOCK_SECONDS:
        raise InputError(f"the clock of this machine is {off:+.0f} seconds off that of the relay; set it")
    return {**facts, "clock": f"differs by {abs(off):.0f} s from that of the relay"}


def shown_proxy(url: str) -> str:
    """Return the address of a proxy without its password."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts.hostname + (f":{parts.port}" if parts.port else "") if parts.hostname else "unreadable"


site_command.add_command(site_roster)
