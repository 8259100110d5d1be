"""Real data for experiments: what is at hand, as matrices that are made of raw files once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache as kept_in_memory
from typing import TYPE_CHECKING

from felb.data.binary import BinaryMatrix
from felb.data.files import read
from felb.data.registry import SHIPPED, load
from felb.errors import FelbError, InputError
from felb.paper.public_data import data_folder, entries, load_raw

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".felb"
SUFFIXES = (SUFFIX, ".npz")
"""Of files that hold one matrix."""

CONTENTS = 16
"""Characters of a fingerprint that tell matrices of the same name apart."""


@dataclass(frozen=True, slots=True)
class Source:
    """A data set that is at hand.

    Parameters
    ----------
    name : in the catalogue, or of the file without its suffix
    shape, ones : of the matrix; for raw files, of the matrix that the complete ones give
    contents : start of the fingerprint of a matrix in the data folder; None for data that the catalogue defines
    """

    name: str
    shape: tuple[int, int]
    ones: int
    contents: str | None = None


def at_hand(folder: Path | None = None) -> list[Source]:
    """Return the data sets that come with felb, and those in a folder (by default the data folder).

    A data set of the catalogue is there as a matrix, ``NAME.felb`` or ``NAME.npz``, or as raw files in ``NAME/``. Any
    other ``.npz`` (SciPy) or ``.felb`` file is a data set, too, called like the file. A file with the name of a data
    set that comes with felb is not looked at.
    """
    place = data_folder() if folder is None else folder
    found = {name: _shipped(name) for name in SHIPPED}
    for entry in entries().values():
        raw = (place / entry.name).is_dir()
        if not entry.shipped and raw and _matrix_file(entry.name, place) is None:
            rows, columns = entry.shape
            found[entry.name] = Source(entry.name, entry.shape, round(entry.density * rows * columns))
    for path in _matrix_files(place):
        if path.stem not in found and (source := _described(path)) is not None:
            found[path.stem] = source
    return list(found.values())


def load_source(name: str, *, cache: Path | None = None, folder: Path | None = None) -> BinaryMatrix:
    """Load a data set: one that comes with felb, a matrix in the folder, or the raw files there.

    A matrix made of raw files is kept in `cache`, and used from there by later cells.
    """
    if name in SHIPPED:
        return load(name)
    place = data_folder() if folder is None else folder
    file = _matrix_file(name, place)
    if file is not None:
        return read(file).matrix
    kept = None if cache is None else cache / f"{name}{SUFFIX}"
    if kept is not None and kept.is_file():
        return BinaryMatrix.open(kept)
    if name not in entries():
        raise InputError(f"there is no {name}.npz in {place}; name the folder it is in")
    matrix = load_raw(name, place / name if (place / name).exists() else None, any_shape=True).matrix
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        matrix.save(kept)
    return matrix


def keep_source(name: str, *, cache: Path, folder: Path | None = None) -> None:
    """Make the matrix of a data set that is there as raw files, unless it was made before."""
    place = data_folder() if folder is None else folder
    if name not in SHIPPED and _matrix_file(name, place) is None and not (cache / f"{name}{SUFFIX}").is_file():
        load_source(name, cache=cache, folder=folder)


def _shipped(name: str) -> Source:
    matrix = load(name)
    return Source(name, matrix.shape, matrix.nnz)


def _matrix_file(name: str, folder: Path) -> Path | None:
    places = [folder / f"{name}{suffix}" for suffix in SUFFIXES] + [folder / name / f"{name}{SUFFIX}"]
    return next((place for place in places if place.is_file()), None)


def _matrix_files(folder: Path) -> list[Path]:
    """Return the files with matrices, by name, each name once."""
    inside = [path for name in entries() if (path := folder / name / f"{name}{SUFFIX}").is_file()]
    files = [path for suffix in SUFFIXES for path in sorted(folder.glob(f"*{suffix}")) if path.is_file()]
    return list({path.stem: path for path in reversed([*files, *inside])}.values())[::-1]


def _described(path: Path) -> Source | None:
    """Return what a file holds; None, with a warning, if that is no matrix of zeros and ones."""
    state = path.stat()
    found = _read_description(path.resolve(), state.st_mtime_ns, state.st_size)
    if isinstance(found, str):
        warnings.warn(f"{path} is left out: {found}", UserWarning, stacklevel=3)
        return None
    return found


@kept_in_memory
def _read_description(path: Path, changed: int, size: int) -> Source | str:  # noqa: ARG001
    """Return what a file holds, or why it is no matrix; a file that changed is read again."""
    try:
        matrix = read(path).matrix
    except (FelbError, OSError) as error:
        return str(error)
    if matrix.unknown is not None:
        return "it has unknown cells"
    return Source(path.stem, matrix.shape, matrix.nnz, matrix.fingerprint()[:CONTENTS])
