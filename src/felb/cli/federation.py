"""``felb federation``: the commands of a coordinator."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import click

from felb.cli import options
from felb.cli.output import print_facts, print_json, print_result
from felb.cli.progress import run_progress
from felb.engines.nvflare.flare import environment
from felb.engines.nvflare.provisioning import VALID_DAYS, Coordinator
from felb.estimators.methods import DEFAULT

DEFAULT_PORT = 8002


@click.group("federation")
def command() -> None:
    """Create a federation of several sites, admit sites, and run its server.

    The machine of the coordinator holds the certificate authority and the server that all sites connect to. Requires
    felb[nvflare].
    """


@command.command("init")
@click.argument("folder", type=click.Path())
@click.option("--name", required=True, help="Name of the federation.")
@click.option("--host", required=True, help="Host name of this machine, as the sites reach it.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    default=DEFAULT_PORT,
    show_default=True,
    help="TCP port of the server; it must be open for the sites.",
)
@click.option(
    "--listen",
    type=click.Choice(["all", "loopback"]),
    default="all",
    show_default=True,
    help="Network interfaces of the server: all, or loopback for a tunnel or proxy on this machine.",
)
@options.as_json
def init(folder: str, name: str, host: str, port: int, listen: str, as_json: bool) -> None:
    """Create a federation in FOLDER: certificate authority, server, and invitation.json for the sites.

    Give the fingerprint to every site over another channel than the file, for example by telephone.
    """
    coordinator = Coordinator.found(folder, name=name, host=host, port=port, loopback=listen == "loopback")
    facts = {**asdict(coordinator.invitation), "invitation": str(coordinator.folder / "invitation.json")}
    print_facts(facts, as_json=as_json)


@command.command("approve")
@click.argument("folder", type=click.Path())
@click.argument("request", type=click.Path())
@click.option(
    "-o",
    "--out",
    type=click.Path(),
    help="Approval file to send to the site (default: NAME.signed.zip in the folder of REQUEST).",
)
@click.option(
    "--days", default=VALID_DAYS, show_default=True, help="Validity of the certificate in days.", **options.COUNT
)
@options.as_json
def approve(folder: str, request: str, out: str | None, days: int, as_json: bool) -> None:
    """Admit the site of the file REQUEST to the federation in FOLDER and write the approval file for it.

    Verify first that the request comes from the site that it names.
    """
    path = Path(request)
    target = Path(out) if out else path.with_name(f"{path.name.removesuffix('.request.zip')}.signed.zip")
    if not target.name.endswith(".signed.zip"):
        raise click.UsageError("--out must end with .signed.zip.")
    signed = Coordinator.open(folder).approve(path, target, valid_days=days)
    print_facts({"approval": str(signed)}, as_json=as_json)


@command.command("revoke")
@click.argument("folder", type=click.Path())
@click.argument("site")
@click.option("--undo", is_flag=True, help="Readmit the site.")
@options.as_json
def revoke(folder: str, site: str, undo: bool, as_json: bool) -> None:
    """Exclude SITE from the federation in FOLDER, for example because its key has leaked.

    Takes effect at the next start of the server; runs continue from their last round. A site that returns with a new
    key joins under a new name.
    """
    coordinator = Coordinator.open(folder)
    if undo:
        coordinator.readmit(site)
    else:
        coordinator.revoke(site)
    print_facts({"revoked": ", ".join(coordinator.revoked) or "none", "next": "restart the server"}, as_json=as_json)


@command.command("start")
@click.argument("folder", type=click.Path())
@click.option("--show", is_flag=True, help="Print the command of the server instead of running it.")
@options.as_json
def start(folder: str, show: bool, as_json: bool) -> None:
    """Run the server of the federation in FOLDER until it is stopped.

    The process stays in the foreground, as service managers expect.
    """
    arguments = Coordinator.open(folder).command()
    if show or as_json:
        print_json(arguments)
        return
    os.execve(arguments[0], arguments, environment())


@command.command("demo")
@click.option("--sites", default=3, show_default=True, help="Number of sites.", **options.COUNT)
@options.components
@click.option("-m", "--method", default=DEFAULT, show_default=True, help="Federated method.")
@click.option("-o", "--out", type=click.Path(), help="Folder in which the result is kept (default: not kept).")
@click.option(
    "--keep",
    type=click.Path(),
    metavar="FOLDER",
    help="Folder in which keys, logs and states are kept (default: not kept).",
)
@options.as_json
def demo(sites: int, n_components: int, method: str, out: str | None, keep: str | None, as_json: bool) -> None:
    """Run a complete federation on this machine: a coordinator and sites over mutual TLS, on the zoo data.

    Takes about a minute. All files are deleted at the end, except those of --out and --keep.
    """
    from felb.runs.deployed import demonstrate

    with run_progress(None) as (advance, tell):
        result, where = demonstrate(
            sites=sites, n_components=n_components, method=method, out=out, keep=keep, on_status=advance, on_event=tell
        )
    print_result(result, where, as_json=as_json)
