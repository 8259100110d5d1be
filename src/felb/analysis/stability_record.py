"""`Stability`: how often refits found the components of a model again, as a record that can be stored."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from felb.errors import InputError
from felb.records import Natural, read_record
from felb.safe_files import replacing

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

FORMAT = "felb-stability-1"
FILE = "stability.json"
"""In the folder of a result."""
FOUND = 0.75
"""A component is found by a refit if the Jaccard index with its match is at least this."""
TAILS = (2.5, 97.5)
"""Percentiles between which 95% of the refits lie."""
DIGITS = 4
"""Decimals of the stored probability of a feature."""


@dataclass(frozen=True)
class Stability:
    """How often the components of a model are found again in refits on resampled records.

    Each refit b has components W_b, which are matched one to one with those of the model, V. The match of component l
    is J_bl = |V_l ∩ W_b,σ(l)| / |V_l ∪ W_b,σ(l)|. The component is found by the refit if J_bl >= 0.75.

    Parameters
    ----------
    match : J, refits × components
    features : components × features, share of refits that have found the component and in which it has the feature
    records : records × components, share of refits that have found the component and in which the record has it; None
        where it is not known, because it stays with the records
    seed : of the resampling

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

    @property
    def n_resamples(self) -> int:
        """Number of refits."""
        return len(self.match)

    @cached_property
    def found(self) -> NDArray[np.float64]:
        """Share of refits that have found each component."""
        return np.asarray((self.match >= FOUND).mean(axis=0))

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
        return [
            {
                "component": number,
                "found": float(self.found[number]),
                "match": float(self.mean[number]),
                "low": float(self.interval[number, 0]),
                "high": float(self.interval[number, 1]),
            }
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
        if match.ndim != 2 or features.ndim != 2 or match.shape != (stored.n_resamples, len(features)):
            raise InputError(f"{path} is damaged (its tables have different sizes); run `felb stability` again")
        return cls(match, features, None, stored.seed)


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in stability.json."""

    format: str
    n_resamples: Natural
    seed: Natural
    components: list[dict[str, Any]]
    match: list[list[float]]
    features: list[list[float]]

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"the format is {self.format!r}, not {FORMAT!r}")
