"""The folder of a run: in the making beside its place, put there when it is complete."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from felb.atomic import replace_folder, replacing
from felb.engines.checkpoint import load_snapshot, save_snapshot
from felb.errors import InputError
from felb.experiments.job import Job
from felb.privacy.outbound import OutboundLog
from felb.results.result import OUTBOUND, file_stem

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from felb.engines import Snapshot
    from felb.federated.server import Recipe
    from felb.privacy.outbound import OutboundRecord
    from felb.results import Result

JOB, CHECKPOINT = "job.json", "checkpoint.npz"
SECONDS_BETWEEN_CHECKPOINTS = 5.0


class RunFolder:
    """Where a run keeps its job, its checkpoints and its logs, and leaves its result.

    While a run is under way everything is in ``OUT.unfinished``; ``OUT`` appears when the result is complete.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self.out = Path(out)
        self.work = self.out.with_name(f"{self.out.name}.unfinished")
        self._latest: Snapshot | None = None
        self._saved_at = float("-inf")

    def begin(self, job: Job, *, force: bool) -> None:
        """Claim the place; an older result or unfinished run there is only replaced with `force`."""
        if self.out.exists() and not force:
            raise InputError(f"{self.out} exists; choose another folder or replace it with --force")
        if self.work.exists():
            if not force:
                raise InputError(
                    f"an unfinished run is at {self.work}; go on with --resume {self.out}, or start anew with --force"
                )
            shutil.rmtree(self.work)
        self.work.mkdir(parents=True)
        with replacing(self.work / JOB) as partial:
            partial.write_text(json.dumps(asdict(job), indent=1), encoding="utf-8")

    def job(self) -> Job:
        """Return the job of the unfinished run."""
        path = self.work / JOB
        if not path.is_file():
            state = "is finished already" if self.out.exists() else "was never started"
            raise InputError(f"nothing to resume: the run at {self.out} {state}")
        try:
            return Job(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise InputError(f"{path} is damaged ({error}); start the run anew with --force") from error

    def snapshot(self, recipe: Recipe) -> Snapshot | None:
        """Return the last completed round of the unfinished run, if one was kept."""
        path = self.work / CHECKPOINT
        return load_snapshot(path, recipe) if path.is_file() else None

    def outbound(self, client: str) -> Callable[[OutboundRecord], None]:
        """Return the log of what leaves a client."""
        return OutboundLog(self.work / OUTBOUND / f"{file_stem(client)}.jsonl")

    @contextmanager
    def keeping(self) -> Iterator[Callable[[Snapshot], None]]:
        """Give the function to call after each round; it keeps what was done, at the latest when interrupted."""
        try:
            yield self._after_round
        except BaseException:
            if self._latest is not None:
                save_snapshot(self.work / CHECKPOINT, self._latest)
            raise

    def finish(self, result: Result, assignments: Mapping[str, NDArray[np.bool_]]) -> None:
        """Write the result and put the folder in its place."""
        result.write(self.work, assignments)
        for name in (JOB, CHECKPOINT):
            (self.work / name).unlink(missing_ok=True)
        replace_folder(self.work, self.out)

    def discard(self) -> None:
        """Forget the unfinished run."""
        shutil.rmtree(self.work, ignore_errors=True)

    def _after_round(self, snapshot: Snapshot) -> None:
        self._latest = snapshot
        if time.monotonic() - self._saved_at > SECONDS_BETWEEN_CHECKPOINTS:
            save_snapshot(self.work / CHECKPOINT, snapshot)
            self._saved_at = time.monotonic()
