"""Jobs, runs and their results. Here is where a result may be: a folder with ``result.json``, or a model file.

Nothing that takes time is imported here, so that a command can refuse a wrong path at once.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from felb.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

UNVERIFIED = ContextVar("UNVERIFIED", default=False)
"""Whether results are read although their files differ from those that were written."""
RESULT, OUTBOUND, MODEL_SUFFIX = "result.json", "outbound", ".felbmodel"


@contextmanager
def reading_unverified() -> Iterator[None]:
    """Read results in the block although their files differ from those that were written; each is a warning."""
    token = UNVERIFIED.set(True)
    try:
        yield
    finally:
        UNVERIFIED.reset(token)


def is_model_file(path: Path) -> bool:
    """Tell a model file, also a missing one, by its name; a folder is none."""
    return path.suffix == MODEL_SUFFIX and not path.is_dir()


def result_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a result, of which the file ``result.json`` may be named, too."""
    named = Path(path)
    return named.parent if named.name == RESULT and named.is_file() else named


def check_result_folder(folder: str | os.PathLike[str]) -> None:
    """Raise if a folder holds no result."""
    path = Path(folder)
    if not (path / RESULT).is_file():
        missing = f"there is no folder {str(path)!r}"
        wrong = f"{path} is not a result folder: it has no {RESULT}" if path.exists() else missing
        raise InputError(f"{wrong}; give the folder of a finished run, or a model file")


def check_folder_of_result(place: str | os.PathLike[str]) -> None:
    """Raise if there is no folder of a result to store something in; a model file has none."""
    if is_model_file(Path(place)):
        raise InputError(f"{place} is a model file, which stores nothing else; give the folder of the result")
    check_result_folder(place)


def check_result(place: str | os.PathLike[str]) -> None:
    """Raise if there is neither a model file nor the folder of a result."""
    path = Path(place)
    if not is_model_file(path):
        check_result_folder(result_folder(path))
    elif not path.is_file():
        raise InputError(f"there is no model file {path}; check the path")
