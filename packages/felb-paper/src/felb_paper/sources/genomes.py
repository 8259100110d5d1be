"""1000 Genomes: persons x variants, from the VCF files of chromosomes."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from felb.data import BinaryMatrix
from felb.data.files import Table
from felb.errors import InputError
from felb_paper.sources.raw import decode, find_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

FILES = ("ALL.chr*.vcf", "*.vcf")
FIXED = 9
"""Columns before the samples: CHROM, POS, ID, REF, ALT, QUAL, FILTER, INFO, FORMAT."""


def load_genomes(path: str | PathLike[str], *, min_frequency: float = 0.0) -> Table:
    """Load persons x variants: a one where the person carries an allele that is not that of the reference.

    A genotype that was not called (``.``) counts as the reference. Variants that nobody carries are left out. Which
    chromosomes and variants the paper took it does not say.

    Parameters
    ----------
    path : a VCF file (or ``.gz``), a ``.zip`` or a folder with those of several chromosomes and the same samples
    min_frequency : smallest share of the persons that carry a variant
    """
    if not 0 <= min_frequency <= 1:
        raise InputError(f"min_frequency={min_frequency!r} must be a share of the persons, between 0 and 1")
    persons: tuple[str, ...] | None = None
    names: list[str] = []
    carriers: list[np.ndarray] = []
    for raw in find_files(path, FILES):
        with raw.open() as file:
            samples, header = _read_samples(file)
            if persons is not None and samples != persons:
                raise InputError("the samples are not those of the other files, or in another order; load them apart")
            persons = samples
            for name, found in _variants(file, len(samples), header):
                if found.size and found.size >= min_frequency * len(samples):
                    names.append(name)
                    carriers.append(found)
    assert persons is not None
    if not names:
        raise InputError(
            f"{path}: no variant is carried by a share of {min_frequency} of the persons; choose a smaller"
        )
    ends = np.cumsum([0, *(found.size for found in carriers)])
    matrix = sp.csc_array(
        (np.ones(ends[-1], dtype=bool), np.concatenate(carriers), ends), shape=(len(persons), len(names))
    )
    return Table(BinaryMatrix.of(matrix.tocsr(), columns=_unique(names)), rows=persons)


def _read_samples(file: IO[bytes]) -> tuple[tuple[str, ...], int]:
    """Skip the lines about the file and return the samples of its header, and the number of that line."""
    for number, line in enumerate(file, 1):
        if line.startswith(b"##"):
            continue
        cells = decode(line, number).rstrip("\r\n").split("\t")
        if cells[0] != "#CHROM" or len(cells) <= FIXED:
            raise InputError(f"line {number} should be the header, #CHROM ... FORMAT and the samples, tab-separated")
        return tuple(cells[FIXED:]), number
    raise InputError("there is no header; expected a VCF file with a line that begins with #CHROM")


def _variants(file: IO[bytes], persons: int, header: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of each variant and the numbers of its carriers."""
    for number, line in enumerate(file, header + 1):
        if not line.strip():
            continue
        cells = decode(line, number).rstrip("\r\n").split("\t")
        if len(cells) != FIXED + persons:
            raise InputError(
                f"line {number} has {len(cells)} fields, expected {FIXED + persons}; the file may be incomplete"
            )
        chromosome, position, identifier, reference, alternative = cells[:5]
        if cells[FIXED - 1].split(":")[0] != "GT":
            raise InputError(f"line {number} has no genotypes (FORMAT should begin with GT)")
        name = f"{chromosome}:{position}:{reference}>{alternative}" if identifier == "." else identifier
        carried = [_carries(cell.partition(":")[0], number) for cell in cells[FIXED:]]
        yield name, np.flatnonzero(carried)


def _carries(genotype: str, number: int) -> bool:
    """Whether one of the alleles of 0|1, 1/1 or 2 is not that of the reference."""
    alleles = genotype.replace("/", "|").split("|")
    if not all(allele == "." or allele.isdigit() for allele in alleles):
        raise InputError(f"line {number} has the genotype {genotype!r}; expected such as 0|1")
    return any(allele not in ("0", ".") for allele in alleles)


def _unique(names: list[str]) -> list[str]:
    """Return the names with a number after those that occur again."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
