"""Client tasks of the private method: each returns one sum over records with a bounded part of each record.

Every task reads all it needs from the request, and none looks at what another record says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.loop import fit_centralized
from felb.federated.protocol import Algorithm, Checkpoint, Outcome, Request, Step, Sums, Update
from felb.federated.steps.assignment import ASSIGN
from felb.federated.tasks import BOXED, COMPONENTS, MOST, NODE_CAP, Input, Limits, Output, TaskSpec, Work, declare
from felb.kernels.exact import assign_rows_exact
from felb.kernels.schedule import one_blas_thread
from felb.metrics import integrality_gap
from felb.optim.steps import uniform_columns
from felb.privacy.accounting import CHOICE, COLUMNS, COOCCURRENCE, SCORES, SIZES, STATISTICS
from felb.privacy.mechanisms import require_sampler
from felb.privacy.releases import (
    NoisyCooccurrence,
    StatisticsBounds,
    choose,
    clipped_counts,
    clipped_gains,
    clipped_statistics,
    columns_to_pair,
    fit_rows,
    gain_bound,
    heavy_columns,
    improve_components,
    read_counts,
    read_statistics,
    row_bound_from_histogram,
    row_size_histogram,
    select_columns,
    size_edges,
    weighted_column_counts,
    weighted_cooccurrence,
)
from felb.privacy.spec import WIDE
from felb.privacy.synthesis import symmetric_components, synthesize

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import ArrayLike, NDArray

    from felb.federated.algorithms.bmf import Effort
    from felb.federated.protocol import Server, Values
    from felb.federated.tasks import Sizes
    from felb.metrics import Counts
    from felb.privacy.mechanisms import RecordSum
    from felb.privacy.spec import Privacy, PrivacyPlan

    Array = NDArray[np.float64]
    Factorize = Callable[[BinaryMatrix, int, int], NDArray[np.bool_]]
    """(rows, number of components, seed) -> V."""


# -- Rounds of private statistics: clients release noisy [UᵀA, w UᵀU] for a fixed V̂, and the server updates V̂ ------
#
# Everything a record's u_r depends on besides the record is public: the V̂ of this and earlier rounds, the steps and
# their size, λ, the start. So a round is a sum over records with a bounded part of each, and T rounds cost √T times
# one.
#
# The server averages the statistics of rounds, S ← βS + (1 − β)S_t, which divides their noise while V̂ hardly moves, and
# takes few steps for each: what it would fit beyond that is noise.

FIRST, LAST = 0.01, 0.3
"""λ of the first and the last round; it grows geometrically between them."""

START = 0.3
"""Entries of the first V̂ are uniform below this: small ones leave room for components to part."""

MEMORY = 0.5
"""β, the share of earlier rounds in the averaged statistics."""

ROW_STEPS, SERVER_STEPS = 5, 3

FINE_BITS = 12
"""Parts of a record are multiples of 2^−12. They are products of shares, many of them small; on the grid that serves
for counts, rounding towards zero would take much of UᵀU."""


def round_statistics(shard: BinaryMatrix, U: Array, bounds: StatisticsBounds) -> RecordSum:
    """Return the clipped statistics on the grid of the rounds."""
    return clipped_statistics(shard, U, bounds, bits=FINE_BITS)


@dataclass(frozen=True, slots=True)
class Averaged:
    """Public: rounds played, V̂, and the averaged statistics."""

    played: int
    V: Array
    S: Array | None = None
    G: Array | None = None


def draw_components(shape: tuple[int, int], seed: int) -> Array:
    """Return the first V̂ where nothing is known; nothing but a seed decides which."""
    return np.asarray(START * uniform_columns(seed, *shape, dtype="float64"), dtype=np.float64)


def lam_at(played: int, rounds: int, *, first: float) -> float:
    """λ of the next round: from `first` to `LAST`, geometrically."""
    return float(first * (LAST / first) ** (played / max(rounds - 1, 1)))


def moved(at: Averaged, values: Array, bounds: StatisticsBounds, *, lam: float) -> Averaged:
    """Average the statistics and move V̂."""
    S, G = read_statistics(values, *at.V.shape, grid=1.0, bounds=bounds)
    if at.S is not None and at.G is not None:
        S, G = MEMORY * at.S + (1 - MEMORY) * S, MEMORY * at.G + (1 - MEMORY) * G
    V = improve_components(at.V, S, G, lam=lam, steps=SERVER_STEPS)
    return Averaged(at.played + 1, V, S, G)


@dataclass(frozen=True, slots=True)
class PrivateState:
    """Private to a client: U between rounds of statistics, and at the end its assignment."""

    assigned: NDArray[np.bool_] | None = None
    U: NDArray[np.float64] | None = None


def count_sizes(work: Work) -> tuple[None, Update]:
    """How many of the own records have how many ones."""
    return None, Update.of_records(**{SIZES: row_size_histogram(work.rows)})


def count_columns(work: Work) -> tuple[None, Update]:
    """How often each feature occurs."""
    return None, Update.of_records(**{COLUMNS: weighted_column_counts(work.rows, float(work.values["row_bound"]))})


def count_cooccurrence(work: Work) -> tuple[None, Update]:
    """How often features, all or the given ones, occur together."""
    chosen = work.values.get("columns")
    part = work.rows if chosen is None else select_columns(work.rows, np.asarray(chosen))
    return None, Update.of_records(**{COOCCURRENCE: weighted_cooccurrence(part, float(work.values["row_bound"]))})


def sum_statistics(work: Work) -> tuple[PrivateState, Update]:
    """Take steps for U from where the last round left it, and sum up how records relate V to features; U stays."""
    V = np.asarray(work.values["V"], dtype=np.float64)
    c, s, w = (float(bound) for bound in work.values["bounds"])
    U = None if work.state is None else work.state.U
    U = fit_rows(work.rows, V, U=U, steps=ROW_STEPS, lam=float(work.values["lam"]))
    update = Update.of_records(**{STATISTICS: round_statistics(work.rows, U, StatisticsBounds(c, s, w))})
    return PrivateState(U=U), update


def sum_gains(work: Work) -> tuple[None, Update]:
    """How much more the own records gain by each candidate than by the first."""
    candidates = list(np.asarray(work.values["candidates"], dtype=bool))
    return None, Update.of_records(**{CHOICE: clipped_gains(work.rows, candidates, float(work.values["bound"]))})


def count_scores(work: Work) -> tuple[None, Update]:
    """How many cells of the own records are right and wrong, each record's part bounded."""
    bound = float(work.values["bound"])
    counts = clipped_counts(work.rows, _assign_best(work), work.components, bound)
    return None, Update.of_records(**{SCORES: counts})


def assign_silently(work: Work) -> tuple[PrivateState, Update]:
    """Assign the own rows; release nothing."""
    return PrivateState(_assign_best(work)), Update({})


def _assign_best(work: Work) -> NDArray[np.bool_]:
    node_cap = int(work.values["node_cap"])
    return assign_rows_exact(work.rows, work.components, weight_one=1.0, weight_zero=-1.0, node_cap=node_cap)[0]


def _agreed(limits: Limits) -> Privacy:
    assert limits.privacy is not None
    return limits.privacy.privacy


def _is_row_bound(value: NDArray[Any], limits: Limits) -> bool:
    agreed = _agreed(limits).row_bound
    return agreed is None or int(value) == agreed


def _is_statistics_bound(value: NDArray[Any], limits: Limits) -> bool:
    bounds = _agreed(limits).statistics_bounds
    return tuple(float(bound) for bound in value) == (bounds.c, bounds.s, bounds.w)


def _largest_score(limits: Limits) -> float:
    privacy = _agreed(limits)
    if privacy.score_bound is not None:
        return float(privacy.score_bound)
    if privacy.row_bound is not None:
        return 2.0 * privacy.row_bound
    return max(float(privacy.data_bound**2), 2.0 * limits.n_features)


def _count_pairs(sizes: Sizes, values: Values) -> int:  # noqa: ARG001
    columns = sizes.get("j", sizes["m"])
    return columns * (columns + 1) // 2 + 1


def _noisy(*shape: str | int | Callable[[Sizes, Values], int]) -> Output:
    return Output("i", shape, low=-MOST, record_sum=True)


MOST_CANDIDATES = 16
ROW_BOUND = Input("i", (), 1, lambda limits: limits.n_features, allowed=_is_row_bound)
COLUMN = Input("i", ("j",), 0, lambda limits: limits.n_features - 1, optional=True, unique=True)

PRIVATE_TASKS = (
    TaskSpec(
        SIZES,
        "record sizes",
        count_sizes,
        "how many records have how many ones",
        {},
        {SIZES: _noisy(lambda sizes, _: len(size_edges(sizes["m"])))},
    ),
    TaskSpec(
        COLUMNS,
        "column counts",
        count_columns,
        "how often each feature occurs",
        {"row_bound": ROW_BOUND},
        {COLUMNS: _noisy("m")},
    ),
    TaskSpec(
        COOCCURRENCE,
        "co-occurrence",
        count_cooccurrence,
        "how often pairs of features occur together",
        {"row_bound": ROW_BOUND, "columns": COLUMN},
        {COOCCURRENCE: _noisy(_count_pairs)},
        sizes={"j": lambda limits: limits.n_features},
    ),
    TaskSpec(
        STATISTICS,
        "noisy statistics",
        sum_statistics,
        "how the records relate components to features",
        {
            "V": BOXED,
            "lam": Input("f", (), FIRST * (1 - 1e-9), LAST * (1 + 1e-9)),
            "bounds": Input("f", (3,), allowed=_is_statistics_bound),
        },
        {STATISTICS: _noisy(lambda sizes, _: sizes["k"] * sizes["m"] + sizes["k"] * (sizes["k"] + 1) // 2)},
    ),
    TaskSpec(
        CHOICE,
        "choice of a candidate",
        sum_gains,
        "how much the records gain by each candidate",
        {
            "candidates": Input("b", ("c", "k", "m")),
            "bound": Input("f", (), 2.0**-20, lambda limits: limits.n_features * math.sqrt(MOST_CANDIDATES)),
        },
        {CHOICE: _noisy(lambda sizes, _: sizes["c"] - 1)},
        sizes={"c": MOST_CANDIDATES},
    ),
    TaskSpec(
        SCORES,
        "scores",
        count_scores,
        "how many cells are right and wrong",
        {"components": COMPONENTS, "node_cap": NODE_CAP, "bound": Input("f", (), 1.0, _largest_score)},
        {SCORES: _noisy(4)},
    ),
    TaskSpec(
        ASSIGN,
        "assignment",
        assign_silently,
        "nothing",
        {"components": COMPONENTS, "node_cap": NODE_CAP},
        assigns=True,
    ),
)


# -- Candidates for V from released co-occurrence, at no further privacy cost ----------------------------------------

STRICT, LOOSE = 3.0, 1.0
"""Columns are kept if they occur more often than so many standard deviations of the noise."""

MOST_DIRECT = 400
"""Columns, the most frequent ones, whose co-occurrence is factorized itself."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Several V, the default first, and the bound G on what a record says about them."""

    V: NDArray[np.bool_]
    bound: float


def find_candidates(
    released: NoisyCooccurrence,
    n_components: int,
    *,
    factorize: Factorize,
    seed: int,
    rows: int = 2500,
) -> Candidates:
    """Factorize synthetic rows, and co-occurrence itself.

    The default comes from synthetic rows of both kinds over the columns that surely occur; the others from the rows of
    either kind alone, from rows over more columns, and straight from co-occurrence, which is better where records are
    few. All are components of all columns.

    Parameters
    ----------
    released : M, N and σ
    n_components : k; where fewer columns are kept, some components are empty
    factorize : the method to run on synthetic rows
    seed : fixes everything
    rows : synthetic rows of each model
    """
    # What works on a few hundred columns is slowed down by threads that wait for each other.
    with one_blas_thread():
        strict, loose = (synthesize(released, z=z, rows=rows, seed=seed) for z in (STRICT, LOOSE))
        found = [
            synthetic.expand(factorize(part, min(n_components, synthetic.columns.size), seed), n_components)
            for synthetic, part in (
                (strict, strict.mix),
                (loose, loose.mix),
                (strict, strict.latent),
                (strict, strict.copula),
            )
        ]
        found.append(_direct(released, n_components, seed=seed))
        bound = gain_bound(loose.mix, [V[:, loose.columns] for V in found])
    return Candidates(np.stack(found), bound)


def _direct(released: NoisyCooccurrence, n_components: int, *, seed: int) -> NDArray[np.bool_]:
    # A column that hardly stands out alone may do so by what it occurs with: none is left out before there are many.
    columns = heavy_columns(np.diag(released.M), sigma=released.sigma, most=MOST_DIRECT, least=MOST_DIRECT)
    V = np.zeros((n_components, released.M.shape[0]), dtype=bool)
    k = min(n_components, columns.size)
    V[:k, columns] = symmetric_components(released.of_columns(columns), k, seed=seed)
    return V


# -- Components under differential privacy of records, from noisy sums over them -------------------------------------
#
#     sizes          how many ones records have, to bound what one of them contributes
#     columns        which features occur often; only for data with very many
#     co-occurrence  how often features occur together: nearly all of the budget
#     statistics     rounds of [UᵀA, UᵀU], see `felb.federated.algorithms.private`
#     choice         which of the candidates, found by the server, suits the records
#     scores         how many cells are right and wrong; only if a share of the budget was set aside for it
#     assign         every client assigns its own rows; nothing leaves
#
# Which of these are asked for is what the specification gives a share of the budget: ``cooccurrence`` has no
# statistics, ``statistics`` nothing else, and ``hybrid`` both; there the rounds start at what co-occurrence found, and
# add a candidate.
#
# Each release is a sum over records with a bounded part of each, on a grid, with discrete noise. What the server makes
# of them costs nothing more.


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
    limits = Limits(n_features, n_components, node_cap=node_cap, privacy=plan)
    return Algorithm("private-bmf", declare(*PRIVATE_TASKS), PrivateState, method.server, limits, plan)


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
            start = draw_components((self.n_components, self.n_features), seed)
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
