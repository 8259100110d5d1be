"""Movielens, Netflix and Goodreads in their raw layout."""

from __future__ import annotations

import gzip
import json
import random
import zipfile

import numpy as np
import pytest
from raw_files import WAYS, put, refused

from felb.data import readers
from felb.errors import InputError
from felb_paper.sources import load_goodreads, load_movielens, load_netflix
from felb_paper.sources import ratings as ratings_module

MOVIES = """movieId,title,genres
1,Toy Story (1995),Adventure|Animation
50,"American President, The (1995)",Comedy
7,"Never ""Rated"" (2001)",(no genres listed)
3,Twin (2000),Drama
4,Twin (2000),Drama
"""
RATINGS = """userId,movieId,rating,timestamp
1,50,5.0,1147880044
1,1,3.5,1147868817
2,1,3.0,1147868828
10,4,4.5,1147878820
10,3,0.5,1147868510
"""
MOVIELENS = {"ml-25m/ratings.csv": RATINGS, "ml-25m/movies.csv": MOVIES}


@pytest.mark.parametrize("way", WAYS)
def test_movielens_in_every_way(tmp_path, way):
    table = load_movielens(put(tmp_path / "raw", MOVIELENS, way))
    assert table.rows == ("1", "2", "10")
    assert table.matrix.columns == (
        "Toy Story (1995)",
        "American President, The (1995)",
        'Never "Rated" (2001)',
        "Twin (2000) [3]",
        "Twin (2000) [4]",
    )
    np.testing.assert_array_equal(table.matrix.toarray(), [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])


def test_the_rating_that_counts_is_a_parameter(tmp_path):
    path = put(tmp_path, MOVIELENS, "folder")
    assert load_movielens(path, at_least=0.5).matrix.nnz == 5
    assert load_movielens(path, at_least=5).matrix.nnz == 1
    assert load_movielens(path, at_least=6).matrix.shape == (3, 5)
    for bad in (float("nan"), "3", None):
        with pytest.raises(InputError, match="at_least="):
            load_movielens(path, at_least=bad)


def test_columns_are_found_by_name_and_carriage_returns_do_not_count(tmp_path):
    turned = "timestamp,rating,movieId,userId\r\n7,4.0,7,5\r\n"
    table = load_movielens(put(tmp_path, {"ratings.csv": turned, "movies.csv": MOVIES.replace("\n", "\r\n")}, "folder"))
    assert table.rows == ("5",)
    assert table.matrix.toarray().tolist() == [[False, False, True, False, False]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1,50,5.0", ("line 4", "3 fields", "4 were expected")),
        ("1,50,5.0,7,9", ("line 4", "5 fields")),
        ("1,50,great,7", ("line 4", "'great'", "rating")),
        ("1,50,,7", ("line 4", "''", "rating")),
        ("one,50,5.0,7", ("line 4", "'one'", "userId")),
        ("1,999,5.0,7", ("line 4", "'999'", "no movie of movies.csv")),
        ("1.5,50,5.0,7", ("line 4", "'1.5'", "userId", "whole number")),
        ("", ("line 4 is empty",)),
    ],
)
def test_malformed_ratings_say_their_line(tmp_path, line, words):
    lines = RATINGS.splitlines()
    lines.insert(3, line)
    path = put(tmp_path, {"ratings.csv": "\n".join(lines) + "\n", "movies.csv": MOVIES}, "plain")
    refused(load_movielens, path, *words)


def test_files_of_movielens_that_are_wrong(tmp_path):
    path = put(tmp_path, {"ratings.csv": RATINGS}, "plain")
    refused(load_movielens, path, "movies.csv is not beside it")
    movies = tmp_path / "movies.csv"
    for content, words in (
        (MOVIES.encode("utf-16"), ("UTF-8", "line 1")),
        (MOVIES.replace("Toy", "Tôy").encode("latin-1"), ("line 2 is not UTF-8",)),
        (b"movieId,title,genres\n", ("no movies",)),
        (b"movieId,name\n1,a\n", ("line 1 lacks the column title", "movieId, name")),
        (b"movieId,title\n1,a\nx,b\n", ("line 3 is no movie",)),
        (b"movieId,title\n1,a\n1,b\n", ("movieId 1 occurs more than once",)),
        (b'movieId,title\n1,"a\n', ("line 2", "quotes")),
        (b"", ("lacks the columns",)),
    ):
        movies.write_bytes(content)
        with pytest.raises(InputError) as caught:
            load_movielens(path)
        for word in (str(movies), *words):
            assert word in str(caught.value)
    movies.write_text(MOVIES)
    for content, words in (
        (b"", ("line 1 is empty",)),
        (b"user,movie,rating\n1,1,1\n", ("lacks the columns userId, movieId",)),
        (b"userId,movieId,timestamp\n1,1,1\n", ("lacks the column rating",)),
        (b"userId,movieId,rating\n", ("no ratings",)),
        (RATINGS.encode("utf-16"), ("UTF-8",)),
        (RATINGS.replace("userId", "üserId").encode("latin-1"), ("line 1 is not UTF-8",)),
    ):
        path.write_bytes(content)
        refused(load_movielens, path, *words)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "list.csv").write_text(MOVIES)
    movies.unlink()
    path.write_text(RATINGS)
    assert load_movielens(path, movies=tmp_path / "elsewhere" / "list.csv").matrix.nnz == 3


def test_places_without_a_file(tmp_path):
    refused(load_movielens, tmp_path / "none.csv", "No such file")
    refused(load_movielens, tmp_path, "holds no ratings.csv")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("links.csv", "")
    refused(load_movielens, tmp_path / "other.zip", "holds no ratings.csv")


def test_packed_files_that_are_damaged(tmp_path):
    many = RATINGS + "".join(f"{random.Random(i).randrange(10**6)},1,4.0,{i}\n" for i in range(3000))
    path = put(tmp_path, {"ratings.csv": many, "movies.csv": MOVIES}, "gz")
    whole = path.read_bytes()
    for content in (whole[:-1], whole[: len(whole) // 2], whole[:5], b"no gzip", whole[:2000] + b"\0\0" + whole[2002:]):
        path.write_bytes(content)
        refused(load_movielens, path, "damaged or incomplete", "download it again")
    archive = put(tmp_path / "zip", {"ratings.csv": many, "movies.csv": MOVIES}, "zip")
    whole = archive.read_bytes()
    for content in (b"", whole[:-30], whole[:300] + b"\0\0\0" + whole[303:]):
        archive.write_bytes(content)
        refused(load_movielens, archive, "damaged or incomplete")


@pytest.mark.parametrize("size", [1, 50, 1000, 1 << 22])
def test_ratings_are_those_of_a_plain_loop(tmp_path, monkeypatch, size):
    monkeypatch.setattr(readers, "BLOCK_BYTES", size)
    monkeypatch.setattr(ratings_module, "MERGED_AT_A_TIME", 20)
    rng = random.Random(size)
    triplets = [(rng.randrange(1, 10**rng.randrange(1, 13)), rng.randrange(1, 40), rng.randrange(1, 11) / 2)
                for _ in range(300)]  # fmt: skip
    liked = {(user, item) for user, item, rating in triplets if rating >= 3.5}
    users, items = (sorted({triplet[i] for triplet in triplets}) for i in (0, 1))
    expected = np.array([[(user, item) in liked for item in items] for user in users])
    movies = "movieId,title\n" + "".join(f"{item},m{item}\n" for item in items)
    csv = "userId,movieId,rating,timestamp\n" + "".join(f"{u},{i},{r},0\n" for u, i, r in triplets)
    lines = "".join(json.dumps({"item_id": i, "user_id": u, "rating": r}) + "\n" for u, i, r in triplets)
    by_movie = ""
    last = None
    for user, item, rating in triplets:
        by_movie += ("" if item == last else f"{item}:\n") + f"{user},{rating},2005-09-06\n"
        last = item
    for load, path in (
        (load_movielens, put(tmp_path / "m", {"ratings.csv": csv, "movies.csv": movies}, "folder")),
        (load_goodreads, put(tmp_path / "g", {"ratings.json": lines}, "folder")),
        (load_netflix, put(tmp_path / "n", {"combined_data_1.txt": by_movie}, "folder")),
    ):
        table = load(path)
        assert table.rows == tuple(map(str, users))
        assert [name.removeprefix("m") for name in table.matrix.columns] == [str(item) for item in items]
        np.testing.assert_array_equal(table.matrix.toarray(), expected)


# -- Netflix -----------------------------------------------------------------------------------------------------

FIRST = "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n2:\n885013,4,2005-10-19\n"
SECOND = "4500:\n822109,1,2005-09-06\n1488844,5,2005-05-13\n"
TITLES = "1,2003,Dinosaur Planet\n2,2004,Isle of Man TT, Révisé\n4500,NULL,Dinosaur\n".encode("latin-1")


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("plain", "gz")])
@pytest.mark.parametrize(
    "names", [("combined_data_1.txt", "combined_data_2.txt"), ("training_set/mv_1.txt", "training_set/mv_4500.txt")]
)
def test_netflix_in_every_way(tmp_path, way, names):
    files = dict(zip(names, (FIRST, SECOND), strict=True)) | {"movie_titles.csv": TITLES}
    table = load_netflix(put(tmp_path / "raw", files, way))
    assert table.rows == ("822109", "885013", "1488844")
    assert table.matrix.columns == ("Dinosaur Planet (2003)", "Isle of Man TT, Révisé (2004)", "Dinosaur (NULL)")
    np.testing.assert_array_equal(table.matrix.toarray(), [[1, 0, 0], [0, 1, 0], [0, 0, 1]])


def test_one_file_of_netflix_without_titles(tmp_path):
    table = load_netflix(put(tmp_path, {"combined_data_1.txt": FIRST.replace("\n", "\r\n")}, "gz"), at_least=3)
    assert table.matrix.columns == ("1", "2")
    assert table.matrix.nnz == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("5,3,2005-09-06\n1:\n", ("line 1", "should come first")),
        ("1:\n5,3,2005-09-06\n5,3\n", ("line 3 has 2 fields",)),
        ("1:\n5,3,2005-09-06\n\n5,3,2005-09-06\n", ("line 3 is empty",)),
        ("1:\n5,3,2005-09-06\nx:\n", ("line 3", "'x'", "number of a movie")),
        ("1:\n5,3,2005-09-06\n1:2:\n", ("line 3",)),
        ("1:\nfive,3,2005-09-06\n", ("line 2", "'five'", "customer")),
        ("1:\n5,,2005-09-06\n", ("line 2", "rating")),
        ("1:\n2:\n", ("no ratings",)),
        ("", ("no ratings",)),
    ],
)
def test_malformed_lines_of_netflix(tmp_path, content, words):
    path = put(tmp_path, {"combined_data_1.txt": content}, "plain")
    refused(load_netflix, path, *words)


def test_malformed_titles(tmp_path):
    put(tmp_path, {"combined_data_1.txt": FIRST, "movie_titles.csv": "1,2003,A\nnonsense\n"}, "folder")
    with pytest.raises(InputError, match=r"movie_titles.csv: line 2 holds 'nonsense'"):
        load_netflix(tmp_path)


# -- Goodreads ---------------------------------------------------------------------------------------------------

DOUBLE = [
    '{"item_id": 41335427, "user_id": 0, "rating": 5}',
    '{"item_id": 41335427, "user_id": 12, "rating": 3}',
    '{"item_id": 3, "user_id": 12, "rating": 3.5}',
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("quote", ['"', "'"])
def test_goodreads_in_every_way(tmp_path, way, quote):
    content = "\n".join(DOUBLE).replace('"', quote)
    table = load_goodreads(put(tmp_path / "raw", {"book_dataset/raw/ratings.json": content}, way))
    assert table.rows == ("0", "12")
    assert table.matrix.columns == ("3", "41335427")
    np.testing.assert_array_equal(table.matrix.toarray(), [[0, 1], [1, 0]])


METADATA = [
    '{"item_id": 3, "url": "u", "title": "Emma", "authors": "Jane Austen", "lang": "eng", "img": "", "year": 1815}',
    '{"item_id": 5, "url": "u", "title": "  Never\\n rated ", "authors": "", "lang": "", "img": "", "year": null}',
    "",
    '{"item_id": 41335427, "url": "u", "title": "Emma", "authors": "Jean É.", "lang": "fre", "img": "", "year": 2001}',
]


@pytest.mark.parametrize("way", WAYS)
def test_titles_of_books_come_from_the_file_beside(tmp_path, way):
    files = {"book_dataset/raw/ratings.json": "\n".join(DOUBLE), "book_dataset/raw/metadata.json": "\n".join(METADATA)}
    assert load_goodreads(put(tmp_path / "raw", files, way)).matrix.columns == ("Emma [3]", "Emma [41335427]")
    files["book_dataset/raw/metadata.json"] = METADATA[0]
    assert load_goodreads(put(tmp_path / "part", files, way)).matrix.columns == ("Emma", "41335427")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"item_id": 7}', "line 5 holds"),
        (b'{"item_id": "x", "title": "y"}', "line 5 holds"),
        (b'{"item_id": 7, "title": "y"', "line 5 holds"),
        (b"[7]", "line 5 holds"),
        (b'{"item_id": 7, "title": "\xe9"}', "line 5 is not UTF-8"),
    ],
)
def test_malformed_titles_of_books(tmp_path, line, words):
    content = "\n".join(METADATA).encode() + b"\n" + line
    path = put(tmp_path, {"ratings.json": "\n".join(DOUBLE), "metadata.json": content}, "folder")
    with pytest.raises(InputError, match=words) as caught:
        load_goodreads(path)
    assert str(caught.value).startswith(str(tmp_path / "metadata.json"))


def test_lines_that_are_written_in_other_ways_are_read_too(tmp_path):
    lines = [
        *DOUBLE,
        "{'rating': 4, 'user_id': 7, 'item_id': 3}",
        '{"item_id":3,"user_id":8,"rating":5,"more":{"a":[1,2]}}',
        '{"item_id": "3", "user_id": "9", "rating": "5.0"}  ',
        "",
    ]
    table = load_goodreads(put(tmp_path, {"ratings.json": "\n".join(lines)}, "plain"))
    assert table.rows == ("0", "7", "8", "9", "12")
    np.testing.assert_array_equal(table.matrix.toarray(), [[0, 1], [1, 0], [1, 0], [1, 0], [1, 0]])


@pytest.mark.parametrize(
    "line",
    [
        '{"item_id": 3, "user_id": 12}',
        '{"item_id": 3, "user_id": 12, "rating": null}',
        '{"item_id": 3, "user_id": 12, "rating": "good"}',
        '{"item_id": 3, "user_id": 12, "rating": 4',
        '{"item_id": 3, "user_id": "x", "rating": 4}',
        '{"item_id": 3, "user_id": 12, "rating": NaN}',
        "[3, 12, 4]",
        "item_id 3",
    ],
)
def test_malformed_lines_of_goodreads(tmp_path, line):
    path = put(tmp_path, {"ratings.json": "\n".join([*DOUBLE, line, DOUBLE[0]])}, "plain")
    refused(load_goodreads, path, "line 4")


def test_goodreads_in_another_encoding_or_empty(tmp_path):
    path = put(tmp_path, {"ratings.json": DOUBLE[0].replace("5}", "5, 'é': 1}").encode("latin-1")}, "plain")
    refused(load_goodreads, path, "line 1 is not UTF-8")
    path.write_bytes(b"")
    refused(load_goodreads, path, "no ratings")
    packed = put(tmp_path / "gz", {"ratings.json": "\n".join(DOUBLE)}, "gz")
    packed.write_bytes(gzip.compress("\n".join(DOUBLE).encode())[:-5])
    refused(load_goodreads, packed, "damaged or incomplete")
