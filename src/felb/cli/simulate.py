"""``felb simulate``."""

from __future__ import annotations

from typing import Any

import click

from felb.cli import options
from felb.cli.output import print_result, round_progress, warnings_as_notes
from felb.estimators.methods import METHODS
from felb.experiments import Job, resume, simulate

FEDERATED = [method for method in METHODS.values() if method.federated]
EPILOG = "Methods: " + "; ".join(f"{method.name}: {method.summary}" for method in FEDERATED) + "."
DEFAULT_ROUNDS = 100


@click.command("simulate", epilog=EPILOG)
@click.argument("data", required=False)
@click.option("-o", "--out", type=click.Path(), help="Folder for the result.")
@click.option("--resume", "resumed", type=click.Path(), metavar="OUT", help="Go on with the interrupted run of OUT.")
@click.option("--clients", type=int, help="Deal the rows out to this many clients.  [default: 10]")
@click.option("--split", type=click.Choice(["even", "uneven"]), default="even", show_default=True, help="How.")
@click.option("--client-column", help="Or take each row's client from this column.")
@click.option("--method", default="felb-mu", show_default=True, metavar="METHOD", help="See the list below.")
@options.components
@click.option("--rounds", type=int, default=DEFAULT_ROUNDS, show_default=True, help="Rounds at most.")
@click.option("--local-steps", type=int, help="Steps of a client between two rounds.")
@options.weights
@click.option("--proximity", type=float, help="Pull γ of clients towards the shared components.")
@click.option("--setting", help="recommended, or literal: the paper's Alg. 1 word for word.")
@click.option("--sample", type=float, default=1.0, show_default=True, help="Share of clients asked in a round.")
@click.option("--dropout", type=float, default=0.0, show_default=True, help="Chance that an asked client is silent.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Clients at the same time.")
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
    n_components: int,
    rounds: int,
    sample: float,
    dropout: float,
    workers: int,
    seed: int,
    binarize_threshold: float | None,
    header: bool | None,
    force: bool,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Factorize DATA split among simulated clients; only what passes each client's gate is shared.

    The folder gets the components, one assignment file per client, a log of everything that left each client, and
    result.json with parameters, seed, version, data fingerprint and history. Ctrl-C keeps the last completed round.
    """
    if resumed is not None:
        if data is not None or out is not None:
            raise click.UsageError("--resume takes neither DATA nor --out: the run remembers them.")
        out = resumed
        with warnings_as_notes(), interruptible(out), round_progress(None) as advance:
            result = resume(out, on_round=advance)
    else:
        if data is None or out is None:
            raise click.UsageError("Give DATA and --out, or --resume OUT.")
        job = Job(
            data,
            method,
            n_components,
            seed=seed,
            parameters=options.given(max_iter=rounds, **parameters),
            clients=10 if clients is None and client_column is None else clients,
            split=split,
            client_column=client_column,
            header=header,
            binarize_threshold=binarize_threshold,
            participation=options.given(fraction=sample, dropout=dropout),
            workers=workers,
        )
        with warnings_as_notes(), interruptible(out), round_progress(rounds + 1) as advance:
            result = simulate(job, out, force=force, on_round=advance)
    print_result(result, out, as_json=as_json)


class interruptible:  # reads as a with-block
    """Say after Ctrl-C how to go on."""

    def __init__(self, out: str) -> None:
        self.out = out

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Turn the bare interruption into one that names the way on."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            raise KeyboardInterrupt(f"go on with: felb simulate --resume {self.out}") from None
