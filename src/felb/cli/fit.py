"""``felb fit``."""

from __future__ import annotations

from typing import Any

import click

from felb.cli import options, progress
from felb.cli.output import print_result
from felb.estimators.methods import DEFAULT, summaries

EPILOG = options.methods(*summaries())


@click.command("fit", epilog=EPILOG)
@click.argument("data", required=False)
@click.option("-o", "--out", type=click.Path(), help="Folder for the result; required unless --resume is given.")
@progress.resume_option
@click.option("--method", default=DEFAULT, show_default=True, metavar="METHOD", help="Method; see the list below.")
@options.components
@click.option("--max-iter", help="Maximum number of iterations.", **options.COUNT)
@options.weights
@options.time_limit
@options.param
@options.privacy_spec
@options.dask
@click.option(
    "--jobs",
    help="Number of threads that share the rows, for the method bmf (default: the number of cores). "
    "The result does not depend on it.",
    **options.COUNT,
)
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
    dask: str | None,
    block_rows: int | None,
    jobs: int | None,
    seed: int,
    client_column: str | None,
    schema: str | None,
    force: bool,
    as_json: bool,
    others: dict[str, Any],
    privacy: dict[str, Any] | None,
    **parameters: Any,
) -> None:
    """Factorize DATA that is held in one place.

    DATA is a file (.csv .tsv .npz .npy .mat .mtx .parquet .dat .fimi .h5ad .felb), a data set of felb (`felb data
    list`), or with --schema a raw table: a file or the URL of a database (duckdb:// sqlite:// postgresql:// omop://).
    The output folder contains the components (components.csv, .npz), the assignment of each row
    (assignments/centralized.npz), and result.json with parameters, seed, version, data fingerprint, scores and history.
    With --epsilon the components can be published under the guarantee that the result states; scores, supports and the
    fingerprint are then omitted.

    With --dask the rows are fitted by the workers of a Dask cluster, and DATA may be a pattern such as 'parts/*.felb'.
    All workers and this process must see the files and OUT under the same names. Assignments are stored block by
    block (assignments/client-NN.npz).

    Ctrl-C keeps the completed rounds in OUT.unfinished, and --resume OUT continues from there, with --dask at another
    scheduler if the first one was lost. The centralized methods (elbmf, asso, grecond, mebf, zhang) cannot be resumed.
    """
    from felb.runs.job import Job

    if resumed is not None:
        progress.resume_run("fit", resumed, dask=dask, as_json=as_json)
        return
    if data is None or out is None:
        raise click.UsageError("Give DATA and --out, or --resume OUT.")
    reading = options.reading_of(parameters)
    job = Job(
        data,
        method,
        n_components,
        seed=seed,
        parameters=options.given(**parameters) | others,
        client_column=client_column,
        dask=dask,
        block_rows=block_rows,
        workers=jobs,
        schema=schema,
        privacy=privacy,
        **reading,
    )
    job.check_names()
    from felb.runs.job_runner import fit  # slow to import, and not needed to refuse wrong names

    with progress.running("fit", out, rounds=None) as advance:
        result = fit(job, out, force=force, on_round=advance)
    print_result(result, out, as_json=as_json)
