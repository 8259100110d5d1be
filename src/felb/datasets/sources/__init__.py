"""Loaders for public data in the form their publishers hand them out, one file per source.

Each takes the path of what was downloaded (plain, ``.gz``, ``.zip``, or a folder with it) and returns a
`felb.datasets.Table` with the names of columns and rows. Nothing is fetched; `felb.datasets.catalogue` says where
the files are to be had and under which licence.
"""

from felb.datasets.sources import acs, arxiv, goodreads, hpa, movielens, netflix, tcga

__all__ = ["acs", "arxiv", "goodreads", "hpa", "movielens", "netflix", "tcga"]
