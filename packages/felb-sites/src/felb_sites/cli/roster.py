"""``felb site roster`` and ``felb federation roster``: the sites whose keys secure aggregation goes by."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from felb.cli import options
from felb.cli.output import print_facts, print_json

if TYPE_CHECKING:
    from felb.secure_sum.protocol import Roster
    from felb_sites.site_roster import SiteRosters


@click.group("roster")
def site_roster() -> None:
    """Compare and confirm the sites with which this site computes masked sums.

    Sums are masked only together with sites whose keys a person has confirmed here. The coordinator proposes a roster
    with each run, but cannot confirm it.
    """


@site_roster.command("show")
@click.argument("folder", type=click.Path())
@options.as_json
def show(folder: str, as_json: bool) -> None:
    """Show the rosters that were confirmed at the site in FOLDER, those that wait, and the key of its vault.

    Compare a roster with all other sites by telephone: each reads out the digest and its own key, and there must be as
    many people as sites.
    """
    from felb_sites import SHORT
    from felb_sites.certificates import written
    from felb_sites.provisioning import Site

    rosters = Site.open(folder).rosters
    own = written(rosters.own.fingerprint)
    confirmed, proposed = rosters.confirmed(), rosters.proposed()
    if as_json:
        print_json(
            {
                "vault key fingerprint": own,
                "confirmed": [_told(rosters, roster) for roster in confirmed],
                "proposed": [_told(rosters, roster) for roster in proposed],
            }
        )
        return
    click.echo(f"vault key of this site  {own}")
    for roster in confirmed:
        _print(rosters, roster, "confirmed")
    for roster in proposed:
        _print(rosters, roster, "waits for confirmation")
        click.echo(f"felb site roster confirm {folder} {roster.digest[:SHORT]}")
    if not confirmed and not proposed:
        click.echo("no roster was proposed; the coordinator proposes one with a run")


def _print(rosters: SiteRosters, roster: Roster, status: str) -> None:
    click.echo(f"\nroster of {len(roster.members)} sites, {status}\ndigest  {roster.digest}")
    for line in rosters.lines(roster):
        click.echo(f"{line.name}  {line.state}\n  {line.fingerprint}")


def _told(rosters: SiteRosters, roster: Roster) -> dict[str, Any]:
    return {"digest": roster.digest, "sites": [asdict(line) for line in rosters.lines(roster)]}


@site_roster.command("confirm")
@click.argument("folder", type=click.Path())
@click.argument("digest")
@options.as_json
def confirm(folder: str, digest: str, as_json: bool) -> None:
    """Confirm a roster at the site in FOLDER, after comparing it with all other sites; DIGEST is the one shown.

    Confirmed rosters that have another key for one of its sites become invalid.
    """
    from felb_sites.provisioning import Site

    roster = Site.open(folder).rosters.confirm(digest)
    print_facts({"confirmed": roster.digest, "sites": ", ".join(roster.names)}, as_json=as_json)


@click.command("roster")
@click.argument("folder", type=click.Path())
@click.option(
    "--site",
    "sites",
    multiple=True,
    metavar="NAME",
    help="Site to include; can be repeated (default: all admitted sites).",
)
@click.option(
    "--authority",
    type=click.Path(),
    metavar="FOLDER",
    help="Folder of the certificate authority from which the keys are read, if it is kept elsewhere.",
)
@options.as_json
def federation_roster(folder: str, sites: tuple[str, ...], authority: str | None, as_json: bool) -> None:
    """Show the roster that the coordinator in FOLDER proposes: the sites and the keys of their vaults.

    A roster is proposed with each run whose sums are masked. The sites compare and confirm it by `felb site roster`.
    """
    from felb_sites.authority import Authority
    from felb_sites.certificates import written
    from felb_sites.provisioning import Coordinator

    coordinator = Coordinator.open(folder)
    if authority is not None:
        coordinator.note_members(Authority.open(authority))
    roster = coordinator.roster(sites or sorted(member.name for member in coordinator.members()))
    keys = {member.name: written(member.fingerprint) for member in roster.members}
    print_facts({"digest": roster.digest, **keys}, as_json=as_json)
