"""What requests and responses of each task may hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.errors import FederationError
from felb.federated.algorithms.competitors import FEDPROX, PROXSKIP, SCAFFOLD
from felb.federated.algorithms.felb import LOCAL_FACTOR
from felb.federated.algorithms.post_hoc import ALIGNED_COMPONENTS, LOCAL_COMPONENTS
from felb.federated.algorithms.private import FIRST, LAST
from felb.federated.steps.assignment import ASSIGN, EXACT_COUNTS
from felb.federated.steps.belief import ASSIGN_BY_BELIEF, BELIEF_STATISTICS, BELIEF_THRESHOLD_COUNTS
from felb.federated.steps.refine import FLIP_GAINS, STACKED_GAINS
from felb.federated.steps.relaxed import CUT_COUNTS, FACTOR_STATISTICS, THRESHOLD_COUNTS
from felb.federated.steps.reseed import CANDIDATE_GAINS, PAIR_COUNTS, RESIDUAL_COUNTS, SHARED_COUNTS
from felb.federated.steps.starts import EXTRA, GRAM_SKETCH, SIGN_NORMS
from felb.federated.steps.state import Cost
from felb.optim.belief import MAX_ROUNDS
from felb.privacy.spec import CHOICE, COLUMNS, COOCCURRENCE, SCORES, SIZES, STATISTICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.protocol import Algorithm, Request
    from felb.privacy.spec import PrivacyPlan

    Values = Mapping[str, NDArray[Any]]


# -- The tasks of all algorithms in one table: the phase of a run each belongs to, and what a client tells in it -----
#
# A reviewer reads here what may leave a client at all. `tests/contracts/test_algorithm_contract.py` checks that no
# algorithm asks for another task and that no task tells another array.


class TaskEntry(NamedTuple):
    """A task in words.

    Parameters
    ----------
    phase : of a run, as it is shown to people
    arrays : all that an update of the task may hold; under a privacy specification only some of them leave
    """

    phase: str
    arrays: tuple[str, ...]


INITIALISATION, THRESHOLDS, RESEEDING, LOCAL_SEARCH, BELIEF, LOCAL_STEPS, ASSIGNMENT = (
    "initialisation",
    "threshold search",
    "reseeding",
    "local search",
    "belief propagation",
    "local steps",
    "assignment",
)

TASKS: dict[str, TaskEntry] = {
    # The default method, federated NMF and refinement: sums over rows of whole numbers.
    "gram_sketch": TaskEntry(INITIALISATION, ("sketch",)),
    "sign_norms": TaskEntry(INITIALISATION, ("positive", "negative")),
    "factor_statistics": TaskEntry("relaxed factorization", ("AtU", "UtU", "sums", "ones", "filled")),
    "threshold_counts": TaskEntry(THRESHOLDS, ("covered", "claimed", "members", "ones", "cells", "rows")),
    "cut_counts": TaskEntry(THRESHOLDS, ("counts",)),
    "flip_gains": TaskEntry("refinement", ("counts", "supports", "gains", "ones", "zeros")),
    "residual_counts": TaskEntry(RESEEDING, ("residual", "rows")),
    "pair_counts": TaskEntry(RESEEDING, ("pairs",)),
    "candidate_gains": TaskEntry(RESEEDING, ("ones", "zeros")),
    "shared_counts": TaskEntry("rank selection", ("shared",)),
    "stacked_gains": TaskEntry(LOCAL_SEARCH, ("counts", "supports", "gains", "ones", "zeros", "rows")),
    "exact_counts": TaskEntry("comparison of results", ("counts", "supports")),
    "centralized_search": TaskEntry(LOCAL_SEARCH, ("counts", "supports", "components")),
    "belief_statistics": TaskEntry(BELIEF, ("evidence", "members", "cells", "rows")),
    "belief_threshold_counts": TaskEntry(
        BELIEF, ("claimed", "expected", "covered", "members", "tp", "fp", "ones", "cells")
    ),
    # FELB and its competitors: factors on a grid.
    "local_factor": TaskEntry(LOCAL_STEPS, ("V", "curvature", "loss")),
    "fedprox": TaskEntry(LOCAL_STEPS, ("V", "curvature", "loss")),
    "scaffold": TaskEntry(LOCAL_STEPS, ("V", "control", "curvature", "curvature_change", "loss")),
    "proxskip": TaskEntry(LOCAL_STEPS, ("V", "curvature", "loss")),
    # Post-hoc methods: Boolean components.
    "local_components": TaskEntry("local factorization", ("V", "unfinished")),
    "aligned_components": TaskEntry("alignment", ("V", "unfinished")),
    # Private sums over records.
    "sizes": TaskEntry("record sizes", ("sizes",)),
    "columns": TaskEntry("column counts", ("columns",)),
    "cooccurrence": TaskEntry("co-occurrence", ("cooccurrence",)),
    "statistics": TaskEntry("noisy statistics", ("statistics",)),
    "choice": TaskEntry("choice of a candidate", ("choice",)),
    "scores": TaskEntry("scores", ("scores",)),
    # The end of every run.
    "assign": TaskEntry(ASSIGNMENT, ("counts", "supports")),
    "assign_by_belief": TaskEntry(ASSIGNMENT, ("counts", "supports")),
}


def phase_of(task: str) -> str:
    """Return the phase that a task belongs to; the name of one that is not in the table, in words.

    Examples
    --------
    >>> phase_of("gram_sketch"), phase_of("column_counts")
    ('initialisation', 'column counts')
    """
    return TASKS[task].phase if task in TASKS else task.replace("_", " ")


def rounds_by_phase(rounds: Mapping[str, int]) -> dict[str, int]:
    """Add up numbers of rounds by task to numbers by phase, in the order of the tasks.

    Examples
    --------
    >>> rounds_by_phase({"gram_sketch": 3, "sign_norms": 1, "local_factor": 8, "assign": 1})
    {'initialisation': 4, 'local steps': 8, 'assignment': 1}
    """
    counted: dict[str, int] = {}
    for task, count in rounds.items():
        phase = phase_of(task)
        counted[phase] = counted.get(phase, 0) + count
    return counted


def declared_arrays(algorithm: Algorithm) -> dict[str, tuple[str, ...]]:
    """Return what the clients of an algorithm may tell, by task; a task that is declared nowhere may tell nothing."""
    own = algorithm.arrays
    return {task: own[task] if task in own else TASKS[task].arrays if task in TASKS else () for task in algorithm.tasks}


# -- What a request of each task may hold: one table, derived from the plan, checked before anything is computed -----
#
# A server that has turned could ask a task something the algorithm never asks: weights that turn a sum into a count of
# rows with a chosen set of items, a bound so large that noise overflows, a search without end. So every value of a
# request has a type, a shape and a range here, and a task that is not in the table is not done.
#
# `n` stands for the number of features, which the plan fixes; other letters for sizes that have a limit of their own
# and must be the same wherever the letter stands in a request.

MOST_NODES = 10_000
"""Of the search for the best assignment of a row; a site's own limit, whatever a plan says."""
MOST_STEPS = 100_000
MOST_CANDIDATES, MOST_STACKED, MOST_PATTERNS, MOST_SEEDS, MOST_LEVELS = 16, 48, 2048, 256, 32
LARGEST = 2.0**40
"""Of a real number that has no natural bound, such as an entry of a non-negative factor."""
INFINITE = 2.0**501
"""The spectral init tells negligible singular values as 2^500."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan says about the size of its requests.

    Parameters
    ----------
    n_features, n_components : m, and the most components
    node_cap : the plan's limit of the search for a row's assignment
    rounds : most rounds of local steps
    weights : what covering a one and a zero may be worth
    f1 : weights may also be those of the F1 objective, (1 − F/2, −F/2)
    belief : weights may also be log-likelihood ratios
    privacy : bounds of private releases
    """

    n_features: int
    n_components: int
    node_cap: int = 1_000
    rounds: int = MOST_STEPS
    weights: frozenset[tuple[float, float]] = frozenset({(1.0, -1.0)})
    f1: bool = False
    belief: bool = False
    privacy: PrivacyPlan | None = None

    @classmethod
    def of(
        cls, n_features: int, n_components: int, parameters: Mapping[str, Any], *, privacy: PrivacyPlan | None
    ) -> Limits:
        """Read the limits of a plan's parameters."""
        positive, negative = (float(parameters.get(f"false_{kind}_cost", 1.0)) for kind in ("positive", "negative"))
        cost = Cost.of(positive, negative, n_features)
        objective = parameters.get("objective", "auto")
        return cls(
            n_features,
            n_components,
            node_cap=min(int(parameters.get("node_cap", 1_000)), MOST_NODES),
            rounds=int(parameters.get("max_iter", MOST_STEPS) or MOST_STEPS),
            weights=frozenset({cost.weights(None), (1.0, -1.0)}),
            f1=objective == "f1",
            belief=objective == "recover",
            privacy=privacy,
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """What one value of a request must be.

    Parameters
    ----------
    kind : "b" Boolean, "i" whole, "f" real
    shape : numbers and letters
    low, high : the range of its entries, ends included
    optional : it may be left out
    unique : no entry twice
    exactly : if given, its only allowed value
    """

    kind: str
    shape: tuple[str | int, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    optional: bool = False
    unique: bool = False
    exactly: tuple[float, ...] | None = None


Table = dict[str, dict[str, Rule]]


def request_table(limits: Limits) -> Table:
    """Return the rules of all tasks under a plan."""
    m, tiny = limits.n_features, 1e-300
    V = Rule("b", ("k", "n"))
    relaxed = Rule("f", ("k", "n"), 0.0, LARGEST)
    boxed = Rule("f", ("k", "n"), 0.0, 1.0)
    weights = Rule("f", (2,), -LARGEST, LARGEST)
    cover = {"components": V, "weights": weights}
    nodes = Rule("i", (), 1, limits.node_cap)
    steps = {
        "V": boxed,
        "t": Rule("i", (), 0, limits.rounds),
        "kappa": Rule("f", (), 0.0, LARGEST),
        "lam": Rule("f", (), 0.0, LARGEST),
        "steps": Rule("i", (), 1, MOST_STEPS),
    }
    belief = {
        "theta": Rule("f", ("k", "n"), -LARGEST, LARGEST),
        "noise": Rule("f", (2,), tiny, 1.0),
        "row_rates": Rule("f", ("k",), tiny, 1.0),
        "column_rate": Rule("f", (), tiny, 1.0),
        "rounds": Rule("i", (), 0, MAX_ROUNDS),
        "threshold": Rule("f", (), 0.0, 1.0, optional=True),
    }
    share = Rule("f", (), tiny, 1.0, optional=True)
    return {
        ASSIGN: {
            "components": V,
            "weights": Rule("f", (2,), -LARGEST, LARGEST, optional=True),
            "node_cap": Rule("i", (), 1, limits.node_cap, optional=True),
        },
        EXACT_COUNTS: {**cover, "node_cap": nodes},
        LOCAL_FACTOR: {
            "t": Rule("i", (), 0, limits.rounds),
            "V": Rule("f", ("k", "n"), 0.0, 1.0, optional=True),
        },
        LOCAL_COMPONENTS: {},
        ALIGNED_COMPONENTS: {"reference": Rule("i", ("k", "n"), -(2**31), 2**31)},
        GRAM_SKETCH: {"Q": Rule("f", ("n", "q"), -1.001, 1.001)},
        SIGN_NORMS: {"vectors": Rule("f", ("n", "k"), -1.1, 1.1), "values": Rule("f", ("k",), tiny, INFINITE)},
        FACTOR_STATISTICS: {"V": relaxed},
        THRESHOLD_COUNTS: {
            "V": relaxed,
            "scales": Rule("f", ("k",), tiny, LARGEST),
            "levels": Rule("f", ("l",), 0.0, 1.0),
        },
        CUT_COUNTS: {"V": relaxed, "shares": Rule("f", ("l",), 0.0, 1.0), "weights": weights},
        FLIP_GAINS: cover,
        SHARED_COUNTS: cover,
        STACKED_GAINS: {"candidates": Rule("b", ("v", "k", "n")), "weights": weights},
        RESIDUAL_COUNTS: cover,
        PAIR_COUNTS: {**cover, "seeds": Rule("i", ("s",), 0, m - 1, unique=True)},
        CANDIDATE_GAINS: {**cover, "candidates": Rule("b", ("p", "n"))},
        BELIEF_STATISTICS: {**belief, "share": share},
        BELIEF_THRESHOLD_COUNTS: {**belief, "share": share},
        ASSIGN_BY_BELIEF: belief,
        FEDPROX: {**steps, "gamma": Rule("f", (), 0.0, LARGEST)},
        SCAFFOLD: {**steps, "control": Rule("f", ("k", "n"), -LARGEST, LARGEST)},
        PROXSKIP: {**steps, "mean_steps": Rule("i", (), 1, MOST_STEPS)},
        **_private_table(limits, nodes),
    }


def _private_table(limits: Limits, nodes: Rule) -> Table:
    """Return the rules of the private tasks: bounds are those of the specification, or at most what m allows."""
    if limits.privacy is None:
        return {}
    privacy, m = limits.privacy.privacy, limits.n_features
    bound = Rule("i", (), 1, m) if privacy.row_bound is None else Rule("i", (), exactly=(float(privacy.row_bound),))
    scores = [float(privacy.data_bound**2), 2.0 * m]
    if privacy.row_bound is not None:
        scores = [2.0 * privacy.row_bound]
    if privacy.score_bound is not None:
        scores = [float(privacy.score_bound)]
    told = privacy.statistics_bounds
    return {
        SIZES: {},
        COLUMNS: {"row_bound": bound},
        COOCCURRENCE: {"row_bound": bound, "columns": Rule("i", ("j",), 0, m - 1, optional=True, unique=True)},
        STATISTICS: {
            "V": Rule("f", ("k", "n"), 0.0, 1.0),
            "lam": Rule("f", (), FIRST * (1 - 1e-9), LAST * (1 + 1e-9)),
            "bounds": Rule("f", (3,), exactly=(told.c, told.s, told.w)),
        },
        CHOICE: {
            "candidates": Rule("b", ("c", "k", "n")),
            "bound": Rule("f", (), 2.0**-20, m * math.sqrt(MOST_CANDIDATES)),
        },
        SCORES: {
            "components": Rule("b", ("k", "n")),
            "node_cap": nodes,
            "bound": Rule("f", (), 1.0, max(scores)),
        },
    }


def check_request(request: Request, limits: Limits, table: Table | None = None) -> None:
    """Raise unless a request is one that the plan's algorithm could make; the error names no value of it."""
    rules = (request_table(limits) if table is None else table).get(request.task)
    if rules is None:
        raise FederationError("the request is of a task that no plan has")
    missing = {name for name, rule in rules.items() if not rule.optional} - request.values.keys()
    if missing or not request.values.keys() <= rules.keys():
        raise FederationError("the request does not hold the values of its task")
    most = {
        "n": limits.n_features,
        "k": limits.n_components,
        "q": limits.n_components + EXTRA,
        "c": MOST_CANDIDATES,
        "v": MOST_STACKED,
        "p": MOST_PATTERNS,
        "s": min(MOST_SEEDS, limits.n_features),
        "l": MOST_LEVELS,
        "j": limits.n_features,
    }
    sizes: dict[str, int] = {"n": limits.n_features}
    for name, value in request.values.items():
        _check_value(name, np.asarray(value), rules[name], most, sizes)
    if "weights" in request.values:
        _check_weights(np.asarray(request.values["weights"]), limits, assigning=request.task == ASSIGN)


def _check_value(name: str, value: NDArray[Any], rule: Rule, most: Mapping[str, int], sizes: dict[str, int]) -> None:
    kinds = {"b": "b", "i": "iu", "f": "fiu"}[rule.kind]
    if value.dtype.kind not in kinds:
        raise FederationError(f"{name} of the request is of another type than its task's")
    if value.ndim != len(rule.shape):
        raise FederationError(f"{name} of the request has another shape than its task's")
    for size, want in zip(value.shape, rule.shape, strict=True):
        expected = sizes.setdefault(want, size) if isinstance(want, str) else want
        if size != expected or (isinstance(want, str) and size > most[want]):
            raise FederationError(f"{name} of the request has another shape than its task's")
    if rule.kind == "b" or not value.size:
        return
    if not np.all(np.isfinite(value)) or value.min() < rule.low or value.max() > rule.high:
        raise FederationError(f"{name} of the request lies outside of what its task allows")
    if rule.unique and len(np.unique(value)) != value.size:
        raise FederationError(f"{name} of the request holds an entry twice")
    if rule.exactly is not None and tuple(value.ravel().astype(np.float64).tolist()) != rule.exactly:
        raise FederationError(f"{name} of the request is not what the plan says")


def _check_weights(value: NDArray[Any], limits: Limits, *, assigning: bool) -> None:
    """Refuse weights of cells that the objective of the plan does not have."""
    one, zero = (float(weight) for weight in value)
    if (one, zero) in limits.weights:
        return
    if limits.f1 and 0.5 <= one < 1 and one - zero == 1:
        return
    if limits.belief and assigning and 0 < one <= 64 and -64 <= zero < 0:
        return
    raise FederationError("weights of the request are not those of the plan's objective")


# -- What a response of each task may hold: bounds on its values, and what must hold between them --------------------
#
# The sum of a round is as good as its worst part. Shapes and types are known from a rehearsal of the task (see the
# engine's response validation); here are the values: counts that no rows can have, entries of V outside of the box,
# pairs that occur more often than either of two. All of it is linear, or a bound that grows with the number of sites,
# so that a sum over sites is held to it as well, where nobody sees its parts. What is left to a site that lies is to
# have other rows than it has.

MOST_ROWS = 1 << 32
"""Of one site."""
MOST = 1 << 53
"""Of a number in a response: sums of five hundred of them stay within int64, and a whole one is exact as a double."""
MOST_ENTRY = 1000
"""Of a factor that is not kept in the box, as in the literal setting of FELB."""
ROUNDING = 1e-4
"""Entries of V are rounded to a grid, and averages of them weighed; so the box is this much wider."""
COUNTS = frozenset(
    {
        "counts", "supports", "residual", "rows", "pairs", "ones", "zeros", "covered", "claimed", "members", "cells",
        "shared", "tp", "fp", "positive", "negative", "unfinished", "filled",
    }
)  # fmt: skip
"""Values that count something and so are never negative."""
BY_ROW = frozenset({"supports", "residual", "pairs", "shared"})
"""Counts of rows: at most as many as a site has."""


def check_response(
    values: Values, request: Request, *, n_features: int, noisy: bool, rows: int | None = None, sites: int = 1
) -> None:
    """Raise unless the values can be those of some rows: of a response, or of the sum over a number of `sites`.

    `rows` is what the site has told before. Of `noisy` values only the size is known.
    """
    for name, value in values.items():
        if not value.size:
            continue
        if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
            raise FederationError(f"{name} holds NaN or infinity")
        if max(abs(value.max().item()), abs(value.min().item())) > MOST * sites:
            raise FederationError(f"{name} holds a number that no data can have")
        if not noisy and name in COUNTS and value.min() < 0:
            raise FederationError(f"{name} holds a negative count")
    if not noisy:
        _check_factors(values, request, sites)
        _check_counts(values, request, (n_features, sites), rows)


def rows_told(values: Values) -> int | None:
    """Return how many rows a response says its site has, if it does."""
    return int(values["rows"]) if "rows" in values and values["rows"].size == 1 else None


def _check_factors(values: Values, request: Request, sites: int) -> None:
    V = values.get("V")
    if V is None:
        return
    low, high = -ROUNDING * sites, (1 + ROUNDING) * sites
    if request.task in (LOCAL_COMPONENTS, ALIGNED_COMPONENTS):
        _require(bool(((V >= 0) & (sites >= V) & (np.rint(V) == V)).all()), "V holds other values than 0 and 1")
    elif request.task == LOCAL_FACTOR and "curvature" in values:
        curvature = values["curvature"].astype(np.float64)
        _require(bool((curvature >= 0).all()), "curvature is negative")
        top = curvature[:, None] * (1 + ROUNDING) + sites
        _require(bool(((V >= 0) & (top >= V)).all()), "V lies outside of [0, 1]")
    elif request.task == LOCAL_FACTOR:
        _require(bool(((low <= V) & (MOST_ENTRY * sites >= V)).all()), f"V lies outside of [0, {MOST_ENTRY}]")
    elif request.task == FEDPROX:
        _require(bool(((low <= V) & (high >= V)).all()), "V lies outside of [0, 1]")
    if "loss" in values:
        _require(bool((values["loss"] >= -sites).all()), "a sum of squares is negative")


def _check_counts(values: Values, request: Request, size: tuple[int, int], rows: int | None) -> None:
    n_features, sites = size
    told = rows_told(values)
    if told is not None:
        _require(0 <= told <= MOST_ROWS * sites, "rows is no number of rows")
        _require(rows is None or told == rows, "the number of rows has changed")
        rows = told
    most = MOST_ROWS * sites if rows is None else rows
    for name in BY_ROW & values.keys():
        _require(bool((values[name] <= most).all()), f"{name} exceeds the number of rows")
    if "counts" in values and values["counts"].shape[-1] == 4:
        tp, fp, fn, cells = np.moveaxis(values["counts"], -1, 0)
        _require(bool((tp + fp + fn <= cells).all()), "counts exceed the number of cells")
        _require(bool((cells <= most * n_features).all()), "cells exceed rows times features")
    if request.task == PAIR_COUNTS:
        pairs, seeds = values["pairs"], np.asarray(request.values["seeds"])
        own = pairs[np.arange(len(seeds)), seeds]
        _require(bool((pairs <= own[:, None]).all()), "pairs occur more often than one of them")
    if request.task == SHARED_COUNTS:
        shared = values["shared"]
        own = np.diagonal(shared)
        _require(bool((shared <= np.minimum(own[:, None], own)).all()), "pairs occur more often than one of them")
        _require(bool((shared == shared.T).all()), "shared is not symmetric")
    if request.task == THRESHOLD_COUNTS:
        _require(bool((values["covered"] <= values["claimed"]).all()), "covered exceeds claimed")
        _require(bool((values["covered"] <= values["ones"]).all()), "covered exceeds the number of ones")
        _require(bool((values["claimed"] <= values["cells"]).all()), "claimed exceeds the number of cells")
        _require(bool(values["ones"] <= values["cells"]), "ones exceed the number of cells")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise FederationError(otherwise)
