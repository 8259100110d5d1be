"""A schema: the features of a 0/1 matrix and the rule by which each is read off raw data; in TOML and in words."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from felb.errors import InputError
from felb.records import read_text, read_toml, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray


# Nothing in it is computed from data when it is applied, so that the same schema gives the same columns everywhere; its
# digest says whether two sites have the same one.

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
        rules = (self.values, self.numeric, self.codes or self.prefixes, self.any, self.missing, self.other)
        if sum(map(bool, rules)) != 1:
            raise InputError(
                f"feature {self.name!r} needs exactly one rule: is, from/above/below/to, code/prefix/group, any, "
                f"missing or other; it has {sum(map(bool, rules))}"
            )
        if self.column is None and (self.values or self.numeric or self.missing):
            raise InputError(f"feature {self.name!r} says nothing of the column it is about; add column")
        if self.column is not None and (self.codes or self.prefixes):
            raise InputError(f"feature {self.name!r} has both a column and codes; codes are those of the item column")
        if "" in self.prefixes or "" in self.codes:
            raise InputError(f"feature {self.name!r} lists an empty code; use any = true for any event")
        if self.missing and (self.since or self.before):
            raise InputError(f"feature {self.name!r}: a missing value has no date; leave since and before out")
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            if bound is not None and (isinstance(bound, bool) or not math.isfinite(bound)):
                raise InputError(f"feature {self.name!r}: {bound!r} is no finite number; leave an open end out")
            if bound is not None:  # 60 and 60.0 are one number, and must have one digest
                object.__setattr__(self, name, float(bound))
        if self.lower is not None and self.upper is not None:
            holds_one = self.lower == self.upper and self.upper_closed and not self.lower_open
            if not (self.lower < self.upper or holds_one):
                raise InputError(f"feature {self.name!r}: no number lies between {self.lower:g} and {self.upper:g}")
        ends = [parse_time(self.name, text) for text in (self.since, self.before) if text is not None]
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

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Schema:
        r"""Read a schema from a TOML file.

        ``[[feature]]`` tables come in the order of the columns of the matrix. Each has a ``name`` and one rule:

        | key | meaning |
        |---|---|
        | ``column``, ``is`` | the column holds this value, or one of these |
        | ``column``, ``from``, ``above``, ``below``, ``to`` | it holds a number within these bounds (≥, >, <, ≤) |
        | ``code``, ``prefix`` | the record has an event with this code, or one that begins so; texts or lists of them |
        | ``group`` | the record has an event with a code of this group of the file that ``[mapping]`` names |
        | ``any = true`` | the record has any event, or any value of ``column`` |
        | ``column``, ``missing = true`` | the column has no value |
        | ``other = true`` | the column, or an event, has what no other feature lists |

        ``since`` and ``before`` count only events of that time. ``categories = [...]`` instead of a name makes one
        feature for each category of a column, ``edges = [...]`` one for each bin. ``[table]`` names the columns
        ``record``, ``item``, ``value`` and ``time``, and the ``missing_values``; ``[columns.NAME]`` and ``[codes]`` say
        what happens to values that are ``missing`` or ``unlisted``, and which known values are ``zeros``. ``[mapping]``
        has a ``file`` (CSV with a header) and its columns ``code`` and ``group``; its content becomes part of the
        schema and its digest.

        Examples
        --------
        >>> from pathlib import Path
        >>> from felb.data import Schema
        >>> _ = Path("s.toml").write_text('[[feature]]\nname = "adult"\ncolumn = "age"\nfrom = 18\n')
        >>> Schema.read("s.toml").features[0].rule()
        'from 18'
        """
        source = Path(path)
        raw = read_toml(source, advice="`felb schema infer` writes a schema")
        try:
            return _schema(raw, source.parent)
        except InputError as error:
            raise InputError(f"{source}: {error}") from error

    def write(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the schema as a TOML file that `read` reads back to the same digest, complete or not at all."""
        target = Path(path)
        if target.exists() and not force:
            raise InputError(f"{target} exists; choose another name, or replace it by force", parameter="force")
        try:
            with replacing(target) as partial:
                partial.write_text(format_schema(self), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{target} cannot be written: {error.strerror}") from error


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


def parse_time(name: str, text: Any) -> datetime:
    """Return a date or time of a schema, or raise."""
    try:
        return datetime.fromisoformat(str(text)).replace(tzinfo=None)
    except ValueError as error:
        raise InputError(f"feature {name!r}: {text!r} is no date such as 2024-12-31") from error


BOUNDS = {"from": ("lower", False), "above": ("lower", True), "below": ("upper", False), "to": ("upper", True)}
TOP = ("format", "title", "digest", "table", "columns", "codes", "mapping", "feature")
SAME = ("any", "missing", "other", "column", "name")
WINDOW = ("since", "before")
SHORTHANDS = ("categories", "edges", "names")


def _schema(raw: dict[str, Any], folder: Path) -> Schema:
    _check_keys(raw, TOP, "the file")
    if raw.get("format", FORMAT) != FORMAT:
        raise InputError(f"format is {raw['format']!r}; this felb reads {FORMAT!r}")
    table, columns, codes = (_table(raw, name) for name in ("table", "columns", "codes"))
    _check_keys(table, (*(entry.name for entry in fields(Roles)), "missing_values"), "[table]")
    groups = _groups(_table(raw, "mapping"), folder)
    features = raw.get("feature", [])
    if not isinstance(features, list) or not all(isinstance(feature, dict) for feature in features):
        raise InputError("features are tables that begin with [[feature]]")
    schema = Schema(
        tuple(made for number, entry in enumerate(features, 1) for made in _features(entry, number, groups)),
        Roles(**{name: value for name, value in table.items() if name != "missing_values"}),
        {column: _handling(columns[column], f"[columns.{column}]") for column in columns},
        _handling({"missing": "zero", **codes}, "[codes]"),
        _texts(table.get("missing_values", list(MISSING_VALUES)), "missing_values"),
        str(raw.get("title", "")),
    )
    if raw.get("digest", schema.digest) != schema.digest:
        raise InputError(
            f"its digest is {schema.digest[:16]}…, but the file says {str(raw['digest'])[:16]}…: it was edited; "
            "have the change approved, and remove the line that begins with digest"
        )
    return schema


def _features(entry: dict[str, Any], number: int, groups: Mapping[str, tuple[str, ...]]) -> Iterator[Feature]:
    where = f"feature {entry.get('name', entry.get('column', number))!r}"
    _check_keys(entry, (*SAME, *WINDOW, "is", "code", "prefix", "group", *BOUNDS, *SHORTHANDS), where)
    if "categories" in entry or "edges" in entry:
        yield from _shorthand(entry, where)
        return
    if "name" not in entry:
        raise InputError(f"feature {number} has no name")
    rule: dict[str, Any] = {name: entry[name] for name in SAME if name in entry}
    for flag in ("any", "missing", "other"):
        if not isinstance(rule.get(flag, False), bool):
            raise InputError(f"{where}: {flag} is true or left out")
    for word, (bound, ends) in BOUNDS.items():
        if word in entry:
            if bound in rule:
                raise InputError(f"{where} has two bounds on one side; use one of {' or '.join(_sides(bound))}")
            rule |= {bound: _number(entry[word], where), "lower_open" if bound == "lower" else "upper_closed": ends}
    codes = _texts(entry.get("code", []), where)
    for group in _texts(entry.get("group", []), where):
        if group not in groups:
            raise InputError(f"{where}: the mapping file has no group {group!r}")
        codes += groups[group]
    rule |= {"values": _texts(entry.get("is", []), where), "codes": tuple(dict.fromkeys(codes))}
    rule |= {"prefixes": _texts(entry.get("prefix", []), where)}
    yield Feature(**rule | {word: str(entry[word]) for word in WINDOW if word in entry})


def _sides(bound: str) -> list[str]:
    return [word for word, (side, _) in BOUNDS.items() if side == bound]


def _shorthand(entry: dict[str, Any], where: str) -> Iterator[Feature]:
    """Yield the features that one table with ``categories`` or ``edges`` stands for."""
    _check_keys(entry, ("column", *SHORTHANDS, *WINDOW), where)
    column = entry.get("column")
    if not isinstance(column, str) or ("categories" in entry) == ("edges" in entry):
        raise InputError(f"{where} needs column, and either categories or edges")
    window: dict[str, Any] = {word: str(entry[word]) for word in WINDOW if word in entry}
    rules: list[dict[str, Any]]
    if "categories" in entry:
        values = _texts(entry["categories"], where)
        rules, made = [{"values": (value,)} for value in values], [f"{column}: {value}" for value in values]
    else:
        edges = entry["edges"]
        if not isinstance(edges, list) or not edges:
            raise InputError(f"{where}: edges is a list of ascending numbers")
        edges = [_number(edge, where) for edge in edges]
        if any(a >= b for a, b in pairwise(edges)):
            raise InputError(f"{where}: edges is a list of ascending numbers")
        rules = [{"lower": a, "upper": b} for a, b in zip([None, *edges], [*edges, None], strict=True)]
        made = [name_interval(column, rule["lower"], rule["upper"]) for rule in rules]
    names = _texts(entry.get("names", made), where)
    if len(names) != len(rules):
        raise InputError(f"{where} has {len(names)} names for {len(rules)} features")
    for name, rule in zip(names, rules, strict=True):
        yield Feature(name=name, column=column, **rule | window)


def name_interval(column: str, lower: float | None, upper: float | None, *, whole: bool = False) -> str:
    """Return a name such as "age 40-59" for whole numbers, "glucose 5.1 to below 7" for others.

    Examples
    --------
    >>> name_interval("age", 40, 60, whole=True), name_interval("bmi", None, 18.5), name_interval("bmi", 18.5, 25)
    ('age 40-59', 'bmi below 18.5', 'bmi 18.5 to below 25')
    """
    if lower is None:
        return f"{column} below {upper:g}"
    if upper is None:
        return f"{column} {lower:g}+"
    if whole:
        return f"{column} {lower:g}" if upper - lower == 1 else f"{column} {lower:g}-{upper - 1:g}"
    return f"{column} {lower:g} to below {upper:g}"


def _groups(mapping: dict[str, Any], folder: Path) -> dict[str, tuple[str, ...]]:
    if not mapping:
        return {}
    _check_keys(mapping, ("file", "code", "group"), "[mapping]")
    path, code, group = (
        folder / str(mapping.get("file", "")),
        mapping.get("code", "code"),
        mapping.get("group", "group"),
    )
    found: dict[str, list[str]] = {}
    try:
        rows = csv.DictReader(io.StringIO(read_text(path, advice="it must be a table of codes and groups"), newline=""))
        for name in (code, group):
            if name not in (rows.fieldnames or ()):
                raise InputError(f"{path.name} has no column {name!r}; it has {rows.fieldnames}")
        for row in rows:
            if not row[code] or not row[group]:
                raise InputError(f"{path.name}, line {rows.line_num} names no code or no group")
            found.setdefault(row[group], []).append(row[code])
    except csv.Error as error:
        raise InputError(f"[mapping]: {path} cannot be read: {error}") from error
    except InputError as error:
        raise InputError(f"[mapping]: {error}") from error
    return {name: tuple(sorted(set(codes))) for name, codes in found.items()}


def _handling(raw: Any, where: str) -> Handling:
    if not isinstance(raw, dict):
        raise InputError(f"{where} must be a table")
    _check_keys(raw, ("missing", "unlisted", "zeros"), where)
    try:
        return Handling(**{**raw, "zeros": _texts(raw.get("zeros", []), where)})
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _table(raw: dict[str, Any], name: str) -> dict[str, Any]:
    found = raw.get(name, {})
    if not isinstance(found, dict):
        raise InputError(f"{name} must be a table: [{name}]")
    return found


def _check_keys(raw: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise InputError(f"{where} has the unknown key {unknown[0]!r}; known are {', '.join(known)}")


def _texts(value: Any, where: str) -> tuple[str, ...]:
    """Return one text or a list of texts as a tuple; numbers count as the texts they are written as."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str | int) and not isinstance(text, bool) for text in found):
        raise InputError(f"{where}: {value!r} is neither a text nor a list of texts")
    return tuple(str(text) for text in found)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {value!r} is not a number")
    return float(value)


def format_schema(schema: Schema) -> str:
    """Return a schema as TOML that reads back to the same digest."""
    lines = [f"format = {_toml(FORMAT)}"]
    lines += [f"title = {_toml(schema.title)}"] if schema.title else []
    lines += ["", "[table]"]
    for entry in fields(Roles):
        name = getattr(schema.roles, entry.name)
        lines += [] if name is None else [f"{entry.name} = {_toml(name)}"]
    lines += [f"missing_values = {_toml(list(schema.missing_values))}"]
    if schema.about_codes:
        lines += ["", "[codes]", f"unlisted = {_toml(schema.codes.unlisted)}"]
    for column in schema.column_features:
        handling = schema.handling(column)
        lines += ["", f"[columns.{_toml(column)}]", f"missing = {_toml(handling.missing)}"]
        lines += [f"unlisted = {_toml(handling.unlisted)}"]
        lines += [f"zeros = {_toml(list(handling.zeros))}"] if handling.zeros else []
    for feature in schema.features:
        lines += ["", "[[feature]]", *_feature_lines(feature)]
    return "\n".join(lines) + "\n"


def _feature_lines(feature: Feature) -> Iterator[str]:
    yield f"name = {_toml(feature.name)}"
    if feature.column is not None:
        yield f"column = {_toml(feature.column)}"
    for word, listed in (("is", feature.values), ("code", feature.codes), ("prefix", feature.prefixes)):
        if listed:
            yield f"{word} = {_toml(listed[0] if len(listed) == 1 else list(listed))}"
    if feature.lower is not None:
        yield f"{'above' if feature.lower_open else 'from'} = {_toml(feature.lower)}"
    if feature.upper is not None:
        yield f"{'to' if feature.upper_closed else 'below'} = {_toml(feature.upper)}"
    for flag in ("any", "missing", "other"):
        if getattr(feature, flag):
            yield f"{flag} = true"
    for word in WINDOW:
        if getattr(feature, word) is not None:
            yield f"{word} = {_toml(getattr(feature, word))}"


def _toml(value: str | float | list[str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def find_differences(old: Schema, new: Schema) -> list[str]:
    """Return what changed between two schemas, a sentence each; empty if they give the same matrix.

    Examples
    --------
    >>> from felb.data import Feature, Schema
    >>> old = Schema((Feature(name="old", column="age", lower=60),))
    >>> find_differences(old, Schema((Feature(name="old", column="age", lower=65),)))
    ["feature 'old' was: from 60, is: from 65"]
    """
    found = []
    before = {feature.name: feature for feature in old.features}
    after = {feature.name: feature for feature in new.features}
    found += [f"feature {name!r} was removed ({before[name].rule()})" for name in before if name not in after]
    found += [f"feature {name!r} was added ({after[name].rule()})" for name in after if name not in before]
    for name in before:
        if name in after and before[name] != after[name]:
            a, b = before[name], after[name]
            of = (f"{a.column!r}: ", f"{b.column!r}: ") if a.column != b.column else ("", "")
            found.append(f"feature {name!r} was: {of[0]}{a.rule()}, is: {of[1]}{b.rule()}")
    common = [name for name in before if name in after]
    if common != [name for name in after if name in before]:
        found.append("the features are in another order")
    for column in {*old.column_features, *new.column_features}:
        if column in old.column_features and column in new.column_features:
            a_says, b_says = old.handling(column), new.handling(column)
            found += _changed(f"column {column!r}", asdict(a_says), asdict(b_says))
    found += _changed("codes", asdict(old.codes), asdict(new.codes)) if old.about_codes and new.about_codes else []
    found += _changed("table", asdict(old.roles), asdict(new.roles))
    if set(old.missing_values) != set(new.missing_values):
        found.append(f"missing_values was {sorted(old.missing_values)}, is {sorted(new.missing_values)}")
    return found


def _changed(where: str, old: dict[str, object], new: dict[str, object]) -> list[str]:
    return [f"{where}: {key} was {old[key]!r}, is {new[key]!r}" for key in old if old[key] != new[key]]


def grouped(schema: Schema, features: Sequence[str]) -> list[str]:
    """Return feature names with those of one column joined by a bar, in the order of their first feature.

    Examples
    --------
    >>> from felb.data import Feature, Schema
    >>> rules = [Feature(name=f"sex: {v}", column="sex", values=(v,)) for v in "FM"]
    >>> grouped(Schema((*rules, Feature(name="old", column="age", lower=60))), ["sex: F", "old", "sex: M"])
    ['sex: F | sex: M', 'old']
    """
    column_of = {feature.name: feature.column for feature in schema.features}
    groups: dict[Any, list[str]] = {}
    for name in features:
        column = column_of.get(name)
        groups.setdefault(("alone", name) if column is None else column, []).append(name)
    return [" | ".join(names) for names in groups.values()]


def conflicts(schema: Schema, components: NDArray[np.bool_]) -> list[str]:
    """Return a sentence for every component that holds features of one column that exclude each other."""
    if components.shape[1] != len(schema.features):
        return []
    found = []
    for number, row in enumerate(components):
        pairs = list(schema.exclusive(tuple(np.flatnonzero(row).tolist())))
        if pairs:
            a, b = (schema.names[i] for i in pairs[0])
            more = f", and {len(pairs) - 1} more such pairs" if len(pairs) > 1 else ""
            found.append(f"component {number} holds {a!r} and {b!r}, which exclude each other{more}")
    return found
