"""Cells of a comparison or an experiment, measured in processes of their own with time limits."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence  # noqa: TC003
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from felb._version import __version__
from felb.errors import FelbError, InputError
from felb.records import PARTIAL, replace_nonfinite, replacing, try_lock
from felb.runs.result import machine_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    Request = dict[str, Any]


CELLS = "cells"
"""Folder of the cells."""

Status = Literal["done", "failed", "timeout"]
STATUSES: tuple[Status, ...] = ("done", "failed", "timeout")


@dataclass(frozen=True, slots=True)
class CellRecord:
    """What came of a cell.

    Parameters
    ----------
    status : ``done``, or why there are no figures
    figures, curves, pictures : numbers by name, numbers per round by name, rows of 0 and 1 by name
    message : what went wrong
    seconds : the whole cell took, data and scores included
    limit : seconds it was allowed
    parameters : everything that decides the figures
    provenance : felb, machine, date
    """

    key: str
    status: Status
    figures: Mapping[str, float | None] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    pictures: Mapping[str, Sequence[str]] = field(default_factory=dict)
    message: str = ""
    seconds: float = 0.0
    limit: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the cell into the folder of its experiment; the file appears complete or not at all."""
        with replacing(folder / CELLS / f"{self.key}.json") as partial:
            partial.write_text(json.dumps(replace_nonfinite(asdict(self)), allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> CellRecord | None:
        """Read a cell; None if there is none, or one that is damaged or of another key."""
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return found if found.key == path.stem and found.status in STATUSES else None


# -- A process that measures cells: one line of JSON in for each, one out when it starts to count, one when it is done
#
# A process of its own can be ended when a cell takes too long, and a crash in it costs one cell. It ends when its input
# is closed, also in the middle of a cell, so that nothing is left behind by a parent that died.

READY, STARTED = {"ready": True}, {"started": True}
LONGEST_MESSAGE = 500


def answered(measure: Callable[[Request], dict[str, Any]], request: Request) -> dict[str, Any]:
    """Measure the cell of a request; an error becomes an answer too."""
    start = time.perf_counter()
    try:
        measured = measure(request)
    except Exception as error:  # whatever a method raises belongs into the record of its cell
        message = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_MESSAGE]
        return {"status": "failed", "message": message, "seconds": time.perf_counter() - start}
    return {"status": "done", "seconds": time.perf_counter() - start, **measured}


def serve(measure: Callable[[Request], dict[str, Any]], *, warm_up: Callable[[Request], None]) -> None:
    """Answer requests until there are no more; neither importing nor compiling is part of a cell's time."""
    # What a library prints must not get between the answers.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()

    def tell(reply: dict[str, Any]) -> None:
        out.write(json.dumps(replace_nonfinite(reply), allow_nan=False) + "\n")
        out.flush()

    tell(READY)
    while True:
        request = json.loads(requests.get())
        with suppress(Exception):  # what is wrong will be told by the cell itself
            warm_up(request)
        tell(STARTED)
        tell(answered(measure, request))


START_LIMIT = 300.0
"""Seconds for a process to come up, and to compile a method; the first one on a machine may be slow at both."""

TAIL = 300
"""Characters of a dead process's last words."""


class WorkerError(FelbError):
    """The processes that measure cannot be started."""


class Worker:
    """One process; it measures one cell at a time.

    Attributes
    ----------
    key : of the last cell; None before the first
    counting : whether all is compiled, and the time of the cell has begun
    over : whether the process has ended, or was ended because the time of a cell was up
    """

    def __init__(self, module: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        # In a session of its own: Ctrl-C reaches the parent only, which ends its workers itself.
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self.key: str | None = None
        self.counting = self.over = self._late = False

    def measure(self, key: str, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Return the answer about a cell; its time begins when the process says that all is compiled."""
        assert self.process.stdin is not None
        if self.key is None and self._listen(START_LIMIT) is None:  # which is no fault of the cell
            words, code = self.end(), self.process.returncode
            if self._late:
                raise WorkerError("a process that measures did not come up within five minutes; is the machine busy?")
            raise WorkerError(f"a process that measures ended at its start with code {code}: {words}")
        self.key, self.counting = key, False
        with suppress(BrokenPipeError):  # that it has died is told by its answers
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        self.counting = self._listen(START_LIMIT) is not None
        answer = self._listen(limit) if self.counting else None
        if answer is not None:
            self.over = self._late
            return answer
        words, code = self.end(), self.process.returncode
        if self._late:
            return {"status": "timeout", "message": f"no answer within {limit:g} s", "seconds": limit}
        message = f"the process ended with code {code}" + (f": {words}" if words else "; is there enough memory?")
        return {"status": "failed", "message": message, "seconds": 0.0}

    def _listen(self, seconds: float) -> dict[str, Any] | None:
        """Return what the process says next; None if it has ended, or had to be ended after so many seconds."""
        assert self.process.stdout is not None
        timer = threading.Timer(seconds, self._end_late)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        return json.loads(line) if line else None

    def _end_late(self) -> None:
        self._late = True
        self.process.kill()

    def end(self) -> str:
        """End the process now; return its last words."""
        self.over = True
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):  # a request that was never read
                    pipe.close()
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()[-TAIL:]
        self._errors.close()
        return " ".join(words.split())


class Pool:
    """Measures requests on several workers; leaving it, also by an exception, ends them all.

    Parameters
    ----------
    module : what a worker runs, see `felb.runs.cells`
    jobs : number of workers
    """

    def __init__(self, module: str, jobs: int) -> None:
        self.module = module
        self._threads = ThreadPoolExecutor(jobs, "felb-worker")  # each waits for the answers of one worker
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._lock, self._over = threading.Lock(), False

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        before = None
        with suppress(ValueError):  # only the main thread may say so
            # A second Ctrl-C must not leave processes behind.
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with self._lock:
                self._over = True
            for worker in list(self._workers):
                worker.process.kill()
            self._threads.shutdown(cancel_futures=True)
            for worker in self._workers:
                worker.end()
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)

    def measure(
        self,
        requests: Iterable[tuple[str, Mapping[str, Any]]],
        *,
        limit: float,
        folders: Mapping[str, Path] = MappingProxyType({}),
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield keys and answers as they come; a cell beyond `limit` seconds is ended and answered as a timeout.

        `folders` are part of every request, by their names.
        """
        places = {name: str(path) for name, path in folders.items()}
        keys = {
            self._threads.submit(self._measure, key, {"parameters": parameters, **places}, limit): key
            for key, parameters in requests
        }
        for answer in as_completed(keys):
            yield keys[answer], answer.result()

    def _measure(self, key: str, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        with self._lock:
            if self._over:
                raise CancelledError
            if self._idle:
                worker = self._idle.pop()
            else:
                worker = Worker(self.module)
                self._workers.append(worker)
        try:
            return worker.measure(key, request, limit)
        finally:
            if worker.over:
                self._workers.remove(worker)
            else:
                self._idle.append(worker)


LOCK = ".lock"
LEFTOVER = f".*.{PARTIAL}"
"""What a process leaves that is killed while it writes a cell or the manifest."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: cells there from before, cells measured now, cells in all, and the last one."""

    kept: int
    measured: int
    total: int
    last: str = ""


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells to measure: parameters by key.

    Parameters
    ----------
    worker : module that measures, see `felb.runs.cells`
    parameters : everything that decides the figures of a cell, by its key
    labels : what to call the cells while they are measured
    folders : part of every request, by their names
    """

    worker: str
    parameters: Mapping[str, Mapping[str, Any]]
    labels: Mapping[str, str]
    folders: Mapping[str, Path] = field(default_factory=dict)


def missing_cells(cells: Cells, folder: Path, *, limit: float) -> list[str]:
    """Return the keys of the cells that need a run."""
    return [key for key in cells.parameters if not settled(folder, key, limit)]


def measure_cells(
    cells: Cells, folder: Path, *, limit: float, jobs: int = 1, on_progress: Callable[[Progress], None] = lambda _: None
) -> None:
    """Measure the cells that are not in `folder` yet, `jobs` at a time and each for at most `limit` seconds.

    Each is written as soon as it is there, so that an interruption costs the cells under way and nothing else. Cells
    that failed are tried again, and those that ran out of time if they have more of it now.
    """
    missing, total = missing_cells(cells, folder, limit=limit), len(cells.parameters)
    kept = total - len(missing)
    on_progress(Progress(kept, 0, total))
    with Pool(cells.worker, jobs) as pool:
        requests = [(key, cells.parameters[key]) for key in missing]
        for number, (key, found) in enumerate(pool.measure(requests, limit=limit, folders=cells.folders), start=1):
            parameters = cells.parameters[key]
            CellRecord(key=key, parameters=parameters, provenance=provenance(), limit=limit, **found).write(folder)
            on_progress(Progress(kept, number, total, last=cells.labels[key]))


def settled(folder: Path, key: str, limit: float) -> bool:
    """Whether a cell needs no run: it is done, or had as much time before as it would have now."""
    kept = CellRecord.read(folder / CELLS / f"{key}.json")
    if kept is None or kept.status == "failed":
        return False
    return kept.status == "done" or (kept.limit is not None and kept.limit >= limit)


def provenance() -> dict[str, Any]:
    """Return what measured, when and where."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None  # times say little on a busy machine
    return {"felb": __version__, "date": date, "machine": machine_facts(), "load": load}


def claim_folder(folder: Path, *, manifest: str, what: str) -> closing[Any]:
    """Take a folder for this process: one that has the manifest, or an empty one; errors name `what` it holds."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose another folder")
    known = (folder / manifest).is_file() or not folder.is_dir()
    if not known and any(path.name not in (LOCK, CELLS) and not path.match(LEFTOVER) for path in folder.iterdir()):
        raise InputError(f"{folder} is not empty and holds no {what}; choose another folder")
    try:
        (folder / CELLS).mkdir(parents=True, exist_ok=True)
        lock = try_lock(folder / LOCK)
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}); choose another folder") from error
    if lock is None:
        raise InputError(f"another process runs the {what} in {folder}; wait for it, or choose another folder")
    for partial in (*folder.glob(LEFTOVER), *(folder / CELLS).glob(LEFTOVER)):
        partial.unlink(missing_ok=True)
    return closing(lock)
