"""Fuzz every target for a while, each in a process of its own, and tell the counts: ``make fuzz``.

A worker writes each case to a file before it tries it. If the worker dies by a signal, or does not come back, the file
is the reproducer. Findings go to ``--out``; small ones belong into ``tests/fuzz/reproducers``, where a test tries them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

HANG, MOST_MEMORY = 5, 1 << 30
"""Seconds and bytes beyond which a case is a finding."""


class _HangError(BaseException):
    pass


def work(name: str, seconds: float, seed: int, out: Path) -> None:
    """Try mutants of one target until the time is up; print the counts as JSON."""
    from felb.data import BinaryMatrix
    from fuzz.targets import all_targets, check_matrix, try_case

    def stop(*_: object) -> None:
        raise _HangError

    signal.signal(signal.SIGPROF, stop)
    with tempfile.TemporaryDirectory() as seeds, tempfile.TemporaryDirectory() as scratch:
        target = all_targets(Path(seeds), name)[name]
        check_matrix(BinaryMatrix.of([[0, 1], [1, 1]]))  # compiles
        try_case(target, target.make(random.Random(0)), Path(scratch))  # imports
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        end, count, findings = time.monotonic() + seconds, 0, {}
        current = out / f"{name.replace(' ', '-')}.current"
        while time.monotonic() < end:
            number = seed + count
            case = target.make(random.Random(f"{name}-{number}"))
            if count % 50 == 0:
                (out / f"{name.replace(' ', '-')}.count").write_text(str(count))
            current.write_bytes(case if isinstance(case, bytes) else f"{name}-{number}".encode())
            signal.setitimer(signal.ITIMER_PROF, HANG)  # of computing, not of waiting for other processes
            try:
                found = try_case(target, case, Path(scratch))
            except _HangError:
                found = f"no answer in {HANG} s"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if used - before > MOST_MEMORY:
                found, before = f"{(used - before) >> 20} MiB of memory", used
            count += 1
            if found is not None and found not in findings:
                findings[found] = number
                kept = out / f"{name.replace(' ', '-')}-{number}"
                kept.write_bytes(current.read_bytes())
        current.unlink(missing_ok=True)
        sys.stdout.write(json.dumps({"count": count, "findings": findings}) + "\n")


def main() -> int:
    """Run all targets, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=float, default=900, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--worker", action="store_true")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.worker:
        work(chosen.targets[0], chosen.seconds, chosen.seed, chosen.out)
        return 0
    from fuzz.targets import all_targets

    with tempfile.TemporaryDirectory() as seeds:
        names = chosen.targets or list(all_targets(Path(seeds)))
    share, total, bad = chosen.seconds / len(names), 0, 0
    for name in names:
        command = [sys.executable, __file__, name, "--worker", "--seconds", str(share), "--seed", str(chosen.seed)]
        command += ["--out", str(chosen.out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=share + 180)
            told = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
            reason = f"died with {done.returncode}: {done.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired:
            told, reason = None, "did not come back"
        if told is None:
            counted = chosen.out / f"{name.replace(' ', '-')}.count"
            told = {"count": int(counted.read_text()) if counted.exists() else 0, "findings": {reason: "see .current"}}
        total += told["count"]
        bad += len(told["findings"])
        print(f"{name:16} {told['count']:9}  {len(told['findings'])} findings", flush=True)  # noqa: T201
        for found, number in told["findings"].items():
            print(f"    {number}: {found}", flush=True)  # noqa: T201
    print(f"{'all':16} {total:9}  {bad} findings")  # noqa: T201
    return min(bad, 1)


if __name__ == "__main__":
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    sys.exit(main())
