"""Schemas as TOML files, for people to read and edit."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.data.schema import FORMAT, MISSING_VALUES, Feature, Handling, Roles, Schema
from felb.errors import InputError
from felb.records import read_text, read_toml
from felb.safe_files import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

BOUNDS = {"from": ("lower", False), "above": ("lower", True), "below": ("upper", False), "to": ("upper", True)}
TOP = ("format", "title", "digest", "table", "columns", "codes", "mapping", "feature")
SAME = ("any", "missing", "other", "column", "name")
WINDOW = ("since", "before")
SHORTHANDS = ("categories", "edges", "names")


def read_schema(path: str | PathLike[str]) -> Schema:
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

    ``since`` and ``before`` count only events of that time. ``categories = [...]`` instead of a name makes one feature
    for each category of a column, ``edges = [...]`` one for each bin. ``[table]`` names the columns ``record``,
    ``item``, ``value`` and ``time``, and the ``missing_values``; ``[columns.NAME]`` and ``[codes]`` say what happens to
    values that are ``missing`` or ``unlisted``, and which known values are ``zeros``. ``[mapping]`` has a ``file`` (CSV
    with a header) and its columns ``code`` and ``group``; its content becomes part of the schema and its digest.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("s.toml").write_text('[[feature]]\nname = "adult"\ncolumn = "age"\nfrom = 18\n')
    >>> read_schema("s.toml").features[0].rule()
    'from 18'
    """
    source = Path(path)
    raw = read_toml(source, advice="`felb schema infer` writes a schema")
    try:
        return _schema(raw, source.parent)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


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
        made = [interval_name(column, rule["lower"], rule["upper"]) for rule in rules]
    names = _texts(entry.get("names", made), where)
    if len(names) != len(rules):
        raise InputError(f"{where} has {len(names)} names for {len(rules)} features")
    for name, rule in zip(names, rules, strict=True):
        yield Feature(name=name, column=column, **rule | window)


def interval_name(column: str, lower: float | None, upper: float | None, *, whole: bool = False) -> str:
    """Return a name such as "age 40-59" for whole numbers, "glucose 5.1 to below 7" for others.

    Examples
    --------
    >>> interval_name("age", 40, 60, whole=True), interval_name("bmi", None, 18.5), interval_name("bmi", 18.5, 25)
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


# -- writing ---------------------------------------------------------------------------------------------------


def write_schema(schema: Schema, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write a schema as TOML; the file appears complete or not at all."""
    target = Path(path)
    if target.exists() and not force:
        raise InputError(f"{target} exists; choose another name or replace it with force=True")
    try:
        with replacing(target) as partial:
            partial.write_text(schema_text(schema), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from error


def schema_text(schema: Schema) -> str:
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
