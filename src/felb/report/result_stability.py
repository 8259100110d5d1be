"""The stability of a stored result: refits of its method on its data."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from felb.analysis.refits import cheapest_refit, refitted, stability_among
from felb.analysis.stability_record import FILE, Stability
from felb.errors import InputError
from felb.federated.steps.belief_propagation import ASSIGN_BY_BELIEF
from felb.runs.job_runner import CENTRALIZED
from felb.runs.result import Result
from felb.runs.result_words import RESAMPLED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.report.evidence import Evidence


def stability_of(
    evidence: Evidence,
    *,
    n_resamples: int = 50,
    seed: int = 0,
    on_refit: Callable[[int], None] = lambda _: None,
) -> Stability:
    """Refit the method of a result on bootstrap samples of its data, client by client; see `felb.stability`.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> stability_of(gather("zoo-run"), n_resamples=3).match.shape
    (3, 4)
    """
    result, measured = evidence.result, evidence.measured
    if measured is None:
        raise InputError(f"{evidence.absent} Refits need the data; name the data", parameter="data")
    if evidence.private:
        raise InputError("every refit of a private run spends its privacy budget again; fit without privacy instead")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how new records are assigned does not matter here
        model = result.model()
    rows_of = measured.rows_of or {next(iter(result.clients), CENTRALIZED): np.arange(len(measured.matrix))}
    shards = {name: measured.matrix.take(rows) for name, rows in rows_of.items()}
    recovered = ASSIGN_BY_BELIEF in result.rounds()
    refit = cheapest_refit(model, result.components, shards, recovered=recovered, seed=seed)
    return refitted(
        result.components,
        refit,
        shards,
        rows_of=rows_of,
        n_resamples=n_resamples,
        seed=seed,
        on_refit=on_refit,
    )


def stability_of_refits(folder: str | PathLike[str], refits: Sequence[str | PathLike[str]]) -> Stability:
    """Tell from refits over sites (`felb run --refit`) how often they have found the components of a result.

    Parameters
    ----------
    folder : of the result, or its model file
    refits : folders of the results of refits
    """
    result = Result.read(folder)
    fitted: dict[str, NDArray[np.bool_]] = {}
    for place in refits:
        refit = Result.read(place)
        if not refit.provenance.data.get(RESAMPLED):
            raise InputError(f"{place} is no refit; make one by `felb run --refit N`", parameter="refit")
        kinds = [(r.provenance.method, r.columns, r.components.shape[1]) for r in (result, refit)]
        if kinds[0] != kinds[1]:
            raise InputError(f"{place} is a refit of another run: its method or features differ", parameter="refit")
        fitted[str(refit.provenance.data.get("source"))] = refit.components  # the run, given twice, counts once
    return stability_among(result.components, list(fitted.values()), seed=result.provenance.seed)


def store_stability(stable: Stability, folder: Path) -> Path:
    """Store the stability in the folder of a result, where the report finds it; return the file."""
    stable.write(folder / FILE)
    return folder / FILE


def stored_stability(folder: Path, n_components: int) -> Stability | None:
    """Return the stability that is stored beside a result, or None."""
    try:
        found = Stability.read(folder / FILE)
    except (FileNotFoundError, NotADirectoryError):  # a model file has none beside it
        return None
    if found.match.shape[1] != n_components:
        raise InputError(f"the stability in {folder} is of another result; run `felb stability` again")
    return found
