"""Regular files only: a pipe would keep its reader for ever, and a device has no end."""

from __future__ import annotations

import os
import stat
from typing import IO

from felb.errors import InputError


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading, by its name or through links; anything else is an `InputError`."""
    return open(path, "rb", opener=_opener)  # Path.open takes no opener


def file_size(path: str | os.PathLike[str]) -> int:
    """Return the size of a regular file that is not empty; for anything else an `InputError` says what it is."""
    try:
        if os.path.isdir(path):  # noqa: PTH112
            raise InputError("is a folder; give a file")
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}; check the path") from error
    except ValueError as error:  # a name with a zero byte, or a felb error
        raise error if isinstance(error, InputError) else InputError("is no name of a file; check the path") from error
    if not size:
        raise InputError("the file is empty; write it again")
    return size


def _opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer is not waited for
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # opening a folder fails by itself, with its own reason
        return descriptor
    os.close(descriptor)
    raise InputError(f"{path} is no regular file but a pipe or a device; copy its content to a file first")
