"""Gene expression: TCGA from UCSC Xena, and cells of the Human Protein Atlas, as matrices samples x genes."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data import BinaryMatrix
from felb.data.binary import index_dtype
from felb.data.coercion import from_columns
from felb.data.files import Table
from felb.errors import InputError
from felb_paper.sources.raw import RawFile, field_blocks, find_files, read_header, unique_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from numpy.typing import NDArray

    from felb_paper.sources.raw import Fields

    Rule = Callable[[NDArray[np.float64]], NDArray[np.bool_]]


def same_tissue(one: str, other: str) -> bool:
    """Return whether two names of tissues are the same, in any case, with blanks or dashes between words."""
    return one.casefold().replace("_", " ").replace("-", " ") == other.casefold().replace("_", " ").replace("-", " ")


def genes_in_lines(raw: RawFile, rule: Rule, *, missing: bool = False) -> Table:
    """Read one gene a line under a header that names the samples; turn it round into samples x genes.

    `rule` makes ones of the values genes x samples of some lines, each whole; with `missing`, NaN stands where the
    file has no value.
    """
    ones: list[NDArray[Any]] = []
    genes: list[str] = []
    with raw.open() as file:
        samples = read_header(file, "\t")[1:]
        if not samples:
            raise InputError("line 1 names no samples; expected a table separated by tabs, one gene a line")
        for fields in field_blocks(file, len(samples) + 1, separator=b"\t", first_line=2):
            genes += fields.texts(0)
            ones += [np.flatnonzero(row).astype(np.int32) for row in rule(fields.table(1, missing=missing))]
        if not genes:
            raise InputError("holds no genes, only a header; the file is incomplete")
        matrix = from_columns(ones, len(samples), columns=unique_names(genes, range(1, len(genes) + 1)))
    return Table(matrix, rows=tuple(samples))


def samples_in_lines(raw: RawFile, n_labels: int, rule: Rule, *, tissue: str | None = None) -> Table:
    """Read one sample a line, behind columns that label it, under a header that names the genes.

    If the first of the columns says the tissue of a sample, only those of `tissue` are taken.
    """
    rows: list[str] = []
    tissues: set[str] = set()
    with raw.open() as file:
        header = read_header(file, "\t")
        genes = unique_names(header[n_labels:], range(1, len(header) - n_labels + 1))
        if not genes:
            raise InputError(f"line 1 names no genes behind the {n_labels} columns that label a cell")
        blocks: list[BinaryMatrix] = []
        lines = field_blocks(file, len(header), separator=b"\t", first_line=2)
        if tissue is not None and header[0].lower() == "tissue":
            lines = _of_tissue(lines, tissue, tissues)
        for fields in lines:
            labels = [fields.texts(column) for column in range(n_labels)]
            rows += ["/".join(parts) for parts in zip(*labels, strict=True)]
            mask = rule(fields.table(n_labels))
            indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(mask, axis=1))])
            indices = np.nonzero(mask)[1].astype(index_dtype(len(genes)))
            blocks.append(BinaryMatrix(indptr, indices, len(genes)))
        if not rows and tissues:
            raise InputError(f"holds no cells of the tissue {tissue!r}; it has {', '.join(sorted(tissues))}")
        if not rows:
            raise InputError("holds no cells, only a header; the file is incomplete")
        return Table(BinaryMatrix.vstack(blocks).with_columns(genes), rows=tuple(rows))


def _of_tissue(lines: Iterator[Fields], tissue: str, tissues: set[str]) -> Iterator[Fields]:
    """Yield the lines whose first field is `tissue`; note all tissues in `tissues`."""
    for fields in lines:
        found = fields.texts(0)
        tissues.update(found)
        kept = np.array([same_tissue(name, tissue) for name in found])
        if kept.any():
            yield fields.only(kept)


# -- TCGA from UCSC Xena: a TSV file, one gene a line, values log2(x + 1) ----------------------------------------------

TCGA_FILES = ("*HiSeqV2", "*HiSeqV2.*", "*HiSeqV2*", "*.tsv", "*.xena")
CORNERS = ("sample", "sampleid", "ensembl_id", "gene")
"""First cell of the header in the files of Xena, in lower case."""


def load_tcga(path: str | PathLike[str], *, share: float = 0.95) -> Table:
    """Load samples x genes: a one where x ≥ share · maxₛ x(gene, s) > 0, in samples that express a gene as much as any.

    Parameters
    ----------
    path : the matrix of Xena (``TCGA.PANCAN.sampleMap/HiSeqV2``, packed or not), or the folder or ``.zip`` it is in.
        ``HiSeqV2_PANCAN`` of a single cohort is something else: its values are centred for each gene.
    share : of the maximum; with 0.95 it comes near the density that was published for these data, 0.019. A missing
        value (``NA``) is never a one.
    """
    if not 0 < share <= 1:
        raise InputError(f"share={share!r} of the maximum must lie in (0, 1]")

    def near_maximum(values: NDArray[np.float64]) -> NDArray[np.bool_]:
        highest = np.max(np.nan_to_num(values, nan=-np.inf), axis=1, keepdims=True)
        return np.asarray((values >= share * highest) & (highest > 0))

    (raw,) = find_files(path, TCGA_FILES)[:1]
    with raw.open() as file:
        corner = read_header(file, "\t")[0]
        if corner.lower() not in CORNERS:
            raise InputError(f"line 1 begins with {corner[:60]!r} instead of 'sample'; expected a gene x sample table")
    return genes_in_lines(raw, near_maximum, missing=True)


# -- Human Protein Atlas, single cell type section: read counts of cells and genes -------------------------------------

ATLAS_FILES = ("rna_single_cell_read_count.tsv", "read_count.tsv")
LABELS = 3
"""Columns before the genes where one line is a cell: tissue, cell, cluster."""

GENE = "ENSG"
"""How the names of human genes begin in Ensembl, which the files use."""

GENE_HEADERS = frozenset({"", "gene", "genes", "gene id", "gene_id", "gene name", "ensembl", "ensg_id", "ensembl_id"})


def load_brain(path: str | PathLike[str], *, above: float = 0) -> Table:
    """Load the cells of the brain x genes; everything as for `load_cells`."""
    return load_cells(path, above=above, tissue="brain")


def load_cells(path: str | PathLike[str], *, above: float = 0, tissue: str | None = None) -> Table:
    """Load cells x genes: a one where a cell has `above` so many reads of a gene.

    Releases differ: older ones are one file with the cells of all tissues, newer ones an archive with a folder for each
    tissue.

    Parameters
    ----------
    path : ``rna_single_cell_read_count.tsv`` (a cell a line: three columns that label it, then the genes), or
        ``read_count.tsv`` of one tissue (a gene a line), packed or not, the ``.zip`` or folder with one or more of them
        (their cells are put below each other and must have the same genes)
    above : count above which there is a one
    tissue : the only one to take, by its name in the file or that of its folder; all by default. A file that is
        alone and does not name tissues is taken as it is.
    """
    if not isinstance(above, int | float) or not math.isfinite(above):
        raise InputError(f"above={above!r} is not a finite number")
    files = find_files(path, ATLAS_FILES)
    if tissue is not None and len(files) > 1:
        files = _files_of_tissue(path, files, tissue)
    tables = [_load_one(raw, above, tissue=tissue, several=len(files) > 1) for raw in files]
    if any(table.matrix.columns != tables[0].matrix.columns for table in tables):
        raise InputError(f"{path}: the tissues do not have the same genes in the same order; load them one by one")
    matrix = BinaryMatrix.vstack([table.matrix for table in tables])
    return Table(matrix, rows=tuple(row for table in tables for row in table.rows or ()))


def _files_of_tissue(path: str | PathLike[str], files: list[RawFile], tissue: str) -> list[RawFile]:
    """Return the file in the folder of a tissue, or called so."""
    names = [{_folder(raw), PurePath(raw.base).stem} for raw in files]
    chosen = [raw for raw, own in zip(files, names, strict=True) if any(same_tissue(name, tissue) for name in own)]
    if not chosen:
        found = ", ".join(sorted({_folder(raw) for raw in files}))
        raise InputError(f"{path}: holds no folder of the tissue {tissue!r} but {found}; name the raw file")
    return chosen


def _folder(raw: RawFile) -> str:
    return PurePath(raw.name).parent.name


def _load_one(raw: RawFile, above: float, *, tissue: str | None, several: bool) -> Table:
    def counted(counts: NDArray[np.float64]) -> NDArray[np.bool_]:
        return counts > above

    labels, kind = _layout(raw)
    if kind == "cells":
        return samples_in_lines(raw, labels, counted, tissue=tissue)
    table = genes_in_lines(raw, counted)
    if not several:
        return table
    # Cells are numbered anew in each tissue.
    return Table(table.matrix, rows=tuple(f"{_folder(raw)}/{row}" for row in table.rows or ()))


def _layout(raw: RawFile) -> tuple[int, str]:
    """Return the number of columns before the genes if a line is a cell, and what a line is."""
    with raw.open() as file:
        header = read_header(file, "\t")
        first_gene = next((i for i, cell in enumerate(header) if cell.upper().startswith(GENE)), None)
        if first_gene:
            return first_gene, "cells"
        if file.readline(1 << 16).lstrip(b'"').upper().startswith(GENE.encode()):
            return LABELS, "genes"
    return LABELS, "genes" if header[0].lower() in GENE_HEADERS else "cells"
