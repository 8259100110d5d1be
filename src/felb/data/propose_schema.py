"""From summaries to a schema: of one table, or of several sites that tell each other no small counts."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.data.schema import Feature, Handling, Roles, Schema
from felb.data.schema_file import interval_name
from felb.data.summarize import ColumnSummary, Summary, summarize
from felb.errors import InputError
from felb.records import MAX_BYTES, read_text
from felb.safe_files import replacing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

FORMAT = "felb-schema-proposal-1"
OPPOSITE = {"1": "0", "true": "false", "True": "False", "TRUE": "FALSE"}
"""Values of a column that is a feature already."""


def infer(
    data: Any,
    *,
    min_count: int = 10,
    max_features: int = 1000,
    max_categories: int = 20,
    missing: str = "unknown",
    **counting: Any,
) -> tuple[Schema, dict[str, str]]:
    """Propose a schema for a table, for a person to edit; also the columns that were left out, with reasons.

    Parameters
    ----------
    data : file, URL or frame, as in `felb.data.read` with a schema
    min_count : records that a category or code needs for a feature of its own
    max_features : most frequent features that are kept
    max_categories : of a column; the others become one feature
    missing : what a missing value is: "unknown", "zero", "category" or "error"
    counting : roles, bins, prefix_length and leave_out of `felb.data.summarize.summarize`

    Examples
    --------
    >>> import pandas as pd
    >>> schema, _ = infer(pd.DataFrame({"sex": ["F", "M", "F"], "smokes": [0, 1, 1]}), min_count=1)
    >>> schema.names
    ('sex: F', 'sex: M', 'smokes')
    """
    summary = summarize(data, max_categories=max_categories, **counting)
    prefixes = counting.get("prefix_length") is not None
    schema = make_schema(
        summary,
        min_count=min_count,
        max_features=max_features,
        max_categories=max_categories,
        missing=missing,
        prefixes=prefixes,
    )
    return schema, dict(summary.skipped)


def make_schema(
    summary: Summary,
    *,
    min_count: int = 10,
    max_features: int = 1000,
    max_categories: int = 20,
    missing: str = "unknown",
    prefixes: bool = False,
) -> Schema:
    """Make a schema of what was counted; parameters as in `infer`, codes as beginnings of codes if `prefixes`."""
    features: list[tuple[int, Feature]] = []
    columns: dict[str, Handling] = {}
    for column, found in summary.columns.items():
        made, columns[column] = _column(column, found, min_count, max_categories, missing)
        features += made
    for code, count in sorted(summary.codes.items()):
        if count >= min_count:
            name = f"{code} {summary.labels[code]}" if code in summary.labels else code
            rule: dict[str, Any] = {"prefixes" if prefixes else "codes": (code,)}
            features.append((count, Feature(name=name, **rule)))
    kept = _most_frequent(features, max_features)
    if not kept:
        raise InputError(f"no category or code has at least min_count={min_count} records; ask for fewer")
    dropped = {rule.column for _, rule in features if rule not in kept and rule.column is not None}
    for column in dropped:
        if columns[column].unlisted != "other":
            columns[column] = replace(columns[column], unlisted="ignore")
    about = {rule.column for rule in kept}
    columns = {column: _consistent(column, handling, kept) for column, handling in columns.items() if column in about}
    return Schema(tuple(kept), summary.roles, columns, Handling("zero", "ignore"))


def _most_frequent(features: list[tuple[int, Feature]], most: int) -> list[Feature]:
    """Return the most frequent features in their order."""
    order = sorted(range(len(features)), key=lambda i: (-features[i][0], i))[:most]
    return [features[i][1] for i in sorted(order)]


def _consistent(column: str, handling: Handling, kept: list[Feature]) -> Handling:
    """Return the handling that fits the features that were kept."""
    own = [rule for rule in kept if rule.column == column]
    if handling.missing == "category" and not any(rule.missing for rule in own):
        handling = replace(handling, missing="zero")
    if handling.unlisted == "other" and not any(rule.other for rule in own):
        handling = replace(handling, unlisted="ignore")
    return handling


def _column(
    column: str, found: ColumnSummary, min_count: int, max_categories: int, missing: str
) -> tuple[list[tuple[int, Feature]], Handling]:
    made: list[tuple[int, Feature]] = []
    unlisted: Any = "error"
    zeros: tuple[str, ...] = ()
    if found.edges:
        unlisted, per_bin = "ignore", found.known // (len(found.edges) + 1)
        for lower, upper in zip([None, *found.edges], [*found.edges, None], strict=True):
            name = interval_name(column, lower, upper, whole=found.whole)
            made.append((per_bin, Feature(name=name, column=column, lower=lower, upper=upper)))
    elif yes := next(
        (yes for yes, no in OPPOSITE.items() if yes in found.counts and set(found.counts) <= {yes, no}), ""
    ):
        made.append((found.counts[yes], Feature(name=column, column=column, values=(yes,))))
        zeros = (OPPOSITE[yes],)
    else:
        frequent = [value for value, count in found.counts.items() if count >= min_count]
        chosen = sorted(sorted(frequent, key=lambda value: (-found.counts[value], value))[:max_categories])
        for value in chosen:
            made.append((found.counts[value], Feature(name=f"{column}: {value}", column=column, values=(value,))))
        rest = found.rest + sum(count for value, count in found.counts.items() if value not in chosen)
        if rest >= min_count:
            unlisted = "other"
            made.append((rest, Feature(name=f"{column}: other", column=column, other=True)))
        elif rest:
            unlisted = "ignore"
    if missing == "category" and found.missing >= min_count:
        made.append((found.missing, Feature(name=f"{column}: missing", column=column, missing=True)))
        return made, Handling("category", unlisted, zeros)
    return made, Handling("zero" if missing == "category" else missing, unlisted, zeros)  # type: ignore[arg-type]


# -- proposals of sites ----------------------------------------------------------------------------------------


def disclosed(summary: Summary, *, min_count: int = 10, base: int = 5) -> Summary:
    """Return what a site may tell of its summary: nothing that fewer than `min_count` records share.

    Counts are rounded down to multiples of `base`. Categories and codes of fewer than `min_count` records are not
    named, neither are columns for which nothing else remains; quantiles are told only where at least `min_count`
    records lie between two of them. Columns that make no features are not named either.
    """
    if min_count < 2 or base < 1:
        raise InputError(f"min_count={min_count} and base={base} would disclose single records")
    if summary.records < min_count:
        raise InputError(f"this site has fewer than {min_count} records and cannot propose anything")

    def told(count: int) -> int:
        return count // base * base if count >= min_count else 0

    columns = {}
    for name, found in summary.columns.items():
        counts = {value: told(count) for value, count in found.counts.items() if count >= min_count}
        rest = told(found.rest + sum(count for count in found.counts.values() if count < min_count))
        enough = found.known >= min_count * (len(found.edges) + 1)
        if counts or (found.edges and enough):
            columns[name] = ColumnSummary(
                counts, rest, found.edges if enough else (), found.whole, told(found.known), told(found.missing)
            )
    codes = {code: told(count) for code, count in summary.codes.items() if count >= min_count}
    labels = {code: label for code, label in summary.labels.items() if code in codes}
    return Summary(summary.roles, told(summary.records), columns, codes, labels)


def merged(proposals: Sequence[Summary]) -> Summary:
    """Add up the proposals of sites; quantiles are averaged, weighted by the records they are of."""
    if not proposals:
        raise InputError("there is no proposal to merge")
    roles = proposals[0].roles
    if any(proposal.roles != roles for proposal in proposals):
        raise InputError(
            "the proposals name different columns for records, codes, values or dates; agree on one naming"
        )
    columns: dict[str, ColumnSummary] = {}
    codes: dict[str, int] = {}
    labels: dict[str, str] = {}
    for proposal in proposals:
        for name, found in proposal.columns.items():
            columns[name] = _added(name, columns[name], found) if name in columns else found
        for code, count in proposal.codes.items():
            codes[code] = codes.get(code, 0) + count
        labels |= proposal.labels
    return Summary(roles, sum(proposal.records for proposal in proposals), columns, codes, labels)


def _added(name: str, a: ColumnSummary, b: ColumnSummary) -> ColumnSummary:
    if bool(a.edges) != bool(b.edges):
        raise InputError(f"column {name!r} holds numbers at one site and categories at another; agree on one of them")
    counts = {value: a.counts.get(value, 0) + b.counts.get(value, 0) for value in [*a.counts, *b.counts]}
    edges = a.edges if a.known >= b.known else b.edges
    if len(a.edges) == len(b.edges) and a.known + b.known:
        both = a.known + b.known
        edges = tuple((x * a.known + y * b.known) / both for x, y in zip(a.edges, b.edges, strict=True))
        edges = tuple(sorted({float(f"{edge:.3g}") if not a.whole else float(round(edge)) for edge in edges}))
    return ColumnSummary(counts, a.rest + b.rest, edges, a.whole and b.whole, a.known + b.known, a.missing + b.missing)


def check_new(path: str | PathLike[str], *, force: bool) -> None:
    """Raise if there is a file that must not be replaced."""
    if Path(path).exists() and not force:
        raise InputError(f"{path} exists; choose another name or replace it with force=True")


def write_proposal(summary: Summary, path: str | PathLike[str], *, prefixes: bool, force: bool = False) -> None:
    """Write what a site proposes as JSON, for a person to look at before it is sent."""
    check_new(path, force=force)
    with replacing(Path(path)) as partial:
        text = json.dumps({"format": FORMAT, "prefixes": prefixes, **asdict(summary)}, indent=1, ensure_ascii=False)
        partial.write_text(text, encoding="utf-8")


def read_proposal(path: str | PathLike[str]) -> tuple[Summary, bool]:
    """Read a proposal back, and whether its codes are beginnings of codes."""
    try:
        raw = json.loads(read_text(path, advice="a proposal is made with felb schema propose", limit=MAX_BYTES))
        if raw.pop("format") != FORMAT:
            raise InputError(f"{path} is no proposal of this felb")
        prefixes = bool(raw.pop("prefixes"))
        columns = {
            str(name): ColumnSummary(**{**found, "edges": tuple(map(float, found["edges"]))})
            for name, found in raw.pop("columns").items()
        }
        summary = Summary(Roles(**raw.pop("roles")), columns=columns, **raw)
        _check_counts(summary)
        return summary, prefixes
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{path} is no proposal, or damaged ({error}); make it again with felb schema propose"
        ) from error


def _check_counts(summary: Summary) -> None:
    counts = [summary.records, *summary.codes.values()]
    for found in summary.columns.values():
        counts += [found.rest, found.known, found.missing, *found.counts.values()]
    if any(type(count) is not int or count < 0 for count in counts):
        raise ValueError("a count is no whole number")
    if not all(math.isfinite(edge) for found in summary.columns.values() for edge in found.edges):
        raise ValueError("a quantile is no finite number")
    texts = [*summary.labels.values(), *summary.skipped.values()]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a label is no text")
