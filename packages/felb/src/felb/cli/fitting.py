"""``felb fit`` and ``felb simulate``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from felb.cli import options
from felb.cli.options import COUNT, PATH, option
from felb.cli.output import print_result, resume_option, resume_run, running
from felb.federated.algorithms.registry import FELB_SETTINGS, summaries

start = options.together(
    click.argument("data", required=False),
    option("-o --out", "Folder for the result; required unless --resume is given.", PATH),
    resume_option,
)


def run_job(
    verb: str,
    *,
    data: str | None,
    out: str | None,
    resumed: str | None,
    others: dict[str, Any],
    force: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run or resume a job and print its result; what is no field of a job is a parameter of its method."""
    if resumed is not None:
        resume_run(verb, resumed, dask=given.get("dask"), as_json=as_json)
        return
    from felb.runs.job import Job

    if data is None or out is None:
        raise click.UsageError("Give DATA and --out, or --resume OUT.")
    parameters = options.given(**given)
    of_job = {field.name: parameters.pop(field.name) for field in fields(Job) if field.name in parameters}
    job = Job(data, parameters=parameters | others, **of_job)
    job.check_names()
    from felb.runs import execute  # slow to import, and not needed to refuse wrong names

    with running(verb, out) as bar:
        run = execute.fit if verb == "fit" else execute.simulate
        result = run(job, out, force=force, on_plan=bar.plan, on_round=bar.advance)
    print_result(result, out, as_json=as_json)


@click.command("fit", epilog=options.methods(*summaries()))
@start
@options.method
@options.components
@option("--max-iter", "Maximum number of iterations.", COUNT)
@options.weights
@options.time_limit
@options.param
@options.privacy_spec(noise=False)
@option(
    "--dask",
    "Address of a Dask scheduler, for example tcp://host:8786, whose workers fit the data; local starts a "
    "cluster on this machine.",
    "ADDRESS",
)
@option("--block-rows", "With --dask, maximum number of rows per block of a .felb file (default: 262144).", COUNT)
@option(
    "--jobs workers",
    "Number of threads that share the rows, for the method bmf (default: the number of cores). "
    "The result does not depend on it.",
    COUNT,
)
@options.seed
@options.client_column_left_out
@options.record_column
@options.reading
@options.force
@options.as_json
def fit_command(**given: Any) -> None:
    """Factorize DATA that is held in one place.

    DATA is a file (.csv .tsv .npz .npy .mat .mtx .parquet .dat .fimi .h5ad .felb), a data set of felb (`felb data
    list`), or with --schema a raw table: a file or the URL of a database (duckdb:// sqlite:// postgresql:// omop://).
    The output folder contains the components (components.csv, .npz), the assignment of each row
    (assignments/centralized.npz, and .csv if the records have names), and result.json with parameters, seed, version,
    data fingerprint, scores and history.
    With --epsilon the components can be published under the guarantee that the result states; scores, supports and the
    fingerprint are then omitted.

    With --dask the rows are fitted by the workers of a Dask cluster, and DATA may be a pattern such as 'parts/*.felb'.
    All workers and this process must see the files and OUT under the same names. Assignments are stored block by
    block (assignments/client-NN.npz).

    Ctrl-C keeps the completed rounds in OUT.unfinished, and --resume OUT continues from there, with --dask at another
    scheduler if the first one was lost. Methods for centralized data (such as asso and grecond) cannot be resumed.
    """
    run_job("fit", **given)


@click.command("simulate", epilog=options.methods(*summaries(centralized=False)))
@start
@options.clients
@options.method
@options.components
@option("--rounds max_iter", "Maximum number of rounds; for post-hoc methods, of iterations at each client.", COUNT)
@option("--local-steps", "Number of local steps of a client per round.", COUNT)
@options.weights
@option(
    "--proximity",
    "Weight γ of the proximal term towards the shared components, in the units of the setting.",
    options.WEIGHT,
)
@option(
    "--setting",
    "Variant of FELB: recommended, unweighted (all clients have the same weight) or literal (Alg. 1 of the paper) "
    "(default: recommended).",
    FELB_SETTINGS,
)
@option(
    "--sample",
    "Fraction of the clients that is sampled per round.",
    options.SHARE,
    1.0,
    type=click.FloatRange(0, 1, min_open=True),
)
@option(
    "--dropout",
    "Probability that a sampled client drops out.",
    options.SHARE,
    0.0,
    type=click.FloatRange(0, 1, max_open=True),
)
@option(
    "--secure", "Add up by secure aggregation: the server learns the sums and no client's part. Needs 3 to 50 clients."
)
@option("--workers", "Number of clients that compute in parallel.", COUNT, 1)
@options.time_limit
@options.param
@options.privacy_spec()
@options.disclosure("none")
@options.seed
@options.record_column
@options.reading
@options.force
@options.as_json
def simulate_command(clients: int | None, sample: float, dropout: float, **given: Any) -> None:
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
    count = options.count_of(clients, given["client_column"])
    run_job("simulate", clients=count, participation={"fraction": sample, "dropout": dropout}, **given)
