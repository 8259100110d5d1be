"""Stability of components: fit a model again on resampled records and see which components come back."""

from __future__ import annotations

import json
import math
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from felb.centralized.base import LARGEST_SEED
from felb.data.binary import BinaryMatrix
from felb.errors import ConvergenceWarning, InputError
from felb.federated.protocol import RESAMPLE_STREAM, random_stream
from felb.kernels.assign import assign_rows
from felb.metrics.comparison import NO_MATCH, match_components
from felb.progress import steps_shown
from felb.records import Natural, read_record, replacing
from felb.sklearn.base import FederatedEstimator
from felb.sklearn.federated import FederatedBMF

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from felb.sklearn.base import BooleanFactorization


# -- `Stability`: how often refits found the components of a model again, as a record that can be stored -------------

FORMAT = "felb-stability-1"
FILE = "stability.json"
"""In the folder of a result."""
FOUND = 0.5
"""A component is found by a refit if its match is at least so far on the way from chance (0) to identity (1)."""
SAME = 0.75
"""Jaccard index from which a component of a trial counts as the same, where the cheapest refit is chosen."""
TAILS = (2.5, 97.5)
"""Percentiles between which 95% of the refits lie."""
DIGITS = 4
"""Decimals of the stored probability of a feature."""


@dataclass(frozen=True)
class Stability:
    """How often the components of a model are found again in refits on resampled records.

    Each refit b has components W_b, which are matched one to one with those of the model, V. The match of component l
    is J_bl = |V_l ∩ W_b,σ(l)| / |V_l ∪ W_b,σ(l)|. Random sets of the same sizes a and b among m features share ab/m
    features on average, which gives the chance C_bl = (ab/m) / (a + b − ab/m). The component is found by the refit if
    (J_bl − C_bl) / (1 − C_bl) >= 1/2: at least half of the way from chance to identity.

    Parameters
    ----------
    match : J, refits × components
    features : components × features, share of refits that have found the component and in which it has the feature
    records : records × components, share of refits that have found the component and in which the record has it; None
        where it is not known, because it stays with the records
    seed : of the resampling
    chance : C, refits × components; None if it is not known, and then 0 is taken for it

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 30, 3, noise=0.02, seed=0)
    >>> model = felb.FederatedBMF(3, random_state=0).fit(data.A)
    >>> felb.stability(model, data.A, n_resamples=4).found
    array([1., 1., 1.])
    """

    match: NDArray[np.float64]
    features: NDArray[np.float64]
    records: NDArray[np.float64] | None
    seed: int
    chance: NDArray[np.float64] | None = None

    @property
    def n_resamples(self) -> int:
        """Number of refits."""
        return len(self.match)

    @cached_property
    def found(self) -> NDArray[np.float64]:
        """Share of refits that have found each component."""
        return np.asarray(is_found(self.match, 0.0 if self.chance is None else self.chance).mean(axis=0))

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """Mean match of each component."""
        return np.asarray(self.match.mean(axis=0))

    @cached_property
    def interval(self) -> NDArray[np.float64]:
        """Between which values 95% of the matches of each component lie, components × 2."""
        return np.asarray(np.percentile(self.match, TAILS, axis=0).T)

    def rows(self) -> list[dict[str, Any]]:
        """Return the table: one row for each component."""
        columns = {"found": self.found, "match": self.mean, "low": self.interval[:, 0], "high": self.interval[:, 1]}
        if self.chance is not None:
            columns["chance"] = self.chance.mean(axis=0)
        return [
            {"component": number, **{name: float(values[number]) for name, values in columns.items()}}
            for number in range(self.match.shape[1])
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything but the probabilities of records, which are about persons, as plain data."""
        return {
            "format": FORMAT,
            "n_resamples": self.n_resamples,
            "seed": self.seed,
            "components": self.rows(),
            "match": self.match.tolist(),
            "chance": None if self.chance is None else self.chance.tolist(),
            "features": np.round(self.features, DIGITS).tolist(),
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file; probabilities of records are left out."""
        with replacing(Path(path)) as partial:
            partial.write_text(json.dumps(self.to_json(), allow_nan=False), encoding="utf-8")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Stability:
        """Read a file that `write` has written."""
        stored = read_record(path, _Stored, advice="run `felb stability` again")
        match, features = (np.asarray(values, dtype=np.float64) for values in (stored.match, stored.features))
        chance = match if stored.chance is None else np.asarray(stored.chance, dtype=np.float64)
        shapes = {match.shape, chance.shape}
        if features.ndim != 2 or shapes != {(stored.n_resamples, len(features))}:
            raise InputError(f"{path} is damaged (its tables have different sizes); run `felb stability` again")
        return cls(match, features, None, stored.seed, None if stored.chance is None else chance)


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in stability.json."""

    format: str
    n_resamples: Natural
    seed: Natural
    components: list[dict[str, Any]]
    match: list[list[float]]
    features: list[list[float]]
    chance: list[list[float]] | None = None

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"the format is {self.format!r}, not {FORMAT!r}")


# -- Stability of components: fit a model again on resampled records and see which components come back --------------
#
# A bootstrap sample is drawn client by client: each client draws as many of its own rows as it has, with replacement,
# from a random stream of its own. A refit is then a run of the same algorithm on the resampled shards, so nothing
# leaves a client that does not leave it in a fit. Each refit also has another seed. Refits do not start from the
# components of the model: a start that is already the answer would make anything look stable.

BELIEF_SAMPLE = 0.5
"""Size of the samples of refits with belief propagation, which takes about five times as long as a fast fit."""
PROBES = 5
"""Refits that have to find all components without belief propagation if it is to be left out."""


def stability(
    model: BooleanFactorization,
    X: Any,
    *,
    groups: ArrayLike | None = None,
    unknown: Any = None,
    n_resamples: int = 50,
    random_state: int = 0,
    on_refit: Callable[[int], None] = lambda _: None,
    verbose: bool = False,
) -> Stability:
    """Tell how often the components of a fitted model are found again in refits on bootstrap samples.

    Refits of `FederatedBMF` have ``effort="fast"`` and the number of components of the model. If belief propagation
    has decided and one of the first five refits without it misses a component, refits use it too, on samples of half
    as many records, because it costs more; smaller samples vary more, so this understates the stability. Other methods
    are refitted as they are.

    Parameters
    ----------
    model : a fitted estimator
    X : the data it was fitted on: records × features, or a list of matrices, one per client
    groups : client label of each row, as in ``fit``; every client resamples its own rows
    unknown : missing mask of X; only `FederatedBMF` supports unknown cells
    n_resamples : number of refits
    random_state : seed of the resampling and of the refits
    on_refit : called after each refit with the number of refits so far
    verbose : show a progress bar over the refits

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 30, 3, noise=0.02, seed=0)
    >>> hospitals = felb.data.partition.even(300, 3)
    >>> model = felb.FederatedBMF(3, random_state=0).fit(data.A, groups=hospitals)
    >>> stable = felb.stability(model, data.A, groups=hospitals, n_resamples=4)
    >>> stable.found, stable.records.shape
    (array([1., 1., 1.]), (300, 3))
    """
    check_is_fitted(model)
    shards, rows_of = shards_of(model.binarize_threshold, X, groups, unknown)
    for shard in shards.values():
        model._check_columns(shard, reset=False)
    V, recovered = model.components_, getattr(model, "belief_", None) is not None
    refit = cheapest_refit(model, V, shards, recovered=recovered, seed=random_state)
    with steps_shown("refits", lambda: n_resamples, verbose=verbose) as advance:

        def watch(done: int) -> None:
            advance(done)
            on_refit(done)

        return refitted(V, refit, shards, rows_of=rows_of, n_resamples=n_resamples, seed=random_state, on_refit=watch)


def refitted(
    V: NDArray[np.bool_],
    refit: Refit,
    shards: Mapping[str, BinaryMatrix],
    *,
    rows_of: Mapping[str, NDArray[np.int64]],
    n_resamples: int,
    seed: int,
    on_refit: Callable[[int], None] = lambda _: None,
) -> Stability:
    """Match the components V with those of refits; `rows_of` has the numbers of the rows of each shard."""
    if n_resamples < 1:
        raise InputError(f"n_resamples must be at least 1, got {n_resamples}", parameter="n_resamples")
    n = sum(len(shard) for shard in shards.values())
    records = np.zeros((n, len(V)), dtype=np.int64)

    def refits() -> Iterator[NDArray[np.bool_]]:
        for number in range(n_resamples):
            yield refit.components(shards, number=number, seed=seed)
            on_refit(number + 1)

    def assign(W: NDArray[np.bool_], found: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        for name, shard in shards.items():
            records[np.ix_(rows_of[name], found)] += assign_rows(shard, W)[:, places]

    stable = stability_among(V, refits(), seed=seed, on_match=assign)
    return replace(stable, records=records / n_resamples)


def stability_among(
    V: NDArray[np.bool_],
    fitted: Iterable[NDArray[np.bool_]],
    *,
    seed: int,
    on_match: Callable[[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]], None] = lambda *_: None,
) -> Stability:
    """Match the components V with those of each refit; nothing is known about records.

    `on_match` is called with the components W of each refit, which of V it has found, and as which of its own.
    """
    matches, chances, features = [], [], np.zeros(V.shape, dtype=np.int64)
    for W in fitted:
        places, match = match_components(V, W)
        chance = expected_match(V, W, places)
        found = np.flatnonzero(is_found(match, chance) & (places != NO_MATCH))
        features[found] += W[places[found]]
        matches.append(match)
        chances.append(chance)
        on_match(W, found, places[found])
    return Stability(np.array(matches), features / len(matches), None, int(seed), np.array(chances))


def is_found(match: Any, chance: Any) -> NDArray[np.bool_]:
    """Tell which matches are at least half of the way from chance to identity."""
    return np.asarray((match - chance >= FOUND * (1 - chance)) & (match > 0), dtype=bool)


def expected_match(V: NDArray[np.bool_], W: NDArray[np.bool_], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Jaccard index that random sets of the sizes of V_l and of its match have on average.

    Examples
    --------
    >>> expected_match(np.ones((1, 4), bool), np.array([[True, True, False, False]]), np.array([0]))
    array([0.5])
    """
    a = np.count_nonzero(V, axis=1).astype(float)
    b = np.where(places == NO_MATCH, 0, np.count_nonzero(W, axis=1)[places] if len(W) else 0).astype(float)
    shared = a * b / V.shape[1]
    return np.asarray(np.divide(shared, a + b - shared, out=np.zeros_like(a), where=a + b - shared > 0))


@dataclass(frozen=True, slots=True)
class Refit:
    """How a model is refitted: an estimator that is not fitted, and the size of samples in records per record."""

    estimator: BooleanFactorization
    size: float = 1.0

    def components(self, shards: Mapping[str, BinaryMatrix], *, number: int, seed: int) -> NDArray[np.bool_]:
        """Return the components of a fit on the bootstrap sample of that number, with another seed."""
        samples = {
            name: resampled(shard, self.size, rng=random_stream(seed, RESAMPLE_STREAM, number, name))
            for name, shard in shards.items()
        }
        other = int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0]) % LARGEST_SEED
        return fitted_components(clone(self.estimator).set_params(random_state=other), samples)


def cheapest_refit(
    model: BooleanFactorization, V: NDArray[np.bool_], shards: Mapping[str, BinaryMatrix], *, recovered: bool, seed: int
) -> Refit:
    """Return the refits of least cost that can find the components V of a model; `recovered` by belief propagation."""
    parameters = model.get_params(deep=False)
    if parameters.get("privacy") is not None:
        raise InputError(
            "every refit of a private model spends its privacy budget again; fit a model without privacy where the "
            "data is, and look at the stability of that",
            parameter="privacy",
        )
    changed: dict[str, Any] = {}
    if isinstance(parameters.get("n_components"), str):
        changed["n_components"] = len(V)
    if "effort" in parameters:
        changed["effort"] = "fast"
    refit: BooleanFactorization = clone(model).set_params(**changed)
    if parameters.get("objective") != "auto":
        return Refit(refit)
    fast: BooleanFactorization = clone(refit).set_params(objective="hamming")
    there = V[V.any(axis=1)]
    for number in range(PROBES if recovered else 0):
        W = Refit(fast).components(shards, number=number, seed=seed)
        if (match_components(there, W)[1] < SAME).any():
            return Refit(clone(refit).set_params(objective="recover"), BELIEF_SAMPLE)
    return Refit(fast)


def fitted_components(model: BooleanFactorization, shards: Mapping[str, BinaryMatrix]) -> NDArray[np.bool_]:
    """Return the components that a model finds in these shards; of a centralized method, in all their rows."""
    parts = [shards[name] for name in sorted(shards)]
    with without_warnings():  # a refit that finds nothing counts as one that has not found the components
        if isinstance(model, FederatedEstimator) and len(parts) > 1:
            return np.asarray(model.fit(parts).components_)
        return np.asarray(model.fit(BinaryMatrix.vstack(parts)).components_)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Fit without warnings about results that collapse or have too many components."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "n_components=", UserWarning)
        yield


def resampled(shard: BinaryMatrix, size: float, *, rng: np.random.Generator) -> BinaryMatrix:
    """Return ⌈size · n⌉ rows of the n of a client, drawn with replacement."""
    # In their order, so that equal rows follow each other; a fit does not depend on the order.
    return shard.take(np.sort(rng.integers(0, len(shard), math.ceil(size * len(shard)))))


def shards_of(
    threshold: float | None, X: Any, groups: ArrayLike | None, unknown: Any
) -> tuple[dict[str, BinaryMatrix], dict[str, NDArray[np.int64]]]:
    """Return the rows of each client and their numbers in X, read and named as in a fit of `FederatedBMF`."""
    reader = FederatedBMF(binarize_threshold=threshold)
    return reader._shards(reader._partly_known(X, unknown), groups)
