"""Loaders for public data in the form their publishers hand them out.

Each takes the path of what was downloaded (plain, ``.gz``, ``.zip``, or a folder with it) and returns a
`felb.data.Table` with the names of columns and rows. Nothing is fetched; `felb_paper.data` says where
the files are to be had and under which licence.
"""

from felb_paper.sources.acs import load_income, load_poverty
from felb_paper.sources.arxiv import load_arxiv, load_arxiv_words
from felb_paper.sources.expression import load_brain, load_cells, load_tcga
from felb_paper.sources.genomes import load_genomes
from felb_paper.sources.ratings import load_goodreads, load_movielens, load_netflix

__all__ = [
    "load_arxiv",
    "load_arxiv_words",
    "load_brain",
    "load_cells",
    "load_genomes",
    "load_goodreads",
    "load_income",
    "load_movielens",
    "load_netflix",
    "load_poverty",
    "load_tcga",
]
