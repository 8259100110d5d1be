"""``felb federation``: the commands of a coordinator."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import click

from felb.cli import options
from felb.cli.output import print_facts, print_json, print_result
from felb.errors import FelbError, InputError
from felb.federated.algorithms.registry import DEFAULT
from felb_sites.cli.roster import federation_roster, print_sites, print_told
from felb_sites.cli.run import run_progress

if TYPE_CHECKING:
    from felb_sites.coordinator.folder import Authority, Federation
    from felb_sites.keys.members import SignedMembers

DEFAULT_PORT = 8443
FEW_DAYS = 30
"""Before the relay's certificate ends, it is time to renew it."""
FEW_BYTES = 1 << 30
"""Free space below which a coordinator is warned."""
elsewhere = click.option(
    "--authority",
    type=click.Path(),
    metavar="FOLDER",
    help="Folder of the offline key, if it is kept elsewhere.",
)


@click.group("federation")
def federation_command() -> None:
    """Create a federation of several sites, admit sites, and run its relay.

    The coordinator has two keys. The offline key signs the list of members, and can be kept on another machine. The run
    key signs what runs send. All sites connect to the relay, which stores sealed envelopes.
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
    help="TCP port of the relay; it must be open for the sites.",
)
@click.option(
    "--listen",
    type=click.Choice(["all", "loopback"]),
    default="all",
    show_default=True,
    help="Network interfaces of the relay: all, or loopback for a tunnel or proxy on this machine.",
)
@click.option(
    "--authority",
    type=click.Path(),
    metavar="FOLDER",
    help="Folder for the offline key, for example on a removable medium (default: in FOLDER).",
)
@click.option(
    "--trust",
    type=click.Choice(["pinned", "authority", "system"]),
    default="pinned",
    show_default=True,
    help="Which certificate of the relay sites accept: the one that is made now, those of --certificate, or those that "
    "their system trusts.",
)
@click.option(
    "--certificate",
    type=click.Path(),
    metavar="FILE",
    help="Certificate of an authority (PEM), with --trust authority.",
)
@click.option(
    "--url", metavar="URL", help="URL of the relay for the sites, if it is behind a proxy (default: by host and port)."
)
@options.as_json
def init(folder: str, as_json: bool, **settings: Any) -> None:
    """Create a federation in FOLDER: keys, relay, an empty list of members, and invitation.json for the sites.

    Give the fingerprint to every site over another channel than the file, for example by telephone.
    """
    from felb_sites.coordinator.folder import INVITATION, Federation

    made = Federation.create(folder, **settings)
    invitation = made.invitation
    facts = {
        "federation": invitation.name,
        "url": invitation.url,
        "trust": invitation.trust,
        "fingerprint": invitation.fingerprint,
        "invitation": str(made.folder / INVITATION),
        "authority": str(made.authority.folder),
    }
    print_told(facts, as_json=as_json)


@federation_command.command("approve")
@click.argument("folder", type=click.Path())
@click.argument("request", type=click.Path())
@click.option("--name", help="Name of the site, as given by telephone.")
@click.option(
    "--key-fingerprint", metavar="SHA256:…", help="Fingerprint of the keys of the site, as given by telephone."
)
@click.option("--rotate", is_flag=True, help="Approve new keys of a known site and revoke its old ones.")
@elsewhere
@options.as_json
def approve(
    folder: str,
    request: str,
    name: str | None,
    key_fingerprint: str | None,
    rotate: bool,
    authority: str | None,
    as_json: bool,
) -> None:
    """Admit the site of the file REQUEST to the federation in FOLDER: sign the next list of members.

    Without --name and --key-fingerprint, the command shows the request and signs nothing; the site gives both by
    telephone. The relay sends the list to all sites. FOLDER may also be the folder of the authority, on a machine
    without a network; then bring members.felb to the coordinator (`felb federation members --install`).
    """
    signer = _opened(folder, authority)
    asked = signer.read_request(request).member
    facts: dict[str, Any] = {"site": asked.name, "key fingerprint": asked.fingerprint}
    if name is None or key_fingerprint is None:
        print_told(facts, as_json=as_json)
        raise InputError(
            "nothing was signed: ask the site for its name and the fingerprint of its keys by telephone, then give "
            "both with --name and --key-fingerprint"
        )
    signer.approve(request, name=name, fingerprint=key_fingerprint, rotate=rotate)
    print_told({**facts, "list": signer.members.listed.number}, as_json=as_json)


@federation_command.command("members")
@click.argument("folder", type=click.Path())
@click.option("--install", type=click.Path(), metavar="FILE", help="Install a list that was signed elsewhere.")
@elsewhere
@options.as_json
def members(folder: str, install: str | None, authority: str | None, as_json: bool) -> None:
    """Show the sites that are or were members of the federation in FOLDER, and which are revoked."""
    signer = _opened(folder, authority)
    if install is not None:
        signer.install(install)
    signed = signer.members
    lines = _lines(signer, signed)
    if as_json:
        print_json({"list": signed.listed.number, "digest": signed.digest, "sites": lines})
        return
    click.echo(f"list {signed.listed.number}, {len(signed.listed.members)} members\ndigest  {signed.digest}")
    for line in lines:
        since = f"{line['state']}, since {line['time'][:10]}" if line["time"] else line["state"]
        print_sites({line["name"]: (since, line["fingerprint"])})


def _lines(signer: Federation | Authority, signed: SignedMembers) -> list[dict[str, Any]]:
    """Return all that were admitted, as far as the authority is at hand, and otherwise the members."""
    from felb_sites.coordinator.folder import Decisions, Federation

    present = {member.fingerprint: member for member in signed.listed.members}
    try:
        decided = (signer.authority if isinstance(signer, Federation) else signer).decisions
    except InputError:
        decided = Decisions()
    lines: dict[str, dict[str, Any]] = {}
    for entry in decided.admitted:
        key = entry.fingerprint
        state = "member" if key in present else "revoked" if decided.refuses(entry.member) else "not on the list"
        lines[key] = {"name": entry.name, "state": state, "fingerprint": key, "time": entry.time}
    for key, member in present.items():
        lines.setdefault(key, {"name": member.name, "state": "member", "fingerprint": key, "time": ""})
    return list(lines.values())


@federation_command.command("revoke")
@click.argument("folder", type=click.Path())
@click.argument("site", required=False)
@click.option("--key", "key_fingerprint", metavar="SHA256:…", help="Revoke these keys, but not the name of the site.")
@click.option("--undo", is_flag=True, help="Readmit the site or the keys.")
@click.option("--install", type=click.Path(), metavar="FILE", help="Install a list that was signed elsewhere.")
@elsewhere
@options.as_json
def revoke(
    folder: str,
    site: str | None,
    key_fingerprint: str | None,
    undo: bool,
    install: str | None,
    authority: str | None,
    as_json: bool,
) -> None:
    """Exclude SITE, or its keys, from the federation in FOLDER, for example because a key has leaked.

    The next list of members is signed without it. A running relay applies it at once, also to current runs. If the
    authority is kept elsewhere, revoke there, with the folder of the authority as FOLDER, and bring members.felb to the
    coordinator (--install FILE). If only the keys of a site are revoked, for example because they are lost, the site
    can join again under its name.
    """
    given = [site is not None or key_fingerprint is not None, install is not None]
    if given.count(True) != 1:
        raise click.UsageError("Give SITE, --key, or --install.")
    signer = _opened(folder, authority)
    if install is not None:
        signed = signer.install(install)
    else:
        names, keys = () if site is None else (site,), () if key_fingerprint is None else (key_fingerprint,)
        signed = signer.readmit(names, keys) if undo else signer.revoke(names, keys)
    lines = [line["name"] for line in _lines(signer, signed) if line["state"] == "revoked"]
    facts = {
        "members": ", ".join(member.name for member in signed.listed.members) or "none",
        "revoked": ", ".join(dict.fromkeys(lines)) or "none",
        "list": signed.listed.number,
    }
    print_facts(facts, as_json=as_json)


def _opened(folder: str, authority: str | None) -> Federation | Authority:
    """Return a coordinator's folder, or that of an authority by itself."""
    from felb_sites.coordinator.folder import open_signer

    return open_signer(folder, authority=authority)


@federation_command.command("start")
@click.argument("folder", type=click.Path())
@options.as_json
@click.pass_context
def start(context: click.Context, folder: str, as_json: bool) -> None:
    """Run the relay of the federation in FOLDER until it is stopped.

    The process stays in the foreground, as service managers expect, and writes its log to standard output.
    """
    from felb_sites.coordinator.folder import Federation

    federation = Federation.open(folder)
    _ = federation.members  # a damaged list is told before anything listens
    from felb_sites.relay.process import main

    context.exit(main([str(federation.folder), *([] if as_json else ["--plain"])]))


@federation_command.command("health")
@click.argument("folder", type=click.Path())
@options.as_json
@click.pass_context
def health(context: click.Context, folder: str, as_json: bool) -> None:
    """Check the federation in FOLDER: relay, member list, certificate and free space. Exit code 1 for a problem."""
    from felb_sites.coordinator.folder import Federation

    federation = Federation.open(folder)
    found = check_federation(federation)
    if as_json:
        print_json(found)
    else:
        shown = {name: fact for name, fact in found.items() if name not in ("ok", "problems")}
        print_facts({name: "none" if fact == [] else fact for name, fact in shown.items()}, as_json=False)
        print_problems(found["problems"])
    if not found["ok"]:
        context.exit(1)


def print_problems(problems: list[str]) -> None:
    """Print what is wrong, or that nothing is."""
    for problem in problems:
        print_facts({"problem": problem}, as_json=False)
    if not problems:
        click.echo("no problems")


def check_federation(federation: Federation) -> dict[str, Any]:
    """Return what monitoring wants to know of a coordinator."""
    from felb_sites.relay.client import RelayClient

    problems: list[str] = []
    facts: dict[str, Any] = {"federation": federation.invitation.name, "relay": "does not run"}
    try:
        facts["list"] = federation.members.listed.number
    except FelbError as error:
        problems.append(str(error))
    with RelayClient(federation.relay_socket) as client:
        sites = client.sites() if client.is_alive() else None
    if sites is not None:
        facts |= {
            "relay": "runs",
            "connected": [name for name, site in sorted(sites.items()) if site["connected"]],
            "away": [name for name, site in sorted(sites.items()) if not site["connected"]],
        }
    else:
        problems.append("the relay does not run; start it with `felb federation start`")
    days = _days_left(federation)
    if days is not None:
        facts["certificate"] = f"valid for {days} days"
        if days < FEW_DAYS:
            problems.append(f"the certificate of the relay ends in {days} days")
    free = shutil.disk_usage(federation.folder).free
    facts["free space"] = f"{free / (1 << 30):.1f} GB"
    if free < FEW_BYTES:
        problems.append("less than 1 GB of disk space is free")
    return {"ok": not problems, **facts, "problems": problems}


def _days_left(federation: Federation) -> int | None:
    """Return for how many days the relay's certificate is valid; None if it has none."""
    path = federation.relay_folder / "tls.pem"
    if not path.is_file():
        return None
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path} holds no certificate; restore it from a backup") from error
    return int((certificate.not_valid_after_utc.timestamp() - time.time()) // 86400)


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
    """Run a complete federation on this machine: a coordinator and sites over TLS, on the zoo data.

    All files are deleted at the end, except those of --out and --keep.
    """
    from felb_sites.coordinator.demo import demonstrate

    with run_progress(None) as (advance, tell):
        result, where = demonstrate(
            sites=sites, n_components=n_components, method=method, out=out, keep=keep, on_status=advance, on_event=tell
        )
    print_result(result, where, as_json=as_json)


federation_command.add_command(federation_roster)
