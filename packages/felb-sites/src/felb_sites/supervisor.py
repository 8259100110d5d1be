"""The supervisor executes a run to its end, job after job, and recovers from failures.

FLARE gives up a job when a site's worker dies, forgets one when its server is restarted, and lets no site back into
one it has left. The run's own record decides instead: as long as it is not finished, the next job goes on from its
last round.
"""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from felb.errors import FederationError, FelbError, InputError
from felb.records import try_lock
from felb_sites.coordinator_session import Line, Unreachable
from felb_sites.run_record import LOCK, STATUS, RunRecord, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from felb_sites.provisioning import Coordinator
    from felb_sites.run_plan import Plan
    from felb_sites.terms import Terms

POLL, ASK_EVERY = 0.2, 2.0
LISTENS_WITHIN = 1.5
FINISHED, PAUSED, FAILED, RUNNING = "finished", "paused", "failed", "running"


@dataclass(frozen=True, slots=True)
class Patience:
    """How much a supervisor puts up with.

    Parameters
    ----------
    server : seconds to wait for a server that does not answer, or for a quorum of sites
    sites : seconds to wait for absent sites when a quorum is there
    start : seconds a job may take to begin
    restarts : jobs in a row that may end without a single new round
    """

    server: float = 600.0
    sites: float = 60.0
    start: float = 180.0
    restarts: int = 5


def supervise(
    coordinator: Coordinator,
    plan: Plan,
    terms: Terms,
    *,
    sites: Sequence[str] | None = None,
    late: bool = False,
    patience: Patience | None = None,
    on_status: Callable[[Status], None] = lambda _: None,
    on_event: Callable[[str], None] = lambda _: None,
) -> RunRecord:
    """Play a run to its end and return its record; called again for an unfinished run, it goes on.

    Parameters
    ----------
    coordinator : whose federation
    plan : what to run; the same as before for a run that exists
    terms : quorum, grace period and timeouts
    sites : who is to take part; everybody connected without it
    late : play the last round of a finished run again, for sites that missed it
    on_status : called when the run has moved
    on_event : called with a line about everything that went wrong and was mended
    """
    patience = patience or Patience()
    record = RunRecord(coordinator.runs, plan.run_id)
    if sites is not None:
        check_names(coordinator, sites)
    roster = None if plan.roster is None else coordinator.roster(sites or ())
    least, reason = masked_quorum(plan)
    if reason:
        terms = replace(terms, quorum=max(terms.quorum, least))
        on_event(reason)
    record.begin(plan)
    if late:
        record.reopen()
    futile, before = 0, -1
    with Line(coordinator) as line:
        while (status := record.status()).state != FINISHED:
            if status.round > before:
                futile, before = 0, status.round
            elif futile > patience.restarts:
                told = f" The last message was: {status.message}." if status.message else ""
                raise FederationError(
                    f"run {plan.run_id!r} has made no progress after round {status.round} in {futile} attempts.{told} "
                    "See the logs of the sites; then run `felb run` again to continue"
                )
            futile += 1
            line.wait(patience.server)
            job = status.job if status.state == RUNNING and held(record) and status.job else None
            if job is None:
                begun = status.round > 0
                present = gather(line, sites, terms, patience=patience, on_event=on_event, begun=begun, reason=reason)
                job = line.submit(plan, terms, sites=present, wanted=sites or (), roster=roster)
            end = watch(line, record, job, patience=patience, on_status=on_status)
            if end.state == FAILED:
                check_hope(end)
                on_event(end.message)
            elif end.state == RUNNING:
                on_event(f"round {end.round}: the job broke off; the run goes on from its last round")
                with contextlib.suppress(Unreachable):
                    line.abort(job)
    on_status(record.status())
    return record


def masked_quorum(plan: Plan) -> tuple[int, str]:
    """Return how many sites each round of a masked run needs, and a sentence that says so; 0 and nothing in the clear.

    With three sites it is all of them: a sum over two would tell each of the two the numbers of the other.
    """
    if plan.sites is None or plan.dropouts is None:
        return 0, ""
    least = plan.sites - plan.dropouts
    who = f"{least} of the {plan.sites}" if plan.dropouts else f"all {plan.sites}"
    return least, f"sums are masked, and a masked sum needs {who} sites"


def gather(
    line: Line,
    wanted: Sequence[str] | None,
    terms: Terms,
    *,
    patience: Patience,
    on_event: Callable[[str], None],
    begun: bool = True,
    reason: str = "",
) -> list[str]:
    """Wait for the sites of a run; return those that are connected, at least a quorum.

    A run that has not begun needs everybody who is named. `reason` says why the quorum is what it is.
    """
    needed = terms.quorum if wanted is None else max(terms.quorum, len(wanted))
    start, told = time.monotonic(), False
    while True:
        present = [site for site in line.sites() if wanted is None or site in wanted]
        if len(present) >= needed:
            return present
        # After a restart of the server the sites find it again one by one; without a quorum there is nothing to lose.
        enough = len(present) >= terms.quorum
        if time.monotonic() - start > (patience.sites if enough else max(patience.sites, patience.server)):
            break
        if not told:
            on_event(f"waiting for sites: {len(present)} of {needed} are connected")
            told = True
        time.sleep(0.5)
    if len(present) < terms.quorum:
        raise FederationError(
            f"{len(present)} sites are connected ({', '.join(present) or 'none'}) and {terms.quorum} are needed"
            f"{reason and f' ({reason})'}; start the others, then call `felb run` again"
        )
    absent = sorted(set(wanted or ()) - set(present))
    if absent and not begun:
        without = " ".join(f"--without {name}" for name in absent)
        raise FederationError(
            f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not connected, so the run was not begun; "
            f"start the site, or run without it: felb run ... {without}"
        )
    on_event(f"goes on without {', '.join(absent)}")
    return present


def watch(
    line: Line,
    record: RunRecord,
    job: str,
    *,
    patience: Patience,
    on_status: Callable[[Status], None],
) -> Status:
    """Follow a job until the run's record says how it ended; one that is still "running" then was broken off."""
    began, asked, shown = time.monotonic(), time.monotonic(), None
    while True:
        status = record.status()
        mine = status.job == job
        if mine and status != shown:
            on_status(status)
            shown = status
        if mine and status.state != RUNNING:
            return status
        if mine and not held(record):
            return record.status()  # it may have ended properly just now
        if not mine and time.monotonic() - began > patience.start:
            return _never_begun(record)
        if time.monotonic() - asked > ASK_EVERY:
            asked = time.monotonic()
            try:
                ended = line.ended(job)
            except Unreachable:
                if not held(record):
                    return _never_begun(record) if record.status().job != job else record.status()
                continue
            except FederationError:
                ended = "unknown to the server"
            if ended is not None and not held(record):
                final = record.status()
                return final if final.job == job else _never_begun(record)
        time.sleep(POLL)


def held(record: RunRecord) -> bool:
    """Whether a process plays the run; a lock ends with its process, however that ends."""
    lock = try_lock(record.folder / LOCK)
    if lock is None:
        return True
    lock.close()
    return False


def check_hope(status: Status) -> None:
    """Raise if a failed run would fail again: sites refused it, rather than were away."""
    if status.hopeless:
        raise FederationError(status.message)


def overview(coordinator: Coordinator) -> dict[str, Any]:
    """Return plain data about a federation: its server, the sites that are connected, and where its runs stand."""
    invitation, sites = coordinator.invitation, []
    reachable = listens(invitation.host, invitation.port)
    if reachable:
        with Line(coordinator) as line:
            try:
                sites = line.sites()
            except Unreachable:
                reachable = False
    runs = []
    for folder in sorted(path for path in coordinator.runs.iterdir() if (path / STATUS).is_file()):
        record = RunRecord(coordinator.runs, folder.name)
        status = asdict(record.status())
        if status["state"] == RUNNING and not held(record):
            status["state"] = "interrupted"
        changed = datetime.fromtimestamp(status.pop("time"), UTC).isoformat(timespec="seconds")
        runs.append({"run": folder.name, **status, "changed": changed})
    return {
        "federation": invitation.federation,
        "server": f"{invitation.host}:{invitation.port}",
        "reachable": reachable,
        "sites": sites,
        "runs": runs,
    }


def listens(host: str, port: int) -> bool:
    """Return whether anybody listens at an address; known within `LISTENS_WITHIN` seconds."""
    try:
        with socket.create_connection((host, port), timeout=LISTENS_WITHIN):
            return True
    except OSError:
        return False


def check_names(coordinator: Coordinator, sites: Sequence[str]) -> None:
    """Refuse a site that was never admitted, by name, where the register of admissions is at hand."""
    try:
        authority: Any = getattr(coordinator, "authority", None)
        signed = None if authority is None else {line.name for line in authority.signed()}
    except (FelbError, OSError):
        return  # the authority's key and its register may be kept elsewhere
    unknown = sorted(set(sites) - signed) if signed is not None else []
    if unknown:
        known = ", ".join(sorted(signed or ())) or "none"
        raise InputError(f"the run names {unknown[0]!r}, which is no site of this federation; its sites are {known}")


def _never_begun(record: RunRecord) -> Status:
    status = record.status()
    return Status(RUNNING, round=status.round, message="the job never began")
