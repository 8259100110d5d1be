"""The experiments by name."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from felb.errors import InputError

if TYPE_CHECKING:
    import os

    from felb_paper.cells import Study

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
    "clients",
)
"""In the order of the paper, and those after them that it does not have."""
MODULES = {"privacy": "privacy_levels"}
"""Modules of experiments that are not called as the experiment."""


def find_study(
    name: str, *, quick: bool = False, trials: int | None = None, data: str | os.PathLike[str] | None = None
) -> Study:
    """Return the quick or full form of an experiment.

    Parameters
    ----------
    name : one of `NAMES`
    quick : the small form
    trials : in place of the experiment's own number
    data : folder with data, for the experiments that run on it
    """
    if name not in NAMES:
        raise InputError(f"there is no experiment {name!r}; felb knows {', '.join(NAMES)}")
    module = import_module(f"felb_paper.experiments.{MODULES.get(name, name)}")
    study: Study = module.QUICK if quick else module.FULL
    if trials is not None:
        study = replace(study, trials=trials)
    if data is None:
        return study
    if not study.reads_data:
        raise InputError(f"the experiment {name!r} generates its own data and does not take a data folder")
    if not Path(data).is_dir():
        raise InputError(f"there is no folder {data}; name the folder with the matrices")
    return replace(study, data=str(data))
