"""Loaders for public data in the form their publishers hand them out, one file per source.

Each takes the path of what was downloaded (plain, ``.gz``, ``.zip``, or a folder with it) and returns a
`felb.data.Table` with the names of columns and rows. Nothing is fetched; `felb_paper.data` says where
the files are to be had and under which licence.
"""

from felb_paper.sources import acs, arxiv, goodreads, hpa, movielens, netflix, tcga

__all__ = ["acs", "arxiv", "goodreads", "hpa", "movielens", "netflix", "tcga"]
