"""How much a file may ask for: limits that keep memory in proportion to what is really there.

A few bytes can announce a billion rows, and a small packed file can hold one line of a gigabyte. A reader compares what
a file announces, and what it has unpacked so far, with these limits before it makes room for it.
"""

from __future__ import annotations

import gzip
import io
import math
from dataclasses import dataclass, fields
from typing import IO, TYPE_CHECKING, cast

from felb.errors import InputError
from felb.safe_files import open_regular

if TYPE_CHECKING:
    from pathlib import Path

ALWAYS_ROWS, ALWAYS_COLUMNS, ALWAYS_BYTES = 10_000_000, 1_000_000, 1 << 27
"""What any file may have, however small it is."""


@dataclass(frozen=True)
class Limits:
    """Limits on what is read from a file; raise one where a file is meant to be that large.

    Parameters
    ----------
    max_rows : most rows; by default 10 million, or as many as the file has bytes
    max_columns : most columns; by default 1 million, or as many as the file has bytes
    max_line : longest line of a text file in bytes
    max_expansion : most bytes after unpacking, and of the ones in memory, for each byte of the file, beside 128 MiB
        that are always allowed

    Examples
    --------
    >>> Limits(max_rows=50_000_000).max_rows
    50000000
    >>> Limits(max_line=0)
    Traceback (most recent call last):
    ...
    felb.errors.InputError: max_line must be a positive number, got 0
    """

    max_rows: int | None = None
    max_columns: int | None = None
    max_line: int = 1 << 24
    max_expansion: float = 64.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            optional = value is None and entry.name in ("max_rows", "max_columns")
            number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
            if not optional and not (number and value > 0):
                raise InputError(f"{entry.name} must be a positive number, got {value!r}")

    def of(self, size: int) -> Bounds:
        """Return the limits for a file of this many bytes."""
        return Bounds(
            rows=max(ALWAYS_ROWS, size) if self.max_rows is None else int(self.max_rows),
            columns=max(ALWAYS_COLUMNS, size) if self.max_columns is None else int(self.max_columns),
            line=int(min(self.max_line, 1 << 62)),
            bytes=int(min(ALWAYS_BYTES + size * self.max_expansion, 1 << 62)),
        )


@dataclass(frozen=True)
class Bounds:
    """The limits for one file."""

    rows: int
    columns: int
    line: int
    bytes: int

    def check_shape(self, n_rows: int, n_columns: int) -> None:
        """Raise if a matrix has, or announces, more rows or columns than the file may have."""
        for count, most, what in ((n_rows, self.rows, "rows"), (n_columns, self.columns, "columns")):
            if count > most:
                raise InputError(
                    f"the file has or announces {count} {what}, and at most {most} are read from a file of its size; "
                    f"if they are meant, allow them with limits=Limits(max_{what}={count})"
                )

    def check_bytes(self, count: int) -> None:
        """Raise if the file unpacks to, or announces, more bytes than it may."""
        if count > self.bytes:
            raise InputError(
                f"the file unpacks to {count} bytes or more, and at most {self.bytes} are read from a file of its "
                "size; if they are meant, allow them with limits=Limits(max_expansion=1000), or more"
            )

    def check_line(self, length: int) -> None:
        """Raise if a line has more bytes than a line may have."""
        if length > self.line:
            raise InputError(
                f"a line has more than {self.line} bytes; check the file, or allow it with limits=Limits(max_line=...)"
            )


def open_bounded(path: Path, bounds: Bounds) -> IO[bytes]:
    """Open a regular file for reading, unpacked if its name ends in .gz and up to as many bytes as it may have."""
    file = open_regular(path)
    if path.suffix.lower() != ".gz":
        return file
    unpacked = cast("io.RawIOBase", gzip.GzipFile(fileobj=file))
    return io.BufferedReader(_Counted(file, unpacked, bounds), 1 << 16)


class _Counted(io.RawIOBase):
    """Reads what another file unpacks, and counts it."""

    def __init__(self, packed: IO[bytes], unpacked: io.RawIOBase, bounds: Bounds) -> None:
        self._packed, self._unpacked, self._bounds = packed, unpacked, bounds
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        content = self._unpacked.read(len(buffer)) or b""
        self._count += len(content)
        self._bounds.check_bytes(self._count)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._unpacked.close()
            self._packed.close()
        super().close()
