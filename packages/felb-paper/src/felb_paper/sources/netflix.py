"""Netflix Prize: ``combined_data_[1-4].txt``, or the older ``training_set/mv_*.txt``."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import numpy as np

from felb.data.readers import read_lines
from felb.errors import InputError
from felb_paper.sources.ratings import AT_LEAST, Ratings
from felb_paper.sources.raw import Fields, RawFile, find_files, unique_names

if TYPE_CHECKING:
    from os import PathLike

    from felb.data.files import Table

FILES = ("combined_data_*.txt", "mv_*.txt")
TITLES = "movie_titles.csv", "movie_titles.txt"


def load(path: str | PathLike[str], *, at_least: float = AT_LEAST) -> Table:
    """Load customers x movies: a one where a customer gave a movie `at_least` so many stars.

    The columns are the movies that were rated, by number; ``movie_titles.csv`` beside the ratings names them.

    Parameters
    ----------
    path : the folder or ``.zip`` with the files, or one of them
    at_least : smallest rating that is a one
    """
    collected = Ratings(at_least)
    files = find_files(path, FILES)
    for raw in files:
        with raw.open() as file:
            _collect(file, collected)
    movies = collected.items()
    if not movies.size:
        raise InputError(f"{path}: there are no ratings; the files are incomplete")
    titles = files[0].beside(*TITLES)
    if titles is None and files[0].member is None:  # the older layout has them beside the folder of the ratings
        titles = RawFile(files[0].path.parent).beside(*TITLES)
    known = {} if titles is None else read_titles(titles)
    names = [known.get(movie, str(movie)) for movie in movies.tolist()]
    return collected.table(movies, unique_names(names, movies.tolist()))


def read_titles(titles: RawFile) -> dict[int, str]:
    """Return the titles by number; a line is ``number,year,title``, and titles have commas of their own."""
    known = {}
    with titles.open() as file:
        for line, content in enumerate(file, 1):
            try:
                text = content.decode("utf-8")
            except UnicodeDecodeError:
                text = content.decode("latin-1")  # as it was published
            parts = text.strip().split(",", 2)
            if len(parts) != 3 or not parts[0].isdecimal():
                raise InputError(f"line {line} holds {text.strip()[:60]!r}; expected number,year,title")
            known[int(parts[0])] = f"{parts[2]} ({parts[1]})"
    return known


def _collect(file: IO[bytes], collected: Ratings) -> None:
    """Read ``movie:`` lines, each followed by its ratings ``customer,rating,date``."""
    movie: int | None = None
    first_line = 1
    for block in read_lines(file):
        content = block.replace(b"\r\n", b"\n").rstrip(b"\n") + b"\n"
        chars = np.frombuffer(content, np.uint8)
        ends = np.flatnonzero(chars == ord("\n"))
        starts_movie = chars[np.maximum(ends - 1, 0)] == ord(":")
        in_movie_line = np.repeat(starts_movie, np.diff(ends, prepend=-1))
        numbers = np.arange(first_line, first_line + ends.size)
        first_line += block.count(b"\n")
        movies = np.array([], np.int64) if movie is None else np.array([movie])
        if starts_movie.any():
            lines = Fields(chars[in_movie_line].tobytes(), 2, separators=b":", lines=numbers[starts_movie])
            movies = np.concatenate([movies, lines.integers(0, "the number of a movie")])
        if not starts_movie.all():
            fields = Fields(chars[~in_movie_line].tobytes(), 3, lines=numbers[~starts_movie])
            at = np.cumsum(starts_movie)[~starts_movie] - (movie is None)
            if at[0] < 0:
                fields.refuse(0, 0, "a line with the number of a movie and a colon should come first")
            customers = fields.integers(0, "the customer")
            collected.add(customers, movies[at], fields.numbers(1, "the rating"))
        movie = int(movies[-1])
