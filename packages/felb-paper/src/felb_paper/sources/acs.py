"""American Community Survey, Public Use Microdata Sample: ``psam_p<SS>.csv`` of one year, persons.

The two tasks choose persons and columns; every answer is a column of its own (one-hot), and so is a missing one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import numpy as np

from felb.data import BinaryMatrix
from felb.data.files import Table
from felb.errors import InputError
from felb_paper.sources.raw import Fields, field_blocks, find_columns, find_files, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import NDArray

FILES = ("psam_p*.csv", "ss[0-9][0-9]p*.csv")
"""Persons; the files of 2016 and before are called after the year and the state."""

INCOME = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P")
POVERTY = (
    "AGEP", "SCHL", "MAR", "SEX", "DIS", "ESP", "MIG", "CIT", "MIL", "ANC", "NATIVITY", "RELP", "DEAR", "DEYE", "DREM",
    "RAC1P", "GCL", "ESR", "OCCP", "WKHP",
)  # fmt: skip
WORKING = {"AGEP": 17, "PINCP": 101, "WKHP": 1, "PWGTP": 1}
"""Adults who earn and work: each at least so much."""

RENAMED = {"RELP": "RELSHIPP", "RELSHIPP": "RELP"}
"""How a person relates to the reference person has another name since 2019."""

MISSING = np.iinfo(np.int64).max
"""Stands for a missing answer, so that it is the last of its column."""

LARGEST_CODE = 10**9


def load_income(path: str | PathLike[str], *, features: Sequence[str] = INCOME) -> Table:
    """Load working adults x answers (ACS Income): exactly one one per feature in each row.

    Kept are persons with AGEP > 16, PINCP > 100, WKHP > 0 and PWGTP ≥ 1.

    Parameters
    ----------
    path : one ``psam_p<SS>.csv`` (to 2016: ``ss<YY>p<st>.csv``), also ``.gz``, a ``.zip`` with some, or the folder they
        are in
    features : columns of the survey to take
    """
    return _load(path, features, WORKING)


def load_poverty(path: str | PathLike[str], *, features: Sequence[str] = POVERTY) -> Table:
    """Load all persons x answers (ACS Poverty): exactly one one per feature in each row; `path` as for `income`."""
    return _load(path, features, {})


@dataclass
class _Answers:
    """What was answered so far: provisional numbers of the answers, in the order of their first appearance."""

    features: list[str]
    known: list[dict[int, int]] = field(default_factory=list)
    blocks: list[NDArray[np.uint16]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known = [{} for _ in self.features]

    def add(self, columns: list[NDArray[np.int64]]) -> None:
        block = np.empty((columns[0].size, len(columns)), np.uint16)
        for j, (column, known) in enumerate(zip(columns, self.known, strict=True)):
            values, inverse = np.unique(column, return_inverse=True)
            numbers = np.array([known.setdefault(value, len(known)) for value in values.tolist()], np.int64)
            if len(known) > np.iinfo(np.uint16).max:
                raise InputError(f"{self.features[j]} has more than {len(known) - 1} answers; it is no coded column")
            block[:, j] = numbers[inverse] if values.size else 0
        self.blocks.append(block)

    def matrix(self) -> BinaryMatrix:
        """Put the answers of each feature in ascending order, a missing one last, and the features side by side."""
        names: list[str] = []
        tables = []
        for feature, known in zip(self.features, self.known, strict=True):
            order = sorted(known)
            table = np.zeros(max(1, len(known)), np.int64)
            table[[known[value] for value in order]] = np.arange(len(order)) + len(names)
            tables.append(table)
            names += [f"{feature}={'missing' if value == MISSING else value}" for value in order]
        width = len(self.features)
        # Features follow each other, so that the ones of a row ascend already.
        dtype = np.uint16 if len(names) <= 1 << 16 else np.int32
        ones = np.empty((sum(len(block) for block in self.blocks), width), dtype)
        start = 0
        while self.blocks:
            block = self.blocks.pop(0)
            for j, table in enumerate(tables):
                ones[start : start + len(block), j] = table[block[:, j]]
            start += len(block)
        return BinaryMatrix(np.arange(len(ones) + 1, dtype=np.int64) * width, ones.ravel(), len(names), names)


def _load(path: str | PathLike[str], features: Sequence[str], at_least: dict[str, int]) -> Table:
    if not features or len(set(features)) != len(features):
        raise InputError("features must name at least one column of the survey, each once")
    answers: _Answers | None = None
    people: list[str] = []
    for raw in find_files(path, FILES):
        with raw.open() as file:
            header = [name.upper() for name in read_header(file, ",")]
            wanted = [
                RENAMED[name] if name not in header and RENAMED.get(name) in header else name for name in features
            ]
            answers = answers or _Answers(wanted)
            if answers.features != wanted:
                raise InputError("names a column otherwise than the files before it (RELP, RELSHIPP); load one year")
            people += _persons(file, header, answers, at_least)
    if answers is None or not any(answers.known):
        raise InputError(f"{path}: no person in the files passes the filter {at_least or ''}; check the files")
    return Table(answers.matrix(), rows=tuple(people) if people else None)


def _persons(file: IO[bytes], header: list[str], answers: _Answers, at_least: dict[str, int]) -> list[str]:
    """Add the persons of a file to the answers and return their names, if the file says them."""
    places = find_columns(header, answers.features)
    limits = dict(zip(find_columns(header, at_least), at_least.items(), strict=True))
    named = [header.index(name) for name in ("SERIALNO", "SPORDER") if name in header]
    people: list[str] = []
    for fields in field_blocks(file, len(header), first_line=2):
        kept = np.ones(len(fields), bool)
        for place, (name, least) in limits.items():
            kept &= fields.numbers(place, name, missing=True) >= least  # never true of NaN
        answers.add([_codes(fields, place, header[place])[kept] for place in places])
        if named:
            lines = np.flatnonzero(kept).tolist()
            parts = [fields.texts(place, lines) for place in named]
            people += ["-".join(part) for part in zip(*parts, strict=True)]
    return people


def _codes(fields: Fields, place: int, name: str) -> NDArray[np.int64]:
    values = fields.numbers(place, name, missing=True)
    absent = np.isnan(values)
    codes = np.where(absent, 0, values)
    whole = (np.floor(codes) == codes) & (np.abs(codes) < LARGEST_CODE)
    if not whole.all():
        fields.refuse(int(np.argmin(whole)), place, f"{name} should be a whole number, the code of an answer")
    return np.where(absent, MISSING, codes.astype(np.int64))
