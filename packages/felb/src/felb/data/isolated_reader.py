"""A program of its own that reads files of other tools before felb does: what kills it would have killed felb.

The HDF5 library and SciPy's readers follow a damaged file without looking, and can end the process by a signal, take
all memory or never end. This program is started by `felb.data.readers`, takes a request a line from its standard input
(JSON: the path of a file, its format, limits and a folder), and answers with a line: what the file announces, or what
is wrong. Of an HDF5 file it reads the attributes, texts and small arrays; the matrix of a MATLAB or MatrixMarket file
it writes to the folder as plain arrays, which felb maps and checks. It imports nothing of felb, to start quickly.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

LARGEST_ARRAY = 1 << 24
"""Bytes of an array of numbers that is read; larger ones are left to who needs them."""
MEMORY, EXPANSION = 1 << 29, 64
"""Bytes that a file may take beside what the process has, or so many for each byte of the file."""
SECONDS, BYTES_A_SECOND = 1, 1_000_000
"""Seconds of a processor that a file may take, and how many of its bytes add one; damaged ones can have no end."""
HARMLESS = (TypeError, ValueError, NotImplementedError)
"""What h5py raises where a sound file holds a type that NumPy does not have."""
CELL_BYTES = {"double": 8, "single": 4, "logical": 1, "sparse": 0} | {
    f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)
}
"""Bytes of a cell of the matrices of MATLAB; a sparse one has as many as it stores."""
SHOWN = 10


def walk_hdf5(request: dict[str, Any]) -> dict[str, Any]:
    """Read a file as far as felb would."""
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
        with h5py.File(request["path"], "r") as file:
            visit("", file)
            file.visititems(visit)
    except HARMLESS:
        return {}
    return {}


def unpack_mat(request: dict[str, Any]) -> dict[str, Any]:
    """Write the only matrix of numbers; vectors and single numbers do not count as such."""
    import scipy.io

    found = [
        (name, shape, CELL_BYTES[kind])
        for name, shape, kind in scipy.io.whosmat(request["path"], appendmat=False)
        if kind in CELL_BYTES and len(shape) == 2 and min(shape) > 1
    ]
    if len(found) != 1:
        shown = ", ".join(f"{name[:40]} ({'x'.join(map(str, shape))})" for name, shape, _ in found[:SHOWN])
        held = f"several matrices: {shown}" if found else "no matrix of numbers"
        return {"refused": f"the file holds {held}; save the one that is meant: save('data.mat', 'X', '-v7')"}
    [(name, (n, m), size)] = found
    announced = {"shape": (n, m), "bytes": n * m * size}
    if not _exceeds(announced, request):
        _write(scipy.io.loadmat(request["path"], appendmat=False, variable_names=[name])[name], request["folder"])
    return announced


def unpack_mtx(request: dict[str, Any]) -> dict[str, Any]:
    """Write a matrix; places of a pattern that are given several times count once, values are added."""
    import gzip

    import scipy.io
    from threadpoolctl import threadpool_limits

    def source() -> Any:  # as SciPy itself does, but for .GZ too
        return gzip.GzipFile(request["path"]) if request["path"].lower().endswith(".gz") else request["path"]

    n, m, entries, _, field, _ = scipy.io.mminfo(source())
    announced = {"shape": (n, m), "bytes": 8 * entries}
    if not _exceeds(announced, request):
        with threadpool_limits(1):  # the memory of threads would count
            matrix = scipy.io.mmread(source())
        _write(matrix.astype(bool) if field == "pattern" else matrix, request["folder"])
    return announced


def _exceeds(announced: dict[str, Any], request: dict[str, Any]) -> bool:
    n, m = announced["shape"]
    return bool(n > request["rows"] or m > request["columns"] or announced["bytes"] > request["bytes"])


def _write(matrix: Any, folder: str) -> None:
    import numpy as np

    parts = {"dense": matrix}
    if hasattr(matrix, "tocsr"):
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        rows = matrix.tocsr()
        parts = {"indptr": rows.indptr, "indices": rows.indices, "data": rows.data}
    for name, values in parts.items():
        np.save(os.path.join(folder, f"{name}.npy"), values, allow_pickle=False)  # noqa: PTH118


FORMATS = {"hdf5": walk_hdf5, "mat": unpack_mat, "mtx": unpack_mtx}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Read a file; an error is an answer too."""
    try:
        set_limits(request["path"])
        return FORMATS[request["format"]](request)
    except MemoryError:
        return {"damaged": "it asks for more memory than a file of its size may take"}
    except Exception as error:  # readers raise nearly anything, and what they raise changes between versions
        return {"damaged": " ".join(str(error).split())[:300] or type(error).__name__}


def set_limits(path: str) -> None:
    """Let a file take no more time and memory than its size allows, where the system can see to that."""
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
    """Answer one request after the other until there are no more."""
    for line in sys.stdin:
        request = json.loads(line)
        if request["format"] == "hdf5":
            import h5py  # noqa: F401  # takes part of a second, which no file is charged for
        else:
            import threadpoolctl  # noqa: F401
        sys.stdout.write(json.dumps(answer(request)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
