"""``felb site roster`` and ``felb federation roster``: the sites whose keys secure aggregation goes by."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from felb.cli import options
from felb.cli.output import plain_console, print_facts, print_json
from felb.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTLED = ("confirmed", "this site")
"""States of members that need nobody's confirmation."""
HALF = 8
"""Groups of a fingerprint on a line of a narrow terminal."""


def print_told(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print facts; a fingerprint is divided into two lines where the terminal is too narrow for one."""
    if not as_json:
        indent = max(map(len, facts), default=0) + 2
        facts = {name: break_fingerprint(str(fact), indent) for name, fact in facts.items()}
    print_facts(facts, as_json=as_json)


def break_fingerprint(text: str, indent: int) -> str:
    """Return a fingerprint with a space in its middle if it does not fit; what reads it takes no notice of it."""
    groups = text.split("-")
    if not text.startswith("SHA256:") or len(groups) != 2 * HALF or indent + len(text) <= plain_console().width:
        return printable(text)
    return f"{'-'.join(groups[:HALF])}- {'-'.join(groups[HALF:])}"


def print_sites(sites: Mapping[str, tuple[str, str]]) -> None:
    """Print names with their state and fingerprint."""
    for name, (state, fingerprint) in sites.items():
        click.echo(printable(f"{name}  {state}"))
        for line in break_fingerprint(fingerprint, 2).split(" "):
            click.echo(f"  {line}")


@click.group("roster")
def site_roster() -> None:
    """Compare and confirm the sites with which this site computes masked sums.

    Sums are masked only together with sites whose keys a person has confirmed here. The coordinator lists the members
    of the federation, but cannot confirm them.
    """


@site_roster.command("show")
@click.argument("folder", type=click.Path())
@options.as_json
def show(folder: str, as_json: bool) -> None:
    """Show the members that the site in FOLDER knows, whether their keys were confirmed, and its own fingerprint.

    Compare them with all other sites by telephone: each reads out the digest and its own fingerprint, and there must be
    as many people as sites.
    """
    from felb_sites.site_folder import Site

    site = Site.open(folder)
    from felb_sites.vault.operator import Operator

    own, known = site.fingerprint, Operator(site.vault).roster()
    if as_json:
        print_json({"key fingerprint": own, **known})
        return
    print_told({"this site": own}, as_json=False)
    sites = known["sites"]
    if not sites:
        click.echo("no member list has arrived; it comes from the relay when the site runs")
        return
    click.echo(f"\nlist of {len(sites)} sites\ndigest  {known['digest']}")
    print_sites({line["name"]: (line["state"], line["fingerprint"]) for line in sites})
    if any(line["state"] not in SETTLED for line in sites):
        from felb_sites import SHORT

        click.echo(f"\nfelb site roster confirm {shlex.quote(folder)} {known['digest'][:SHORT]}")


@site_roster.command("confirm")
@click.argument("folder", type=click.Path())
@click.argument("digest")
@options.as_json
def confirm(folder: str, digest: str, as_json: bool) -> None:
    """Confirm the keys of the members at the site in FOLDER, after comparing them; DIGEST is the one shown."""
    from felb_sites.site_folder import Site

    site = Site.open(folder)
    from felb_sites.vault.operator import Operator, current_user

    done = Operator(site.vault).confirm(digest, current_user())
    names = done["confirmed"] if as_json else ", ".join(done["confirmed"]) or "nothing is new"
    print_told({**done, "confirmed": names}, as_json=as_json)


@click.command("roster")
@click.argument("folder", type=click.Path())
@click.option(
    "--site",
    "sites",
    multiple=True,
    metavar="NAME",
    help="Site to include; can be repeated (default: all members).",
)
@options.as_json
def federation_roster(folder: str, sites: tuple[str, ...], as_json: bool) -> None:
    """Show the roster of the coordinator in FOLDER: the sites of masked sums, and the fingerprints of their keys.

    The sites compare and confirm it by `felb site roster`.
    """
    from felb.privacy.spec import LEAST_SITES, MOST_SITES
    from felb_sites.coordinator.folder import Federation
    from felb_sites.keys.identity import fingerprint_of

    signed = Federation.open(folder).members
    listed = signed.listed
    names = sites or tuple(member.name for member in listed.members)
    for name in names:
        if listed.find(name) is None:
            raise InputError(f"{name} is not a member of the federation")
    maskable = LEAST_SITES <= len(set(names)) <= MOST_SITES
    roster = listed.roster(sorted(set(names))).digest if maskable else None
    keys = {member.name: member.fingerprint for member in listed.members if member.name in names}
    digest = fingerprint_of(b"keys", *(part for m in listed.members for part in (m.name.encode(), m.sign))).hex()
    if as_json:
        print_json({"digest": digest, "roster": roster, "members": signed.digest, "sites": keys})
        return
    click.echo(f"list {listed.number} of {len(listed.members)} sites; what sites compare is the digest")
    few = f"none: sums are masked among {LEAST_SITES} to {MOST_SITES} sites"
    click.echo(f"digest  {digest}\nroster  {roster or few}")
    print_sites({name: ("member", key) for name, key in keys.items()})
