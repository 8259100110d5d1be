"""``felb fit``."""

from __future__ import annotations

from typing import Any

import click

from felb.cli import options, resuming
from felb.cli.output import print_result
from felb.cli.privacy_options import spec
from felb.estimators.methods import DEFAULT, summaries
from felb.runs.job import Job
from felb.runs.job_runner import fit

EPILOG = options.methods(*summaries())


@click.command("fit", epilog=EPILOG)
@click.argument("data", required=False)
@click.option("-o", "--out", type=click.Path(), help="Folder for the result.")
@resuming.option
@click.option("--method", default=DEFAULT, show_default=True, metavar="METHOD", help="See the list below.")
@options.components
@click.option("--max-iter", help="Iterations at most.", **options.COUNT)
@options.weights
@options.time_limit
@options.param
@spec
@options.seed
@options.client_column_left_out
@options.reading
@options.force
@options.as_json
def command(
    data: str | None,
    out: str | None,
    resumed: str | None,
    method: str,
    n_components: int | str,
    seed: int,
    client_column: str | None,
    binarize_threshold: float | None,
    header: bool | None,
    missing: str | None,
    unknown: str | None,
    schema: str | None,
    force: bool,
    as_json: bool,
    others: dict[str, Any],
    privacy: dict[str, Any] | None,
    **parameters: Any,
) -> None:
    """Factorize pooled DATA.

    DATA is a file (.csv .tsv .npz .npy .mtx .parquet .dat .fimi .h5ad .felb), a data set of felb (`felb data list`), or
    with --schema a raw table: a file or the URL of a database (duckdb:// sqlite:// postgresql:// omop://).
    The folder gets the components (components.csv, .npz), the components of each row (assignments/pooled.npz), and
    result.json with parameters, seed, version, data fingerprint, scores and history. With --epsilon the components may
    be published under the guarantee the result states; scores, supports and the fingerprint are then left out.

    Ctrl-C keeps the rounds that were done in OUT.unfinished, and --resume OUT goes on from there; pooled
    methods (elbmf, asso, grecond, mebf, zhang) keep nothing.
    """
    if resumed is not None:
        resuming.go_on("fit", resumed, as_json=as_json)
        return
    if data is None or out is None:
        raise click.UsageError("Give DATA and --out, or --resume OUT.")
    job = Job(
        data,
        method,
        n_components,
        seed=seed,
        parameters=options.given(**parameters) | others,
        client_column=client_column,
        header=header,
        binarize_threshold=binarize_threshold,
        missing=missing or "error",
        unknown=unknown,
        schema=schema,
        privacy=privacy,
    )
    with resuming.running("fit", out, rounds=None) as advance:
        result = fit(job, out, force=force, on_round=advance)
    print_result(result, out, as_json=as_json)
