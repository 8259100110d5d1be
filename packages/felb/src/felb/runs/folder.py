"""The folder of a run, written beside its place and moved there when it is complete; its outbound logs."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from felb.errors import ConnectionLostError, FelbError, InputError, PrivacyError
from felb.federated.gate import StoredResponses, answered_rounds
from felb.federated.journal import Journal
from felb.privacy.outbound_log import OutboundLog, keep_lines, read_log, read_outbound_log
from felb.records import NEW, beside, clear_leftovers, read_record, remove_folder, replace_folder, replacing, try_lock
from felb.runs import OUTBOUND, RESULT
from felb.runs.job import Job
from felb.runs.result import ASSIGNMENTS, file_stem

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from felb.federated.gate import Responses
    from felb.federated.protocol import Algorithm
    from felb.privacy.outbound_log import OutboundRecord
    from felb.privacy.spec import PrivacyPlan
    from felb.runs.result import Result


JOB, JOURNAL, LOCK, RESPONSES, STATES, DONE = "job.json", "journal", "lock", "responses", "states", "done"


class RunFolder:
    """Where a run keeps its job, its journal and its logs, and leaves its result.

    While a run is under way everything is in ``OUT.unfinished``; ``OUT`` appears when the result is complete. One
    process at a time works on a run.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self.out = Path(out)
        self._place = self.out.resolve()  # "." and ".." have no name to put something beside
        self.work = self._place.parent / f"{self._place.name}.unfinished"
        self._fresh = False
        self._lock: IO[bytes] | None = None
        self._journal: Journal | None = None
        self._logs: list[OutboundLog] = []

    def check(self, *, force: bool) -> None:
        """Raise unless a run may begin here; only results and runs of felb are replaced, and only with `force`."""
        self._clear()
        if self._place.exists():
            if not force:
                raise InputError(f"{self.out} exists; choose another folder, or replace it with --force")
            if not _is_ours(self._place):
                raise InputError(f"{self.out} is not a result of felb and is not replaced; choose another folder")
        if self.work.exists():
            if not _is_ours(self.work):
                raise InputError(f"{self.work} is in the way; move it, or choose another folder")
            if not force and self.resumable:
                raise InputError(
                    f"an unfinished run is at {self.work}; resume it with --resume {self.out}, or start "
                    "again with --force"
                )
            self._take_lock()
            self._release_lock()

    def begin(self, job: Job, *, force: bool) -> None:
        """Claim the place for a new run."""
        self.check(force=force)
        try:
            if self.work.exists():
                remove_folder(self.work)
            self.work.mkdir(parents=True)
            self._take_lock()
            with replacing(self.work / JOB) as partial:
                partial.write_text(json.dumps(asdict(job), indent=1), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{self.work} cannot be written ({error.strerror}); choose another folder") from error
        self._fresh = True

    @property
    def resumable(self) -> bool:
        """Whether there is an unfinished run that keeps its progress; a centralized method keeps none."""
        try:
            return self.job().fingerprint is not None
        except InputError:
            return False

    def job(self) -> Job:
        """Return the job of the unfinished run."""
        self._clear()
        path = self.work / JOB
        if not path.is_file():
            if self._place.exists() and not (self._place / RESULT).is_file():
                raise InputError(f"nothing to resume: {self.out} is not the folder of a run")
            state = "is finished already" if self._place.exists() else "was never started"
            raise InputError(f"nothing to resume: the run at {self.out} {state}")
        return read_record(path, Job, advice="start the run anew with --force")

    def reopen(self) -> None:
        """Claim the unfinished run to go on with it, and clear away what a killed process left half-written."""
        self._take_lock()
        for folder in (self.work, self.work / JOURNAL, self.work / OUTBOUND, *(self.work / RESPONSES).glob("*")):
            clear_leftovers(folder)

    @property
    def states(self) -> Path:
        """Where workers of a cluster keep the states of clients."""
        return self.work / STATES

    def journal(self, algorithm: Algorithm, *, pace: bool = True) -> Journal:
        """Open the journal of the run, which holds the completed rounds.

        Later rounds will be played again: their lines are taken out of the outbound logs, so that a log tells every
        round once. Where a client keeps its responses, what is there has left and will not be answered anew: it stays.
        Without `pace`, it is saved after every round whose states are there.
        """
        place = self.work / JOURNAL
        advice = f"delete {place}, then --resume repeats the run from its start"

        def trim_logs(next_round: int) -> None:
            played = set(range(next_round))
            for log in sorted((self.work / OUTBOUND).glob("*.jsonl")):
                kept = played if algorithm.privacy is None else self._answered(log, played)
                keep_lines(log, lambda fields, kept=kept: int(fields["round"]) in kept)  # type: ignore[misc]

        self._journal = Journal(place, advice=advice, pace=pace, on_rewind=trim_logs)
        return self._journal

    def _answered(self, log: Path, played: set[int]) -> set[int]:
        """Return the rounds of a client's responses, or raise if one is missing that left and was used."""
        answered = answered_rounds(self.work / RESPONSES / log.stem)
        lost = sorted((played - answered).intersection(line.get("round") for line in read_log(log)))
        if lost:
            raise PrivacyError(
                f"what {log.stem} has answered in round {lost[0]} is missing from {self.work / RESPONSES}, and with it "
                "what was spent; start the run again with --force"
            )
        return answered

    def responses(self, client: str, plan: PrivacyPlan) -> Responses:
        """Return what a client of a private run has answered and spent; it survives an interruption."""
        return StoredResponses(self.work / RESPONSES / file_stem(client), plan.accountant())

    def outbound(self, client: str) -> Callable[[OutboundRecord], None]:
        """Return the log of what leaves a client."""
        log = OutboundLog(self.work / OUTBOUND / f"{file_stem(client)}.jsonl")
        self._logs.append(log)
        return log

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep what was done when the block is interrupted.

        A new run that fails by its input leaves nothing, since it would fail again.
        """
        try:
            yield
        except BaseException as error:
            if self._fresh and isinstance(error, FelbError) and not isinstance(error, ConnectionLostError):
                self.discard()
            elif self._journal is not None and self.work.is_dir():
                self._journal.save()
            raise
        finally:
            for log in self._logs:
                log.close()
            self._release_lock()

    def finish(
        self,
        result: Result,
        assignments: Mapping[str, NDArray[np.bool_]],
        records: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Write the result into a folder of its own and put that in its place.

        Where the names of the `records` of each client are known, assignments are also stored as CSV files.

        Journal, responses and job stay in the folder of the unfinished run, so that nothing of them is ever in one that
        may be published. Stopped before the result is in its place, the run can still be resumed; stopped after, what
        is left of it is known by `DONE` and removed by the next run here.
        """
        for log in self._logs:
            log.close()
        complete = beside(self._place, NEW)
        shutil.rmtree(complete, ignore_errors=True)
        complete.mkdir()
        if (self.work / OUTBOUND).is_dir():
            shutil.copytree(self.work / OUTBOUND, complete / OUTBOUND, ignore=shutil.ignore_patterns(".*.head"))
        if records is not None:
            from felb.runs.apply import write_assignment

            (complete / ASSIGNMENTS).mkdir()
            for client, U in assignments.items():
                write_assignment(complete / ASSIGNMENTS / f"{file_stem(client)}.csv", U, records[client])
        result.write(complete, assignments)
        with replacing(self.work / DONE) as partial:
            partial.write_text(_digest(complete / RESULT), encoding="ascii")
        replace_folder(complete, self._place)
        self._release_lock()
        remove_folder(self.work)

    def discard(self) -> None:
        """Forget the unfinished run."""
        self._release_lock()
        remove_folder(self.work)
        shutil.rmtree(beside(self._place, NEW), ignore_errors=True)

    def _clear(self) -> None:
        """Remove what killed processes left here: half-made folders, and a run whose result is in its place."""
        clear_leftovers(self._place.parent)
        try:
            finished = (self.work / DONE).read_text(encoding="ascii") == _digest(self._place / RESULT)
        except (OSError, ValueError):
            return
        lock = try_lock(self.work / LOCK) if finished else None
        if lock is not None:
            lock.close()
            remove_folder(self.work)

    def _take_lock(self) -> None:
        self._lock = try_lock(self.work / LOCK)
        if self._lock is None:
            raise InputError(f"the run at {self.out} is still under way; wait for its end, or stop it first")

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_ours(folder: Path) -> bool:
    """Tell a folder that felb made, or an empty one, from one that holds something else."""
    return folder.is_dir() and (
        any((folder / name).is_file() for name in (RESULT, JOB, LOCK)) or not any(folder.iterdir())
    )


def outbound_lines(place: str | os.PathLike[str], *, client: str | None = None) -> list[dict[str, Any]]:
    """Return the lines of everything that left.

    Parameters
    ----------
    place : a client's log (.jsonl), or the folder of a simulated run, finished or not
    client : only what left this client
    """
    path = Path(place)
    if path.is_file():
        lines = read_outbound_log(path)
        if not lines and path.stat().st_size:
            raise InputError(f"{path} is no outbound log; give a log (.jsonl) or the folder of a run")
    else:
        lines = [line for log in _logs(path) for line in read_outbound_log(log)]
    if client is None:
        return lines
    kept = [line for line in lines if line.get("client") == client]
    if not kept:
        known = sorted({str(line.get("client")) for line in lines})
        raise InputError(f"nothing of a client {client!r} is in {place}; it has {', '.join(known) or 'no lines'}")
    return kept


def _logs(path: Path) -> list[Path]:
    """Return the logs in the folder of a run; while it is under way, they are in the folder beside."""
    if not path.exists() and path.with_name(f"{path.name}.unfinished").is_dir():
        path = path.with_name(f"{path.name}.unfinished")
    if not path.exists():
        raise InputError(f"there is no {path}; give a log (.jsonl) or the folder of a run")
    if (path / OUTBOUND).is_dir():
        return sorted((path / OUTBOUND).glob("*.jsonl"), key=lambda log: unquote(log.stem))
    if not (path / RESULT).is_file():
        raise InputError(
            f"{path} holds no outbound log; give a log (.jsonl) or the folder of a run. The log of a site is shown by "
            "`felb site log`"
        )
    return []
