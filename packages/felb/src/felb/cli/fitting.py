"""``felb fit`` and ``felb simulate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from felb.cli import options
from felb.cli import output as progress
from felb.cli.output import print_result
from felb.federated.algorithms.registry import DEFAULT, FELB_SETTINGS, summaries

if TYPE_CHECKING:
    from felb.runs.job import Job

FIT_EPILOG = options.methods(*summaries())


@click.command("fit", epilog=FIT_EPILOG)
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
def fit_command(
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
    if resumed is not None:
        progress.resume_run("fit", resumed, dask=dask, as_json=as_json)
        return
    job = make_job(
        data,
        out,
        parameters,
        method=method,
        n_components=n_components,
        seed=seed,
        others=others,
        client_column=client_column,
        dask=dask,
        block_rows=block_rows,
        workers=jobs,
        schema=schema,
        privacy=privacy,
    )
    from felb.runs.execute import fit  # slow to import, and not needed to refuse wrong names

    with progress.running("fit", str(out)) as bar:
        result = fit(job, str(out), force=force, on_plan=bar.plan, on_round=bar.advance)
    print_result(result, str(out), as_json=as_json)


def make_job(
    data: str | None, out: str | None, parameters: dict[str, Any], *, others: dict[str, Any], **fields: Any
) -> Job:
    """Return the job of a command: its data and how that is read, its method, and the parameters that were given."""
    from felb.runs.job import Job

    if data is None or out is None:
        raise click.UsageError("Give DATA and --out, or --resume OUT.")
    reading = options.reading_of(parameters)
    job = Job(data, parameters=options.given(**parameters) | others, **fields, **reading)
    job.check_names()
    return job


# -- ``felb simulate`` -----------------------------------------------------------------------------------------------

SIMULATE_EPILOG = options.methods(*summaries(centralized=False))


@click.command("simulate", epilog=SIMULATE_EPILOG)
@click.argument("data", required=False)
@click.option("-o", "--out", type=click.Path(), help="Folder for the result; required unless --resume is given.")
@progress.resume_option
@options.clients
@click.option("--method", default=DEFAULT, show_default=True, metavar="METHOD", help="Method; see the list below.")
@options.components
@click.option(
    "--rounds", help="Maximum number of rounds; for post-hoc methods, of iterations at each client.", **options.COUNT
)
@click.option("--local-steps", help="Number of local steps of a client per round.", **options.COUNT)
@options.weights
@click.option(
    "--proximity",
    help="Weight γ of the proximal term towards the shared components, in the units of the setting.",
    **options.WEIGHT,
)
@click.option(
    "--setting",
    type=click.Choice(FELB_SETTINGS),
    help="Variant of FELB: recommended, unweighted (all clients have the same weight) or literal (Alg. 1 of the paper) "
    "(default: recommended).",
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    default=1.0,
    show_default=True,
    help="Fraction of the clients that is sampled per round.",
)
@click.option(
    "--dropout",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="P",
    default=0.0,
    show_default=True,
    help="Probability that a sampled client drops out.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Add up by secure aggregation: the server learns the sums and no client's part. Needs 3 to 50 clients.",
)
@click.option(
    "--workers", default=1, show_default=True, help="Number of clients that compute in parallel.", **options.COUNT
)
@options.time_limit
@options.param
@options.privacy_spec
@options.disclosure("none")
@options.seed
@options.reading
@options.force
@options.as_json
def simulate_command(
    data: str | None,
    out: str | None,
    resumed: str | None,
    clients: int | None,
    split: str,
    client_column: str | None,
    method: str,
    n_components: int | str,
    rounds: int | None,
    sample: float,
    dropout: float,
    secure: bool,
    workers: int,
    seed: int,
    schema: str | None,
    force: bool,
    as_json: bool,
    others: dict[str, Any],
    privacy: dict[str, Any] | None,
    disclosure: str | None,
    **parameters: Any,
) -> None:
    """Factorize DATA that is split among simulated clients, which share sums only.

    DATA is a file (.csv .tsv .npz .npy .mat .mtx .parquet .dat .fimi .h5ad .felb), a data set of felb (`felb data
    list`), or with --schema a raw table: a file or the URL of a database (duckdb:// sqlite:// postgresql:// omop://).
    The output folder contains the components (components.csv, .npz), the assignments of each client (assignments/), the
    outbound log of each client (outbound/), and result.json with parameters, seed, version, data fingerprint, scores
    and history.

    With --split consecutive a .felb file is not loaded into memory.

    With --epsilon only noisy sums leave a client, and the result states the privacy guarantee. Exact scores stay at the
    clients; `felb score` computes them for a holder of the data. The privacy noise has no seed.

    With --disclosure the rules of statistics offices apply instead: small groups are hidden at the gate of each client
    and in the result. They do not prevent differencing attacks; noise does.

    Ctrl-C keeps the completed rounds in OUT.unfinished; --resume OUT continues from there.
    """
    if resumed is not None:
        progress.resume_run("simulate", resumed, as_json=as_json)
        return
    job = make_job(
        data,
        out,
        {"max_iter": rounds, **parameters},
        method=method,
        n_components=n_components,
        seed=seed,
        others=others,
        clients=options.count_of(clients, client_column),
        split=split,
        client_column=client_column,
        schema=schema,
        privacy=privacy,
        disclosure=disclosure,
        participation={"fraction": sample, "dropout": dropout},
        secure=secure,
        workers=workers,
    )
    from felb.runs.execute import simulate  # slow to import, and not needed to refuse wrong names

    with progress.running("simulate", str(out)) as bar:
        result = simulate(job, str(out), force=force, on_plan=bar.plan, on_round=bar.advance)
    print_result(result, str(out), as_json=as_json)
