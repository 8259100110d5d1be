"""The publications that methods come from, as BibTeX; ``references.bib`` beside this file holds them."""

from __future__ import annotations

import re
from importlib.resources import files

from felb.estimators.methods import JOIN, METHODS, check_known

PAPER = "dalleiger2025federated"
SOFTWARE = "felb"
ALIGNED = "dalleiger2025creating"
"""Of aggregations that match the clients' components first."""

KEYS = {
    "bmf": (SOFTWARE,),
    "felb": (PAPER,),
    "felb-mu": (PAPER,),
    "fednmf": ("li2021federated", "si2022federated"),
    "fedprox": ("li2020federated",),
    "scaffold": ("karimireddy2020scaffold",),
    "proxskip": ("mishchenko2022proxskip",),
    "elbmf": ("dalleiger2022efficiently",),
    "asso": ("miettinen2008discrete",),
    "grecond": ("belohlavek2010discovery",),
    "mebf": ("wan2020fast",),
    "zhang": ("zhang2007binary",),
}
"""Keys of the publications of each method; a post-hoc method has those of its centralized method and of the paper."""


def entries() -> dict[str, str]:
    """Return all entries by their keys."""
    text = (files("felb.estimators") / "references.bib").read_text(encoding="utf-8")
    found = re.split(r"\n(?=@)", text)
    return {entry.partition("{")[2].partition(",")[0]: entry.strip() for entry in found}


def citation_keys(method: str) -> tuple[str, ...]:
    """Return the keys of the publications to cite for a method.

    Examples
    --------
    >>> citation_keys("asso+aligned-vote")
    ('miettinen2008discrete', 'dalleiger2025federated', 'dalleiger2025creating')
    """
    check_known(method)
    if not METHODS[method].post_hoc:
        return KEYS[method]
    inner, aggregation = method.split(JOIN)
    return (*KEYS[inner], PAPER, *((ALIGNED,) if aggregation.startswith("aligned") else ()))


def bibtex(method: str | None = None) -> str:
    """Return the BibTeX entries of a method, or of all methods."""
    known = entries()
    keys = tuple(known) if method is None else citation_keys(method)
    return "\n\n".join(known[key] for key in keys) + "\n"
