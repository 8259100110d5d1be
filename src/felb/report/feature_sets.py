"""Components for other tools: gene set files (GMT), JSON, rules and tidy tables."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.metrics.association_rules import component_rules
from felb.report.component_parts import described
from felb.runs.result import finite
from felb.safe_files import replacing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.report.evidence import Evidence, Measured

SUFFIXES = (".gmt", ".json", ".csv")


def write_sets(evidence: Evidence, path: str) -> None:
    """Write the components as sets of features, most distinctive first where the data is at hand.

    A ``.gmt`` file has a line per component: its name, how many records have it, and its features, separated by tabs,
    as tools for enrichment of gene sets read them. A ``.json`` file has an object per component.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> write_sets(gather("zoo-run"), "zoo.gmt")
    >>> Path("zoo.gmt").read_text().split()[:3]
    ['component-3', 'support', '41']
    """
    place = Path(path)
    components = described(evidence)
    if place.suffix == ".gmt":
        lines = []
        for component in components:
            support = "" if component.support is None else f"support {component.support}"
            fields = [f"component-{component.number}", support, *component.features]
            lines.append("\t".join(" ".join(field.split()) for field in fields) + "\n")
        text = "".join(lines)
    elif place.suffix == ".json":
        text = json.dumps([asdict(component) for component in components], indent=1)
    else:
        raise InputError(f"{path} must end in .gmt or .json", parameter="sets")
    with replacing(place) as partial:
        partial.write_text(text, encoding="utf-8")


def write_rules(evidence: Evidence, path: str) -> int:
    """Write the components as rules to a CSV file, largest lift first; return their number.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 2), "zoo-run")
    >>> found = gather("zoo-run")
    >>> write_rules(found, "rules.csv") == int(found.result.components.sum())
    True
    """
    measured = at_hand(evidence)
    names = evidence.feature_names
    rows = [
        {**asdict(rule), "antecedent": "; ".join(rule.antecedent), "rule": str(rule)}
        for rule in component_rules(measured.matrix, measured.V, names)
    ]
    heading = ["component", "antecedent", "consequent", "support", "confidence", "lift", "rule"]
    write_columns({name: [row[name] for row in rows] for name in heading}, path)
    return len(rows)


def write_columns(columns: Mapping[str, list[Any]], path: str) -> None:
    """Write a tidy table to a CSV file."""
    with replacing(Path(path)) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def interpretation(evidence: Evidence) -> dict[str, Any]:
    """Return what the components mean as plain data: features with lift, supports, gains, and labels if known."""
    measured, names = at_hand(evidence), evidence.feature_names
    profile, labels = measured.profile, evidence.enrichment
    found = []
    for component in described(evidence):
        number = component.number
        entry: dict[str, Any] = {
            "component": number,
            "support": int(profile.supports[number]),
            "coverage": float(profile.coverage[number]),
            "exclusive_gain": int(profile.exclusive[number]),
            "features": [
                {"feature": names[j], "lift": profile.lift[number, j], "confidence": profile.confidence[number, j]}
                for j in profile.order(number).tolist()
            ],
        }
        if evidence.stability is not None:
            entry["found"] = float(evidence.stability.found[number])
        if labels is not None:
            table = labels.columns()
            entry["labels"] = [
                {name: table[name][row] for name in table if name != "component"}
                for row, owner in enumerate(table["component"])
                if owner == number
            ]
        found.append(entry)
    return finite({"components": found})  # type: ignore[no-any-return]


def at_hand(evidence: Evidence) -> Measured:
    """Return the result held against its data, or raise because there is none."""
    if evidence.measured is None:
        raise InputError(
            f"{evidence.absent} The meaning of components is measured on the data; name the data", parameter="data"
        )
    return evidence.measured
