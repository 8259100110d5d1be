"""Raw files as their publishers hand them out: plain, packed (``.gz``), or inside a ``.zip``; alone or in a folder."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

DEPTH = 3
"""Folders below the one that was named in which files are looked for; archives unpack into a folder or two."""

LONGEST_HEADER = 1 << 26
"""Bytes of a header line, which names every cell or sample of a table."""


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file, or a member of a zip archive."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """How messages name it."""
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    @property
    def base(self) -> str:
        """The name of the file itself, without folders and without ``.gz``."""
        return _unpacked_name(self.path.name if self.member is None else PurePosixPath(self.member).name)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open for reading, unpacked; whatever is wrong with the file in the ``with`` block is said with its name."""
        with _naming(self.name), ExitStack() as stack:
            if self.member is None:
                file: IO[bytes] = stack.enter_context(self.path.open("rb"))
            else:
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                try:
                    file = stack.enter_context(archive.open(self.member))
                except (RuntimeError, NotImplementedError) as error:  # a password, or a way of packing Python lacks
                    raise InputError(f"cannot be unpacked ({error}); unpack the archive yourself") from error
            if self.name.lower().endswith(".gz"):
                file = stack.enter_context(cast("IO[bytes]", gzip.GzipFile(fileobj=file)))
            yield file

    def beside(self, *names: str) -> RawFile | None:
        """Return the first of the files `names` (or ``NAME.gz``) in the same folder or archive, if there is one."""
        if self.member is None:
            siblings = [RawFile(path) for path in sorted(self.path.parent.iterdir()) if path.is_file()]
        else:
            siblings = _members(self.path)
        return next((file for name in names for file in siblings if file.base.lower() == name.lower()), None)


def find_files(path: str | PathLike[str], patterns: Sequence[str]) -> list[RawFile]:
    """Return the raw files at `path`, in the order of their names.

    A plain or packed file is taken whatever its name is. In a folder (or in the zip archives there, if it has no such
    files itself) and in an archive, those are taken whose name fits the first of the `patterns` that any name fits.
    """
    source = Path(path)
    try:
        if source.is_dir():
            below = [p for depth in range(1, DEPTH + 1) for p in source.glob("/".join(["*"] * depth)) if p.is_file()]
            found = _fitting([RawFile(p) for p in sorted(below)], patterns)
            archives = [p for p in sorted(below) if p.suffix.lower() == ".zip"]
            found = found or _fitting([member for archive in archives for member in _members(archive)], patterns)
        elif source.suffix.lower() == ".zip":
            found = _fitting(_members(source), patterns)
        else:
            with source.open("rb"):
                return [RawFile(source)]
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror}; check the path") from error
    if not found:
        raise InputError(f"{source}: holds no {' or '.join(patterns)} (plain, .gz, or in a .zip); name the raw file")
    return found


def read_header(file: IO[bytes], delimiter: str) -> list[str]:
    """Take the first line off the file and return its cells, without quotes around them."""
    line = file.readline(LONGEST_HEADER).removeprefix(b"\xef\xbb\xbf")
    if not line.strip():
        raise InputError("line 1 is empty; it should hold the column names")
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in line:
        raise InputError("line 1 is not UTF-8 text (UTF-16, or no text at all); save the file in the encoding UTF-8")
    return [cell.strip().strip('"').strip() for cell in decode(line, 1).rstrip("\r\n").split(delimiter)]


def decode(line: bytes, number: int) -> str:
    """Return the text of a line."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"line {number} is not UTF-8 text (byte {error.start} of the line); save the file in the encoding UTF-8"
        ) from error


def text_lines(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines as text; one that is not UTF-8 is an error that says its number."""
    for number, line in enumerate(file, 1):
        yield decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, number)


def find_columns(header: Sequence[str], wanted: Iterable[str]) -> list[int]:
    """Return where the wanted columns stand in the header line, or raise and say which are missing."""
    wanted = list(wanted)
    missing = [name for name in wanted if name not in header]
    if missing:
        shown = ", ".join(header[:10]) + (f" and {len(header) - 10} more" if len(header) > 10 else "")
        raise InputError(f"line 1 lacks the column{'s'[: len(missing) - 1]} {', '.join(missing)}; it holds {shown}")
    return [header.index(name) for name in wanted]


def unique_names(names: Iterable[str], ids: Iterable[object]) -> list[str]:
    """Return the names; what stands in brackets behind a name that occurs more than once tells its bearers apart."""
    names = list(names)
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    taken: set[str] = set()
    unique = []
    for name, key in zip(names, ids, strict=True):
        label = name if counts[name] == 1 else f"{name} [{key}]"
        while label in taken:
            label += "'"
        taken.add(label)
        unique.append(label)
    return unique


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        message = str(error)
        raise InputError(message if name in message else f"{name}: {message}", parameter=error.parameter) from error
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: the packed file is damaged or incomplete ({error}); download it again") from error
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}; check the path") from error


def _members(archive: Path) -> list[RawFile]:
    with _naming(str(archive)), zipfile.ZipFile(archive) as opened:
        names = [info.filename for info in opened.infolist() if not info.is_dir()]
    return [RawFile(archive, name) for name in sorted(names) if not name.startswith("__MACOSX/")]


def _fitting(files: list[RawFile], patterns: Sequence[str]) -> list[RawFile]:
    for pattern in patterns:
        fitting: dict[str, RawFile] = {}
        for file in files:
            if fnmatchcase(file.base.lower(), pattern.lower()):
                fitting.setdefault(_unpacked_name(file.name), file)  # the same file plain and packed counts once
        if fitting:
            return list(fitting.values())
    return []


def _unpacked_name(name: str) -> str:
    return name[:-3] if name.lower().endswith(".gz") else name
