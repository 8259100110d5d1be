"""Components under differential privacy of records, from noisy sums over them.

    sizes          how many ones records have, to bound what one of them contributes
    columns        which features occur often; only for data with very many
    co-occurrence  how often features occur together: nearly all of the budget
    statistics     rounds of [UᵀA, UᵀU], see `felb.federated.recipes.private_rounds`
    choice         which of the candidates, found by the server, suits the records
    scores         how many cells are right and wrong; only if a share of the budget was set aside for it
    assign         every client assigns its own rows; nothing leaves

Which of these are asked for is what the agreement has a share of the budget for: ``cooccurrence`` has no statistics,
``statistics`` nothing else, and ``hybrid`` both; there the rounds start at what co-occurrence found, and add a
candidate.

Each release is a sum over records with a bounded part of each, on a grid, with discrete noise. What the server makes of
them costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.alone import play_alone
from felb.federated.messages import Broadcast
from felb.federated.recipes.assignment import ASSIGN, summed_counts, told_counts
from felb.federated.recipes.candidates import find_candidates
from felb.federated.recipes.private_client import CLIENT
from felb.federated.recipes.private_rounds import LAST, Rounds, RoundsState, round_statistics
from felb.federated.recipes.sums import Effort, federated_bmf
from felb.federated.server import Outcome, Recipe
from felb.federated.state import holding
from felb.linalg.binary import BinaryMatrix
from felb.metrics import integrality_gap
from felb.privacy.choice import choose, clipped_gains
from felb.privacy.cooccurrence import (
    NoisyCooccurrence,
    columns_to_pair,
    row_bound_from_histogram,
    row_size_histogram,
    weighted_column_counts,
    weighted_cooccurrence,
)
from felb.privacy.discrete import require_sampler
from felb.privacy.names import CHOICE, COLUMNS, COOCCURRENCE, SCORES, SIZES, STATISTICS
from felb.privacy.policy import WIDE
from felb.privacy.scores import clipped_counts, read_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.privacy.bounds import RecordSum
    from felb.privacy.plan import PrivacyPlan


def private_bmf(
    n_features: int,
    n_components: int,
    plan: PrivacyPlan,
    *,
    effort: str | Effort = "default",
    node_cap: int = 1_000,
) -> Recipe:
    """Return the private method for the mechanism of the agreement.

    Parameters
    ----------
    n_features, n_components : m and k
    plan : the agreement, with its noise calibrated for this federation
    effort : of the factorization of synthetic rows
    node_cap : limit of the search for the best assignment of a row
    """
    if plan.uploads is not None:
        raise InputError(f"mechanism={plan.privacy.mechanism!r} is for uploads, but this method sums over records")
    federated_bmf(n_features, n_components, effort=effort, node_cap=node_cap)  # refuses what it cannot do, now
    require_sampler()
    return Recipe("private-bmf", CLIENT, PrivateServer(plan, n_features, n_components, effort, node_cap), plan)


@dataclass(frozen=True, slots=True)
class ServerState:
    """Public: the round to play, and what was made of the releases so far.

    Parameters
    ----------
    row_bound : B, once it is known
    columns, pair_bound : columns whose co-occurrence is asked for, if not all, and B among these
    noise : standard deviation of the last release
    candidates, bound : several V, and G
    rounds : the rounds of statistics, once they have begun
    chosen : number of the chosen one
    counts : noisy tp, fp, fn and cells
    assigned : the clients have assigned their rows
    """

    round: int
    seed: int
    row_bound: int | None = None
    columns: NDArray[np.int64] | None = None
    pair_bound: int | None = None
    noise: float = 0.0
    candidates: NDArray[np.bool_] | None = None
    bound: float = 0.0
    rounds: RoundsState | None = field(default=None, metadata=holding(RoundsState))
    chosen: int | None = None
    counts: NDArray[np.int64] | None = None
    assigned: bool = False


@dataclass(frozen=True, slots=True)
class PrivateServer:
    """Asks each question once."""

    plan: PrivacyPlan
    n_features: int
    n_components: int
    effort: str | Effort
    node_cap: int
    state_type: type[Any] = ServerState

    def start(self, seed: int) -> ServerState:
        """Begin with B, if it was agreed on, or with random components, if there is no co-occurrence."""
        begun = ServerState(0, seed, row_bound=self.plan.privacy.row_bound)
        if COOCCURRENCE in self.plan.shares:
            return begun
        return replace(begun, rounds=self._rounds.from_nothing((self.n_components, self.n_features), seed))

    def broadcast(self, state: ServerState) -> Broadcast | None:
        """Ask the next question, of everybody."""
        task = self._task(state)
        if task is None:
            return None
        values: dict[str, NDArray[Any]] = {}
        if task in (COLUMNS, COOCCURRENCE):
            values["row_bound"] = np.asarray(self._row_bound(state))
        if task == COOCCURRENCE and state.columns is not None:
            values["columns"] = state.columns
        if task == CHOICE:
            assert state.candidates is not None
            values = {"candidates": state.candidates, "bound": np.asarray(state.bound)}
        if task == STATISTICS:
            assert state.rounds is not None
            values = dict(self._rounds.asked(state.rounds))
        if task in (SCORES, ASSIGN):
            values = {"components": self._components(state), "node_cap": np.asarray(self.node_cap)}
        if task == SCORES:
            values["bound"] = np.asarray(self._score_bound(state))
        return Broadcast(task, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: ServerState) -> ServerState:
        """Read the noisy sum, and make of it what the next question needs."""
        task = self._task(state)
        self.plan.check_answers(n_clients)
        following = replace(state, round=state.round + 1)
        if task == ASSIGN:
            return replace(following, assigned=True)
        assert task is not None
        public = self._public(task, state)
        noise = self.plan.sigma_of_sum(task, public, n_answers=n_clients)
        following = replace(following, noise=noise)
        values = np.asarray(total[task], dtype=np.float64) * public.grid
        if task == SIZES:
            return replace(following, row_bound=row_bound_from_histogram(values, self.n_features, sigma=noise))
        if task == COLUMNS:
            assert state.row_bound is not None
            paired, bound = columns_to_pair(values, sigma=noise, row_bound=state.row_bound)
            # A bound that was agreed on stands.
            return replace(following, columns=paired, pair_bound=self.plan.privacy.row_bound or bound)
        if task == COOCCURRENCE:
            released = NoisyCooccurrence.of(values, self._width(state), grid=1.0, sigma=noise)
            found = find_candidates(released, self.n_components, factorize=self._factorize, seed=state.seed)
            following = replace(following, candidates=self._widened(found.V, state), bound=found.bound)
            if STATISTICS not in self.plan.shares:
                return following
            return replace(following, rounds=self._rounds.from_components(self._components(following)))
        if task == STATISTICS:
            assert state.rounds is not None
            return self._after_round(replace(following, rounds=self._rounds.combine(values, state.rounds)))
        if task == SCORES:
            return replace(following, counts=told_counts(read_counts(values, self.n_features)))
        return replace(following, chosen=choose(values, sigma=noise))

    def record(self, state: ServerState) -> Mapping[str, float]:
        """Return what was read off the last release; all of it follows from what was released."""
        if state.assigned:
            return {}
        if state.counts is not None:
            return {"noise": state.noise, **summed_counts(state.counts).scores()}
        if (
            state.rounds is not None
            and state.rounds.played
            and (state.chosen is None or CHOICE not in self.plan.shares)
        ):
            V = state.rounds.V
            return {"noise": state.noise, "integrality_gap": integrality_gap(V), "statistics": state.rounds.played}
        if state.chosen is not None:
            return {"noise": state.noise, "chosen": state.chosen}
        if state.candidates is not None:
            return {"noise": state.noise, "candidates": len(state.candidates), "gain_bound": state.bound}
        if state.columns is not None:
            assert state.pair_bound is not None
            return {"noise": state.noise, "columns": state.columns.size, "pair_bound": state.pair_bound}
        return {} if state.row_bound is None else {"noise": state.noise, "row_bound": state.row_bound}

    def outcome(self, state: ServerState) -> Outcome:
        """Return the chosen components; exact counts stay with the clients."""
        if state.candidates is None:
            raise InputError("nothing was found yet: the releases are not complete")
        return Outcome(
            components=self._components(state),
            relaxed=None,
            integrality_gap=0.0,
            converged=True,
            n_iter=state.round - int(state.assigned),
            counts=None if state.counts is None else summed_counts(state.counts),
            supports=None,
        )

    @property
    def _rounds(self) -> Rounds:
        privacy = self.plan.privacy
        # What co-occurrence found is Boolean: its rounds need no way from far away.
        first = {} if COOCCURRENCE not in self.plan.shares else {"first": LAST}
        return Rounds(privacy.n_rounds, privacy.statistics_bounds, **first)

    def _task(self, state: ServerState) -> str | None:
        shares = self.plan.shares
        if COOCCURRENCE in shares and state.row_bound is None:
            return SIZES
        if COOCCURRENCE in shares and state.candidates is None:
            return COLUMNS if self.n_features > WIDE and state.columns is None else COOCCURRENCE
        if state.rounds is not None and not self._rounds.over(state.rounds):
            return STATISTICS
        if state.chosen is None:
            return CHOICE
        if SCORES in shares and state.counts is None:
            return SCORES
        return None if state.assigned else ASSIGN

    def _after_round(self, state: ServerState) -> ServerState:
        """Make a candidate of the last round's components; the only one, if there is no co-occurrence."""
        assert state.rounds is not None
        if not self._rounds.over(state.rounds):
            return state
        V = self._rounds.components(state.rounds)[None]
        if state.candidates is None:
            return replace(state, candidates=V, chosen=0)
        return replace(state, candidates=np.concatenate([state.candidates, V]))

    def _score_bound(self, state: ServerState) -> float:
        privacy = self.plan.privacy
        if privacy.score_bound is not None:
            return float(privacy.score_bound)
        return float(privacy.data_bound**2 if state.row_bound is None else 2 * state.row_bound)

    def _public(self, task: str, state: ServerState) -> RecordSum:
        """Return the sum that no records give: its grid and its bound are those of every client."""
        nobody = BinaryMatrix.of(np.zeros((0, self._width(state) if task == COOCCURRENCE else self.n_features), bool))
        if task == SIZES:
            return row_size_histogram(nobody)
        if task == CHOICE:
            assert state.candidates is not None
            return clipped_gains(nobody, list(state.candidates), state.bound)
        if task == STATISTICS:
            return round_statistics(nobody, np.zeros((0, self.n_components)), self.plan.privacy.statistics_bounds)
        if task == SCORES:
            nothing = np.zeros((0, self.n_components), dtype=bool)
            return clipped_counts(nobody, nothing, self._components(state), self._score_bound(state))
        return (weighted_column_counts if task == COLUMNS else weighted_cooccurrence)(nobody, self._row_bound(state))

    def _row_bound(self, state: ServerState) -> int:
        """Return B for what is asked next."""
        assert state.row_bound is not None
        return state.row_bound if state.pair_bound is None else state.pair_bound

    def _width(self, state: ServerState) -> int:
        return self.n_features if state.columns is None else int(state.columns.size)

    def _widened(self, V: NDArray[np.bool_], state: ServerState) -> NDArray[np.bool_]:
        """Return candidates over the columns that were asked for as candidates over all."""
        if state.columns is None:
            return V
        whole = np.zeros((*V.shape[:2], self.n_features), dtype=bool)
        whole[:, :, state.columns] = V
        return whole

    def _factorize(self, A: BinaryMatrix, n_components: int, seed: int) -> NDArray[np.bool_]:
        recipe = federated_bmf(
            A.shape[1], n_components, objective="hamming", effort=self.effort, alone=True, node_cap=self.node_cap
        )
        return play_alone(recipe, A, seed=seed).components

    @staticmethod
    def _components(state: ServerState) -> NDArray[np.bool_]:
        assert state.candidates is not None
        return np.asarray(state.candidates[state.chosen or 0])
