"""Can a coordinator that only listens read the records of a small site? In the clear and by secure aggregation.

The default method begins with three sketches S = AᵀA Q, of k + 10 columns each, with Q known to everybody. For a site
of at most 3(k + 10) records they determine AᵀA = S (QᵀS)⁺ Sᵀ. Rows follow from it: a feature of one record alone has
that record as its row of AᵀA, which is subtracted, and so on (code-like records, with many rare features); for 20 dense
records all binary vectors in the row space of AᵀA are searched, and they are the records.

Three sites of the same size run the first rounds. The attack gets what the coordinator receives from one site: its
responses in the clear, or its masked vectors, read as if they were not masked. The last column is the attack on the
sums, which the coordinator learns in either case; rows found there are somebody's, but not known to be that site's.

    python benchmarks/reconstruction.py

Prints a Markdown table and writes it to RECONSTRUCTION.md; ends with an error if anything is read from masked vectors.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import write_page

from felb.data.binary import BinaryMatrix
from felb.engines.local import InProcess, plain_sums
from felb.federated.gate import Gate
from felb.federated.loop import play
from felb.federated.steps.starts import GRAM_SKETCH
from felb.kernels.passes import from_sketch
from felb.secure_sum.protocol import FromSite, MaskedInput, decode
from felb.secure_sum.releases import MaskedSums, from_vector
from felb.sklearn.federated import FederatedBMF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from felb.engines.local import AddUp
    from felb.federated.protocol import Release, Request, Sums

OUT = Path(__file__).with_name("RECONSTRUCTION.md")
SITES, TARGET = 3, "site-1"
FEATURES, DENSE_FEATURES, SEARCHED = 600, 80, 20
SKETCHES = 3


@dataclass
class Heard:
    """What a coordinator receives: by round, the question, each site's own numbers, and their sum."""

    add_up: AddUp
    Q: list[NDArray[Any]] = field(default_factory=list)
    site: list[NDArray[Any]] = field(default_factory=list)
    total: list[NDArray[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if isinstance(self.add_up, MaskedSums):
            self.add_up.interfere = self._listen
        self._said: Mapping[str, NDArray[Any]] = {}

    def _listen(self, _trip: Any, name: str, deliver: Any) -> bytes:
        reply: bytes = deliver()
        told = decode(reply, FromSite).sum
        if name == TARGET and isinstance(told, MaskedInput):
            self._said = from_vector(np.frombuffer(told.vector, "<i8"), told.layout)
        return reply

    def __call__(self, releases: Mapping[str, Release], request: Request, missing: Iterable[str]) -> Sums:
        """Add up as the coordinator does, and remember."""
        sums = self.add_up(releases, request, missing)
        if not isinstance(self.add_up, MaskedSums):
            self._said = releases[TARGET].values
        if request.task == GRAM_SKETCH.name:
            self.Q.append(np.asarray(request.values["Q"]))
            self.site.append(from_sketch(self._said["sketch"]))
            self.total.append(from_sketch(sums["sketch"]))
        return sums


def heard(shards: Mapping[str, BinaryMatrix], n_components: int, *, secure: bool) -> Heard:
    """Play the first rounds of the default method."""
    algorithm = FederatedBMF(n_components, random_state=0).algorithm_for(shards)
    listener = Heard(MaskedSums.simulated(shards, algorithm) if secure else plain_sums(algorithm))
    gates = {name: Gate(name, lambda _: None) for name in shards}
    with ThreadPoolExecutor(1) as pool:
        transport = InProcess(algorithm, shards, gates, pool=pool, seed=0, add_up=listener)
        play(algorithm, transport, most_rounds=SKETCHES)
    return listener


def gram(sketches: list[NDArray[Any]], questions: list[NDArray[Any]]) -> NDArray[np.int64] | None:
    """Return AᵀA from sketches of it, or None if what comes out is no such matrix."""
    Q, S = np.hstack(questions), np.hstack(sketches)
    with np.errstate(all="ignore"):
        try:
            found = S @ np.linalg.pinv(Q.T @ S, rcond=1e-11) @ S.T
        except np.linalg.LinAlgError:
            return None
    if not np.all(np.isfinite(found)) or np.abs(found - np.rint(found)).max() > 0.2 or found.min() < -0.2:
        return None
    return np.rint(found).astype(np.int64)


def peeled(G: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """Return rows that follow one from the other: a feature of one record has the record as its row of AᵀA."""
    G, rows = G.copy(), []
    while (alone := np.flatnonzero(np.diagonal(G) == 1)).size:
        row = G[alone[0]]
        if not np.isin(row, (0, 1)).all() or np.any(G - np.outer(row, row) < 0):
            break
        rows.append(row.astype(bool))
        G = G - np.outer(row, row)
    return rows


def searched(G: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """Return all binary vectors of the row space of AᵀA, for a rank of at most 20."""
    values, vectors = np.linalg.eigh(G.astype(float))
    basis = vectors[:, values > 1e-6 * max(values[-1], 1)].T
    rank = len(basis)
    if not 0 < rank <= SEARCHED:
        return []
    from scipy.linalg import qr

    pivots = qr(basis, pivoting=True, mode="r")[1][:rank]
    reduced = np.linalg.solve(basis[:, pivots], basis)
    codes = np.arange(1, 1 << rank, dtype=np.int64)
    for column in range(reduced.shape[1]):
        bits = (codes[:, None] >> np.arange(rank)) & 1
        values_ = bits @ reduced[:, column]
        codes = codes[np.minimum(np.abs(values_), np.abs(values_ - 1)) < 1e-6]
    return list(((codes[:, None] >> np.arange(rank)) & 1) @ reduced > 0.5)


def read(sketches: list[NDArray[Any]], questions: list[NDArray[Any]], rows: NDArray[np.bool_], *, dense: bool) -> int:
    """Return how many of the rows the attack has read."""
    G = gram(sketches, questions)
    if G is None:
        return 0
    found = Counter(row.tobytes() for row in (searched(G) if dense else peeled(G)))
    return (found & Counter(row.tobytes() for row in rows)).total()


def records(n: int, seed: int, *, dense: bool) -> NDArray[np.bool_]:
    """Draw records: dense ones, or ones with a few frequent and a few rare features, like codes of diagnoses."""
    rng = np.random.default_rng(seed)
    if dense:
        return np.asarray(rng.random((n, DENSE_FEATURES)) < 0.4)
    odds = 0.3 / np.arange(1, FEATURES + 1) ** 0.75
    return np.asarray(rng.random((n, FEATURES)) < odds * 4)


def attacked(n: int, k: int, *, dense: bool) -> str:
    """Return a line of the table."""
    rows = [records(n, seed, dense=dense) for seed in range(SITES)]
    shards = {f"site-{i + 1}": BinaryMatrix.of(part) for i, part in enumerate(rows)}
    plain, masked = (heard(shards, k, secure=secure) for secure in (False, True))
    assert all(np.array_equal(a, b) for a, b in zip(plain.total, masked.total, strict=True))
    before = read(plain.site, plain.Q, rows[0], dense=dense)
    after = read(masked.site, masked.Q, rows[0], dense=dense)
    summed = read(masked.total, masked.Q, np.vstack(rows), dense=dense)
    if after:
        sys.exit(f"{after} rows were read from masked vectors")
    kind = "dense" if dense else "code-like"
    return f"| {n} {kind} | {k} | {before} of {n} | {after} of {n} | {summed} of {SITES * n} |"


def main() -> None:
    """Attack sites of several sizes."""
    lines = [
        "# Records read by a coordinator that only listens",
        "",
        f"Written by `python benchmarks/reconstruction.py`: three sites of the same size, the first {SKETCHES} rounds "
        "of the default method. What the sums give away is the same in both cases; more records than 3(k + 10) in all "
        f"sites together are out of reach, and dense ones are searched among {SEARCHED} records at most.",
        "",
        "| records of the site | components | read in the clear | read by secure aggregation | read in the sums |",
        "|---|---|---|---|---|",
    ]
    for n, k, dense in ((20, 10, True), (20, 10, False), (60, 10, False), (120, 30, False)):
        lines.append(attacked(n, k, dense=dense))
        print(lines[-1], flush=True)
    write_page(OUT, "\n".join(lines))


if __name__ == "__main__":
    main()
