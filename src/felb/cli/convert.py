"""``felb convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from felb.cli import options
from felb.cli.output import print_json, warnings_as_notes
from felb.cli.progress import row_progress
from felb.data import convert


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
    force: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Write the data file SOURCE as TARGET.felb, which the other commands use from disk.

    SOURCE is a file (.csv .tsv .npz .npy .mtx .parquet .dat .fimi .h5ad) and may be larger than memory: it is read
    block by block. With --schema it may be a raw table, or the URL of a database. TARGET appears when it is complete;
    until then its folder needs room for it twice.
    """
    with row_progress() as advance, warnings_as_notes():
        matrix = convert(
            source,
            target,
            force=force,
            on_rows=advance,
            **options.given(**reading),
        ).matrix
    rows, columns = matrix.shape
    unknown = 0 if matrix.unknown is None else matrix.unknown.nnz
    if as_json:
        counted = {"rows": rows, "columns": columns, "ones": matrix.nnz, "unknown": unknown}
        facts = {**counted, "fingerprint": matrix.fingerprint()}
        print_json({"source": source, "target": target, "bytes": Path(target).stat().st_size, **facts})
    else:
        click.echo(
            f"{target}: {rows} records x {columns} features, {matrix.nnz} ones"
            + (f", {unknown} unknown" if unknown else "")
        )
