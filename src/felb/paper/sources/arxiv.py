"""arXiv: abstracts and their words, from ``arxiv-metadata-oai-snapshot.json``, one object a line."""

from __future__ import annotations

import json
import math
import re
from array import array
from typing import TYPE_CHECKING

import numpy as np

from felb.data import BinaryMatrix
from felb.data.files import Table
from felb.errors import InputError
from felb.paper.sources.lemmas import lemmatize
from felb.paper.sources.raw import decode, find_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from os import PathLike

FILES = ("arxiv-metadata-oai-snapshot.json", "arxiv-metadata*.json")
CATEGORY = "cs.LG"
FREQUENCY = 1e-4
FORMULA = re.compile(r"\$[^$]*\$|\\[A-Za-z]+")
WORD = re.compile(r"[a-z]{2,}")


def load(
    path: str | PathLike[str],
    *,
    category: str = CATEGORY,
    min_frequency: float = FREQUENCY,
    lemma: Callable[[str], str] = lemmatize,
    stop_words: Collection[str] | None = None,
) -> Table:
    """Load papers x words: a one where a form of the word occurs in the abstract.

    Words are runs of two or more letters in lower case, outside of formulas. Only lines that mention the category
    are read as JSON, which is most of the speed.

    Parameters
    ----------
    path : the snapshot (or ``.gz``), the ``.zip`` it comes in, or the folder it is in
    category : papers that list it among their categories are taken
    min_frequency : smallest share of the papers that a word occurs in
    lemma : function from a word to its base form; by default the few rules of `felb.paper.sources.lemmas`. Pass your
        own (of NLTK or spaCy) for better ones, or ``str`` to take words as they are.
    stop_words : words to leave out, before or after they are brought to their base form; scikit-learn's English list by
        default
    """
    if not 0 <= min_frequency <= 1:
        raise InputError(f"min_frequency={min_frequency!r} must be a share of the papers, between 0 and 1")
    vocabulary = _Vocabulary(lemma, _english() if stop_words is None else frozenset(stop_words))
    (raw,) = find_files(path, FILES)[:1]
    papers: list[str] = []
    words, ends = array("i"), array("q", [0])
    mention = category.encode()
    with raw.open() as file:
        for number, line in enumerate(file, 1):
            content = line.strip()
            if not content:
                continue
            if not (content.startswith((b"{", b"\xef\xbb\xbf{")) and content.endswith(b"}")):
                raise InputError(f"line {number} holds {content[:60]!r}; expected one object a line, {{...}}")
            if mention not in content:
                continue
            paper, categories, abstract = _paper(decode(content.removeprefix(b"\xef\xbb\xbf"), number), number)
            if category in categories.split():
                papers.append(paper)
                words.extend(sorted(vocabulary.numbers(abstract)))
                ends.append(len(words))
        if not papers:
            raise InputError(f"no paper is in the category {category!r}; check its spelling and the file")
    return _table(papers, np.array(words, np.int64), np.array(ends, np.int64), vocabulary, min_frequency)


class _Vocabulary:
    """Numbers of the words, in the order of their first appearance; every spelling is looked into once."""

    def __init__(self, lemma: Callable[[str], str], stop_words: Collection[str]) -> None:
        self._lemma, self._stop_words = lemma, stop_words
        self._spellings: dict[str, int] = {}
        self.words: dict[str, int] = {}

    def numbers(self, text: str) -> set[int]:
        found = set()
        for word in set(WORD.findall(FORMULA.sub(" ", text).lower())):
            number = self._spellings.get(word)
            if number is None:
                number = self._spellings[word] = self._look_up(word)
            found.add(number)
        found.discard(-1)
        return found

    def _look_up(self, word: str) -> int:
        base = self._lemma(word)
        if not base or word in self._stop_words or base in self._stop_words:
            return -1
        return self.words.setdefault(base, len(self.words))


def _table(
    papers: list[str],
    words: np.ndarray[tuple[int], np.dtype[np.int64]],
    ends: np.ndarray[tuple[int], np.dtype[np.int64]],
    vocabulary: _Vocabulary,
    min_frequency: float,
) -> Table:
    """Keep the words that are frequent enough, in alphabetical order."""
    spelled = list(vocabulary.words)
    # A share of 1e-4 of 10,000 papers is one paper, whatever rounding makes of the product.
    least = max(1, math.ceil(min_frequency * len(papers) - 1e-9))
    frequent = np.flatnonzero(np.bincount(words, minlength=len(spelled)) >= least).tolist()
    if not frequent:
        raise InputError(f"no word occurs in a share of {min_frequency} of the papers; choose a smaller min_frequency")
    order = sorted(frequent, key=spelled.__getitem__)
    column = np.full(len(spelled), -1, np.int64)
    column[order] = np.arange(len(order))
    rows = np.repeat(np.arange(len(papers)), np.diff(ends))
    columns = column[words]
    rows, columns = rows[columns >= 0], columns[columns >= 0]
    columns = columns[np.lexsort((columns, rows))]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(papers)))])
    matrix = BinaryMatrix(indptr, columns, len(order), [spelled[word] for word in order])
    return Table(matrix, rows=tuple(papers))


def _paper(text: str, number: int) -> tuple[str, str, str]:
    try:
        record = json.loads(text)
        paper, categories, abstract = (record[key] for key in ("id", "categories", "abstract"))
        if not all(isinstance(value, str) for value in (paper, categories, abstract)):
            raise TypeError
        return paper, categories, abstract
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"line {number} holds {text[:60]!r}; expected an object with text for id, categories and abstract"
        ) from None


def _english() -> Collection[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    stop_words: Collection[str] = ENGLISH_STOP_WORDS
    return stop_words
