"""``felb generate``."""

from __future__ import annotations

import click

from felb.cli import options
from felb.cli.output import print_json
from felb.experiments.generation import generate


@click.command("generate")
@click.argument("out", type=click.Path())
@click.option("-n", "--rows", "n", type=int, default=2000, show_default=True, help="Records.")
@click.option("-m", "--columns", "m", type=int, default=200, show_default=True, help="Features.")
@options.components
@click.option("--noise", type=float, default=0.1, show_default=True, help="Probability that noise hits a cell.")
@click.option(
    "--kind",
    type=click.Choice(["xor", "additive", "destructive"]),
    default="xor",
    show_default=True,
    help="Noise flips, sets or clears cells.",
)
@click.option("--density", type=float, default=0.9, show_default=True, help="Ones inside a tile.")
@click.option("--heights", type=(float, float), default=(0.05, 0.25), show_default=True, help="Tile rows, as shares.")
@click.option("--widths", type=(float, float), default=(0.05, 0.25), show_default=True, help="Tile columns, as shares.")
@click.option("--contiguous", is_flag=True, help="Tiles on consecutive rows and columns, for pictures.")
@options.seed
@options.force
@options.as_json
def command(
    out: str,
    n: int,
    m: int,
    n_components: int,
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
    """Write planted data to OUT.npz, and the planted answer beside it (OUT.signal.npz, OUT.U.npz, OUT.V.npz)."""
    written = generate(
        out,
        n,
        m,
        k=n_components,
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
            click.echo(f"{name}: {path}")
