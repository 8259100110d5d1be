"""Abstracts of arXiv into papers x words, and the lemmatizer behind it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from raw_files import WAYS, put, refused

from felb.errors import InputError
from felb_paper.sources import load_arxiv
from felb_paper.sources.arxiv import lemmatize


def paper(number, abstract, categories="cs.LG stat.ML"):
    record = {
        "id": number, "submitter": "A", "title": "T", "categories": categories, "abstract": abstract,
        "versions": [{"version": "v1"}],
    }  # fmt: skip
    return json.dumps(record)


NAME = "arxiv-metadata-oai-snapshot.json"
LINES = [
    paper("0704.0001", "  We propose the Networks and\na network $\\alpha_x + networkless$ of matrices.\n"),
    paper("0704.0002", "Nothing about cs.LG here", "math.CO"),
    paper("0704.0003", "Proposed: a matrix; training", "stat.ML cs.LG"),
    paper("0704.0004", "Unrelated", "cs.LGX"),
    paper("0704.0005", "It was and the of"),
]


@pytest.mark.parametrize("way", WAYS)
def test_words_of_the_papers_of_a_category(tmp_path, way):
    table = load_arxiv(put(tmp_path / "raw", {NAME: "\n".join(LINES) + "\n"}, way))
    assert table.rows == ("0704.0001", "0704.0003", "0704.0005")
    assert table.matrix.columns == ("matrix", "network", "propose", "train")
    np.testing.assert_array_equal(table.matrix.toarray(), [[1, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 0]])


def test_everything_is_a_parameter(tmp_path):
    path = put(tmp_path, {NAME: "\n".join(LINES)}, "plain")
    assert load_arxiv(path, min_frequency=0.5).matrix.columns == ("matrix", "propose")
    assert load_arxiv(path, category="math.CO", stop_words=()).matrix.columns == (
        "about",
        "cs",
        "here",
        "lg",
        "nothing",
    )
    as_they_are = load_arxiv(path, lemma=str).matrix.columns
    assert {"networks", "network", "proposed", "propose", "matrices"} <= set(as_they_are)
    assert "matrix" not in load_arxiv(path, stop_words=("matrix",)).matrix.columns
    first_letters = load_arxiv(path, lemma=lambda word: word[0], stop_words=())
    assert all(len(name) == 1 for name in first_letters.matrix.columns)


def test_the_frequency_counts_papers_exactly(tmp_path):
    lines = [paper(str(i), "rare common" if i < 3 else "common") for i in range(30)]
    path = put(tmp_path, {NAME: "\n".join(lines)}, "plain")
    assert load_arxiv(path, min_frequency=0.1).matrix.columns == ("common", "rare")
    assert load_arxiv(path, min_frequency=0.11).matrix.columns == ("common",)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": "1", "categories": "cs.LG", "abstract": "cut', ("line 3", "one object a line")),
        ('{"id": "1", "categories": "cs.LG", nonsense}', ("line 3", "id, categories and abstract")),
        ('{"id": "1", "categories": "cs.LG"}', ("line 3", "id, categories and abstract")),
        ('{"id": "1", "categories": ["cs.LG"], "abstract": "x"}', ("line 3",)),
        ('["cs.LG"]', ("line 3",)),
    ],
)
def test_malformed_lines(tmp_path, line, words):
    refused(load_arxiv, put(tmp_path, {NAME: "\n".join([*LINES[:2], line, *LINES[2:]])}, "plain"), *words)


def test_files_that_are_wrong(tmp_path):
    path = put(tmp_path, {NAME: "\n".join(LINES)}, "plain")
    with pytest.raises(InputError, match=r"'cs.XY'"):
        load_arxiv(path, category="cs.XY")
    for bad in (-1, 2, float("nan")):
        with pytest.raises(InputError, match="min_frequency="):
            load_arxiv(path, min_frequency=bad)
    path.write_bytes(b'{"categories": "cs.LG", "abstract": "\xe9", "id": "1"}')
    refused(load_arxiv, path, "line 1 is not UTF-8")
    path.write_text(paper("1", "the of"))
    with pytest.raises(InputError, match="no word"):
        load_arxiv(path)
    refused(load_arxiv, tmp_path / "none.json", "No such file")
    packed = put(tmp_path / "gz", {NAME: "\n".join(LINES)}, "gz")
    packed.write_bytes(packed.read_bytes()[:-9])
    refused(load_arxiv, packed, "damaged or incomplete")


@pytest.mark.parametrize(
    ("lemma", "forms"),
    [
        ("network", "network networks"), ("study", "study studies studied studying"), ("class", "class classes"),
        ("box", "box boxes"), ("train", "trains trained training"), ("map", "maps mapped mapping"),
        ("propose", "proposes proposed proposing"), ("generate", "generates generated generating"),
        ("matrix", "matrices"), ("analysis", "analysis analyses"), ("bias", "bias biases biased"),
        ("describe", "described describing"), ("repeat", "repeated repeating"), ("use", "use used uses using"),
        ("learn", "learns learned learnt learning"), ("embed", "embedded embedding embeddings"), ("data", "data"),
        ("loss", "loss losses"), ("thing", "thing things"), ("need", "need"), ("gas", "gas"), ("corpus", "corpus"),
        ("run", "runs running ran"), ("improve", "improves improved improving"), ("limit", "limited limiting"),
    ],
)  # fmt: skip
def test_forms_of_a_word_fall_together(lemma, forms):
    assert {lemmatize(form) for form in forms.split()} == {lemma}
