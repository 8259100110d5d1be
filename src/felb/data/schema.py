"""A schema: the features of a 0/1 matrix and the rule by which each is read off raw data, agreed once.

Nothing in it is computed from data when it is applied, so that the same schema gives the same columns everywhere; its
digest says whether two sites have the same one. `felb.data.schema_file` reads and writes it as TOML.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

FORMAT = "felb-schema-1"
Missing = Literal["error", "unknown", "zero", "category"]
Unlisted = Literal["error", "ignore", "other"]
MISSING_VALUES = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?")
"""Texts that stand for no value, unless a schema says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One column of the matrix and its rule; a record has the feature if any of its values or events obeys the rule.

    Parameters
    ----------
    name : name of the column of the matrix
    column : column of the raw table that is looked at; None for a rule about codes of events
    values : the categories of the column that make a one
    lower, upper : or its numbers from `lower` to below `upper`
    lower_open, upper_closed : above `lower` instead of from it; up to `upper` instead of below it
    codes, prefixes : codes of events, or beginnings of such codes, that make a one
    any : any value of the column, or any event
    missing : a one where the column has no value
    other : a one where the column, or an event, has a value or code that no other feature lists
    since, before : count only events from this date on, and before that date (ISO 8601)

    Examples
    --------
    >>> Feature(name="age 40-59", column="age", lower=40, upper=60).rule()
    'from 40 below 60'
    """

    name: str
    column: str | None = None
    values: tuple[str, ...] = ()
    lower: float | None = None
    upper: float | None = None
    lower_open: bool = False
    upper_closed: bool = False
    codes: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    any: bool = False
    missing: bool = False
    other: bool = False
    since: str | None = None
    before: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or "\n" in self.name:
            raise InputError(f"feature {self.name!r}: name must be a text of one line")
        rules = [
            bool(self.values),
            self.numeric,
            bool(self.codes or self.prefixes),
            self.any,
            self.missing,
            self.other,
        ]
        if sum(rules) != 1:
            raise InputError(
                f"feature {self.name!r} needs exactly one rule: is, from/above/below/to, code/prefix/group, any, "
                f"missing or other; it has {sum(rules)}"
            )
        if self.column is None and (self.values or self.numeric or self.missing):
            raise InputError(f"feature {self.name!r} says nothing of the column it is about; add column")
        if self.column is not None and (self.codes or self.prefixes):
            raise InputError(f"feature {self.name!r} has both a column and codes; codes are those of the item column")
        if "" in self.prefixes or "" in self.codes:
            raise InputError(f"feature {self.name!r} lists an empty code; use any = true for any event")
        if self.missing and (self.since or self.before):
            raise InputError(f"feature {self.name!r}: a missing value has no date; leave since and before out")
        self._check_interval()
        self._check_window()
        for bound in ("lower", "upper"):  # 60 and 60.0 are one number, and must have one digest
            if getattr(self, bound) is not None:
                object.__setattr__(self, bound, float(getattr(self, bound)))

    def _check_interval(self) -> None:
        for bound in (self.lower, self.upper):
            if bound is not None and (isinstance(bound, bool) or not math.isfinite(bound)):
                raise InputError(f"feature {self.name!r}: {bound!r} is no finite number; leave an open end out")
        if self.lower is not None and self.upper is not None:
            holds_one = self.lower == self.upper and self.upper_closed and not self.lower_open
            if not (self.lower < self.upper or holds_one):
                raise InputError(f"feature {self.name!r}: no number lies between {self.lower:g} and {self.upper:g}")

    def _check_window(self) -> None:
        ends = [parsed_time(self.name, text) for text in (self.since, self.before) if text is not None]
        if len(ends) == 2 and ends[0] >= ends[1]:
            raise InputError(f"feature {self.name!r}: no event is since {self.since} and before {self.before}")

    @property
    def numeric(self) -> bool:
        """Whether the rule is about numbers."""
        return self.lower is not None or self.upper is not None

    @property
    def windowed(self) -> bool:
        """Whether the rule looks at dates."""
        return self.since is not None or self.before is not None

    def to_json(self) -> dict[str, Any]:
        """Return what the rule says as plain data; what it leaves out is left out."""
        said = ((entry.name, getattr(self, entry.name)) for entry in fields(self))
        return {name: value for name, value in said if value is not None and value is not False and value != ()}

    def rule(self) -> str:
        """Return the rule in words."""
        if self.codes or self.prefixes:
            words = ", ".join([*self.codes, *(f"{prefix}…" for prefix in self.prefixes)])
            said = f"code {words}"
        elif self.numeric:
            low = "" if self.lower is None else f"{'above' if self.lower_open else 'from'} {self.lower:g}"
            high = "" if self.upper is None else f"{'up to' if self.upper_closed else 'below'} {self.upper:g}"
            said = " ".join(part for part in (low, high) if part)
        elif self.values:
            said = " or ".join(self.values)
        else:
            said = "missing" if self.missing else "not listed" if self.other else "any value" if self.column else "any"
        window = [f"since {self.since}" if self.since else "", f"before {self.before}" if self.before else ""]
        return " ".join([said, *(part for part in window if part)])


@dataclass(frozen=True, slots=True)
class Handling:
    """What happens to values of a column that are missing or not listed.

    Parameters
    ----------
    missing : a missing value is an "error", makes the features of the column "unknown" for the record, is "zero" in
        all of them, or is a "category", which has a feature of its own
    unlisted : a value that no feature lists is an "error", is left out and counted ("ignore"), or has the "other"
        feature
    zeros : values that are known and have no feature, such as the "no" of a column of yes and no
    """

    missing: Missing = "error"
    unlisted: Unlisted = "error"
    zeros: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("missing", Missing), ("unlisted", Unlisted)):
            if getattr(self, name) not in get_args(kind):
                raise InputError(f"{name} = {getattr(self, name)!r} is not known; use {', '.join(get_args(kind))}")


@dataclass(frozen=True, slots=True)
class Roles:
    """Which columns of a raw table say what.

    Parameters
    ----------
    record : names the record of a row; rows of the matrix are in its order. None in wide tables that name no records
    item : of long tables, the code or column name that a row is about; a source that has this column is long
    value, time : of long tables, the value and the date of a row
    """

    record: str | None = None
    item: str | None = None
    value: str | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        named = [name for name in (self.record, self.item, self.value, self.time) if name is not None]
        if not all(isinstance(name, str) and name for name in named) or len(set(named)) < len(named):
            raise InputError("record, item, value and time of a schema must be the names of different columns")


@dataclass(frozen=True)
class Schema:
    """The features of a matrix, in order, and how raw values become ones.

    Parameters
    ----------
    features : rules, one for each column of the matrix
    roles : which columns of the raw table name records, codes, values and dates
    columns : handling of missing and unlisted values, by column; otherwise both are errors, and for numbers a value
        outside all bins is left out
    codes : handling of codes that no feature lists
    missing_values : texts that stand for no value
    title : for people; not part of the digest

    Examples
    --------
    >>> import felb
    >>> schema = felb.data.Schema((
    ...     felb.data.Feature(name="sex: F", column="sex", values=("F",)),
    ...     felb.data.Feature(name="age 60+", column="age", lower=60),
    ... ))
    >>> schema.names, schema.digest[:12]
    (('sex: F', 'age 60+'), '...')
    """

    features: tuple[Feature, ...]
    roles: Roles = field(default_factory=Roles)
    columns: Mapping[str, Handling] = field(default_factory=dict)
    codes: Handling = field(default_factory=lambda: Handling("zero", "error"))
    missing_values: tuple[str, ...] = MISSING_VALUES
    title: str = ""

    def __post_init__(self) -> None:
        if not self.features:
            raise InputError("a schema needs at least one feature")
        seen: dict[str, int] = {}
        for number, feature in enumerate(self.features, 1):
            if feature.name in seen:
                raise InputError(
                    f"features {seen[feature.name]} and {number} are both called {feature.name!r}; names must be unique"
                )
            seen[feature.name] = number
        if self.codes.missing != "zero":
            raise InputError('codes: an event that is not there is "zero"; leave missing out')
        for column in self.columns:
            if column not in self.column_features:
                raise InputError(f"columns: no feature is about the column {column!r}; remove it, or add one")
        for about in (*self.column_features, None):
            self._check_handling(about)
        for feature in self.features:
            if feature.windowed and self.roles.time is None:
                raise InputError(f"feature {feature.name!r} looks at dates, and the schema names no time column")
            if feature.column is None and self.roles.item is None:
                raise InputError(f"feature {feature.name!r} is about codes, and the schema names no item column")

    def _check_handling(self, column: str | None) -> None:
        where, handling = "codes" if column is None else f"column {column!r}", self.handling(column)
        of_codes = (number for number, feature in enumerate(self.features) if feature.column is None)
        rules = [self.features[number] for number in (of_codes if column is None else self.column_features[column])]
        for word, said in (("missing", handling.missing == "category"), ("other", handling.unlisted == "other")):
            count = sum(bool(getattr(feature, word)) for feature in rules)
            if count > 1 or said != (count == 1):
                raise InputError(
                    f"{where}: {word} values have {count} features and the handling "
                    f"{(handling.missing if word == 'missing' else handling.unlisted)!r}; they need one feature with "
                    f"{word} = true if and only if they are handled as {'category' if word == 'missing' else 'other'!r}"
                )

    # -- facts -------------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(feature.name for feature in self.features)

    @property
    def agreed_names(self) -> tuple[str, ...]:
        """Names of the features and, last, the digest: what the plan of a run fingerprints, so that all rules agree."""
        return (*self.names, f"schema {self.digest}")

    @cached_property
    def column_features(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the features of each column of the raw table."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, feature in enumerate(self.features):
            if feature.column is not None:
                found[feature.column].append(number)
        return {column: tuple(numbers) for column, numbers in found.items()}

    @property
    def about_codes(self) -> bool:
        """Whether any feature is about codes of events."""
        return any(feature.column is None for feature in self.features)

    def handling(self, column: str | None) -> Handling:
        """Return how missing and unlisted values of a column are handled; of codes, if None."""
        if column is None:
            return self.codes
        if column in self.columns:
            return self.columns[column]
        rules = [self.features[number] for number in self.column_features[column]]
        missing: Missing = "category" if any(rule.missing for rule in rules) else "error"
        if any(rule.other for rule in rules):
            return Handling(missing, "other")
        # A cut at 65 says nothing of a younger age; a category that is not listed may be a misspelt one.
        return Handling(missing, "ignore" if any(rule.numeric or rule.any for rule in rules) else "error")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides the matrix; equal digests give equal columns."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return everything that decides the matrix as plain data."""
        columns = {column: asdict(self.handling(column)) for column in self.column_features}
        return {
            "format": FORMAT,
            "roles": asdict(self.roles),
            "columns": columns,
            "codes": asdict(self.codes) if self.about_codes else None,
            "missing_values": sorted(self.missing_values),
            "features": [feature.to_json() for feature in self.features],
        }

    # -- values to features ------------------------------------------------------------------------------------

    def listed(self, column: str) -> dict[str, tuple[int, ...]]:
        """Return the categories of a column and the numbers of the features that list each."""
        found: dict[str, list[int]] = defaultdict(list)
        for number in self.column_features[column]:
            for value in self.features[number].values:
                found[value].append(number)
        return {value: tuple(numbers) for value, numbers in found.items()}

    def of_code(self, code: str) -> tuple[int, ...]:
        """Return the numbers of the features that list a code or a beginning of it."""
        exact, prefixes, lengths = self._code_index
        found = list(exact.get(code, ()))
        for length in lengths:
            found += prefixes.get(code[:length], ()) if length <= len(code) else ()
        return tuple(sorted(set(found)))

    @cached_property
    def _code_index(self) -> tuple[dict[str, list[int]], dict[str, list[int]], list[int]]:
        exact: dict[str, list[int]] = defaultdict(list)
        prefixes: dict[str, list[int]] = defaultdict(list)
        for number, feature in enumerate(self.features):
            for code in feature.codes:
                exact[code].append(number)
            for prefix in feature.prefixes:
                prefixes[prefix].append(number)
        return dict(exact), dict(prefixes), sorted({len(prefix) for prefix in prefixes})

    def exclusive(self, numbers: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yield pairs of features of one column, among those given, that no single value can have both."""
        for column, own in self.column_features.items():
            chosen = [number for number in own if number in set(numbers)]
            for position, a in enumerate(chosen):
                for b in chosen[position + 1 :]:
                    if _exclude(self.features[a], self.features[b], self.listed(column)):
                        yield a, b

    # -- files -------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Schema:
        """Read a schema file; see `felb.data.schema_file.read_schema`."""
        from felb.data.schema_file import read_schema

        return read_schema(path)

    def write(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the schema as a TOML file that `read` reads back to the same digest."""
        from felb.data.schema_file import write_schema

        write_schema(self, path, force=force)


def _exclude(a: Feature, b: Feature, listed: Mapping[str, Any]) -> bool:
    """Return whether no value of their column makes a one of both features."""
    if a.windowed or b.windowed:
        return False
    if a.any or b.any:
        return a.missing or b.missing
    if a.missing or b.missing or a.other or b.other:
        return True
    if a.numeric and b.numeric:
        low, high = sorted((a, b), key=lambda rule: -math.inf if rule.lower is None else rule.lower)
        if low.upper is None or high.lower is None:
            return False
        touching = low.upper_closed and not high.lower_open
        return low.upper < high.lower or (low.upper == high.lower and not touching)
    if a.numeric or b.numeric:
        return bool(listed)  # a category that is listed is not taken for a number
    return not set(a.values) & set(b.values)


def parsed_time(name: str, text: Any) -> datetime:
    """Return a date or time of a schema, or raise."""
    try:
        return datetime.fromisoformat(str(text)).replace(tzinfo=None)
    except ValueError as error:
        raise InputError(f"feature {name!r}: {text!r} is no date such as 2024-12-31") from error
