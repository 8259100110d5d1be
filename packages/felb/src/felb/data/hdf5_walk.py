"""A program of its own that reads HDF5 files before felb does: what kills it would have killed felb.

The HDF5 library follows the pointers of a damaged file without looking, and can end the process by a signal. This one
is started by `felb.data.binary_files`, takes a path a line from its standard input, reads the file's attributes, texts
and small arrays, and answers with a line: nothing, or what is wrong. It imports nothing of felb, to start quickly.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any

LARGEST_ARRAY = 1 << 24
"""Bytes of an array of numbers that is read; larger ones are left to who needs them."""
MEMORY, EXPANSION = 1 << 29, 64
"""Bytes that a walk may take beside what it has, or so many for each byte of the file."""
SECONDS, BYTES_A_SECOND = 1, 1_000_000
"""Seconds of a processor that a walk may take, and how many bytes of the file add one; damaged ones can have no end."""
HARMLESS = (TypeError, ValueError, NotImplementedError)
"""What h5py raises where a sound file holds a type that NumPy does not have."""


def walk(path: str) -> str:
    """Read a file as far as felb would; return what is wrong with it, in one line."""
    import h5py

    def visit(_: str, item: Any) -> None:
        for name in item.attrs:
            try:
                item.attrs[name]
            except HARMLESS:
                continue
        if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
            return  # what lies in another file is refused later, unread
        if item.dtype.kind not in "biufc" or item.nbytes <= LARGEST_ARRAY:
            try:
                item[()]
            except HARMLESS:
                return

    try:
        with h5py.File(path, "r") as file:
            visit("", file)
            file.visititems(visit)
    except HARMLESS:
        return ""
    except Exception as error:
        return " ".join(str(error).split())[:300] or type(error).__name__
    return ""


def set_limits(path: str) -> None:
    """Let the walk of a file take no more time and memory than its size allows, where the system can see to that."""
    try:
        import resource

        size = os.path.getsize(path)  # noqa: PTH202
        spent = resource.getrusage(resource.RUSAGE_SELF)
        seconds = math.ceil(spent.ru_utime + spent.ru_stime) + SECONDS + size // BYTES_A_SECOND
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
            used = int(statm.read().split()[0]) * resource.getpagesize()
        most = used + max(MEMORY, EXPANSION * size)
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):
        return


def main() -> None:
    """Answer one path after the other until there are no more."""
    import h5py  # noqa: F401  # takes part of a second, which no file is charged for

    for line in sys.stdin:
        path = line.rstrip("\n")
        set_limits(path)
        sys.stdout.write(walk(path) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
