"""Clients must agree on their columns before anything runs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from felb.data import BinaryMatrix, partition
from felb.data import files as registry
from felb.data.files import SHIPPED, load, row_names
from felb.data.partition import check_shards, named, split
from felb.errors import InputError

RNG = np.random.default_rng(0)


def matrix(n=4, m=3, columns=None):
    return BinaryMatrix.of(RNG.random((n, m)) < 0.5, columns=columns and list(columns))


def test_split_keeps_rows_and_order():
    A = matrix(10)
    shards, rows = split(A, list("abcabcabca"))
    assert list(shards) == ["a", "b", "c"]
    for name, picked in rows.items():
        assert shards[name] == A.take(picked)
    assert sorted(np.concatenate(list(rows.values()))) == list(range(10))


def test_rows_that_follow_each_other_are_not_copied():
    A = matrix(10)
    shards, _ = split(A, list("bbbaaaaccb"))
    assert np.shares_memory(shards["a"].indices, A.indices)
    assert np.shares_memory(shards["c"].indices, A.indices)
    assert not np.shares_memory(shards["b"].indices, A.indices)
    assert shards["a"] == A.rows(3, 7)
    assert shards["b"] == A.take([0, 1, 2, 9])


@pytest.mark.parametrize(("n", "clients"), [(10, 1), (10, 3), (10, 10), (11, 4)])
def test_consecutive_labels_ascend_and_are_even(n, clients):
    labels = partition.consecutive(n, clients)
    sizes = np.bincount(labels)
    assert list(labels) == sorted(labels)
    assert sizes.size == clients
    assert sizes.max() - sizes.min() <= 1
    with pytest.raises(InputError, match="cannot share"):
        partition.consecutive(n, n + 1)


def test_labels_may_be_numbers_objects_or_strings():
    A = matrix(3)
    assert list(split(A, [2, 1, 2])[0]) == ["1", "2"]
    assert list(split(A, np.array(["x", 1, "x"], dtype=object))[0]) == ["1", "x"]


@pytest.mark.parametrize("labels", [[1, 2], [[1], [2], [3]]])
def test_one_label_per_row(labels):
    with pytest.raises(InputError, match="label per row"):
        split(matrix(3), labels)


@pytest.mark.parametrize("labels", [["a", None, "b"], [0.0, float("nan"), 1.0]])
def test_missing_labels_are_named(labels):
    with pytest.raises(InputError, match=r"row 1 .*client label"):
        split(matrix(3), labels)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "no clients"),
        ([matrix(4), matrix(0)], "client-02 has no rows"),
        ([matrix(4, 3), matrix(4, 2)], "client-02 has 2 .*client-01 has 3"),
        ([matrix(columns="abc"), matrix(columns="abd")], "column 2 .*'d' at client-02 .*'c' at client-01"),
        ([matrix(columns="abc"), matrix(columns="acb")], "same order"),
        ([matrix(columns="abc"), matrix()], "client-01 has column names"),
        ([matrix(), matrix(columns="abc")], "client-02 has column names"),
        ([matrix(2, 0)], "no columns"),
    ],
)
def test_clients_that_do_not_fit_together(parts, message):
    with pytest.raises(InputError, match=message):
        check_shards(named(parts))


def test_shipped_data():
    zoo = load("zoo")
    assert zoo.shape == (101, 17)
    assert zoo.nnz == 761
    assert zoo.columns[0] == "hair"
    assert row_names("zoo")[0] == "aardvark"
    assert len(row_names("zoo")) == 101
    assert SHIPPED["zoo"].licence == "CC BY 4.0"
    with pytest.raises(InputError, match="zoo, soybean"):
        load("aquarium")


def test_soybean():
    soybean = load("soybean")
    assert soybean.shape == (683, 99)
    assert soybean.nnz == 21_568
    assert soybean.columns[0] == "date=0"
    assert SHIPPED["soybean"].licence == "CC BY 4.0"
    assert row_names("soybean") is None


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_data_says_where_it_comes_from(name):
    shipped = Path(registry.__file__).parent / "shipped"
    assert f"| {name}.npz |" in (shipped / "ATTRIBUTION.md").read_text(encoding="utf-8")


def test_labels_that_are_written_alike_are_not_one_client():
    matrix = BinaryMatrix.of(np.eye(3))
    with pytest.raises(InputError, match=r"groups holds 1 \(int\) and '1' \(str\)"):
        split(matrix, np.array([1, "1", 2], dtype=object))
    assert list(split(matrix, np.array([1, 1, 2], dtype=object))[0]) == ["1", "2"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", float("nan"), "b"], "row 1 has no client label"),
        (["a", None, "b"], "row 1 has no client label"),
        (pd.array(["a", None, "b"], "string"), "row 1 has no client label"),
        (pd.array([1, None, 2], "Int64"), "row 1 has no client label"),
        (np.ma.masked_array([1, 2, 3], mask=[0, 1, 0]), "row 1 has no client label"),
        (["1", 1, "b"], "written alike"),
        ([[1], [1, 2], [3]], "one client label per row"),
    ],
)
def test_labels_that_are_missing_or_written_alike_are_refused(labels, message):
    with pytest.raises(InputError, match=message):
        split(BinaryMatrix.of(np.eye(3, dtype=bool)), labels)
