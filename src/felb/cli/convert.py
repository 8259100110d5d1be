"""``felb convert``."""

from __future__ import annotations

from pathlib import Path

import click

from felb.cli import options
from felb.cli.output import print_json, row_progress
from felb.datasets import convert


@click.command("convert")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@options.client_column_left_out
@options.reading
@options.force
@options.as_json
def command(
    source: str,
    target: str,
    client_column: str | None,
    header: bool | None,
    binarize_threshold: float | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the data file SOURCE as TARGET.felb, which the other commands use from disk.

    SOURCE is a file (.csv .tsv .npz .npy .mtx .parquet .dat .fimi .h5ad) and may be larger than memory: it is read
    block by block. TARGET appears when it is complete; until then its folder needs room for it twice.
    """
    with row_progress() as advance:
        matrix = convert(
            source,
            target,
            client_column=client_column,
            header=header,
            binarize_threshold=binarize_threshold,
            force=force,
            on_rows=advance,
        ).matrix
    rows, columns = matrix.shape
    if as_json:
        facts = {"rows": rows, "columns": columns, "ones": matrix.nnz, "fingerprint": matrix.fingerprint()}
        print_json({"source": source, "target": target, "bytes": Path(target).stat().st_size, **facts})
    else:
        click.echo(f"{target}: {rows} records x {columns} features, {matrix.nnz} ones")
