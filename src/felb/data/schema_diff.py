"""How two schemas differ, in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felb.data.schema import Schema


def differences(old: Schema, new: Schema) -> list[str]:
    """Return what changed between two schemas, a sentence each; empty if they give the same matrix.

    Examples
    --------
    >>> from felb.data import Feature, Schema
    >>> old = Schema((Feature(name="old", column="age", lower=60),))
    >>> differences(old, Schema((Feature(name="old", column="age", lower=65),)))
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
