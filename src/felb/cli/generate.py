"""``felb generate``."""

from __future__ import annotations

import click

from felb.cli import options
from felb.cli.output import print_json

WHAT = {"data": "noisy data", "signal": "U∘V without noise", "U": "planted rows", "V": "planted components"}


@click.command("generate")
@click.argument("out", type=click.Path())
@click.option("-n", "--rows", "n", default=2000, show_default=True, help="Number of records.", **options.COUNT)
@click.option("-m", "--columns", "m", default=200, show_default=True, help="Number of features.", **options.COUNT)
@click.option("-k", "--components", "k", default=10, show_default=True, help="Number of components.", **options.COUNT)
@click.option(
    "--noise", default=0.1, show_default=True, help="Probability that a cell is changed by noise.", **options.SHARE
)
@click.option(
    "--kind",
    type=click.Choice(["xor", "additive", "destructive"]),
    default="xor",
    show_default=True,
    help="Whether noise flips cells (xor), sets them to 1 (additive) or to 0 (destructive).",
)
@click.option("--density", default=0.9, show_default=True, help="Fraction of ones inside a tile.", **options.SHARE)
@click.option(
    "--heights", type=(float, float), default=(0.05, 0.25), show_default=True, metavar="LOW HIGH",
    help="Smallest and largest height of a tile, as fractions of the records.",
)  # fmt: skip
@click.option(
    "--widths", type=(float, float), default=(0.05, 0.25), show_default=True, metavar="LOW HIGH",
    help="Smallest and largest width of a tile, as fractions of the features.",
)  # fmt: skip
@click.option("--contiguous", is_flag=True, help="Place tiles on consecutive rows and columns, for plots.")
@options.seed
@options.force
@options.as_json
def command(
    out: str,
    n: int,
    m: int,
    k: int,
    noise: float,
    kind: str,
    density: float,
    heights: tuple[float, float],
    widths: tuple[float, float],
    contiguous: bool,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    """Generate data with planted components and write it to OUT.npz.

    The planted factors are written to OUT.U.npz and OUT.V.npz, their Boolean product to OUT.signal.npz. All files are
    SciPy sparse matrices.
    """
    from felb.runs.generation import generate

    written = generate(
        out,
        n,
        m,
        k=k,
        force=force,
        noise=noise,
        kind=kind,
        density=density,
        heights=heights,
        widths=widths,
        contiguous=contiguous,
        seed=seed,
    )
    if as_json:
        print_json({name: str(path) for name, path in written.items()})
    else:
        for name, path in written.items():
            click.echo(f"{WHAT[name]:<20}{path}")
