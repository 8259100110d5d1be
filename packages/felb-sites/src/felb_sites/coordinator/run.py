"""`felb run`: one process that plays a run over the sites of a federation and leaves the result in a folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import warnings
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import FederationError, FelbError, InputError
from felb.federated.loop import play
from felb.metrics.counts import History
from felb.privacy.statement import guarantee
from felb.records import NEW, beside, clear_leftovers, replace_folder
from felb.runs import RESULT
from felb.runs.result import AGREED, RESAMPLED, Provenance, Result
from felb_sites.coordinator.record import FAILED, FINISHED, RUNNING, RUNS, STATUS, WAITING, RunRecord, Status
from felb_sites.coordinator.sites import (
    ABSENT,
    LOOK_EVERY,
    PASSING,
    PER_PROPOSAL,
    Correspondence,
    MaskedSites,
    QuorumError,
    RelayedSites,
)
from felb_sites.envelopes import MOST_PAYLOAD
from felb_sites.keys.identity import Identity
from felb_sites.messages import End, Proposal, Refusal
from felb_sites.reasons import WAITING as MAY_PASS
from felb_sites.reasons import sentence
from felb_sites.run_plan import plan_digest
from felb_sites.terms import MOMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from felb.federated.loop import RunProgress
    from felb_sites.coordinator.settings import DeployedRun, Hosting
    from felb_sites.coordinator.sites import Relay
    from felb_sites.run_plan import Plan

RUN_KEY, SOCKET = "run.key", Path("relay") / "relay.sock"
REPORT_EVERY = 0.2
"""Seconds between two states of a run on disk."""
UNANSWERED = "has not answered the proposal yet"
OTHER_MEMBERS = "has not got the coordinator's member list yet"
FETCH_WITHIN = 5.0
"""Seconds for connected sites to be told that a run is over, before the relay closes it."""


class NotReady(QuorumError):
    """Sites that were named do not take part, so nobody was asked for anything."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(reasons, "the run was not begun, and no privacy budget was spent")


def run_deployed(
    federation: Hosting,
    run: DeployedRun,
    out: str | os.PathLike[str] | None,
    *,
    force: bool = False,
    late: bool = False,
    patience: float | None = None,
    client: Relay | None = None,
    on_status: Callable[[Status], None] = lambda _: None,
    on_event: Callable[[str], None] = lambda _: None,
) -> Result:
    """Play a run to its end, or an unfinished one from its last round, and leave the result in the folder `out`.

    Parameters
    ----------
    federation : the coordinator's folder
    run : its settings
    out : a new folder; it holds V, the history and the summed scores, while assignments and logs stay at their sites.
        None for a rehearsal, whose result is about no records and is not kept
    force : replace a result that is there
    late : play the last round of a finished run again, for sites that missed it
    patience : seconds to wait for people at the sites; for ever if None
    client : of the relay; the federation's own if None
    on_status : called when the run has moved
    on_event : called with a line about whom it waits for, and about what went wrong and was mended
    """
    if (out is None) != run.plan.rehearsal:
        raise InputError("a run needs a folder for its result, and a rehearsal has none", parameter="out")
    place = None if out is None else Path(out).resolve()
    if place is not None and place.exists() and not (force and (place / RESULT).is_file()):
        raise InputError(f"{out} exists; choose another folder, or replace a result with --force")
    run = run.proposed_by(federation)
    record = RunRecord(federation.folder / RUNS, run.plan.run_id)
    record.begin(run.plan)
    with record.lock(), contextlib.closing(record), _relay_of(federation, client) as relay:
        if late:
            record.reopen()
        player = _Player(federation, run, record, relay, on_status=on_status, on_event=on_event)
        if record.status().state != FINISHED:
            player.play(people=patience)
        result = result_of(record, run, federation=federation.invitation.name)
        player.end()
    if run.rules is not None:
        result = result.disclosed(run.rules)
    if place is not None:
        _write(result, place)
    on_status(record.status())
    return result


class _Player:
    """Plays one run while its lock is held."""

    def __init__(
        self,
        federation: Hosting,
        run: DeployedRun,
        record: RunRecord,
        relay: Relay,
        *,
        on_status: Callable[[Status], None],
        on_event: Callable[[str], None],
    ) -> None:
        self._federation, self._run, self._record = federation, run, record
        self._on_status, self._on_event = on_status, on_event
        self._status = replace(record.status(), process=os.getpid(), message="", hopeless=False)
        self._reported = float("-inf")
        self._letters = Correspondence(
            relay,
            run.plan.run_id,
            run.sites or (),
            identity=Identity.read(federation.folder / RUN_KEY),
            members=lambda: federation.members,
            patience=run.terms.patience,
            on_event=on_event,
        )

    # -- the run -------------------------------------------------------------------------------------------------

    def play(self, *, people: float | None) -> None:
        """Propose the run, wait for consent, and play it to its end."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._play(people=people)
        except (FelbError, OSError) as error:
            reasons = error.reasons if isinstance(error, QuorumError) else {}
            passing = not isinstance(error, QuorumError) or bool(PASSING & set(reasons.values()))
            hopeless = isinstance(error, NotReady) or not passing
            with contextlib.suppress(OSError, FelbError):  # on a full disk nothing can be written down
                told = error.summary if isinstance(error, QuorumError) else str(error)
                self._report(state=FAILED, reasons=reasons, message=told, hopeless=hopeless)
            raise

    def _play(self, *, people: float | None) -> None:
        plan, journal, letters = self._run.plan, self._record.journal(), self._letters
        algorithm = plan.algorithm()
        sites = self._transport()
        number = journal.next_round
        sites.expect(number)
        begun = number > 0
        self._report(state=RUNNING if begun else WAITING, round=number)
        letters.open(most_bytes(plan))
        self._drain()
        letters.forget_refusals()
        proposal = self._record.count(proposal=self._record.counters().proposal + 1).proposal
        members = self._federation.members
        message = Proposal(plan.to_json(), self._run.sites or (), members.digest)
        letters.post(letters.sealed("proposal", proposal, message, to=letters.sites))
        if not begun:
            self._wait_for_consent(proposal, members.digest, people=people)

        def report(progress: RunProgress) -> None:
            answered, reasons = sites.last
            for site in sorted(reasons.keys() - self._status.reasons.keys()):
                self._on_event(f"round {len(progress.history) - 1} goes on without {site}: {reasons[site]}")
            self._report(
                soon=progress.request is not None,
                state=RUNNING,
                round=len(progress.history),
                sites=answered,
                reasons=reasons,
            )

        self._report(state=RUNNING, reasons={})
        finished = play(algorithm, sites, seed=plan.seed, journal=journal, on_round=report)
        assert finished is not None
        sites.finish()
        answered, reasons = sites.last
        self._report(state=FINISHED, round=len(finished.history), sites=answered, reasons=reasons)

    def _transport(self) -> RelayedSites:
        """Return the transport: sums in the clear, or masked."""
        plan, terms = self._run.plan, self._run.terms
        least, reason = masked_quorum(plan)
        connection = self._letters, self._record, plan.algorithm(), replace(terms, quorum=max(terms.quorum, least))

        def waits(reasons: Mapping[str, str]) -> None:
            for site, why in sorted(reasons.items()):
                if self._status.reasons.get(site) != why:
                    self._on_event(f"waiting for {site}: {why}")
            self._report(reasons=dict(reasons))

        if plan.roster is None:
            return RelayedSites(*connection, on_wait=waits)
        roster = self._federation.members.listed.roster(self._run.sites or ())
        if roster.digest != plan.roster:
            raise InputError(f"the roster of run {plan.run_id!r} is not that of its plan", parameter="secure")
        if least > terms.quorum:
            self._on_event(reason)
        return MaskedSites(*connection, plan=plan, roster=roster, on_wait=waits)

    def _drain(self) -> None:
        """Read what waits at the relay from before."""
        before = -1
        while before != self._letters.position:
            before = self._letters.position
            self._letters.poll(0)

    # -- consent -------------------------------------------------------------------------------------------------

    def _wait_for_consent(self, proposal: int, members: str, *, people: float | None) -> None:
        """Wait until all sites take part; raise `NotReady` as soon as one does not, or nobody decides."""
        begun, refused, told = time.monotonic(), float("inf"), dict[str, str]()
        while True:
            reasons, final = self._standing(proposal, members)
            if not reasons:
                return
            now = time.monotonic()
            if final:  # the others may say why, too
                refused = min(refused, now)
            silent = [site for site, reason in reasons.items() if reason in (ABSENT, UNANSWERED)]
            if now - refused >= MOMENT or (final and not silent):
                raise NotReady(reasons)
            if people is not None and now - begun >= people:
                raise NotReady(reasons)
            if reasons != told and (now - begun > LOOK_EVERY or UNANSWERED not in reasons.values()):
                for site, reason in sorted(reasons.items()):
                    if told.get(site) != reason:
                        self._on_event(
                            f"{site} refuses: {reason}" if site in final else f"waiting for {site}: {reason}"
                        )
                told = reasons
                self._report(reasons=reasons)
            self._letters.poll(LOOK_EVERY)

    def _standing(self, proposal: int, members: str) -> tuple[dict[str, str], set[str]]:
        """Return why sites do not take part yet, and which of them never will."""
        reasons, final, agreed = dict[str, str](), set[str](), plan_digest(self._run.plan)
        connected = self._letters.connected()
        for site in self._letters.sites:
            number, answer = self._letters.standing.get(site, (-1, None))
            if number < proposal * PER_PROPOSAL or answer is None:
                reasons[site] = UNANSWERED if site in connected else ABSENT
            elif isinstance(answer, Refusal):
                reasons[site] = refusal_in_words(answer)
                if answer.code not in MAY_PASS:
                    final.add(site)
            elif answer.status == "waiting":
                reasons[site] = sentence(answer.code)
            elif answer.plan != agreed:
                reasons[site] = sentence("known")
                final.add(site)
            elif answer.members != members:
                reasons[site] = OTHER_MEMBERS
        return reasons, final

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Tell the sites that the run is over, and close it; not yet, if a site may still get its assignment."""
        status = self._record.status()
        away = sorted(site for site, reason in status.reasons.items() if reason in PASSING)
        if self._record.counters().ended:
            return
        if away:
            self._on_event(
                f"{', '.join(away)} missed the last round; the run stays open for it: felb run --late, once it is back"
            )
            return
        letters = self._letters
        letters.open(most_bytes(self._run.plan))
        letters.post(letters.sealed("end", 0, End(), to=letters.sites))
        end = time.monotonic() + FETCH_WITHIN
        while letters.undelivered() and time.monotonic() < end:
            letters.poll(0.1)
        letters.close()
        self._record.count(ended=True)

    def _report(self, *, soon: bool = False, **changes: Any) -> None:
        """Write where the run stands; one that will be told again `soon` not too often."""
        self._status = replace(self._status, time=time.time(), **changes)
        if soon and time.monotonic() - self._reported < REPORT_EVERY:
            return
        self._record.report(self._status)
        self._reported = time.monotonic()
        self._on_status(self._status)


@contextlib.contextmanager
def _relay_of(federation: Hosting, client: Relay | None) -> Iterator[Relay]:
    """Return the relay that was given, or a connection to the federation's own, which is closed at the end."""
    if client is not None:
        yield client
        return
    from felb_sites.relay.client import RelayClient

    with RelayClient(federation.folder / SOCKET) as made:
        yield made


def refusal_in_words(refusal: Refusal) -> str:
    """Return why a site does not take part, with the number that it needs where that is known."""
    told = sentence(refusal.code)
    if refusal.needs is None:
        return told
    return f"{told} (it needs {refusal.needs} {'sites' if refusal.code == 'sites' else 'rows'})"


def most_bytes(plan: Plan) -> int:
    """Return how large a message of a run may be: some starts and candidates of several times the size of V."""
    return min(MOST_PAYLOAD, (1 << 20) + 16 * 8 * (plan.most_components + 64) * plan.n_features)


def masked_quorum(plan: Plan) -> tuple[int, str]:
    """Return how many sites each round of a masked run needs, and a sentence that says so; 0 and nothing in the clear.

    With three sites it is all of them: a sum over two would tell each of the two the numbers of the other.
    """
    if plan.sites is None or plan.dropouts is None:
        return 0, ""
    least = plan.sites - plan.dropouts
    who = f"{least} of the {plan.sites}" if plan.dropouts else f"all {plan.sites}"
    return least, f"sums are masked, and a masked sum needs {who} sites"


# -- the result ------------------------------------------------------------------------------------------------------


def _write(result: Result, place: Path) -> None:
    """Write the folder of a result in one move."""
    place.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(place.parent)
    complete = beside(place, NEW)
    try:
        complete.mkdir()
        result.write(complete, {})
        replace_folder(complete, place)
    finally:
        shutil.rmtree(complete, ignore_errors=True)


def participation(run: DeployedRun, history: History) -> dict[str, Any]:
    """Return who took part, and who missed how many rounds."""
    missed: dict[str, int] = {}
    for row in history:
        for site in row.get("missing", ()):
            missed[site] = missed.get(site, 0) + 1
    return {"sites": None if run.sites is None else list(run.sites), "missed_rounds": missed}


def result_of(record: RunRecord, run: DeployedRun, *, federation: str) -> Result:
    """Make the result of a finished run from its journal."""
    execution = record.execution(run.plan)
    outcome, history = execution.outcome, History(execution.rows)
    if outcome is None:
        raise FederationError(f"run {run.plan.run_id!r} is not finished yet")
    privacy = run.plan.algorithm().privacy
    counts, last, plan = outcome.counts, record.status(), run.plan
    return Result.of(
        outcome,
        columns=run.columns,
        schema=run.schema,
        clients=dict.fromkeys(last.sites),  # only the sum of their rows is kept
        history=history,
        privacy=None if privacy is None else guarantee(privacy, history),
        provenance=Provenance(
            method=plan.method,
            parameters={
                "n_components": plan.n_components,
                **plan.parameters,
                **({} if plan.privacy is None else {"privacy": dict(plan.privacy)}),
                "terms": run.terms.to_json(),
                "secure": plan.roster is not None,
            },
            seed=plan.seed,
            data={
                "source": f"federation {federation}, run {plan.run_id}",
                # A private run knows how many records were agreed on, not how many there are.
                "rows": None if counts is None or plan.privacy is not None else counts.cells // plan.n_features,
                **({} if plan.records is None else {AGREED: plan.records}),
                "columns": plan.n_features,
                "ones": None if counts is None or plan.privacy is not None else counts.tp + counts.fn,
                "fingerprint": None,
                "participation": participation(run, history),
                **({RESAMPLED: True} if plan.resample else {}),
            },
        ),
    )


# -- all runs --------------------------------------------------------------------------------------------------------


def overview(federation: Hosting, *, client: Relay | None = None) -> dict[str, Any]:
    """Return plain data about a federation: its relay, its sites, and where its runs stand.

    Returns
    -------
    ``federation``, ``relay`` (its address), ``reachable``; ``sites``, by name: ``connected``, ``seconds`` since they
    were heard and ``waiting`` envelopes; ``runs``: ``run``, ``state``, ``round``, ``sites``, ``reasons``, ``message``,
    ``changed``. A run whose process is gone is "interrupted".
    """
    invitation, seen = federation.invitation, dict[str, Any]()
    with _relay_of(federation, client) as relay:
        reachable = relay.is_alive()
        if reachable:
            try:
                seen = dict(relay.sites())
            except FederationError:
                reachable = False
    nothing = {"connected": False, "seconds": None, "waiting": 0}
    sites = {member.name: {**nothing, **seen.get(member.name, {})} for member in federation.members.listed.members}
    runs, folder = [], federation.folder / RUNS
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (path / STATUS).is_file():
            continue
        record = RunRecord(folder, path.name)
        status = asdict(record.status())
        if status["state"] in (RUNNING, WAITING) and not record.held:
            status["state"] = "interrupted"
        changed = datetime.fromtimestamp(status.pop("time"), UTC).isoformat(timespec="seconds")
        runs.append({"run": path.name, **status, "changed": changed})
    return {
        "federation": invitation.name,
        "relay": invitation.url,
        "reachable": reachable,
        "sites": sites,
        "runs": runs,
    }
