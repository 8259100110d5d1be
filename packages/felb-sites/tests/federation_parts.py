"""What the tests of real federations share: zoo data at three sites, a run, and trouble at the right moment."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

from felb.data import partition
from felb.data.files import load
from felb.data.partition import split
from felb.errors import InputError
from felb_sites.deployed import DeployedRun, run_deployed
from felb_sites.run_plan import Plan, fingerprint
from felb_sites.run_record import RunRecord
from felb_sites.supervisor import Patience
from felb_sites.terms import Terms

ZOO = load("zoo")
SITES = ("site-1", "site-2", "site-3")
SHARDS = split(ZOO, [SITES[i] for i in partition.even(101, 3)])[0]
METHODS_PLAYED = ("felb-mu", "bmf", "asso+vote")
"""What the sites allow."""
PATIENCE = Patience(server=120, sites=60, start=120, restarts=5)


def plan(run_id, *, rounds=12, method="felb-mu", **parameters):
    settings = {"max_iter": rounds, **parameters} if method == "felb-mu" else parameters
    return Plan(run_id, method, 4, 17, settings, columns=fingerprint(ZOO.columns))


def play(federation, out, made, *, trouble=None, at=3, columns=ZOO.columns, late=False, **terms):
    """Play a run; `trouble` happens once, when that many rounds are done. Return the result and what was told."""
    terms = Terms(**{"quorum": 3, "grace": 3.0, "round_timeout": 60.0, **terms})
    record, told = RunRecord(federation.coordinator.runs, made.run_id), []

    def rounds_done():
        with contextlib.suppress(InputError):  # the record is only just being made
            status = record.status()
            assert status.state != "finished", "the run was over before its trouble; play more rounds"
            return status.round
        return 0

    def wait_and_disturb():
        end = time.monotonic() + 120
        while rounds_done() < at:
            assert time.monotonic() < end, "the run does not get on"
            time.sleep(0.02)
        trouble()

    with ThreadPoolExecutor(1) as pool:
        disturbed = pool.submit(wait_and_disturb if trouble else lambda: None)
        run = DeployedRun(made, terms, SITES, columns, disclosure="none")
        result = run_deployed(federation.coordinator, run, out, late=late, patience=PATIENCE, on_event=told.append)
    disturbed.result()
    return result, told
