"""The experiments by name."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from felb.errors import InputError

if TYPE_CHECKING:
    from felb.experiments.spec import Study

NAMES = (
    "invader",
    "noise",
    "scarcity",
    "abundance",
    "privacy",
    "realworld",
    "sync",
    "aggregation",
    "convergence",
    "drift",
)
"""In the order of the paper."""


def find_study(name: str, *, quick: bool = False, trials: int | None = None) -> Study:
    """Return the quick or full form of an experiment, with another number of trials if one is given."""
    if name not in NAMES:
        raise InputError(f"there is no experiment {name!r}; felb knows {', '.join(NAMES)}")
    module = import_module(f"felb.experiments.studies.{name}")
    study: Study = module.QUICK if quick else module.FULL
    return study if trials is None else replace(study, trials=trials)
