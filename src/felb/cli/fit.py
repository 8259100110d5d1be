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
@options.dask
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
    seed: int,
    client_column: str | None,
    binarize_threshold: float | None,
    header: bool | None,
    missing: str | None,
    unknown: str | None,
    force: bool,
    as_json: bool,
    others: dict[str, Any],
    privacy: dict[str, Any] | None,
    **parameters: Any,
) -> None:
    """Factorize pooled DATA.

    DATA is a file (.csv .tsv .npz .npy .mtx .parquet .dat .fimi .h5ad .felb) or a data set of felb (`felb data list`).
    The folder gets the components (components.csv, .npz), the components of each row (assignments/pooled.npz), and
    result.json with parameters, seed, version, data fingerprint, scores and history. With --epsilon the components may
    be published under the guarantee the result states; scores, supports and the fingerprint are then left out.

    With --dask the rows are fitted by the workers of a Dask cluster, and DATA may be a pattern such as 'parts/*.felb';
    all workers and this process must see the files and OUT under the same names. The rows of a block are then assigned
    in assignments/client-NN.npz, block by block.

    Ctrl-C keeps the rounds that were done in OUT.unfinished, and --resume OUT goes on from there, with
    --dask at another scheduler if the first one died; pooled methods (elbmf, asso, grecond, mebf, zhang) keep nothing.
    """
    if resumed is not None:
        resuming.go_on("fit", resumed, dask=dask, as_json=as_json)
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
        dask=dask,
        block_rows=block_rows,
        privacy=privacy,
    )
    with resuming.running("fit", out, rounds=None) as advance:
        result = fit(job, out, force=force, on_round=advance)
    print_result(result, out, as_json=as_json)
