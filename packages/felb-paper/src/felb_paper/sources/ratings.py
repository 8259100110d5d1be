"""Ratings: Movielens (GroupLens), Goodreads (Book Genome) and the Netflix Prize as matrices users x items."""

from __future__ import annotations

import csv
import json
import math
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import scipy.sparse as sp

from felb.data import BinaryMatrix
from felb.data.files import Table
from felb.data.readers import read_lines
from felb.errors import InputError
from felb_paper.sources.raw import (
    Fields,
    RawFile,
    decode,
    field_blocks,
    find_columns,
    find_files,
    read_header,
    text_lines,
    unique_names,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import NDArray

AT_LEAST = 3.5
"""The rating from which on a user likes an item; half of a five-star scale and a bit."""

MERGED_AT_A_TIME = 1 << 21


class Ids:
    """All different numbers that were shown to it, in memory that grows with how many they are."""

    def __init__(self) -> None:
        self._known = np.zeros(0, np.int64)
        self._fresh: list[NDArray[np.int64]] = []
        self._n_fresh = 0

    def add(self, ids: NDArray[np.int64]) -> None:
        """Take note of numbers."""
        self._fresh.append(np.unique(ids))
        self._n_fresh += self._fresh[-1].size
        if self._n_fresh > max(MERGED_AT_A_TIME, self._known.size):
            self.all()

    def all(self) -> NDArray[np.int64]:
        """Return the numbers in ascending order."""
        if self._fresh:
            self._known = np.unique(np.concatenate([self._known, *self._fresh]))
            self._fresh, self._n_fresh = [], 0
        return self._known


class Ratings:
    """Takes rating triplets block by block; keeps only those that become ones, a few bytes each.

    A[u, i] = 1 if user u gave item i a rating of `at_least` or more. Every user who rated anything has a row, and every
    item that was rated a column, liked or not.
    """

    def __init__(self, at_least: float) -> None:
        if not isinstance(at_least, int | float) or not math.isfinite(at_least):
            raise InputError(f"at_least={at_least!r} is not a finite number")
        self._at_least = at_least
        self._users, self._items = Ids(), Ids()
        self._liked: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def add(self, users: NDArray[np.int64], items: NDArray[np.int64], ratings: NDArray[np.float64]) -> None:
        """Take triplets; a pair may come again."""
        self._users.add(users)
        self._items.add(items)
        liked = ratings >= self._at_least
        self._liked.append((_narrow(users[liked]), _narrow(items[liked])))

    def items(self) -> NDArray[np.int64]:
        """Return the items that were rated, in ascending order."""
        return self._items.all()

    def table(self, items: NDArray[np.int64], names: Sequence[str]) -> Table:
        """Return the matrix with the given items as its columns, in this order; they must be all that were rated.

        What was collected is given away: it can be called once.
        """
        users = self._users.all()
        if not users.size:
            raise InputError("there are no ratings; the file is incomplete")
        order = np.argsort(items, kind="stable")
        ascending = items[order]
        rows, columns = (np.concatenate(parts) for parts in zip(*self._liked, strict=True))
        self._liked = []
        places = np.searchsorted(users, rows), order[np.searchsorted(ascending, columns)]
        # Through Booleans, whose sum is or: any number of repetitions is a one.
        ones = sp.coo_array((np.ones(rows.size, bool), places), shape=(users.size, items.size))
        matrix = BinaryMatrix.of(ones.tocsr())
        return Table(matrix.with_columns(names), rows=tuple(map(str, users.tolist())))


def _narrow(ids: NDArray[np.int64]) -> NDArray[Any]:
    fits = not ids.size or (ids.min() >= np.iinfo(np.int32).min and ids.max() <= np.iinfo(np.int32).max)
    return ids.astype(np.int32) if fits else ids


# -- Movielens: ``ratings.csv`` and ``movies.csv`` (ml-25m, and other releases in this layout) -------------------------

MOVIES = "movies.csv"


def load_movielens(
    path: str | PathLike[str], *, at_least: float = AT_LEAST, movies: str | PathLike[str] | None = None
) -> Table:
    """Load users x movies: a one where a user gave a movie `at_least` so many stars.

    Parameters
    ----------
    path : ``ratings.csv`` (or ``.gz``), the ``.zip`` it comes in, or the folder it is in
    at_least : smallest rating that is a one
    movies : ``movies.csv``; by default the one beside the ratings. Its rows are the columns of the matrix, in their
        order, so that a movie without ratings is an empty column.
    """
    (ratings,) = find_files(path, ("ratings.csv",))[:1]
    if movies is not None:
        (listed,) = find_files(movies, (MOVIES,))[:1]
    else:
        found = ratings.beside(MOVIES)
        if found is None:
            raise InputError(f"{ratings.name}: {MOVIES} is not beside it; it names the columns, so put it there")
        listed = found
    ids, titles = _read_movies(listed)
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


def _read_movies(listed: RawFile) -> tuple[NDArray[np.int64], list[str]]:
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


# -- Goodreads: ``book_dataset/raw/ratings.json``, one object a line ---------------------------------------------------

METADATA = "metadata.json"
KEYS = ("user_id", "item_id", "rating")


def load_goodreads(path: str | PathLike[str], *, at_least: float = AT_LEAST) -> Table:
    """Load users x books: a one where a user gave a book `at_least` so many stars.

    The columns are the books that were rated, by number; ``metadata.json`` beside the ratings names them.

    Parameters
    ----------
    path : ``ratings.json`` (or ``.gz``), the ``.zip`` it comes in, or the folder it is in. A line is an object with
        `item_id`, `user_id` and `rating`, in double quotes (JSON) or single ones (Python).
    at_least : smallest rating that is a one
    """
    (raw,) = find_files(path, ("ratings.json",))[:1]
    collected = Ratings(at_least)
    titles = raw.beside(METADATA)
    known = {} if titles is None else _read_metadata(titles)
    with raw.open() as file:
        first_line = 1
        for block in read_lines(file):
            rated = _read_block(block, first_line)
            users, items = (np.array([getattr(one, name) for one in rated], np.int64) for name in KEYS[:2])
            collected.add(users, items, np.array([one.rating for one in rated], np.float64))
            first_line += block.count(b"\n")
        books = collected.items()
        names = unique_names([known.get(book, str(book)) for book in books.tolist()], books.tolist())
        return collected.table(books, names)


def _read_metadata(titles: RawFile) -> dict[int, str]:
    """Return the titles by number; a line is an object with `item_id` and `title`, among others."""
    known = {}
    with titles.open() as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            text = decode(line, number)
            try:
                record = json.loads(text)
                book, title = int(record["item_id"]), " ".join(str(record["title"]).split())
            except (ValueError, KeyError, TypeError, RecursionError):
                raise InputError(
                    f"line {number} holds {text.strip()[:80]!r}; expected one object with item_id and title, or no "
                    f"{METADATA} beside the ratings"
                ) from None
            known[book] = title or str(book)
    return known


class _Rating(msgspec.Struct):
    user_id: Annotated[int, msgspec.Meta(gt=-(2**53), lt=2**53)]
    item_id: Annotated[int, msgspec.Meta(gt=-(2**53), lt=2**53)]
    rating: float


_DECODER = msgspec.json.Decoder(_Rating, strict=False)


def _read_block(block: bytes, first_line: int) -> list[_Rating]:
    """Read the ratings of some lines at once; where that fails, line by line, to say which one is wrong."""
    for content in (block, block.replace(b"'", b'"')):
        with suppress(msgspec.MsgspecError, UnicodeError):
            return _DECODER.decode_lines(content.decode())
    numbered = enumerate(block.split(b"\n")[:-1], first_line)
    return [_read_line(decode(line, number).strip(), number) for number, line in numbered if line.strip()]


def _read_line(text: str, number: int) -> _Rating:
    for content in (text, text.replace("'", '"')):
        with suppress(msgspec.MsgspecError, UnicodeError):
            return _DECODER.decode(content)
    raise InputError(f"line {number} holds {text[:80]!r}; expected one object with numbers for {', '.join(KEYS)}")


# -- Netflix Prize: ``combined_data_[1-4].txt``, or the older ``training_set/mv_*.txt`` --------------------------------

TITLES = "movie_titles.csv", "movie_titles.txt"


def load_netflix(path: str | PathLike[str], *, at_least: float = AT_LEAST) -> Table:
    """Load customers x movies: a one where a customer gave a movie `at_least` so many stars.

    The columns are the movies that were rated, by number; ``movie_titles.csv`` beside the ratings names them.

    Parameters
    ----------
    path : the folder or ``.zip`` with the files, or one of them
    at_least : smallest rating that is a one
    """
    collected = Ratings(at_least)
    files = find_files(path, ("combined_data_*.txt", "mv_*.txt"))
    for raw in files:
        with raw.open() as file:
            _collect(file, collected)
    movies = collected.items()
    if not movies.size:
        raise InputError(f"{path}: there are no ratings; the files are incomplete")
    titles = files[0].beside(*TITLES)
    if titles is None and files[0].member is None:  # the older layout has them beside the folder of the ratings
        titles = RawFile(files[0].path.parent).beside(*TITLES)
    known = {} if titles is None else _read_titles(titles)
    names = [known.get(movie, str(movie)) for movie in movies.tolist()]
    return collected.table(movies, unique_names(names, movies.tolist()))


def _read_titles(titles: RawFile) -> dict[int, str]:
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
            lines = Fields.of(chars[in_movie_line].tobytes(), 2, separator=b":", lines=numbers[starts_movie])
            movies = np.concatenate([movies, lines.integers(0, "the number of a movie")])
        if not starts_movie.all():
            fields = Fields.of(chars[~in_movie_line].tobytes(), 3, lines=numbers[~starts_movie])
            at = np.cumsum(starts_movie)[~starts_movie] - (movie is None)
            if at[0] < 0:
                fields.refuse(0, 0, "a line with the number of a movie and a colon should come first")
            customers = fields.integers(0, "the customer")
            collected.add(customers, movies[at], fields.numbers(1, "the rating"))
        movie = int(movies[-1])
