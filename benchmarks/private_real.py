"""What differential privacy of records costs on real data: F1 and RMSD beside those without privacy.

20 components; ten even clients, each of which adds all of its noise itself; the total delta is 1e-5, or 1/(10 n) where
n records forbid that much. Each figure is the mean over three runs. With epsilon = ∞, the same steps are taken without
noise. The noise is normal, rounded to whole steps, from NumPy with a seed: the exact sampler of real releases takes
minutes for the pairs of a thousand columns. `--exact` uses it.

    python benchmarks/private_real.py                                everything that is not there yet
    python benchmarks/private_real.py --data msweb --epsilon 1       a part of it

Keeps each run in measured/private_real.json, so that it can go on later, and writes PRIVATE_REAL.md.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import MEASURED, Cells, draw_by_seed, listed, make_parser, real, write_page

import felb
from felb.data import partition, planted
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.algorithms.private import find_candidates
from felb.federated.loop import fit_centralized
from felb.kernels.exact import assign_rows_exact
from felb.metrics import confusion
from felb.privacy import Privacy
from felb.privacy import releases as pairs
from felb.privacy.accounting import LARGEST_DELTA
from felb.privacy.releases import choose, clipped_gains
from felb.privacy.spec import WIDE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

TABLE = Path(__file__).with_name("PRIVATE_REAL.md")
CELLS = Cells(MEASURED / "private_real.json")
COMPONENTS, CLIENTS, RUNS = 20, 10, 3
DATA = ("msweb", "bmf_mushroom", "sc_10x_brain_10k", "cps_280k", "tcga_mutation")
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
# (data, epsilon): least F1, largest RMSD
BARS = {
    ("msweb", 1.0): (0.820, 0.0560),
    ("msweb", 4.0): (0.822, 0.0557),
    ("sc_10x_brain_10k", 1.0): (0.535, 0.2200),
    ("sc_10x_brain_10k", 4.0): (0.538, 0.2180),
    ("cps_280k", 1.0): (0.768, 0.1325),
    ("cps_280k", 4.0): (0.770, 0.1322),
    ("bmf_mushroom", 1.0): (0.842, 0.2350),
    ("bmf_mushroom", 4.0): (0.856, 0.2250),
}
OPEN = "open"
"""In place of an epsilon: no privacy at all."""


# -- one run -----------------------------------------------------------------------------------------------------------


def fit_open(A: felb.BinaryMatrix, seed: int) -> tuple[felb.BinaryMatrix | NDArray[np.bool_], Any, dict[str, Any]]:
    """Fit without privacy."""
    model = felb.FederatedBMF(COMPONENTS, random_state=seed)
    return model.fit_transform(A, groups=partition.even(len(A), CLIENTS)), model.components_, {}


def fit_private(A: felb.BinaryMatrix, epsilon: float, seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """Fit with privacy."""
    delta = None if len(A) * LARGEST_DELTA >= 1 else LARGEST_DELTA
    model = felb.FederatedBMF(COMPONENTS, privacy=Privacy(epsilon, delta), random_state=seed)
    U = model.fit_transform(A, groups=partition.even(len(A), CLIENTS))
    said = {
        key: row[key]
        for row in model.history_
        for key in ("row_bound", "columns", "pair_bound", "chosen")
        if key in row
    }
    return U, model.components_, said


def fit_noiseless(A: felb.BinaryMatrix, seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """Take the steps of the private method with exact sums."""
    sizes = pairs.row_size_histogram(A)
    bound = pairs.row_bound_from_histogram(sizes.values * sizes.grid, A.shape[1], sigma=0.0)
    part, columns = A, np.arange(A.shape[1])
    if A.shape[1] > WIDE:
        counts = pairs.weighted_column_counts(A, bound)
        columns, bound = pairs.columns_to_pair(counts.values * counts.grid, sigma=0.0, row_bound=bound)
        part = pairs.select_columns(A, columns)
    sums = pairs.weighted_cooccurrence(part, bound)
    released = pairs.NoisyCooccurrence.of(sums.values, part.shape[1], grid=sums.grid, sigma=0.0)

    def factorize(rows: felb.BinaryMatrix, k: int, seed: int) -> NDArray[np.bool_]:
        return fit_centralized(
            federated_bmf(rows.shape[1], k, objective="hamming", centralized=True), rows, seed=seed
        ).components

    found = find_candidates(released, COMPONENTS, factorize=factorize, seed=seed)
    candidates = np.zeros((*found.V.shape[:2], A.shape[1]), dtype=bool)
    candidates[:, :, columns] = found.V
    chosen = choose(clipped_gains(A, list(candidates), found.bound).values, sigma=0.0)
    U, _ = assign_rows_exact(A, candidates[chosen])
    return U, candidates[chosen], {"row_bound": bound, "columns": int(columns.size), "chosen": chosen}


def fit(A: felb.BinaryMatrix, epsilon: float | str, seed: int) -> dict[str, Any]:
    """Return the scores of one run, the seconds it took, and what it found."""
    start, used = time.perf_counter(), time.process_time()
    if epsilon == OPEN:
        U, V, said = fit_open(A, seed)
    elif math.isinf(float(epsilon)):
        U, V, said = fit_noiseless(A, seed)
    else:
        U, V, said = fit_private(A, float(epsilon), seed)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    counts = confusion(A, U, V)
    return {
        "f1": counts.f1,
        "rmsd": counts.rmsd,
        **{key: int(value) for key, value in said.items()},
        "seconds": round(seconds, 1),
        "processor": round(used, 1),
        "load": round(os.getloadavg()[0], 1),
    }


# -- all of them -------------------------------------------------------------------------------------------------------


def play(name: str, epsilon: float | str, seed: int, *, exact: bool) -> None:
    """Make a run unless it is there, and keep it."""
    A = real(name)
    if A is None or CELLS.get((name, epsilon, seed)) is not None:
        return
    if not exact:
        draw_by_seed(seed)
    found = {"shape": A.shape, "exact": exact, **fit(A, epsilon, seed)}
    CELLS.put((name, epsilon, seed), found)
    print(name, epsilon, seed, found, flush=True)


def runs_of(epsilon: float | str) -> int:
    """Return how many runs a figure is the mean of: one where there is no noise."""
    return RUNS if isinstance(epsilon, float) and math.isfinite(epsilon) else 1


def figure(name: str, epsilon: float | str) -> str:
    """Return a cell of the table: the mean of the runs, and how it stands to the bar."""
    cells = [cell for seed in range(runs_of(epsilon)) if (cell := CELLS.get((name, epsilon, seed)))]
    if not cells:
        return ""
    f1, rmsd = (float(np.mean([cell[key] for cell in cells])) for key in ("f1", "rmsd"))
    text = f"{f1:.3f} / {rmsd:.4f}"
    if len(cells) < runs_of(epsilon):
        text += f" ({len(cells)} run{'s' * (len(cells) > 1)})"
    if isinstance(epsilon, float) and (name, epsilon) in BARS:
        least, most = BARS[name, epsilon]
        text += " holds" if f1 >= least and rmsd <= most else f" **misses** {least:g} / {most:g}"
    return text


def table_rows() -> Iterator[str]:
    """Yield a line for each data set."""
    for name in DATA:
        columns: list[float | str] = [OPEN, *EPSILONS]
        yield f"| {name} | {' | '.join(figure(name, epsilon) for epsilon in columns)} |"


def runs_rows() -> Iterator[str]:
    """Yield a line for each data set and ε: what the runs have found."""
    for name in DATA:
        for epsilon in EPSILONS:
            cells = [cell for seed in range(RUNS) if (cell := CELLS.get((name, epsilon, seed)))]
            if not cells:
                continue
            keys = ("row_bound", "columns", "pair_bound", "chosen", "seconds", "processor", "load")
            said = (" ".join(str(cell.get(key, "–")) for cell in cells) for key in keys)
            scores = " ".join(f"{cell['f1']:.3f}" for cell in cells)
            yield f"| {name} | {_shown(epsilon)} | {scores} | {' | '.join(said)} |"


def _shown(epsilon: float) -> str:
    return f"{epsilon:g}" if math.isfinite(epsilon) else "∞"


def write_table() -> None:
    """Write what is known so far."""
    lines = [
        "# Real data under differential privacy of records",
        "",
        f"Written by `python benchmarks/private_real.py`: F1 / RMSD with {COMPONENTS} components and {CLIENTS} even "
        f"clients, noise at each client, total δ = 10⁻⁵ (1/(10 n) for cps_280k, which has too many records for more); "
        f"mean of {RUNS} runs. *Open* is without privacy; ∞ takes the private steps without noise.",
        "",
        "| data | open | " + " | ".join(f"ε = {_shown(epsilon)}" for epsilon in EPSILONS) + " |",
        "|---" * (len(EPSILONS) + 2) + "|",
        *table_rows(),
        "",
        "What the runs have found: the bound B on the ones of a record; columns that were asked for, if not all, and "
        "the bound among these; which candidate was chosen (0 is the default); seconds of a clock and of a processor; "
        "load of the machine at the end. "
        "The noise is rounded normal noise with a seed unless --exact was given.",
        "",
        "| data | ε | F1 | B | columns | B among these | candidate | seconds | of a processor | load |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *runs_rows(),
        "",
        *listed(load=False),
    ]
    write_page(TABLE, "\n".join(lines))


def main() -> None:
    """Run what is missing and write the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=DATA)
    parser.add_argument("--epsilon", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--exact", action="store_true", help="draw noise by the exact sampler")
    parser.add_argument("--seeds", nargs="*", type=int, default=list(range(RUNS)))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    fit(planted(400, 40, 4, seed=0).A, 1.0, 0)  # compiles
    for name, epsilon, seed in order(options.epsilon):
        if name in options.data and seed in options.seeds:
            play(name, epsilon, seed, exact=options.exact)
            write_table()


def order(epsilons: list[float]) -> Iterator[tuple[str, float | str, int]]:
    """Yield all runs: first one of each data set with bars, then the rest of these, then all others."""
    barred = [epsilon for epsilon in epsilons if epsilon in (1.0, 4.0)]
    rest = [epsilon for epsilon in epsilons if epsilon not in barred]
    for group in (barred, [OPEN], rest):
        for seed in range(RUNS):
            for epsilon in group:
                for name in DATA:
                    if seed < runs_of(epsilon):
                        yield name, epsilon, seed


if __name__ == "__main__":
    main()
