"""TCGA gene expression from UCSC Xena: a TSV file, one gene a line, values log2(x + 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError
from felb_paper.sources.expression import genes_in_lines
from felb_paper.sources.raw import find_files, read_header

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from felb.data.files import Table
    from felb_paper.sources.expression import Rule

FILES = ("*HiSeqV2", "*HiSeqV2.*", "*HiSeqV2*", "*.tsv", "*.xena")
CORNERS = ("sample", "sampleid", "ensembl_id", "gene")
"""First cell of the header in the files of Xena, in lower case."""


def near_maximum(share: float = 0.95) -> Rule:
    """Return the rule x ≥ share · maxₛ x(gene, s) > 0: the samples that express a gene about as much as any does.

    With 0.95 it comes near the density that was published for these data, 0.019.
    """
    if not 0 < share <= 1:
        raise InputError(f"share={share!r} of the maximum must lie in (0, 1]")

    def rule(values: NDArray[np.float64]) -> NDArray[np.bool_]:
        highest = np.max(np.nan_to_num(values, nan=-np.inf), axis=1, keepdims=True)
        return np.asarray((values >= share * highest) & (highest > 0))

    return rule


def above_quantile(q: float = 0.95) -> Rule:
    """Return the rule x > the q-quantile of its gene: about a share 1 − q of the samples for every gene."""
    if not 0 <= q <= 1:
        raise InputError(f"q={q!r} must lie between 0 and 1")

    def rule(values: NDArray[np.float64]) -> NDArray[np.bool_]:
        known = ~np.isnan(values).all(axis=1)
        cut = np.full((len(values), 1), np.inf)
        if known.any():
            cut[known] = np.nanquantile(values[known], q, axis=1, keepdims=True)
        return values > cut

    return rule


def above(threshold: float) -> Rule:
    """Return the rule x > threshold, the same for all genes."""

    def rule(values: NDArray[np.float64]) -> NDArray[np.bool_]:
        return values > threshold

    return rule


def load(path: str | PathLike[str], *, rule: Rule | None = None) -> Table:
    """Load samples x genes: a one where `rule` finds a gene highly expressed.

    Parameters
    ----------
    path : the matrix of Xena (``TCGA.PANCAN.sampleMap/HiSeqV2``, packed or not), or the folder or ``.zip`` it is in.
        ``HiSeqV2_PANCAN`` of a single cohort is something else: its values are centred for each gene.
    rule : function of the values genes x samples of some genes that returns which are ones; `near_maximum` by default,
        or `above_quantile`, `above`, or your own. A missing value (``NA``) comes as NaN, which no rule here takes.
    """
    (raw,) = find_files(path, FILES)[:1]
    with raw.open() as file:
        corner = read_header(file, "\t")[0]
        if corner.lower() not in CORNERS:
            raise InputError(f"line 1 begins with {corner[:60]!r} instead of 'sample'; expected a gene x sample table")
    return genes_in_lines(raw, near_maximum() if rule is None else rule, missing=True)
