"""``felb federation``: what a coordinator does."""

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
    """Found a federation of several sites, admit sites, run its server.

    One machine coordinates: it holds the certificate authority and the server that all sites connect to. Needs
    felb[nvflare].
    """


@command.command("init")
@click.argument("folder", type=click.Path())
@click.option("--name", required=True, help="Name of the federation.")
@click.option("--host", required=True, help="Name under which sites reach this machine.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    default=DEFAULT_PORT,
    show_default=True,
    help="The one port that must be open here.",
)
@click.option(
    "--listen",
    type=click.Choice(["all", "loopback"]),
    default="all",
    show_default=True,
    help="Interfaces of this machine; loopback is for a tunnel or proxy in front of it.",
)
@options.as_json
def init(folder: str, name: str, host: str, port: int, listen: str, as_json: bool) -> None:
    """Found a federation in FOLDER: certificate authority, server, and invitation.json for the sites.

    Tell every site the fingerprint on another way than the file, for example by telephone.
    """
    coordinator = Coordinator.found(folder, name=name, host=host, port=port, loopback=listen == "loopback")
    facts = {**asdict(coordinator.invitation), "invitation": str(coordinator.folder / "invitation.json")}
    print_facts(facts, as_json=as_json)


@command.command("approve")
@click.argument("folder", type=click.Path())
@click.argument("request", type=click.Path())
@click.option("-o", "--out", type=click.Path(), help="File to send back; default: beside REQUEST.")
@click.option("--days", default=VALID_DAYS, show_default=True, help="Days the certificate is valid.", **options.COUNT)
@options.as_json
def approve(folder: str, request: str, out: str | None, days: int, as_json: bool) -> None:
    """Admit the site that has sent REQUEST to the federation in FOLDER; send the file back to it.

    Make sure first that the request comes from whom it names.
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
@click.option("--undo", is_flag=True, help="Accept the site again.")
@options.as_json
def revoke(folder: str, site: str, undo: bool, as_json: bool) -> None:
    """Accept SITE no more in the federation in FOLDER, for example because its key has leaked.

    Takes effect when the server is started the next time; runs go on from their last round. A site that comes back
    with a new key joins under a new name.
    """
    coordinator = Coordinator.open(folder)
    if undo:
        coordinator.readmit(site)
    else:
        coordinator.revoke(site)
    print_facts({"revoked": ", ".join(coordinator.revoked) or "none", "next": "restart the server"}, as_json=as_json)


@command.command("start")
@click.argument("folder", type=click.Path())
@click.option("--show", is_flag=True, help="Print the command instead of running it.")
@options.as_json
def start(folder: str, show: bool, as_json: bool) -> None:
    """Run the server of the federation in FOLDER until it is stopped.

    It stays in the foreground, as a service manager wants it.
    """
    arguments = Coordinator.open(folder).command()
    if show or as_json:
        print_json(arguments)
        return
    os.execve(arguments[0], arguments, environment())


@command.command("demo")
@click.option("--sites", default=3, show_default=True, help="Number of sites.", **options.COUNT)
@options.components
@click.option("-m", "--method", default=DEFAULT, show_default=True, help="A federated method.")
@click.option("-o", "--out", type=click.Path(), help="Keep the result in this folder.")
@click.option("--keep", type=click.Path(), metavar="FOLDER", help="Keep keys, logs and states in this folder.")
@options.as_json
def demo(sites: int, n_components: int, method: str, out: str | None, keep: str | None, as_json: bool) -> None:
    """Play a whole federation on this machine: a coordinator and sites over mutual TLS, on the zoo data.

    Takes about a minute, and leaves nothing behind unless told to.
    """
    from felb.runs.deployed import demonstrate

    with run_progress(None) as (advance, tell):
        result, where = demonstrate(
            sites=sites, n_components=n_components, method=method, out=out, keep=keep, on_status=advance, on_event=tell
        )
    print_result(result, where, as_json=as_json)
