"""Movielens: ``ratings.csv`` and ``movies.csv`` of GroupLens (ml-25m, and other releases in this layout)."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError
from felb_paper.sources.ratings import AT_LEAST, Ratings
from felb_paper.sources.raw import (
    RawFile,
    field_blocks,
    find_columns,
    find_files,
    read_header,
    text_lines,
    unique_names,
)

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from felb.data.files import Table

FILES = ("ratings.csv",)
MOVIES = "movies.csv"


def load(path: str | PathLike[str], *, at_least: float = AT_LEAST, movies: str | PathLike[str] | None = None) -> Table:
    """Load users x movies: a one where a user gave a movie `at_least` so many stars.

    Parameters
    ----------
    path : ``ratings.csv`` (or ``.gz``), the ``.zip`` it comes in, or the folder it is in
    at_least : smallest rating that is a one
    movies : ``movies.csv``; by default the one beside the ratings. Its rows are the columns of the matrix, in their
        order, so that a movie without ratings is an empty column.
    """
    (ratings,) = find_files(path, FILES)[:1]
    if movies is not None:
        (listed,) = find_files(movies, (MOVIES,))[:1]
    else:
        found = ratings.beside(MOVIES)
        if found is None:
            raise InputError(f"{ratings.name}: {MOVIES} is not beside it; it names the columns, so put it there")
        listed = found
    ids, titles = read_movies(listed)
    collected = Ratings(at_least)
    known = np.sort(ids)
    with ratings.open() as file:
        header = read_header(file, ",")
        user, movie, rating = find_columns(header, ("userId", "movieId", "rating"))
        for fields in field_blocks(file, len(header), first_line=2):
            items = fields.integers(movie, "movieId")
            strange = known[np.minimum(np.searchsorted(known, items), known.size - 1)] != items
            if strange.any():
                fields.refuse(int(np.argmax(strange)), movie, f"no movie of {listed.base} has this number")
            collected.add(fields.integers(user, "userId"), items, fields.numbers(rating, "rating"))
        return collected.table(ids, titles)


def read_movies(listed: RawFile) -> tuple[NDArray[np.int64], list[str]]:
    """Return the numbers and titles of the movies, in the order of the file."""
    ids, titles = [], []
    with listed.open() as file:
        reader = csv.reader(text_lines(file), strict=True)
        try:
            header = next(reader, [])
            movie, title = find_columns(header, ("movieId", "title"))
            for cells in reader:
                if len(cells) != len(header) or not cells[movie].isdecimal():
                    raise InputError(
                        f"line {reader.line_num} is no movie: expected {', '.join(header)}; the file is damaged"
                    )
                ids.append(int(cells[movie]))
                titles.append(cells[title].strip())
        except csv.Error as error:
            raise InputError(
                f"line {reader.line_num} cannot be split into cells ({error}); check its quotes"
            ) from error
        if not ids:
            raise InputError("holds no movies, only column names; the file is incomplete")
        if len(set(ids)) != len(ids):
            twice = next(key for i, key in enumerate(ids) if key in ids[:i])
            raise InputError(f"movieId {twice} occurs more than once; the file is damaged")
    return np.array(ids, np.int64), unique_names(titles, ids)
