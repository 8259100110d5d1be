"""A federated fit at the size of the published evaluation: wall time and peak memory.

    python benchmarks/paper_scale.py --shape ratings --rounds 3

Data of the shape is generated (see shapes.py), dealt out to the clients and factorized by the local engine.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings

from shapes import SHAPES, generate

import felb
from felb.datasets import partition
from felb.datasets.shards import named, split
from felb.engines import run
from felb.estimators.methods import make_federated


def peak_megabytes() -> float:
    """Return the largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Generate, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="ratings")
    parser.add_argument("--method", default="felb-mu")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--local-steps", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore", felb.ConvergenceWarning)

    shape = SHAPES[options.shape]
    A = generate(shape)
    print(f"{shape.name}: {A}, k = {shape.k}, {options.clients} clients; generating took {peak_megabytes():.0f} MB")
    shards, _ = split(A, partition.even(A.shape[0], options.clients))
    shards = named(list(shards.values()))
    del A
    model = make_federated(
        options.method, n_components=shape.k, max_iter=options.rounds, local_steps=options.local_steps, tol=0.0
    )
    start = time.perf_counter()

    def tell(snapshot: object) -> None:
        history = snapshot.history  # type: ignore[attr-defined]
        if len(history) in (1, 3) or len(history) % 10 == 0:
            elapsed = time.perf_counter() - start
            print(f"  round {len(history)}: {elapsed:.1f} s, peak {peak_megabytes():.0f} MB", flush=True)

    finished = run(model.recipe(shape.columns), shards, workers=options.workers, on_round=tell)
    seconds = time.perf_counter() - start
    scores = finished.outcome.counts
    print(
        f"{finished.outcome.n_iter} rounds of {options.local_steps} steps: {seconds:.1f} s, "
        f"peak {peak_megabytes():.0f} MB, F1 {scores.f1:.3f}, RMSD {scores.rmsd_table:.3f}"
    )


if __name__ == "__main__":
    main()
