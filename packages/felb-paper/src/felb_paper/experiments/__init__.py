"""The experiments by name, each in its full and its quick form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from felb.errors import InputError
from felb_paper.experiments.invader import INVADER
from felb_paper.experiments.planted import ABUNDANCE, AGGREGATION, CONVERGENCE, DRIFT, NOISE, SCARCITY
from felb_paper.experiments.privacy import PRIVACY
from felb_paper.experiments.real import CLIENTS, REALWORLD, SYNC

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from felb_paper.cells import Study

STUDIES: Mapping[str, tuple[Study, Study]] = {
    "invader": INVADER,
    "noise": NOISE,
    "scarcity": SCARCITY,
    "abundance": ABUNDANCE,
    "privacy": PRIVACY,
    "realworld": REALWORLD,
    "sync": SYNC,
    "aggregation": AGGREGATION,
    "convergence": CONVERGENCE,
    "drift": DRIFT,
    "clients": CLIENTS,
}
"""Full and quick form, in the order of the paper, and those after them that it does not have."""
NAMES = tuple(STUDIES)


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
    study = STUDIES[name][quick]
    if trials is not None:
        study = replace(study, trials=trials)
    if data is None:
        return study
    if not study.reads_data:
        raise InputError(f"the experiment {name!r} generates its own data and does not take a data folder")
    if not Path(data).is_dir():
        raise InputError(f"there is no folder {data}; name the folder with the matrices")
    return replace(study, data=str(data))
