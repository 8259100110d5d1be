"""Disclosure rules: what statistics offices and hospitals ask of numbers that leave without noise.

A number is told if at least `min_support` records of the client make it, and if the group that it splits has no part
that is smaller: of 11 records of which 10 have a feature, the one without it is hidden too. Weights make a record count
by its share of the largest part (`count_effectively`), so that one record cannot dominate a sum of many.

A rule hides small groups in a single table. It does not stop differencing: two tables that differ in one record still
tell of it. Noise does (`felb.privacy.Privacy`); under a privacy guarantee these rules are not needed and not applied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.records import check_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST = 1_000_000
"""Of a count in a rule; more is a mistake."""


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Rules for what leaves a client, and is published, without noise.

    Parameters
    ----------
    min_support : what fewer records of a client make does not leave it, and components of fewer are not published
    min_sites : fewest sites whose sums are added up; of two, each would see the other's
    max_parameters : features x components at most, as a share of the records of a client; None for no such rule
    round_to : numbers of records are rounded down to multiples of this

    Examples
    --------
    >>> Disclosure.of("cms").min_support
    11
    >>> Disclosure.of(None) == Disclosure()
    True
    """

    min_support: int = 10
    min_sites: int = 3
    max_parameters: float | None = 0.33
    round_to: int = 1

    def __post_init__(self) -> None:
        check_fields(self, of="disclosure: ")
        for name in ("min_support", "min_sites", "round_to"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= MOST:
                raise InputError(f"disclosure: {name} must be a whole number from 1 to {MOST}, got {value!r}")
        share: Any = self.max_parameters
        if share is not None and (
            isinstance(share, bool) or not isinstance(share, int | float) or not (math.isfinite(share) and share > 0)
        ):
            raise InputError(f"disclosure: max_parameters must be a positive share of the records, got {share!r}")

    @classmethod
    def of(cls, rule: str | Mapping[str, Any] | Disclosure | None) -> Disclosure:
        """Return the rules of a preset, of a table of settings, or, where nothing is set, the strict default.

        A table may name a ``preset`` from which it starts. A word that is not known is an error: it may be a rule
        misspelt.
        """
        if rule is None:
            return cls()
        if isinstance(rule, Disclosure):
            return rule
        if isinstance(rule, str):
            if rule not in PRESETS:
                raise InputError(f"disclosure: there is no preset {rule[:40]!r}; there is {', '.join(PRESETS)}")
            return PRESETS[rule]
        if not isinstance(rule, Mapping):
            raise InputError(f"disclosure must be a preset or a table of rules, got {rule!r}")
        known = [entry.name for entry in fields(cls)]
        unknown = sorted(str(name) for name in set(rule) - {*known, "preset"})
        if unknown:
            raise InputError(f"disclosure: there is no rule {unknown[0][:40]!r}; there is {', '.join(known)}")
        start = cls.of(rule.get("preset"))
        return cls(**{**asdict(start), **{name: value for name, value in rule.items() if name != "preset"}})

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `of` reads them."""
        return asdict(self)

    def in_words(self) -> str:
        """Return the rules in a line."""
        parts = [f"numbers of at least {self.min_support} records", f"at least {self.min_sites} sites"]
        if self.max_parameters is not None:
            parts.append(f"features x components at most {self.max_parameters:g} of a client's records")
        if self.round_to > 1:
            parts.append(f"numbers of records rounded down to multiples of {self.round_to}")
        return ", ".join(parts)

    def sites_suffice(self, n_sites: int | None) -> bool:
        """Whether sums over this many sites may be told; not if their number is unknown."""
        return self.min_sites <= 1 or (n_sites is not None and n_sites >= self.min_sites)

    def rows_suffice(self, n_rows: int, *, n_features: int, n_components: int) -> bool:
        """Whether a client has enough records for as many parameters."""
        return self.max_parameters is None or n_features * n_components <= self.max_parameters * n_rows

    def hide_few(self, value: NDArray[Any], records: NDArray[np.int64]) -> NDArray[Any]:
        """Return a value as it may leave, by how many records make each entry along its first axes: 0 for too few."""
        kept = np.asarray(records) >= self.min_support
        kept = kept.reshape(kept.shape + (1,) * (value.ndim - kept.ndim))
        return np.where(kept, value, np.zeros((), dtype=value.dtype))

    def hide_counts(self, value: NDArray[Any], n_records: int) -> NDArray[Any]:
        """Return numbers of records as they may leave: none or all for too few and nearly all, then rounded down."""
        told = round_counts(value, n_records, self.min_support)
        return np.asarray(told // self.round_to * self.round_to, dtype=value.dtype)

    def withheld(self, supports: Sequence[int | None]) -> tuple[int, ...]:
        """Return the numbers of the components that may not be published, by what is known of their records."""
        return tuple(i for i, support in enumerate(supports) if support is not None and support < self.min_support)

    def rounded(self, count: int) -> int:
        """Return a number of records as it may be published."""
        return count // self.round_to * self.round_to


def round_counts(count: NDArray[Any] | int, of: NDArray[Any] | int, least: int) -> NDArray[Any]:
    """Return how many of a group have something, rounded to none if fewer than `least` do, to all if fewer do not."""
    count = np.asarray(count)
    return np.where(count < least, 0, np.where(of - count < least, of, count))


def round_members(U: NDArray[np.bool_], least: int) -> NDArray[np.bool_]:
    """Return U with components that fewer than `least` records have given to none, and those that fewer lack to all.

    What is counted of a U that was rounded changes with single records only where at least `least` share a component
    with them, and with no component that a request could make of them alone.
    """
    if least <= 1:
        return U
    told = round_counts(np.count_nonzero(U, axis=0), len(U), least)
    return np.asarray((U | (told == len(U))) & (told > 0))


def count_effectively(total: NDArray[Any], largest: NDArray[Any]) -> NDArray[np.int64]:
    """Return how many records make a sum: its total over its largest part, which is their number if all are alike."""
    if np.asarray(total).dtype.kind == "i":
        return np.asarray(total // np.maximum(largest, 1), dtype=np.int64)
    return np.asarray(np.floor(total / np.maximum(largest, np.finfo(np.float64).tiny)), dtype=np.int64)


NO_RULES = Disclosure(1, 1, None, 1)
PRESETS = {
    "strict": Disclosure(),
    "datashield": Disclosure(min_support=3, min_sites=1, max_parameters=0.33),
    "ohdsi": Disclosure(min_support=5, min_sites=1, max_parameters=None),
    "cms": Disclosure(min_support=11, min_sites=1, max_parameters=None),
    "opensafely": Disclosure(min_support=8, min_sites=1, max_parameters=None, round_to=5),
    "none": NO_RULES,
}
"""What others ask: DataSHIELD's dsBase 6.3 (cells of at least 3, parameters at most .33 of the records), OHDSI (cells
of at least 5), CMS and PCORnet (of at least 11), OpenSAFELY (7 or fewer redacted, then rounded to 5)."""
