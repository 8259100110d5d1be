"""``felb data``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table as Grid

from felb.cli import options
from felb.cli.output import plain_console, print_json
from felb.errors import InputError
from felb.safe_files import replacing

if TYPE_CHECKING:
    from felb.data import Table
    from felb.paper.public_data import Entry

SUFFIX = ".felb"


@click.group("data")
def command() -> None:
    """List public data sets, show their sources, and load their raw files.

    Nothing is downloaded. `felb data info` shows the source and the licence of a data set, and `felb data load`
    converts its raw file to a .felb matrix that the other commands use from disk.
    """


@command.command("list")
@options.as_json
def list_(as_json: bool) -> None:
    """List the data sets: size, density, and whether they are included in felb."""
    from felb.paper.public_data import entries

    if as_json:
        print_json([_facts(entry) for entry in entries().values()])
        return
    grid = Grid(box=None, header_style="bold", pad_edge=False)
    for name in ("name", "rows", "columns", "density", "raw file", "what"):
        grid.add_column(name, justify="right" if name in ("rows", "columns", "density") else "left", overflow="fold")
    for entry in entries().values():
        rows, columns = entry.shape
        needed = "included in felb" if entry.shipped else "needed"
        grid.add_row(entry.name, str(rows), str(columns), f"{entry.density:.4g}", needed, entry.title)
    plain_console().print(grid)


@command.command("info")
@click.argument("name")
@options.as_json
def info(name: str, as_json: bool) -> None:
    """Show the description, licence, attribution, source and folder of the data set NAME."""
    from felb.paper.public_data import DATA_FOLDER, find

    entry = find(name)
    if as_json:
        print_json(_facts(entry))
        return
    rows, columns = entry.shape
    about = " (of one snapshot; it grows)" if entry.grows else ""
    facts = {
        "name": entry.name,
        "what": entry.title,
        "matrix": f"{rows} records x {columns} features, {entry.density:.4g} dense{about}",
        "licence": entry.licence,
        "attribution": entry.attribution,
        "publisher": entry.home,
    }
    if entry.shipped:
        facts["use"] = f"included in felb: felb simulate {entry.name} ..."
    else:
        facts |= {
            "download": entry.download,
            "files": " or ".join(entry.files) + ", plain, .gz or in the .zip",
            "put into": f"{entry.folder} (or elsewhere, with --raw; ${DATA_FOLDER} names the folder above)",
            "then": f"felb data load {entry.name} --raw PATH --out {entry.name}{SUFFIX}",
        }
    grid = Grid(box=None, show_header=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for key, fact in facts.items():
        grid.add_row(key, fact)
    plain_console().print(grid)


@command.command("load")
@click.argument("name")
@click.option(
    "--raw",
    type=click.Path(),
    metavar="PATH",
    help="Raw file, or the .zip file or folder that contains it (default: the folder of `felb data info`).",
)
@click.option("-o", "--out", type=click.Path(), required=True, metavar="FILE", help="File to write; must end in .felb.")
@click.option(
    "--at-least",
    type=float,
    metavar="X",
    help="Smallest rating that is converted to 1; for data sets of ratings (default: 3.5).",
)
@click.option(
    "--any-shape",
    is_flag=True,
    help="Accept data of another shape than the published one, such as another release or a part of it.",
)
@options.force
@options.as_json
def load(
    name: str, raw: str | None, out: str, at_least: float | None, any_shape: bool, force: bool, as_json: bool
) -> None:
    """Load the raw data of the data set NAME and write it as a .felb file.

    The names of the rows are written to FILE.rows.txt, one per line. The shape of the matrix is compared with the
    published one.
    """
    from felb.paper.public_data import find, load_raw

    entry, target = find(name), Path(out)
    parameters: dict[str, Any] = {}
    if at_least is not None:
        if entry.loader.partition(":")[0] not in ("goodreads", "movielens", "netflix"):
            raise click.UsageError(f"--at-least is for ratings; {entry.name} has none.")
        parameters["at_least"] = at_least
    names = target.with_suffix(".rows.txt")
    _check_target(target, names, force)
    table = load_raw(entry.name, raw, any_shape=any_shape, **parameters)
    table.matrix.save(target)
    _write_names(table, names)
    rows, columns = table.matrix.shape
    if as_json:
        facts = {"rows": rows, "columns": columns, "ones": table.matrix.nnz, "fingerprint": table.matrix.fingerprint()}
        print_json({"name": entry.name, "target": out, "row_names": str(names) if table.rows else None, **facts})
    else:
        click.echo(f"{out}: {rows} records x {columns} features, {table.matrix.nnz} ones")
        if table.rows:
            click.echo(f"{names}: names of the records")
    if table.matrix.shape != entry.shape:
        published = " x ".join(map(str, entry.shape))
        click.echo(f"note: the published matrix is {published}, this one {rows} x {columns}", err=True)


def _check_target(target: Path, names: Path, force: bool) -> None:
    if target.suffix.lower() != SUFFIX:
        raise InputError(f"{target} does not end in {SUFFIX}; use {target.with_suffix(SUFFIX)}")
    for path in (target, names):
        if path.exists() and not force:
            raise InputError(f"{path} exists; choose another name, or set force to replace it", parameter="force")
    if not target.parent.is_dir():  # fail before minutes of reading
        raise InputError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")


def _write_names(table: Table, names: Path) -> None:
    if table.rows is None:
        names.unlink(missing_ok=True)  # those of a matrix that was replaced
        return
    with replacing(names) as partial:
        partial.write_text("".join(f"{' '.join(row.split())}\n" for row in table.rows), encoding="utf-8")


def _facts(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "what": entry.title,
        "rows": entry.shape[0],
        "columns": entry.shape[1],
        "density": entry.density,
        "licence": entry.licence,
        "attribution": entry.attribution,
        "home": entry.home,
        "download": entry.download,
        "files": list(entry.files),
        "folder": None if entry.shipped else str(entry.folder),
        "shipped": entry.shipped,
        "grows": entry.grows,
    }
