"""Goodreads (Book Genome): ``book_dataset/raw/ratings.json``, one object a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from felb.data.readers import read_lines
from felb.errors import InputError
from felb_paper.sources.ratings import AT_LEAST, Ratings
from felb_paper.sources.raw import Fields, RawFile, decode, find_files, unique_names

if TYPE_CHECKING:
    from os import PathLike

    from felb.data.files import Table

FILES = ("ratings.json",)
TITLES = "metadata.json"
KEYS = ("user_id", "item_id", "rating")


def load(path: str | PathLike[str], *, at_least: float = AT_LEAST) -> Table:
    """Load users x books: a one where a user gave a book `at_least` so many stars.

    The columns are the books that were rated, by number; ``metadata.json`` beside the ratings names them.

    Parameters
    ----------
    path : ``ratings.json`` (or ``.gz``), the ``.zip`` it comes in, or the folder it is in. A line is an object with
        `item_id`, `user_id` and `rating`, in double quotes (JSON) or single ones (Python).
    at_least : smallest rating that is a one
    """
    (raw,) = find_files(path, FILES)[:1]
    collected = Ratings(at_least)
    titles = raw.beside(TITLES)
    known = {} if titles is None else read_titles(titles)
    with raw.open() as file:
        first_line = 1
        for block in read_lines(file):
            fields = _alike(block, first_line)
            if fields is None:
                _one_by_one(block, first_line, collected)
            else:
                at = {fields.texts(key, [0])[0]: key + 1 for key in (0, 2, 4)}
                users, items = (fields.integers(at[name], name) for name in KEYS[:2])
                collected.add(users, items, fields.numbers(at["rating"], "rating"))
            first_line += block.count(b"\n")
        books = collected.items()
        names = unique_names([known.get(book, str(book)) for book in books.tolist()], books.tolist())
        return collected.table(books, names)


def read_titles(titles: RawFile) -> dict[int, str]:
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
                    f"{TITLES} beside the ratings"
                ) from None
            known[book] = title or str(book)
    return known


def _alike(block: bytes, first_line: int) -> Fields | None:
    """Return the keys and values of all lines if they are written alike: nothing but the three keys, in one order."""
    n_lines = block.count(b"\n")
    content = block.translate(None, b" \t\r")
    if content.count(b"}\n") != n_lines or content.count(b"\n{") != n_lines - 1 or not content.startswith(b"{"):
        return None
    try:
        fields = Fields(content.translate(None, b"{}'\""), 2 * len(KEYS), separators=b",:", lines=first_line)
        keys = [fields.texts(key, [0])[0] for key in (0, 2, 4)]
    except InputError:
        return None  # the slow way says what is wrong
    alike = sorted(keys) == sorted(KEYS) and all(fields.holds(2 * i, key.encode()) for i, key in enumerate(keys))
    return fields if alike else None


def _one_by_one(block: bytes, first_line: int, collected: Ratings) -> None:
    triplets = []
    for number, line in enumerate(block.split(b"\n")[:-1], first_line):
        if line.strip():
            triplets.append(_triplet(decode(line, number), number))
    if triplets:
        users, items, ratings = zip(*triplets, strict=True)
        collected.add(np.array(users, np.int64), np.array(items, np.int64), np.array(ratings, np.float64))


def _triplet(text: str, number: int) -> tuple[int, int, float]:
    try:
        try:
            record = json.loads(text)
        except json.JSONDecodeError:
            record = json.loads(text.replace("'", '"'))
        user, item, rating = (record[key] for key in KEYS)
        user, item, rating = int(user), int(item), float(rating)
        if not np.isfinite(rating) or max(abs(user), abs(item)) >= 2**53:
            raise ValueError
        return user, item, rating
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"line {number} holds {text.strip()[:80]!r}; expected one object with numbers for {', '.join(KEYS)}"
        ) from None
