"""Files that are read only if they are regular; files and folders that appear complete or not at all.

A pipe would keep its reader for ever, and a device has no end.

What is being written stands beside its place under a hidden name that tells the process and the machine. A process that
is killed leaves it there; the next one that writes in the same folder finds that its writer is dead, and removes it.
Locks let one process at a time work on a folder.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from felb.errors import InputError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTIAL, NEW, OLD = "partial", "new", "old"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def replacing(path: str | os.PathLike[str], *, clear: bool = True) -> Iterator[Path]:
    """Give a temporary path beside `path`; what was written there takes its place if the block succeeds.

    With `clear`, what killed processes left in the folder is removed before.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"cannot write {target}: there is no folder {target.parent}; make it, or give another one")
    if clear:
        clear_leftovers(target.parent)
    partial = beside(target, PARTIAL)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def beside(target: Path, role: str) -> Path:
    """Return a hidden name beside `target` for what this process makes for it: `PARTIAL`, `NEW` or `OLD`."""
    return target.with_name(f".{target.name}.{os.getpid()}-{_machine()}.{role}")


def replace_folder(complete: Path, target: Path) -> None:
    """Put the finished folder `complete` where `target` is, and delete an old `target`.

    Where the system can exchange two names in one step, there is no moment without the old folder or the new one.
    Elsewhere the old one is moved aside first; a process that is killed then leaves it for `clear_leftovers`, which
    puts it back.
    """
    _sync_content(complete)
    old = beside(target, OLD)
    if target.exists() and _exchange(complete, target):
        complete.rename(old)
    else:
        _move_aside(complete, target, old)
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _move_aside(complete: Path, target: Path, old: Path) -> None:
    if target.exists():
        target.rename(old)
    try:
        complete.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise


def remove_folder(folder: Path) -> None:
    """Delete a folder that is no longer valid: it loses its name first, so that no half is taken for the whole."""
    doomed = beside(folder, OLD)
    shutil.rmtree(doomed, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def clear_leftovers(folder: Path) -> None:
    """Remove what dead processes of this machine left half-made in a folder; put back what they moved aside."""
    pattern = re.compile(rf"\.(.+)\.(\d+)-{_machine()}\.({PARTIAL}|{NEW}|{OLD})")
    try:
        entries = sorted(path for path in folder.iterdir() if path.name.startswith("."))
    except OSError:
        return
    for path in entries:
        found = pattern.fullmatch(path.name)
        if found is None or _is_alive(int(found[2])):
            continue
        place = path.with_name(found[1])
        with suppress(OSError):
            if found[3] == OLD and path.is_dir() and not place.exists() and not place.name.endswith(".unfinished"):
                path.rename(place)
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def try_lock(path: Path) -> IO[bytes] | None:
    """Open `path` and hold it until it is closed or the process ends, however it ends; None if another holds it."""
    file = path.open("ab")
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:  # some network file systems have no locks; then it is up to the user
            pass
    return file


def wait_for_lock(path: Path, *, seconds: float) -> IO[bytes]:
    """Open `path` and hold it like `try_lock`, as soon as nobody else does."""
    end = time.monotonic() + seconds
    while (held := try_lock(path)) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"{path} is in use by another process")
        time.sleep(0.05)
    return held


def _machine() -> str:
    """Return a word for this machine: on a shared file system, another one's processes are not known here."""
    return hashlib.blake2b(platform.node().encode(), digest_size=3).hexdigest()


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":
        return process == os.getpid() or _windows_knows(process)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # somebody else's
    return True


def _windows_knows(process: int) -> bool:
    """Whether a process runs; `os.kill` would end it there."""
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    handle = kernel.OpenProcess(0x1000, False, process)
    if handle:
        kernel.CloseHandle(handle)
    return bool(handle)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where system or file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _sync_content(folder: Path) -> None:
    """Bring the files of a folder to disk, so that a name never stands for less than was written."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        elif path.is_dir():
            sync_folder(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # some file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
        raise InputError("the file is empty; it needs at least one record")
    return size


def _opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer is not waited for
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # opening a folder fails by itself, with its own reason
        return descriptor
    os.close(descriptor)
    raise InputError(f"{path} is no regular file but a pipe or a device; copy its content to a file first")
