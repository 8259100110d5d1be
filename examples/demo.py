"""Ten simulated clients find shared components without pooling their rows; `make demo` runs this.

python examples/demo.py                                             scores, components and files in demo-output/
python examples/demo.py --picture docs/images/reconstruction.png    only the picture
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.base import clone

import felb
from felb import Job, simulate
from felb.data import load, partition, planted
from felb.data.files import row_names
from felb.metrics import confusion
from felb.report import draw_matrices

CLIENTS = 10
METHODS = {
    "FederatedBMF": felb.FederatedBMF(),
    "FELB": felb.FELB(),
    "FELB-MU": felb.FELBMU(),
    "Asso, vote": felb.PostHoc(felb.Asso(tau="auto"), "vote"),
    "ELBMF": felb.ELBMF(),
}
CENTRALIZED = ("ELBMF",)
console = Console(highlight=False)


def compare(title: str, data: felb.BinaryMatrix, *, k: int, signal: felb.BinaryMatrix | None = None) -> dict[str, Any]:
    """Print the scores of federated methods on ten clients and of a centralized one; return all fits."""
    table = new_table(
        title, ["method", "rows held by"], ["F1", "RMSD", *(["F1*"] if signal else []), "rounds", "seconds"]
    )
    clients, fits = partition.even(len(data), CLIENTS, seed=0), {}
    for name, method in METHODS.items():
        split = {} if name in CENTRALIZED else {"groups": clients}
        model = with_rank(method, k)
        with console.status(f"{title}: {name}"):
            started = time.perf_counter()
            U = model.fit_transform(data, **split)
            seconds = time.perf_counter() - started
        found = confusion(data, U, model.components_)
        scores = [found.f1, found.rmsd] + ([confusion(signal, U, model.components_).f1] if signal else [])
        holder = f"{CLIENTS} clients" if split else "one site"
        table.add_row(name, holder, *(f"{score:.3f}" for score in scores), str(model.n_iter_), f"{seconds:.1f}")
        fits[name] = model, U
    console.print(table, "")
    return fits


def with_rank(method: Any, k: int) -> Any:
    """Return a copy of a method with k components."""
    name = "model__n_components" if isinstance(method, felb.PostHoc) else "n_components"
    return clone(method).set_params(**{name: k, "random_state": 0})


def show_components(title: str, model: Any, U: np.ndarray, records: tuple[str, ...]) -> None:
    """Print the components by name, with some of the records that have them."""
    table = new_table(title, ["features that come together", "such as"], ["animals"])
    names = np.array(records)
    for number in np.argsort(-U.sum(axis=0), kind="stable"):
        members = names[U[:, number]]
        table.add_row(", ".join(model.component_features()[number]), ", ".join(members[:4]), str(members.size))
    console.print(table, "")


def new_table(title: str, texts: list[str], numbers: list[str]) -> Table:
    """Return an empty table with a heading and no lines."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    for name in texts:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def draw_toy(path: Path) -> None:
    """Draw a toy whose tiles are in one piece: what was planted, what clients hold, what they share, what they get."""
    ranges = {"heights": (0.15, 0.4), "widths": (0.15, 0.4), "contiguous": True}
    toy = planted(160, 100, 6, noise=0.1, density=0.95, seed=14, **ranges)
    clients = partition.even(160, CLIENTS, seed=0)
    model = felb.FederatedBMF(n_components=6, objective="hamming", random_state=0)
    U = model.fit_transform(toy.A, groups=clients)
    counts = confusion(toy.signal, U, model.components_)
    panels = {
        "planted signal\nwhat there is to find": toy.signal,
        "ten clients\nprivate rows, 10% of cells flipped": [toy.A.take(clients == i) for i in range(CLIENTS)],
        "shared components\nall that clients learn of each other": list(model.components_[:, None]),
        f"reconstruction\n{counts.errors} of {counts.cells:,} cells wrong": model.inverse_transform(U),
    }
    draw_matrices(panels, path)


def main(arguments: list[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Ten simulated clients find shared components.")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for what is written")
    parser.add_argument("--rows", type=int, default=2000, help="records of the planted data")
    parser.add_argument("--picture", type=Path, help="only draw the picture, to this file")
    options = parser.parse_args(arguments)
    with warnings.catch_warnings():
        # A score stands beside every result here; that ten animals a client leave some entries undecided is no news.
        warnings.simplefilter("ignore", felb.ConvergenceWarning)
        if options.picture:
            draw_toy(options.picture)
            console.print(f"wrote {options.picture}")
            return
        with console.status("compiling kernels, once"):
            for method in METHODS.values():
                with_rank(method, 2).fit_transform(load("zoo"))
        data, zoo = planted(options.rows, 200, 10, noise=0.1, seed=0), load("zoo")
        compare(f"Planted: {options.rows} x 200, ten tiles, 10% of the cells flipped", data.A, k=10, signal=data.signal)
        fits = compare("Real: zoo, 101 animals x 17 properties", zoo, k=6)
        show_components("What ten clients find in zoo with FederatedBMF", *fits["FederatedBMF"], row_names("zoo"))
        draw_toy(options.out / "reconstruction.png")
        # The same federation as `felb simulate` runs it, for its files.
        simulate(Job("zoo", "bmf", 6, clients=CLIENTS), options.out / "zoo", force=True)
    console.print("F1, RMSD: against the data. F1*: against the planted signal. ELBMF: iterations.\n", style="dim")
    console.print(f"{options.out}/reconstruction.png   the planted tiles and what clients make of them")
    console.print(f"{options.out}/zoo/components.csv   the components of zoo")
    console.print(f"{options.out}/zoo/outbound/        everything that left each client, line by line")


if __name__ == "__main__":
    main()
