"""Ten thousand clients in one process: FELB, FELB-MU and the default method with samples of clients and dropouts.

Rows with planted components are dealt out to clients of a few rows each. In a round a sample of the clients is asked,
and some of those do not answer; the sums of those that do are added in pairs, in memory for log₂ n sums. Only the start
and the assignment ask everybody. Prints a Markdown table and writes it to benchmarks/MANY_CLIENTS.md: F1 of the cells
and F1* of the planted cells, beside the same method with all rows at one client.

    python benchmarks/many_clients.py              10,000 clients of 30 rows: some ten minutes on one core
    python benchmarks/many_clients.py --quick      300 clients; writes nothing
"""

from __future__ import annotations

import resource
import time
import warnings
from pathlib import Path

from common import listed, make_parser, write_page

import felb
from felb.data import partition, planted
from felb.kernels.boolean import boolean_product
from felb.metrics import confusion

OUT = Path(__file__).with_name("MANY_CLIENTS.md")
METHODS = {"felb": felb.FELB, "felb-mu": felb.FELBMU, "bmf": felb.FederatedBMF}
ROWS_A_CLIENT, COLUMNS, COMPONENTS, NOISE = 30, 100, 6, 0.05


def fitted(method: str, rounds: int, participation: felb.Participation | None) -> felb.FELB | felb.FederatedBMF:
    """Return the estimator of a method."""
    given = {"n_components": COMPONENTS, "random_state": 0, "participation": participation}
    if method == "bmf":
        return felb.FederatedBMF(objective="hamming", effort="fast", **given)
    return METHODS[method](max_iter=rounds, **given)


def main() -> None:
    """Run, print, and write the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--fraction", type=float, default=0.02, help="share of the clients asked in a round")
    parser.add_argument("--dropout", type=float, default=0.1, help="probability that a client does not answer")
    parser.add_argument("--rounds", type=int, default=40, help="of FELB and FELB-MU at most")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    clients = 300 if options.quick else options.clients
    fraction = 0.2 if options.quick else options.fraction
    n = clients * ROWS_A_CLIENT
    data = planted(n, COLUMNS, COMPONENTS, noise=NOISE, seed=0)
    groups = partition.even(n, clients, seed=0)
    signal = boolean_product(data.U, data.V)
    lines = [
        "| method | clients | answers a round | F1 | F1* | one client: F1 | F1* | rounds | seconds | answers missing |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for method in METHODS:
        found = []
        for participation in (felb.Participation(fraction, dropout=options.dropout), None):
            model = fitted(method, options.rounds, participation)
            begun = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", felb.ConvergenceWarning)
                U = model.fit_transform(data.A, groups=groups if participation is not None else None)
            seconds = time.perf_counter() - begun
            found.append((model, confusion(signal, U, model.components_).f1, seconds))
        (many, many_star, seconds), (one, one_star, _) = found
        missing = sum(len(row.get("missing", ())) for row in many.history_)
        asked = min(row["clients"] for row in many.history_)
        lines.append(
            f"| {method} | {clients:,} | {asked} to {clients:,} | {many.counts_.f1:.3f} | {many_star:.3f} | "
            f"{one.counts_.f1:.3f} | {one_star:.3f} | {len(many.history_)} | {seconds:.0f} | {missing} |"
        )
        print(lines[-1], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lines.append(f"\n{n:,} rows, {COLUMNS} columns, {COMPONENTS} components, noise {NOISE:.0%}; peak {peak:.1f} GB.")
    print(lines[-1])
    if not options.quick:
        head = ["# Ten thousand clients in one process", "", "Written by `benchmarks/many_clients.py`.", ""]
        write_page(OUT, "\n".join([*head, *lines, "", *listed()]))


if __name__ == "__main__":
    main()
