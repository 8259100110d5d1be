"""``felb simulate``."""

from __future__ import annotations

from typing import Any

import click

from felb.cli import options, resuming
from felb.cli.output import print_result
from felb.cli.privacy_options import spec
from felb.estimators.methods import DEFAULT, make_federated, summaries
from felb.federated.algorithms.felb_setting import SETTINGS
from felb.runs.job import PARTITIONS, Job
from felb.runs.job_runner import simulate

EPILOG = options.methods(*summaries(pooled=False))
DEFAULT_CLIENTS = 10


@click.command("simulate", epilog=EPILOG)
@click.argument("data", required=False)
@click.option("-o", "--out", type=click.Path(), help="Folder for the result.")
@resuming.option
@click.option(
    "--clients", help=f"Deal the rows out to this many clients (default: {DEFAULT_CLIENTS}).", **options.COUNT
)
@click.option(
    "--split",
    type=click.Choice(list(PARTITIONS)),
    default="even",
    show_default=True,
    help="Rows at random to clients of the same or of random sizes, or in runs, without loading a .felb.",
)
@click.option("--client-column", metavar="NAME", help="Or take each row's client from this column.")
@click.option("--method", default=DEFAULT, show_default=True, metavar="METHOD", help="See the list below.")
@options.components
@click.option("--rounds", help="Rounds at most; of a post-hoc method, iterations at each client.", **options.COUNT)
@click.option("--local-steps", help="Steps of a client between two rounds.", **options.COUNT)
@options.weights
@click.option(
    "--proximity", help="Pull γ of clients towards the shared components, in units of the setting.", **options.WEIGHT
)
@click.option(
    "--setting",
    type=click.Choice(list(SETTINGS)),
    help="recommended (default), unweighted: clients weigh the same, literal: Alg. 1 of the paper.",
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    default=1.0,
    show_default=True,
    help="Share of clients asked in a round.",
)
@click.option(
    "--dropout",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="P",
    default=0.0,
    show_default=True,
    help="Chance that an asked client is silent.",
)
@click.option("--workers", default=1, show_default=True, help="Clients at the same time.", **options.COUNT)
@options.time_limit
@options.param
@spec
@options.seed
@options.reading
@options.force
@options.as_json
def command(
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
    workers: int,
    seed: int,
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
    """Factorize DATA split among simulated clients; only what passes each client's gate is shared.

    DATA is a file (.csv .tsv .npz .npy .mtx .parquet .dat .fimi .h5ad .felb), a data set of felb (`felb data list`), or
    with --schema a raw table: a file or the URL of a database (duckdb:// sqlite:// postgresql:// omop://).
    The folder gets the components (components.csv, .npz), the assignments of each client (assignments/), a log of
    everything that left each client (outbound/), and result.json with parameters, seed, version, data fingerprint,
    scores and history.

    With --epsilon only noisy sums leave a client, and the result states what it guarantees; exact scores stay with the
    clients, and whoever holds the data can compute them by `felb score`. The noise has no seed.

    Ctrl-C keeps what was done in OUT.unfinished; --resume OUT goes on from there.
    """
    if resumed is not None:
        resuming.go_on("simulate", resumed, rounds_of=planned, as_json=as_json)
        return
    if data is None or out is None:
        raise click.UsageError("Give DATA and --out, or --resume OUT.")
    job = Job(
        data,
        method,
        n_components,
        seed=seed,
        parameters=options.given(max_iter=rounds, **parameters) | others,
        clients=DEFAULT_CLIENTS if clients is None and client_column is None else clients,
        split=split,
        client_column=client_column,
        header=header,
        binarize_threshold=binarize_threshold,
        missing=missing or "error",
        unknown=unknown,
        schema=schema,
        privacy=privacy,
        participation={"fraction": sample, "dropout": dropout},
        workers=workers,
    )
    with resuming.running("simulate", out, rounds=planned(job)) as advance:
        result = simulate(job, out, force=force, on_round=advance)
    print_result(result, out, as_json=as_json)


def planned(job: Job) -> int | None:
    """Return how many rounds a run has at most, with the one for the assignment, if its method knows."""
    rounds = make_federated(job.method, **{"n_components": job.n_components, **job.parameters}).max_rounds
    return None if rounds is None else rounds + 1
