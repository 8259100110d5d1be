"""Tables of measurements, genes x samples or samples x genes, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data import BinaryMatrix
from felb.data.binary import index_dtype
from felb.data.coercion import from_columns
from felb.data.files import Table
from felb.errors import InputError
from felb_paper.sources.raw import field_blocks, read_header, unique_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from felb_paper.sources.raw import Fields, RawFile

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
