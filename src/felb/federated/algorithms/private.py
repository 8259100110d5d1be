"""Components under differential privacy of records, from noisy sums over them.

    sizes          how many ones records have, to bound what one of them contributes
    columns        which features occur often; only for data with very many
    co-occurrence  how often features occur together: nearly all of the budget
    statistics     rounds of [UᵀA, UᵀU], see `felb.federated.algorithms.private_rounds`
    choice         which of the candidates, found by the server, suits the records
    scores         how many cells are right and wrong; only if a share of the budget was set aside for it
    assign         every client assigns its own rows; nothing leaves

Which of these are asked for is what the specification gives a share of the budget: ``cooccurrence`` has no statistics,
``statistics`` nothing else, and ``hybrid`` both; there the rounds start at what co-occurrence found, and add a
candidate.

Each release is a sum over records with a bounded part of each, on a grid, with discrete noise. What the server makes of
them costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.algorithms.private_candidates import find_candidates
from felb.federated.algorithms.private_rounds import (
    FIRST,
    LAST,
    Averaged,
    lam_at,
    moved,
    random_components,
    round_statistics,
)
from felb.federated.algorithms.private_tasks import PRIVATE_TASKS, ClientState
from felb.federated.protocol import Algorithm, Checkpoint, Outcome, Request, Step, Sums
from felb.federated.single_shard import fit_centralized
from felb.federated.steps.assignment import ASSIGN
from felb.metrics import integrality_gap
from felb.privacy.choice import choose, clipped_gains
from felb.privacy.discrete import require_sampler
from felb.privacy.names import CHOICE, COLUMNS, COOCCURRENCE, SCORES, SIZES, STATISTICS
from felb.privacy.private_cooccurrence import (
    NoisyCooccurrence,
    columns_to_pair,
    row_bound_from_histogram,
    row_size_histogram,
    weighted_column_counts,
    weighted_cooccurrence,
)
from felb.privacy.scores import clipped_counts, read_counts
from felb.privacy.spec import WIDE

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import ArrayLike, NDArray

    from felb.federated.algorithms.efforts import Effort
    from felb.federated.protocol import Server
    from felb.metrics import Counts
    from felb.privacy.bounds import RecordSum
    from felb.privacy.plan import PrivacyPlan


def private_bmf(
    n_features: int,
    n_components: int,
    plan: PrivacyPlan,
    *,
    effort: str | Effort = "default",
    node_cap: int = 1_000,
) -> Algorithm:
    """Return the private method for the mechanism of the specification.

    Parameters
    ----------
    n_features, n_components : m and k
    plan : the specification, with its noise calibrated for this federation
    effort : of the factorization of synthetic rows
    node_cap : limit of the search for the best assignment of a row
    """
    if plan.uploads is not None:
        raise InputError(f"mechanism={plan.privacy.mechanism!r} is for uploads, but this method sums over records")
    federated_bmf(n_features, n_components, effort=effort, node_cap=node_cap)  # refuses what it cannot do, now
    require_sampler()
    method = PrivateFit(plan, n_features, n_components, effort, node_cap)
    return Algorithm("private-bmf", PRIVATE_TASKS, ClientState, method.server, plan)


class Noisy(NamedTuple):
    """A noisy sum in units of the data, the standard deviation of its noise, and the round's sums to report to."""

    values: NDArray[np.float64]
    sigma: float
    sums: Sums


@dataclass(frozen=True, slots=True)
class Found:
    """Several V from co-occurrence, the default first; G, the bound on what a record says about them; B."""

    candidates: NDArray[np.bool_]
    bound: float
    row_bound: int


@dataclass(frozen=True, slots=True)
class PrivateFit:
    """The server; each request is sent to all clients once."""

    plan: PrivacyPlan
    n_features: int
    n_components: int
    effort: str | Effort
    node_cap: int

    def server(self, seed: int) -> Server:
        """Ask what the specification has a share of the budget for; what is made of the releases costs nothing more."""
        shares, row_bound = self.plan.shares, self.plan.privacy.row_bound
        if COOCCURRENCE in shares:
            found: Found = yield Step("candidates", self.find_candidates(seed), Found)
            candidates, row_bound = found.candidates, found.row_bound
            if STATISTICS in shares:
                # What co-occurrence found is Boolean: the rounds need no way from far away.
                V = yield from self.statistics(candidates[0].astype(np.float64), first=LAST)
                candidates = np.concatenate([candidates, V[None]])
            chosen = yield from self.choice(candidates, found.bound)
        else:
            start = random_components((self.n_components, self.n_features), seed)
            V = yield from self.statistics(start, first=FIRST)
            candidates, chosen = V[None], 0
        components = np.asarray(candidates[chosen])
        counts = None
        if SCORES in shares:
            counts = yield from self.scores(components, row_bound)
        sums = yield Request(ASSIGN, components=components, node_cap=self.node_cap, all_clients=True)
        self.plan.check_answers(sums.clients)
        return Outcome(components=components, n_iter=sums.round, counts=counts)

    def ask(self, task: str, public: RecordSum, **values: ArrayLike) -> Generator[Request, Sums, Noisy]:
        """Ask for a noisy sum over records; `public` is that of no records, with the grid and bound of every client."""
        sums = yield Request(task, **values, all_clients=True)
        self.plan.check_answers(sums.clients)
        sigma = self.plan.sigma_of_sum(task, public, n_answers=sums.clients)
        sums.report(noise=sigma)
        return Noisy(np.asarray(sums[task], dtype=np.float64) * public.grid, sigma, sums)

    def find_candidates(self, seed: int) -> Generator[Request, Sums, Found]:
        """Ask for co-occurrence, with a bound B on the ones of a record that comes first if it was not agreed on."""
        privacy, m = self.plan.privacy, self.n_features
        row_bound, width, columns = privacy.row_bound, m, None
        if row_bound is None:
            noisy = yield from self.ask(SIZES, row_size_histogram(no_records(m)))
            row_bound = row_bound_from_histogram(noisy.values, m, sigma=noisy.sigma)
            noisy.sums.report(row_bound=row_bound)
        bound, asked = row_bound, {}
        if m > WIDE:
            public = weighted_column_counts(no_records(m), row_bound)
            noisy = yield from self.ask(COLUMNS, public, row_bound=row_bound)
            columns, bound = columns_to_pair(noisy.values, sigma=noisy.sigma, row_bound=row_bound)
            bound = privacy.row_bound or bound  # one that was agreed on stands
            width, asked = int(columns.size), {"columns": columns}
            noisy.sums.report(columns=width, pair_bound=bound)
        public = weighted_cooccurrence(no_records(width), bound)
        noisy = yield from self.ask(COOCCURRENCE, public, row_bound=bound, **asked)
        released = NoisyCooccurrence.of(noisy.values, width, grid=1.0, sigma=noisy.sigma)
        found = find_candidates(released, self.n_components, factorize=self.factorize, seed=seed)
        noisy.sums.report(candidates=len(found.V), gain_bound=found.bound)
        return Found(found.V if columns is None else widened(found.V, columns, m), found.bound, row_bound)

    def statistics(
        self, V: NDArray[np.float64], *, first: float
    ) -> Generator[Request | Checkpoint, Any, NDArray[np.bool_]]:
        """Play the rounds of statistics, all of them; return V̂, cut at ½."""
        rounds, bounds = self.plan.privacy.n_rounds, self.plan.privacy.statistics_bounds
        public = round_statistics(no_records(self.n_features), np.zeros((0, self.n_components)), bounds)
        told = np.array([bounds.c, bounds.s, bounds.w])
        at = Averaged(0, V)
        while at.played < rounds:
            at = yield Checkpoint(at)
            lam = lam_at(at.played, rounds, first=first)
            noisy = yield from self.ask(STATISTICS, public, V=at.V, lam=lam, bounds=told)
            at = moved(at, noisy.values, bounds, lam=lam)
            noisy.sums.report(integrality_gap=integrality_gap(at.V), statistics=at.played)
        return np.asarray(at.V > 0.5)

    def choice(self, candidates: NDArray[np.bool_], bound: float) -> Generator[Request, Sums, int]:
        """Ask which candidate suits the records."""
        public = clipped_gains(no_records(self.n_features), list(candidates), bound)
        noisy = yield from self.ask(CHOICE, public, candidates=candidates, bound=bound)
        chosen = choose(noisy.values, sigma=noisy.sigma)
        noisy.sums.report(chosen=chosen)
        return chosen

    def scores(self, components: NDArray[np.bool_], row_bound: int | None) -> Generator[Request, Sums, Counts]:
        """Ask how many cells are right and wrong."""
        privacy = self.plan.privacy
        bound = float(privacy.data_bound**2 if row_bound is None else 2 * row_bound)
        bound = bound if privacy.score_bound is None else float(privacy.score_bound)
        nothing = np.zeros((0, self.n_components), dtype=bool)
        public = clipped_counts(no_records(self.n_features), nothing, components, bound)
        noisy = yield from self.ask(SCORES, public, components=components, node_cap=self.node_cap, bound=bound)
        counts = read_counts(noisy.values, self.n_features)
        noisy.sums.report(**counts.scores())
        return counts

    def factorize(self, A: BinaryMatrix, n_components: int, seed: int) -> NDArray[np.bool_]:
        """Factorize synthetic rows, which need no federation."""
        algorithm = federated_bmf(
            A.shape[1],
            n_components,
            objective="hamming",
            effort=self.effort,
            centralized=True,
            node_cap=self.node_cap,
        )
        return fit_centralized(algorithm, A, seed=seed).components


def no_records(n_features: int) -> BinaryMatrix:
    """Return data without a record."""
    return BinaryMatrix.of(np.zeros((0, n_features), dtype=bool))


def widened(V: NDArray[np.bool_], columns: NDArray[np.int64], n_features: int) -> NDArray[np.bool_]:
    """Return candidates over some columns as candidates over all."""
    whole = np.zeros((*V.shape[:2], n_features), dtype=bool)
    whole[:, :, columns] = V
    return whole
