"""Fuzz every target for a while, each in a process of its own, and tell the counts: ``make fuzz``.

A worker writes each case to a file before it tries it, in memory where the system offers that: a mutant takes a
fraction of a millisecond, which a disk would triple. If the worker dies by a signal, or does not come back, the file is
the reproducer. Findings go to ``--out``; small ones belong into ``tests/fuzz/reproducers``, where a test tries them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

HANG, LONGEST_WAIT = 5, 20
"""Seconds of computing, and seconds of waiting for a helper process, beyond which a case is a finding."""
WARM = 1000
"""Cases after which memory is measured: until then caches fill."""
STARTING = 900
"""Seconds that a worker may take beside its share: it imports and compiles, on a machine that others use too."""
IN_MEMORY = Path("/dev/shm")  # below it, folders of a name that nobody can guess
SLOW = {"estimators": 0.3, "h5ad": 0.3, "mat": 0.3, "mtx": 0.3, "assignment": 0.5}
"""Targets whose mutants take milliseconds get fewer of them when they are counted out."""


class _HangError(BaseException):
    pass


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder, in memory if the system has such a place."""
    return tempfile.TemporaryDirectory(prefix="felb-fuzz-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)


def work(name: str, chosen: argparse.Namespace) -> None:
    """Try mutants of one target until their number or the time is up; print the counts as JSON."""
    from felb.data import BinaryMatrix
    from fuzz.targets import all_targets, check_matrix, try_case

    def stop(*_: object) -> None:
        raise _HangError

    signal.signal(signal.SIGPROF, stop)
    seed, out, shared = chosen.seed, chosen.out, chosen.shared
    most = sys.maxsize if chosen.mutants is None else round(chosen.mutants * SLOW.get(name, 1))
    with folder_in_memory() as seeds, folder_in_memory() as scratch:
        target = all_targets(Path(seeds), name)[name]
        check_matrix(BinaryMatrix.of([[0, 1], [1, 1]]))  # compiles
        try_case(target, target.make(random.Random(0)), Path(scratch))  # imports
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        end, count, findings = time.monotonic() + chosen.seconds, 0, {}
        current, counted = shared / "current", shared / "count"
        while count < most and time.monotonic() < end:
            number = seed + count
            case = target.make(random.Random(f"{name}-{number}"))
            if count % 50 == 0:
                counted.write_text(str(count))
            current.write_bytes(case if isinstance(case, bytes) else f"{name}-{number}".encode())
            signal.setitimer(signal.ITIMER_PROF, HANG)  # of computing, not of waiting on a busy machine
            begun = time.monotonic()
            try:
                found = try_case(target, case, Path(scratch))
                if found is None and time.monotonic() - begun > LONGEST_WAIT:
                    found = f"no answer in {LONGEST_WAIT} s"
            except _HangError:
                found = f"no answer in {HANG} s"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if count == WARM:
                before = used
            if used - before > target.most_memory:
                found, before = f"{(used - before) >> 20} MiB of memory", used
            count += 1
            if found is not None and found not in findings:
                findings[found] = number
                kept = out / f"{name.replace(' ', '-')}-{number}"
                kept.write_bytes(current.read_bytes())
        sys.stdout.write(json.dumps({"count": count, "findings": findings}) + "\n")


def main() -> int:
    """Run all targets, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=float, default=900, help="for all targets together")
    parser.add_argument("--mutants", type=int, help="of each target, and a part of it of slow ones (default: no limit)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--shared", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.shared is not None:
        work(chosen.targets[0], chosen)
        return 0
    from fuzz.targets import all_targets

    with folder_in_memory() as seeds:
        names = chosen.targets or list(all_targets(Path(seeds)))
    end, total, bad = time.monotonic() + chosen.seconds, 0, 0
    for position, name in enumerate(names):
        share = max(1.0, (end - time.monotonic()) / (len(names) - position))  # what others left is shared
        told = play(name, share, chosen)
        total += told["count"]
        bad += len(told["findings"])
        print(f"{name:16} {told['count']:9}  {len(told['findings'])} findings", flush=True)  # noqa: T201
        for found, number in told["findings"].items():
            print(f"    {number}: {found}", flush=True)  # noqa: T201
    print(f"{'all':16} {total:9}  {bad} findings")  # noqa: T201
    return min(bad, 1)


def play(name: str, seconds: float, chosen: argparse.Namespace) -> dict[str, Any]:
    """Fuzz one target in a process of its own, and return its counts, also if it does not come back."""
    command = [sys.executable, sys.argv[0], name, "--seconds", str(seconds), "--seed", str(chosen.seed)]
    command += ["--out", str(chosen.out), *([] if chosen.mutants is None else ["--mutants", str(chosen.mutants)])]
    with folder_in_memory() as shared:
        try:
            command += ["--shared", shared]
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + STARTING)
            if done.returncode == 0:
                return dict(json.loads(done.stdout.splitlines()[-1]))
            reason = f"died with {done.returncode}: {done.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired:
            reason = "did not come back"
        current, counted = Path(shared, "current"), Path(shared, "count")
        kept = chosen.out / f"{name.replace(' ', '-')}.current"
        if current.exists():
            shutil.copy(current, kept)
        return {"count": int(counted.read_text()) if counted.exists() else 0, "findings": {reason: f"see {kept}"}}


if __name__ == "__main__":
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    sys.exit(main())
