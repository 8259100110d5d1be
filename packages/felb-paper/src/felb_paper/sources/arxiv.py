"""arXiv: abstracts and their words, with a small English lemmatizer."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import IO, TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from felb.data import BinaryMatrix
from felb.data.files import Table
from felb.errors import InputError
from felb_paper.sources.raw import decode, find_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from os import PathLike


# -- A small English lemmatizer by rules, without a dictionary -------------------------------------------------------
#
# It brings plurals, -ing and -ed forms to one form and knows the irregular words that are common in abstracts. Unlike a
# stemmer it aims at words (``proposed`` becomes ``propose``, ``studies`` ``study``), and like one it is wrong at times;
# what counts here is that the forms of a word fall together.

IRREGULAR = {
    form: lemma
    for lemma, forms in {
        "analysis": "analyses", "hypothesis": "hypotheses", "synthesis": "syntheses", "thesis": "theses",
        "basis": "bases", "axis": "axes", "matrix": "matrices matrixes", "vertex": "vertices",
        "index": "indices indexes indexed indexing", "appendix": "appendices", "criterion": "criteria",
        "phenomenon": "phenomena", "child": "children", "man": "men", "woman": "women", "mouse": "mice",
        "person": "people persons", "life": "lives", "half": "halves", "knife": "knives", "series": "", "species": "",
        "bias": "biases biased", "lens": "lenses", "use": "used uses using", "die": "died dying dies",
        "lie": "lies lying", "tie": "tied tying ties", "be": "is are was were been being am", "have": "has had having",
        "do": "does did done doing", "show": "shown showed", "give": "gave given", "take": "took taken",
        "make": "made", "find": "found", "know": "knew known", "learn": "learnt", "build": "built", "see": "saw seen",
        "get": "got gotten", "go": "went gone", "come": "came", "become": "became", "begin": "began begun",
        "grow": "grew grown", "draw": "drew drawn", "drive": "drove driven", "write": "wrote written",
        "choose": "chose chosen", "lead": "led", "leave": "left", "lose": "lost", "keep": "kept", "hold": "held",
        "think": "thought", "understand": "understood", "arise": "arose arisen", "rise": "rose risen",
        "speak": "spoke spoken", "break": "broke broken", "run": "ran", "fall": "fell fallen", "feed": "fed",
        "seek": "sought", "teach": "taught", "mean": "meant", "spend": "spent", "send": "sent", "hide": "hidden hid",
        "bring": "brought", "thing": "things", "string": "strings", "ring": "rings",
        "king": "kings", "spring": "springs", "embed": "embedded embeds", "label": "labelled labelling",
        "model": "modelled modelling",
        "control": "controlled controlling", "focus": "focused focussed focuses focusing", "bus": "buses",
    }.items()
    for form in [*forms.split(), lemma]
}  # fmt: skip
KEPT = frozenset({
    "data", "news", "physics", "mathematics", "statistics", "dynamics", "semantics", "robotics", "genomics",
    "linguistics", "this", "thus", "always", "across", "perhaps", "during", "something", "nothing", "anything",
    "everything", "need", "speed", "seed", "feed", "indeed", "exceed", "proceed", "succeed", "bed", "red", "hundred",
    "towards", "besides", "bring", "sing", "wing", "swing", "sting", "gas", "alias", "atlas", "canvas", "whereas",
})  # fmt: skip

VOWEL = re.compile("[aeiouy]")
SILENT_E = (
    "v", "c", "u", "z", "as", "es", "is", "os", "us", "ns", "rs", "ls", "ps", "bl", "pl", "gl", "tl", "dg", "rg", "ag",
    "ang", "ur", "uir", "pir", "plor", "scor", "stor", "gnor", "par", "shar", "clar", "at", "ut", "mot", "not", "vot",
    "plet", "delet", "pet", "id", "rad", "vad", "scad", "cod", "lud", "trud", "sum", "nam", "fram", "bin", "fin", "min",
    "lin", "pil", "fil", "scal", "dul", "rul", "hap", "cap", "typ", "vok", "scrib",
)  # fmt: skip
"""How stems end that had an e: achiev-ed, produc-ing, propos-ed, generat-ing, requir-ed."""

NO_E = ("eat", "oat", "out", "our", "oid", "aid", "gin", "ount", "focus")
"""Exceptions: repeat-ed, avoid-ed."""

DOUBLED = re.compile(r"([bdgmnprt])\1$")


def lemmatize(word: str) -> str:
    """Return the base form of a word in lower case.

    Examples
    --------
    >>> [lemmatize(word) for word in ("networks", "studies", "trained", "mapping", "proposed", "matrices", "learning")]
    ['network', 'study', 'train', 'map', 'propose', 'matrix', 'learn']
    """
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word in KEPT or len(word) < 4:
        return word
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    word = word[:-1] if word.endswith("ings") else word  # embeddings, as embedding
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word:
            return _verb(stem) if len(stem) > 2 and VOWEL.search(stem) else word
    return _singular(word)


def _singular(word: str) -> str:
    if not word.endswith("s") or word.endswith(("ss", "us", "is", "ous")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    return word[:-1]


def _verb(stem: str) -> str:
    """Return the verb of a stem that has lost -ing or -ed: undo a doubled letter, put a silent e back."""
    if DOUBLED.search(stem) and len(stem) > 3 and stem not in ("add", "err"):
        return stem[:-1]
    if stem.endswith(SILENT_E) and (stem == "creat" or not stem.endswith(NO_E)):
        return stem + "e"
    # A short stem of consonant, vowel, consonant had an e (hop-ed would have been hopped): tun-ing, cod-ed.
    if re.fullmatch("[^aeiou]+[aeiouy][^aeiouwxy]", stem):
        return stem + "e"
    return stem


# -- arXiv: abstracts and their words, from ``arxiv-metadata-oai-snapshot.json``, one object a line ------------------

FILES = ("arxiv-metadata-oai-snapshot.json", "arxiv-metadata*.json")
CATEGORY = "cs.LG"
FREQUENCY = 1e-4
FORMULA = re.compile(r"\$[^$]*\$|\\[A-Za-z]+")
WORD = re.compile(r"[a-z]{2,}")


def load_arxiv(
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
    lemma : function from a word to its base form; by default the few rules of `felb_paper.sources.arxiv`. Pass your
        own (of NLTK or spaCy) for better ones, or ``str`` to take words as they are.
    stop_words : words to leave out, before or after they are brought to their base form; scikit-learn's English list by
        default
    """
    if not 0 <= min_frequency <= 1:
        raise InputError(f"min_frequency={min_frequency!r} must be a share of the papers, between 0 and 1")
    left_out = ENGLISH_STOP_WORDS if stop_words is None else frozenset(stop_words)
    base_of = cache(lemma)

    def words_of(abstract: str) -> Iterator[str]:
        for word in WORD.findall(FORMULA.sub(" ", abstract).lower()):
            base = base_of(word)
            if base and not {word, base} & left_out:
                yield base

    (raw,) = find_files(path, FILES)[:1]
    papers: list[str] = []
    vectorizer = CountVectorizer(analyzer=words_of, binary=True)
    with raw.open() as file:
        try:
            counts = sp.csr_array(vectorizer.fit_transform(_abstracts(file, category, papers)))
        except InputError:
            raise
        except ValueError:  # there are no papers, or they have no words
            counts = sp.csr_array((len(papers), 0), dtype=np.int64)
        if not papers:
            raise InputError(f"no paper is in the category {category!r}; check its spelling and the file")
    # A share of 1e-4 of 10,000 papers is one paper, whatever rounding makes of the product.
    frequent = np.flatnonzero(counts.sum(axis=0) >= math.ceil(min_frequency * len(papers) - 1e-9))
    if not frequent.size:
        raise InputError(f"no word occurs in a share of {min_frequency} of the papers; choose a smaller min_frequency")
    names = vectorizer.get_feature_names_out()[frequent].tolist()
    return Table(BinaryMatrix.of(counts[:, frequent], columns=names), rows=tuple(papers))


def load_arxiv_words(path: str | PathLike[str], *, category: str = CATEGORY, min_frequency: float = FREQUENCY) -> Table:
    """Load papers x words as they are (cs.LG R): without a lemmatizer, stop words included.

    Parameters are those of `load_arxiv`.
    """
    return load_arxiv(path, category=category, min_frequency=min_frequency, lemma=str, stop_words=())


def _abstracts(file: IO[bytes], category: str, papers: list[str]) -> Iterator[str]:
    """Yield the abstracts of a category, and note the papers."""
    mention = category.encode()
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
            yield abstract


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
