"""Refinement: flip entries of one or several Boolean V by their summed gains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.protocol import Request, Update
from felb.federated.steps.assignment import assignment_counts, read_counts, round_cells
from felb.federated.steps.relaxed import check_memory
from felb.federated.steps.state import (
    Cost,
    Objective,
    Solution,
    as_array,
    best_so_far,
    have_same_cells,
    required,
    stream,
)
from felb.federated.tasks import (
    COMPONENTS,
    COUNTS,
    MOST,
    ROWS,
    SUPPORTS,
    WEIGHTS,
    Input,
    Output,
    TaskSpec,
    Work,
    check_counts,
)
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import FactorMasks
from felb.kernels.gains import count_switches
from felb.privacy.disclosure import round_counts, round_members

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from numpy.typing import NDArray

    from felb.federated.protocol import Sums, Values


# -- Refinement: flip entries of a Boolean V by their summed gain ----------------------------------------------------
#
# Clients assign their rows to V and send, for every entry V_lj, what switching it on instead of off would gain given
# all else (see `felb.kernels.gains`). Given U, columns do not interact, and within a column a single flip of positive
# gain always helps. So the best flip of every column is made, and each further improving one with probability ½, since
# two of them may cover the same cells. What is kept is the V with the smallest summed objective that was measured.

REFINE_ROUNDS = 10


def are_whole(values: Values) -> bool:
    """Tell whether gains are whole numbers for the requested weights of cells."""
    return all(float(weight).is_integer() for weight in values["weights"])


def are_not_whole(values: Values) -> bool:
    """Tell whether ones and zeros that would be covered are sent apart."""
    return not are_whole(values)


def gain_outputs(*stacked: str) -> dict[str, Output]:
    """Return the arrays that tell counts of V and gains of its entries; of several V, `stacked` by their number."""
    gains: tuple[str, ...] = (*stacked, "k", "m")
    return {
        "counts": replace(COUNTS, shape=(*stacked, 4)),
        "supports": replace(SUPPORTS, shape=(*stacked, "k")),
        "gains": Output("i", gains, low=-MOST, when=are_whole, made_of="named"),
        "ones": Output("i", gains, high="rows", when=are_not_whole, made_of="named"),
        "zeros": Output("i", gains, high="rows", when=are_not_whole, made_of="named"),
    }


def sum_flip_gains(work: Work) -> tuple[None, Update]:
    """Counts for the requested V, and the gains of its entries.

    The rows are assigned anew, so that the response depends on the request and the rows alone. Gains are one integer
    each for whole weights; otherwise the ones and the zeros that would be covered are sent apart and weighed by the
    server, so that sums stay exact.
    """
    return None, sum_assigned_gains(work, work.components)


FLIP_GAINS = TaskSpec(
    "flip_gains",
    "refinement",
    sum_flip_gains,
    "what switching each entry of V would gain, right and wrong cells, and how many records have each component",
    {"components": COMPONENTS, "weights": WEIGHTS},
    gain_outputs(),
    relations=check_counts,
    by_rows=True,
)


def sum_assigned_gains(work: Work, V: NDArray[np.bool_]) -> Update:
    """Assign the rows to V and return what may be told of it: counts, and gains of the entries of V.

    Under disclosure rules, an entry that too few rows decide gains nothing, and if nearly all of its rows have a one,
    or a zero, all do.
    """
    one, zero = work.weights
    U = round_members(assign_rows(work.rows, V, weight_one=one, weight_zero=zero), work.least)
    factors = FactorMasks.of(U, V)
    ones, cells = count_switches(work.rows, factors)
    update = assignment_counts(work.rows, U, V, factors)
    supports = {}
    if work.least > 1:
        update["counts"], supports["counts"] = round_cells(work, factors, update["counts"])
        told = ("gains",) if are_whole(work.values) else ("ones", "zeros")
        supports |= dict.fromkeys(told, cells.copy())
        ones = round_counts(ones, cells, work.least)
    if one.is_integer() and zero.is_integer():
        ones *= int(one) - int(zero)  # in place: new memory takes longer than the sums
        cells *= int(zero)
        ones += cells
        update["gains"] = ones
    else:
        update |= {"ones": ones, "zeros": cells - ones}
    return Update(update, supports=supports)


def weigh_gains(total: Mapping[str, NDArray[Any]], weights: tuple[float, float]) -> NDArray[np.float64]:
    """Return summed gains from either form of the message."""
    if "gains" in total:
        return total["gains"].astype(np.float64)
    return weights[0] * total["ones"] + weights[1] * total["zeros"]


def choose_flips(gains: NDArray[np.float64], V: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which entries to flip: the best improving one of every column, any other improving one with chance ½."""
    improvement = np.where(V, -gains, gains)
    improving, best = improvement > 0, improvement.argmax(axis=0)
    flips = improving & (rng.random(V.shape) < 0.5)
    columns = np.arange(V.shape[1])
    flips[best, columns] = improving[best, columns]
    return flips


def refine(
    solution: Solution,
    objective: Objective | None = None,
    *,
    rounds: int = REFINE_ROUNDS,
    memory: float = 0.0,
    seed: int = 0,
    all_clients: bool = False,
) -> Generator[Request, Sums, Solution]:
    """Refine any Boolean V, such as the outcome of another method; its counts, if known, say what cells are worth.

    Parameters
    ----------
    objective : what to minimise; the Hamming loss if None
    rounds : rounds of flips at most; one more measures the last flips
    memory : share of earlier rounds in the gains; 0 where all clients play every round. With a sample of clients,
        about ½: then the metrics of rounds are of different clients and cannot be compared, and the last V is kept
    seed : decides which improving entries are flipped together
    all_clients : ask everybody, also where a sample of the clients plays the rounds
    """
    objective = objective or Cost()
    if rounds < 0:
        raise InputError(f"refinement cannot have rounds={rounds}")
    check_memory(memory)
    required(solution.components if solution.components is not None else solution.relaxed, "a V")
    V = solution.boolean()
    weights = objective.weights(None if solution.counts is None else read_counts(solution.counts))
    best = Solution(relaxed=solution.relaxed, components=V, weights=as_array(weights))
    settled, averaged = False, None
    with best_so_far(lambda: best):
        for t in range(1, rounds + 2):
            sums = yield Request(FLIP_GAINS, components=V, weights=as_array(weights), all_clients=all_clients)
            last, counts = weights, read_counts(sums["counts"])
            weights, value = objective.weights(counts), objective.value(counts)
            gains = weigh_gains(sums, weights)
            if (
                best.value is None
                or value < best.value
                or memory > 0
                or not have_same_cells(best.counts, sums["counts"])
            ):
                best = _measured(solution, V, sums, value=value, gains=gains, weights=weights)
            if memory:
                mean = gains / sums.clients
                averaged = mean if averaged is None else memory * averaged + (1 - memory) * mean
                gains = averaged
            flips = choose_flips(gains, V, stream(seed, "refine", t))
            sums.report(loss=required(best.value, "a measured V"), measured=value, flips=int(np.count_nonzero(flips)))
            settled = not flips.any() and last == weights
            if settled:
                break
            V = V ^ flips
    return replace(best, settled=settled)


def _measured(
    solution: Solution,
    V: NDArray[np.bool_],
    sums: Sums,
    *,
    value: float,
    gains: NDArray[np.float64],
    weights: tuple[float, float],
) -> Solution:
    return Solution(
        relaxed=solution.relaxed,
        components=V,
        counts=sums["counts"],
        supports=sums["supports"],
        exclusive=np.where(V, gains, 0.0).sum(axis=1),
        value=value,
        weights=as_array(weights),
    )


# -- Several V of the same size that are refined in parallel: one round sends all of them and receives all sums ------


def sum_stacked_gains(work: Work) -> tuple[None, Update]:
    """Return the sums of `sum_assigned_gains` for each of the requested candidates, stacked, and the number of rows."""
    parts = [sum_assigned_gains(work, V) for V in np.asarray(work.values["candidates"], dtype=bool)]
    stacked = {name: np.array([part.values[name] for part in parts]) for name in parts[0].values}
    supports = {name: np.array([part.supports[name] for part in parts]) for name in parts[0].supports}
    return None, Update({**stacked, "rows": np.asarray(len(work.rows))}, supports=supports)


STACKED_GAINS = TaskSpec(
    "stacked_gains",
    "local search",
    sum_stacked_gains,
    "what switching each entry would gain, for each of several V",
    {"candidates": Input("b", ("v", "k", "m")), "weights": WEIGHTS},
    {**gain_outputs("v"), "rows": ROWS},
    sizes={"v": 48},
    relations=check_counts,
    by_rows=True,
)


@dataclass(frozen=True, slots=True)
class Stack:
    """For each of several V: the one to be measured next, the best of its descendants with its metrics, its age.

    Parameters
    ----------
    V, best : candidates × components × features
    values : the objective at `best`
    counts, supports, exclusive : summed counts, records of components and exclusive gains at `best`
    ages : rounds since the start
    settled : nothing was left to flip in the last round
    """

    V: NDArray[np.bool_]
    best: NDArray[np.bool_]
    values: NDArray[np.float64]
    counts: NDArray[np.int64]
    supports: NDArray[np.int64]
    exclusive: NDArray[np.float64]
    ages: NDArray[np.int64]
    settled: NDArray[np.bool_]

    @classmethod
    def of(cls, V: NDArray[np.bool_]) -> Stack:
        """Return a stack of V that were not measured yet."""
        size = len(V)
        return cls(
            V=V,
            best=V,
            values=np.full(size, np.inf),
            counts=np.zeros((size, 4), dtype=np.int64),
            supports=np.zeros(V.shape[:2], dtype=np.int64),
            exclusive=np.zeros(V.shape[:2]),
            ages=np.zeros(size, dtype=np.int64),
            settled=np.zeros(size, dtype=bool),
        )

    def refined(
        self,
        total: Mapping[str, NDArray[Any]],
        objective: Objective,
        *,
        weights: NDArray[np.float64],
        rng: np.random.Generator,
    ) -> Stack:
        """Return the stack after a round: what is better is kept, and improving entries are flipped."""
        gains = weigh_gains(total, (float(weights[0]), float(weights[1])))
        values = np.array([objective.value(read_counts(counts)) for counts in total["counts"]])
        better = (values < self.values) | (self.counts[:, 3] != total["counts"][:, 3])
        flips = np.array([choose_flips(gain, V, rng) for gain, V in zip(gains, self.V, strict=True)])
        return Stack(
            V=self.V ^ flips,
            best=np.where(better[:, None, None], self.V, self.best),
            values=np.where(better, values, self.values),
            counts=np.where(better[:, None], total["counts"], self.counts),
            supports=np.where(better[:, None], total["supports"], self.supports),
            exclusive=np.where(better[:, None], np.where(self.V, gains, 0.0).sum(axis=2), self.exclusive),
            ages=self.ages + 1,
            settled=np.asarray(~flips.any(axis=(1, 2))),
        )

    def with_new(self, places: NDArray[np.int64], V: NDArray[np.bool_]) -> Stack:
        """Return the stack with new V, not measured yet, in some places."""
        return self.with_part(places, Stack.of(V))

    def part(self, places: NDArray[np.int64]) -> Stack:
        """Return what is in some places."""
        return Stack(**{name: getattr(self, name)[places] for name in self.__slots__})

    def with_part(self, places: NDArray[np.int64], part: Stack) -> Stack:
        """Return the stack with another one in some places."""
        changed = {}
        for name in self.__slots__:
            array = getattr(self, name).copy()
            array[places] = getattr(part, name)
            changed[name] = array
        return replace(self, **changed)

    def solution(self, place: int, objective: Objective, *, before: Solution) -> Solution:
        """Return the best of one place as knowledge, with what is not about V taken from before."""
        counts = self.counts[place]
        return replace(
            before,
            components=self.best[place],
            counts=counts,
            supports=self.supports[place],
            exclusive=self.exclusive[place],
            value=float(self.values[place]),
            weights=as_array(objective.weights(read_counts(counts))),
            settled=False,
        )
