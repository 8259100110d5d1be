"""``felb site pending``, ``show``, ``approve`` and ``deny``: which runs a site takes part in."""

from __future__ import annotations

import time

import click
from rich.table import Table

from felb.cli import options
from felb.cli.output import plain_console, print_facts, print_json


@click.command("pending")
@click.argument("folder", type=click.Path())
@options.as_json
def pending(folder: str, as_json: bool) -> None:
    """List the runs that wait for the approval of the site in FOLDER."""
    from felb.engines.nvflare.approvals import Approvals
    from felb.engines.nvflare.provisioning import Site

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
    from felb.engines.nvflare.approvals import SHORT, Approvals
    from felb.engines.nvflare.provisioning import Site

    site = Site.open(folder)
    approval = Approvals(site.state).find(run)
    from felb.engines.nvflare.plan_summary import in_words, leaving
    from felb.engines.nvflare.run_plan import Plan

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
    from felb.engines.nvflare.approvals import Approvals
    from felb.engines.nvflare.provisioning import Site

    done = Approvals(Site.open(folder).state).approve(run, digest)
    print_facts({"run": run, "status": done.status}, as_json=as_json)


@click.command("deny")
@click.argument("folder", type=click.Path())
@click.argument("run")
@options.as_json
def deny(folder: str, run: str, as_json: bool) -> None:
    """Refuse RUN at the site in FOLDER, also if it was approved; nothing more of it leaves."""
    from felb.engines.nvflare.approvals import Approvals
    from felb.engines.nvflare.provisioning import Site

    done = Approvals(Site.open(folder).state).deny(run)
    print_facts({"run": run, "status": done.status}, as_json=as_json)


RUN_VERBS = (pending, show, approve, deny)
