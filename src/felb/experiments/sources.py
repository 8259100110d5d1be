"""Public data for experiments: what is at hand, as matrices that are made of raw files once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.datasets.catalogue import data_folder, entries, find, load_raw
from felb.datasets.registry import load
from felb.linalg.binary import BinaryMatrix

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".felb"


def at_hand() -> list[str]:
    """Names of the data sets that come with felb or whose files are in the data folder."""
    return [
        entry.name for entry in entries().values() if entry.shipped or entry.folder.exists() or _converted(entry.name)
    ]


def load_source(name: str, *, cache: Path | None = None) -> BinaryMatrix:
    """Load a data set: one that comes with felb, a ``NAME.felb`` in the data folder, or the raw files.

    A matrix made of raw files is kept in `cache`, and used from there by later cells.
    """
    entry = find(name)
    if entry.shipped:
        return load(entry.name)
    converted = _converted(entry.name)
    if converted is not None:
        return BinaryMatrix.open(converted)
    kept = None if cache is None else cache / f"{entry.name}{SUFFIX}"
    if kept is not None and kept.is_file():
        return BinaryMatrix.open(kept)
    matrix = load_raw(entry.name, any_shape=True).matrix
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        matrix.save(kept)
    return matrix


def _converted(name: str) -> Path | None:
    places = (data_folder() / f"{name}{SUFFIX}", data_folder() / name / f"{name}{SUFFIX}")
    return next((place for place in places if place.is_file()), None)
