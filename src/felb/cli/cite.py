"""``felb cite``."""

from __future__ import annotations

import click

from felb.cli import options
from felb.cli.output import print_json
from felb.estimators.methods import summaries


@click.command("cite", epilog=options.methods(*summaries()))
@click.argument("method", required=False)
@options.as_json
def command(method: str | None, as_json: bool) -> None:
    """Print the publications of METHOD as BibTeX; without METHOD, those of all methods.

    A post-hoc method such as asso+vote has those of its centralized method and of the paper that federates it.
    """
    from felb.estimators.references import bibtex, citation_keys, entries

    if as_json:
        known = entries()
        print_json({key: known[key] for key in (known if method is None else citation_keys(method))})
    else:
        click.echo(bibtex(method), nl=False)
