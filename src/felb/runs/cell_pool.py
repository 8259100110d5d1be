"""Processes that measure cells in parallel, each with a time limit."""

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
from collections import deque
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from felb.errors import FelbError
from felb.runs.cell_server import STARTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

START_LIMIT = 300.0
"""Seconds for a process to come up, and to compile a method; the first one on a machine may be slow at both."""

TAIL = 300
"""Characters of a dead process's last words."""


class WorkerError(FelbError):
    """The processes that measure cannot be started."""


class Worker:
    """One process; it measures one cell at a time, and its answers come through a queue."""

    def __init__(self, module: str, answers: queue.SimpleQueue[tuple[Worker, bytes]]) -> None:
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
        self.ready = False
        self.deadline = time.monotonic() + START_LIMIT
        self._reader = threading.Thread(target=self._read, args=(answers,), name="felb-worker", daemon=True)
        self._reader.start()

    def _read(self, answers: queue.SimpleQueue[tuple[Worker, bytes]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answers.put((self, line))
        answers.put((self, b""))

    def ask(self, key: str, request: Mapping[str, Any]) -> None:
        """Give it a cell; its time begins when the process says that all is compiled."""
        assert self.process.stdin is not None
        self.key, self.deadline = key, time.monotonic() + START_LIMIT
        with suppress(BrokenPipeError):  # that it has died is told by its answers
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def end(self) -> str:
        """End the process now; return its last words."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
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
    module : what a worker runs, see `felb.runs.cell_server`
    jobs : number of workers
    """

    def __init__(self, module: str, jobs: int) -> None:
        self.module, self.jobs = module, jobs
        self._workers: list[Worker] = []
        self._answers: queue.SimpleQueue[tuple[Worker, bytes]] = queue.SimpleQueue()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = None
        with suppress(ValueError):  # only the main thread may say so
            # A second Ctrl-C must not leave processes behind.
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
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
        waiting = deque(requests)
        for _ in range(min(self.jobs, len(waiting))):
            self._workers.append(Worker(self.module, self._answers))
        places = {name: str(path) for name, path in folders.items()}
        while waiting or any(worker.key for worker in self._workers):
            for worker in self._workers:
                if worker.ready and worker.key is None and waiting:
                    key, parameters = waiting.popleft()
                    worker.ask(key, {"parameters": parameters, **places})
            yield from self._collect(limit, more=bool(waiting))

    def _collect(self, limit: float, *, more: bool) -> Iterator[tuple[str, dict[str, Any]]]:
        """Wait for an answer, or for the first deadline."""
        soonest = min(worker.deadline for worker in self._workers if worker.key or not worker.ready)
        try:
            worker, line = self._answers.get(timeout=max(0.0, soonest - time.monotonic()))
        except queue.Empty:
            yield from self._late(limit, more=more)
            return
        if worker not in self._workers:
            return  # the last words of one that was ended
        if not line:
            yield from self._lost(worker, more=more)
        elif not worker.ready:
            worker.ready = True
        elif worker.key is not None:
            found = json.loads(line)
            if found == STARTED:
                worker.deadline = time.monotonic() + limit
            else:
                key, worker.key = worker.key, None
                yield key, found

    def _late(self, limit: float, *, more: bool) -> Iterator[tuple[str, dict[str, Any]]]:
        """End the workers whose time is up."""
        for worker in [worker for worker in self._workers if time.monotonic() >= worker.deadline]:
            if not worker.ready:
                raise WorkerError("a process that measures did not come up within five minutes; is the machine busy?")
            if worker.key is not None:
                self._replace(worker, more=more)
                yield worker.key, {"status": "timeout", "message": f"no answer within {limit:g} s", "seconds": limit}

    def _lost(self, worker: Worker, *, more: bool) -> Iterator[tuple[str, dict[str, Any]]]:
        """A worker died: of its cell, or before it was ready, which is no fault of a cell."""
        words = self._replace(worker, more=more and worker.ready)
        code = worker.process.returncode
        if not worker.ready:
            raise WorkerError(f"a process that measures ended at its start with code {code}: {words}")
        if worker.key is not None:
            message = f"the process ended with code {code}" + (f": {words}" if words else "; is there enough memory?")
            yield worker.key, {"status": "failed", "message": message, "seconds": 0.0}

    def _replace(self, worker: Worker, *, more: bool) -> str:
        self._workers.remove(worker)
        words = worker.end()
        if more:
            self._workers.append(Worker(self.module, self._answers))
        return words
