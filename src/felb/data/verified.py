"""Which large files were checked to the end before, so that they need not be read again at every start.

A file is known by device, number, size and both times of change. The time of the last change of its inode cannot be
set by a program, so a file that was written to since is another file here. One that changed a moment ago is not
remembered, because a second change within the same tick of the clock would not show.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

CACHE = "FELB_CACHE"
"""Environment variable: folder for what may be forgotten; the user's cache folder if it is not set."""

SMALLEST = 1 << 22
"""Bytes below which a file is simply checked every time."""

SETTLED = 2.0
"""Seconds since the last change after which a further one would show in the file's times."""

MOST_REMEMBERED = 1000

_known: set[str] = set()


def cache_folder() -> Path:
    """Return the folder for what may be forgotten at any time."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE])
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "felb" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "felb"


def key_of(status: os.stat_result, checksum: int) -> str | None:
    """Return by what a file is known; None for one that is not worth remembering, or too new to be told apart."""
    if status.st_size < SMALLEST or time.time() - max(status.st_ctime, status.st_mtime) < SETTLED:
        return None
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, checksum)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def is_known(key: str | None) -> bool:
    """Whether the file was checked before, by this process or by another of the same user."""
    if key is None:
        return False
    try:
        return key in _known or (cache_folder() / "verified" / key).is_file()
    except (OSError, RuntimeError):  # no home folder
        return False


def remember(key: str | None) -> None:
    """Keep that a file was checked; where nothing can be written, only for this process."""
    if key is None:
        return
    _known.add(key)
    try:
        folder = cache_folder() / "verified"
        folder.mkdir(parents=True, exist_ok=True)
        kept = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in kept[: max(0, len(kept) + 1 - MOST_REMEMBERED)]:
            old.unlink(missing_ok=True)
        (folder / key).touch()
    except (OSError, RuntimeError):
        pass
