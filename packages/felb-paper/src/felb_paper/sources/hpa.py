"""Human Protein Atlas, single cell type section: read counts of cells and genes."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import TYPE_CHECKING

from felb.data import BinaryMatrix
from felb.data.files import Table, read
from felb.errors import InputError, missing_extra
from felb_paper.sources.expression import genes_in_lines, same_tissue, samples_in_lines
from felb_paper.sources.raw import RawFile, find_files, read_header

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

FILES = ("rna_single_cell_read_count.tsv", "read_count.tsv", "*.h5ad")
LABELS = 3
"""Columns before the genes where one line is a cell: tissue, cell, cluster."""

GENE = "ENSG"
"""How the names of human genes begin in Ensembl, which the files use."""

GENE_HEADERS = frozenset({"", "gene", "genes", "gene id", "gene_id", "gene name", "ensembl", "ensg_id", "ensembl_id"})


def brain(path: str | PathLike[str], *, above: float = 0, layout: str | None = None) -> Table:
    """Load the cells of the brain x genes; everything as for `load`."""
    return load(path, above=above, layout=layout, tissue="brain")


def load(path: str | PathLike[str], *, above: float = 0, layout: str | None = None, tissue: str | None = None) -> Table:
    """Load cells x genes: a one where a cell has `above` so many reads of a gene.

    Releases differ: older ones are one file with the cells of all tissues, newer ones an archive with a folder for each
    tissue.

    Parameters
    ----------
    path : ``rna_single_cell_read_count.tsv`` (a cell a line: three columns that label it, then the genes), or
        ``read_count.tsv`` of one tissue (a gene a line), packed or not, the ``.zip`` or folder with one or more of them
        (their cells are put below each other and must have the same genes), or an AnnData ``.h5ad`` file
    above : count above which there is a one
    layout : ``cells`` or ``genes``, what a line of the text holds; by default told from the header
    tissue : the only one to take, by its name in the file or that of its folder; all by default. A file that is
        alone and does not name tissues is taken as it is.
    """
    if layout not in (None, "cells", "genes"):
        raise InputError(f"layout={layout!r} is unknown; choose cells or genes, which is what a line holds")
    if not isinstance(above, int | float) or not math.isfinite(above):
        raise InputError(f"above={above!r} is not a finite number")
    files = find_files(path, FILES)
    if tissue is not None and len(files) > 1:
        files = _of_tissue(path, files, tissue)
    tables = [_load_one(raw, above, layout, tissue=tissue, several=len(files) > 1) for raw in files]
    if any(table.matrix.columns != tables[0].matrix.columns for table in tables):
        raise InputError(f"{path}: the tissues do not have the same genes in the same order; load them one by one")
    matrix = BinaryMatrix.vstack([table.matrix for table in tables])
    return Table(matrix, rows=tuple(row for table in tables for row in table.rows or ()))


def _of_tissue(path: str | PathLike[str], files: list[RawFile], tissue: str) -> list[RawFile]:
    """Return the file in the folder of a tissue, or called so."""
    names = [{_folder(raw), PurePath(raw.base).stem} for raw in files]
    chosen = [raw for raw, own in zip(files, names, strict=True) if any(same_tissue(name, tissue) for name in own)]
    if not chosen:
        found = ", ".join(sorted({_folder(raw) for raw in files}))
        raise InputError(f"{path}: holds no folder of the tissue {tissue!r} but {found}; name the raw file")
    return chosen


def _folder(raw: RawFile) -> str:
    return PurePath(raw.name).parent.name


def _load_one(raw: RawFile, above: float, layout: str | None, *, tissue: str | None, several: bool) -> Table:
    def counted(counts: NDArray[np.float64]) -> NDArray[np.bool_]:
        return counts > above

    if raw.base.lower().endswith(".h5ad"):
        return _load_anndata(raw, above)
    labels, kind = _layout(raw)
    if (layout or kind) == "cells":
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


def _load_anndata(raw: RawFile, above: float) -> Table:
    if raw.member is not None or raw.path.suffix.lower() != ".h5ad":
        raise InputError(f"{raw.name}: an .h5ad file is read from its place; unpack it first")
    matrix = read(raw.path, binarize_threshold=above).matrix
    try:
        import anndata
    except ImportError as error:
        missing_extra("reading .h5ad files", "anndata", error)
    data = anndata.read_h5ad(raw.path, backed="r")
    try:
        return Table(matrix, rows=tuple(str(name) for name in data.obs_names))
    finally:
        data.file.close()
