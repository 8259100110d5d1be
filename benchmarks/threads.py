"""Seconds of one owner's fit in one thread and in several; the result must have the same bits.

    python benchmarks/threads.py                                   four data sets, default effort, two threads
    python benchmarks/threads.py bmf_mushroom --jobs 4 --effort fast

Wall time, so it needs an idle machine; the load average is printed with the figures. The bar is 1.6 times with two.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
from common import FOLDER, at_least, load_average, make_parser, real

import felb
from felb.data import planted

NAMES = ("sc_10x_brain_10k", "go_human_genes", "wordnet_glosses", "cps_280k")
BAR = 1.6


def fitted(A: felb.BinaryMatrix, *, effort: str, n_jobs: int) -> tuple[felb.FederatedBMF, float]:
    """Fit once; return the model and its seconds."""
    start = time.perf_counter()
    model = felb.FederatedBMF(20, effort=effort, n_jobs=n_jobs, random_state=0).fit(A)
    return model, time.perf_counter() - start


def main() -> None:
    """Print the figures."""
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--effort", default="default")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", type=Path, default=FOLDER)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    felb.FederatedBMF(4, effort=options.effort, random_state=0).fit(planted(200, 40, 4, seed=0).A)
    for name in options.names:
        A = real(name, options.data)
        if A is None:
            print(f"skipped {name}: no file {name}.npz in the folder of --data", file=sys.stderr)
            continue
        (one, alone), (many, shared) = (fitted(A, effort=options.effort, n_jobs=n) for n in (1, options.jobs))
        if not np.array_equal(one.components_, many.components_):
            sys.exit(f"{name}: the components depend on the number of threads")
        figure = at_least(name, alone / shared, BAR if options.jobs == 2 else None, f"{alone:.1f} s, {shared:.1f} s")
        print(f"{figure.what}: {figure.measured} {figure.bar} {figure.verdict}, load {load_average()}", flush=True)


if __name__ == "__main__":
    main()
