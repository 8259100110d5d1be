"""Packing and counting bits agree with plain Boolean arrays."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.errors import InputError
from felb.kernels import bits

WIDTHS = [0, 1, 63, 64, 65, 128, 130]


def random_matrix(rows, columns, seed=0, density=0.3):
    return np.random.default_rng(seed).random((rows, columns)) < density


words = st.integers(0, 2**64 - 1)


@given(words)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_words_are_counted_in_python(word):
    digits = f"{word:b}"
    assert bits.popcount(np.uint64(word)) == digits.count("1")
    if word:
        assert bits.lowest_bit(np.uint64(word)) == len(digits) - 1 - digits.rindex("1")


@pytest.mark.parametrize("word", [1, 2, 3, 1 << 63, 2**64 - 1, 0x8000000000000001, 1 << 33])
def test_compiled_words_agree_with_python(word):
    from numba import njit

    @njit
    def compiled(word):
        return bits.popcount(word), bits.lowest_bit(word)

    assert compiled(np.uint64(word)) == (bits.popcount(word), bits.lowest_bit(word))


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_pack_sets_bit_j_of_word_j_over_64(rows, columns):
    matrix = random_matrix(rows, columns)
    packed = bits.pack(matrix)
    assert packed.dtype == np.uint64
    assert packed.shape == (rows, bits.words_for(columns)) == (rows, -(-columns // 64))
    for r in range(rows):
        assert sum(int(word) << (64 * w) for w, word in enumerate(packed[r])) == sum(
            1 << j for j in range(columns) if matrix[r, j]
        )
    np.testing.assert_array_equal(bits.unpack(packed, columns), matrix)


def test_pack_reads_any_memory_layout():
    matrix = random_matrix(70, 90)
    np.testing.assert_array_equal(bits.pack(matrix.T), bits.pack(np.ascontiguousarray(matrix.T)))
    np.testing.assert_array_equal(bits.unpack(bits.pack(matrix)[::2], 90), matrix[::2])


@pytest.mark.parametrize("k", WIDTHS)
def test_component_masks_have_at_least_one_word(k):
    members = random_matrix(7, k)
    masks = bits.component_masks(members)
    assert masks.shape == (7, max(1, bits.words_for(k)))
    np.testing.assert_array_equal(bits.unpack(masks, k), members)


@pytest.mark.parametrize("k", [0, 1, 3, 64, 65, 130])
@pytest.mark.parametrize("n", [0, 1, 40])
def test_group_masks_rebuilds_the_masks(n, k):
    masks = bits.component_masks(random_matrix(n, k, density=0.02))
    distinct, group, sizes = bits.group_masks(masks)
    np.testing.assert_array_equal(distinct[group], masks)
    np.testing.assert_array_equal(sizes, np.bincount(group, minlength=len(distinct)))
    assert len({tuple(mask) for mask in distinct.tolist()}) == len(distinct)
    assert all(tuple(a) < tuple(b) for a, b in pairwise(distinct.tolist()))


@pytest.mark.parametrize("columns", WIDTHS)
def test_counts_of_bits(columns):
    matrix = random_matrix(6, columns, density=0.5)
    np.testing.assert_array_equal(bits.count_bits(bits.pack(matrix)), matrix.sum(axis=1))


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (3, 64), (65, 70), (10, 130)])
def test_sparse_rows_and_columns_pack_like_dense_ones(shape, interpreted, monkeypatch):
    if interpreted:
        interpret(monkeypatch, bits)
    matrix = random_matrix(*shape)
    np.testing.assert_array_equal(bits.pack_binary(sparse(matrix)), bits.pack(matrix))
    np.testing.assert_array_equal(bits.pack_binary_columns(sparse(matrix)), bits.pack(matrix.T))


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("k", [0, 1, 64, 65])
def test_union_is_the_or_of_the_named_rows(k, interpreted, monkeypatch):
    if interpreted:
        interpret(monkeypatch, bits)
    rows, members = random_matrix(k, 130), random_matrix(1, k, seed=1)
    union = np.full(3, 7, dtype=np.uint64)
    bits.union_into(union, bits.component_masks(members)[0], bits.pack(rows))
    np.testing.assert_array_equal(bits.unpack(union[None], 130)[0], rows[members[0]].any(axis=0))


def test_only_boolean_matrices_are_taken():
    assert bits.as_boolean([[True, False]]).shape == (1, 2)
    with pytest.raises(InputError, match=r"U must be .*float64"):
        bits.as_boolean(np.zeros((2, 2)), "U")
    with pytest.raises(InputError, match="two dimensions"):
        bits.as_boolean(np.zeros(2, bool))


@given(st.lists(words | st.integers(0, 5), max_size=60))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_groups_of_single_words_are_those_of_numpy(found):
    masks = np.array(found, dtype=np.uint64)[:, None]
    distinct, group, sizes = bits.group_masks(masks)
    expected = np.unique(masks[:, 0], return_inverse=True, return_counts=True)
    for one, right in zip((distinct[:, 0], group, sizes), expected, strict=True):
        np.testing.assert_array_equal(one, right)
    np.testing.assert_array_equal(bits.order_by_group(group, sizes), np.argsort(group, kind="stable"))


@pytest.mark.parametrize("k", [0, 1, 20, 63, 64, 65])
def test_masks_of_a_transpose_are_those_of_its_copy(k):
    V = np.random.default_rng(k).random((k, 130)) < 0.4
    np.testing.assert_array_equal(bits.component_masks(V.T), bits.component_masks(np.array(V.T, order="C")))
