"""Whether an HDF5 file can be read without harm: another process reads it first."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from pathlib import Path

from felb.data.hdf5_walk import BYTES_A_SECOND
from felb.errors import InputError

PROGRAM = Path(__file__).with_name("hdf5_walk.py")
PATIENCE = 60.0
"""Seconds by the clock that the walk of a file may take, beside those that its size adds. Where the system can limit
the processor time of the walk, it ends earlier."""


class Probe:
    """A process that walks through HDF5 files; it is started when it is needed, and again when a file has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def check(self, path: Path) -> None:
        """Raise if reading a file ends a process, takes far more memory than the file is large, or does not end."""
        with self._lock:
            answer = self._ask(path.absolute())
        if answer is None:
            raise InputError(f"{path}: the file is damaged: the HDF5 library cannot get through it; write it again")
        if answer:
            raise InputError(f"{path}: the file is damaged, incomplete or no AnnData file ({answer}); write it again")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, path: Path) -> str | None:
        """Return the answer about a file, None if there was none."""
        if "\n" in str(path):
            raise InputError(f"{str(path)!r}: a path with a line break cannot be read; rename the file")
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = _started()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(PATIENCE + path.stat().st_size / BYTES_A_SECOND, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer.endswith("\n"):
            self.close()
            return None
        return answer[:-1]


def _started() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env={**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"},
    )


_probe = Probe()
atexit.register(_probe.close)


def check_hdf5(path: Path) -> None:
    """Raise an `InputError` unless another process could read the file."""
    _probe.check(path)
