"""``felb federation demo``: a federation of real processes on this machine, on data that felb ships."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from felb.data import partition
from felb.data.binary import BinaryMatrix
from felb.data.files import load
from felb.data.partition import split
from felb.errors import InputError
from felb.federated.algorithms.registry import DEFAULT
from felb.privacy.disclosure import Disclosure
from felb.privacy.spec import LEAST_SITES, MOST_SITES
from felb_sites.coordinator.local import LocalFederation
from felb_sites.coordinator.run import run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.run_plan import DEFAULT_MAX_COMPONENTS, Plan, fingerprint
from felb_sites.terms import Terms

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from felb.runs.result import Result
    from felb_sites.coordinator.record import Status

DATA, MOST_FEATURES = "sc_10x_brain_10k", 40
"""10,000 cells, and of their genes those that are found in most of them: enough records for the default rules."""


def demonstrate(
    *,
    sites: int,
    n_components: int | str,
    method: str = DEFAULT,
    out: str | os.PathLike[str] | None = None,
    keep: str | os.PathLike[str] | None = None,
    on_status: Callable[[Status], None] = lambda _: None,
    on_event: Callable[[str], None] = lambda _: None,
) -> tuple[Result, str]:
    """Play a run with default effort and default rules, masked; return its result and where it is kept."""
    matrix = choose_features(load(DATA), sites=sites, n_components=n_components)
    shards, _ = split(matrix, [f"site-{number + 1:02}" for number in partition.even(len(matrix), sites)])
    columns = matrix.columns or ()
    plan = Plan("demo", method, n_components, len(columns), sites=sites, columns=fingerprint(columns))
    run = DeployedRun(plan, Terms(quorum=sites), tuple(shards), columns, secure=True)
    with tempfile.TemporaryDirectory(prefix="felb-demo-") as scratch:
        folder = Path(scratch if keep is None else keep) / "federation"
        on_event(f"making the keys of a coordinator and {sites} sites")
        policy = {"require_privacy": False, "auto_approve": ["all"]}
        with LocalFederation(folder, shards, policy=policy) as local:
            on_event("relay, vaults and couriers run and are connected; playing the run")
            place = Path(out) if out is not None else Path(scratch) / "result"
            result = run_deployed(local.federation, run, place, on_status=on_status, on_event=on_event)
    return result, "not kept" if out is None else str(out)


def choose_features(matrix: BinaryMatrix, *, sites: int, n_components: int | str) -> BinaryMatrix:
    """Return the columns with most ones, as many as the default disclosure rules allow to each site."""
    if not LEAST_SITES <= sites <= MOST_SITES:
        raise InputError(f"sums are masked among {LEAST_SITES} to {MOST_SITES} sites, got {sites}", parameter="sites")
    rules = Disclosure()
    most = DEFAULT_MAX_COMPONENTS if isinstance(n_components, str) else n_components
    allowed = int((rules.max_parameters or 1) * (len(matrix) // sites) / most)
    if allowed < 2:
        raise InputError(f"{most} components over {sites} sites are too many for the records of the demonstration")
    chosen = np.sort(np.argsort(-matrix.column_sums(), kind="stable")[: min(MOST_FEATURES, allowed)])
    names = tuple(f"gene-{number}" for number in chosen)
    return BinaryMatrix.of(matrix.to_scipy(bool)[:, chosen]).with_columns(names)
