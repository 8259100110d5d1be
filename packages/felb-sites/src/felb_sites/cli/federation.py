"""``felb federation``: the commands of a coordinator."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felb.cli import options
from felb.cli.output import print_facts, print_json, print_result
from felb.errors import InputError
from felb.federated.algorithms.registry import DEFAULT
from felb_sites import CERTIFICATE_DAYS
from felb_sites.cli.roster import federation_roster
from felb_sites.cli.run import run_progress

if TYPE_CHECKING:
    from felb_sites.authority import Authority
    from felb_sites.provisioning import Coordinator
    from felb_sites.revocation import Revocations

DEFAULT_PORT = 8002


@click.group("federation")
def federation_command() -> None:
    """Create a federation of several sites, admit sites, and run its server.

    The machine of the coordinator holds the certificate authority and the server that all sites connect to.
    """


@federation_command.command("init")
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
@click.option(
    "--authority",
    type=click.Path(),
    metavar="FOLDER",
    help="Folder for the key of the certificate authority, for example on a removable medium (default: in FOLDER).",
)
@options.as_json
def init(folder: str, name: str, host: str, port: int, listen: str, authority: str | None, as_json: bool) -> None:
    """Create a federation in FOLDER: certificate authority, server, and invitation.json for the sites.

    Give the fingerprint to every site over another channel than the file, for example by telephone.
    """
    from felb_sites.provisioning import Coordinator

    coordinator = Coordinator.found(
        folder, name=name, host=host, port=port, loopback=listen == "loopback", authority=authority
    )
    facts = {
        **asdict(coordinator.invitation),
        "invitation": str(coordinator.folder / "invitation.json"),
        "authority": str(coordinator.authority.folder),
    }
    print_facts(facts, as_json=as_json)


@federation_command.command("approve")
@click.argument("folder", type=click.Path())
@click.argument("request", type=click.Path())
@click.option("--name", help="Name of the site, as given by telephone.")
@click.option(
    "--key-fingerprint", metavar="SHA256:…", help="Fingerprint of the key of the site, as given by telephone."
)
@click.option("--rotate", is_flag=True, help="Approve a new key of a known site and revoke its old key.")
@click.option(
    "-o",
    "--out",
    type=click.Path(),
    help="Approval file to send to the site (default: NAME.signed.zip in the folder of REQUEST).",
)
@click.option(
    "--days", default=CERTIFICATE_DAYS, show_default=True, help="Validity of the certificate in days.", **options.COUNT
)
@options.as_json
def approve(
    folder: str,
    request: str,
    name: str | None,
    key_fingerprint: str | None,
    rotate: bool,
    out: str | None,
    days: int,
    as_json: bool,
) -> None:
    """Admit the site of the file REQUEST to the federation in FOLDER and write the approval file for it.

    Without --name and --key-fingerprint, the command shows the request and signs nothing; the site gives both by
    telephone. Only certificates of sites are signed, each for a name that is not taken. FOLDER may also be the folder
    of the authority, on a machine without a network.
    """
    from felb_sites.certificates import CertificateRequest

    signer = _opened(folder)
    asked = CertificateRequest.read(request)
    if name is None or key_fingerprint is None:
        print_facts(asked.facts(), as_json=as_json)
        raise InputError(
            "nothing was signed: ask the site for its name and the fingerprint of its key by telephone, then give both "
            "with --name and --key-fingerprint"
        )
    path = Path(request)
    target = Path(out) if out else path.with_name(f"{path.name.removesuffix('.request.zip')}.signed.zip")
    if not target.name.endswith(".signed.zip"):
        raise click.UsageError("--out must end with .signed.zip.")
    signed = signer.approve(path, target, name=name, key_fingerprint=key_fingerprint, valid_days=days, rotate=rotate)
    print_facts({"approval": str(signed), **asked.facts()}, as_json=as_json)


@federation_command.command("members")
@click.argument("folder", type=click.Path())
@options.as_json
def members(folder: str, as_json: bool) -> None:
    """Show every certificate that the authority of the federation in FOLDER has signed, and which are revoked."""
    signer = _authority(folder)
    revoked = signer.revocations
    lines = []
    for entry in signer.signed():
        state = "revoked" if revoked.refuses(entry.name, entry.key) else "accepted"
        lines.append({**asdict(entry), "state": state})
    if as_json:
        print_json(lines)
        return
    for line in lines:
        click.echo(f"{line['name']}  {line['type']}  {line['state']}  until {line['valid_until'][:10]}")
        click.echo(f"  {line['key']}")


@federation_command.command("revoke")
@click.argument("folder", type=click.Path())
@click.argument("site", required=False)
@click.option("--key", "key_fingerprint", metavar="SHA256:…", help="Revoke this key, whatever the name of the site.")
@click.option("--undo", is_flag=True, help="Readmit the site or the key.")
@click.option(
    "--install", type=click.Path(), metavar="FILE", help="Install a list of revocations that was signed elsewhere."
)
@options.as_json
def revoke(
    folder: str, site: str | None, key_fingerprint: str | None, undo: bool, install: str | None, as_json: bool
) -> None:
    """Exclude SITE, or a key, from the federation in FOLDER, for example because the key has leaked.

    The list of revocations is signed by the authority. A running server applies it within seconds, also to current
    runs. If the authority is kept elsewhere, revoke there, with the folder of the authority as FOLDER, and bring
    revocations.json to the coordinator (--install FILE). If only the key of a site is revoked, the site can get a new
    one by `felb site rotate`.
    """
    given = [site is not None or key_fingerprint is not None, install is not None]
    if given.count(True) != 1:
        raise click.UsageError("Give SITE, --key, or --install.")
    listed = _installed(folder, install) if install else _revoked(folder, site, key_fingerprint, undo=undo)
    facts = {"revoked": ", ".join(listed.names) or "none", "revoked keys": ", ".join(listed.keys) or "none"}
    print_facts({**facts, "list": str(listed.number)}, as_json=as_json)


def _installed(folder: str, path: str) -> Revocations:
    from felb_sites.provisioning import Coordinator

    return Coordinator.open(folder).install_revocations(Path(path))


def _revoked(folder: str, site: str | None, key: str | None, *, undo: bool) -> Revocations:
    opened = _opened(folder)
    names, keys = () if site is None else (site,), () if key is None else (key,)
    return opened.readmit(names=names, keys=keys) if undo else opened.revoke(names=names, keys=keys)


def _opened(folder: str) -> Coordinator | Authority:
    """Return a coordinator's folder, or that of an authority by itself."""
    from felb_sites.authority import Authority
    from felb_sites.provisioning import Coordinator
    from felb_sites.revocation import REVOCATIONS

    return Authority.open(folder) if (Path(folder) / REVOCATIONS).is_file() else Coordinator.open(folder)


def _authority(folder: str) -> Authority:
    from felb_sites.provisioning import Coordinator

    opened = _opened(folder)
    return opened.authority if isinstance(opened, Coordinator) else opened


@federation_command.command("start")
@click.argument("folder", type=click.Path())
@click.option("--show", is_flag=True, help="Print the command of the server instead of running it.")
@options.as_json
def start(folder: str, show: bool, as_json: bool) -> None:
    """Run the server of the federation in FOLDER until it is stopped.

    The process stays in the foreground, as service managers expect.
    """
    from felb_sites.flare import environment
    from felb_sites.provisioning import Coordinator

    arguments = Coordinator.open(folder).command()
    if show or as_json:
        print_json(arguments)
        return
    os.execve(arguments[0], arguments, environment())


@federation_command.command("demo")
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
    from felb_sites.deployed import demonstrate

    with run_progress(None) as (advance, tell):
        result, where = demonstrate(
            sites=sites, n_components=n_components, method=method, out=out, keep=keep, on_status=advance, on_event=tell
        )
    print_result(result, where, as_json=as_json)


federation_command.add_command(federation_roster)
