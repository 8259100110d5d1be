"""``felb convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from felb.cli import options
from felb.cli.output import print_json, warnings_as_notes
from felb.cli.progress import row_progress


@click.command("convert")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@options.client_column_left_out
@options.reading
@options.limits
@options.force
@options.as_json
def command(
    source: str,
    target: str,
    force: bool,
    as_json: bool,
    max_rows: int | None,
    max_columns: int | None,
    max_line: int | None,
    max_expansion: int | None,
    **reading: Any,
) -> None:
    """Convert the data file SOURCE to the .felb file TARGET, which the other commands use from disk.

    SOURCE is a file (.csv .tsv .npz .npy .mat .mtx .parquet .dat .fimi .h5ad). It can be larger than memory, since it
    is read block by block. With --schema it can be a raw table, or the URL of a database. TARGET is created when it is
    complete; until then its folder needs twice the space.

    What SOURCE may ask for is limited in proportion to its size. Where a limit is too low for a legitimate file, raise
    it here. The other commands have no limits for a .felb file.
    """
    from felb.data import Limits, convert

    limits = options.given(max_rows=max_rows, max_columns=max_columns, max_line=max_line, max_expansion=max_expansion)
    with row_progress() as advance, warnings_as_notes():
        matrix = convert(
            source,
            target,
            force=force,
            on_rows=advance,
            limits=Limits(**limits),
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
