"""What candidates are worth while cells get covered, against gains computed anew from dense arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.kernels import bits, cover


def draw(n, m, density, seed):
    """Return data and distinct candidates, one of them with all columns."""
    rng = np.random.default_rng(seed)
    patterns = np.vstack([rng.random((8, m)) < 0.4, np.ones((1, m), bool)])
    patterns = np.unique(patterns[patterns.any(axis=1)], axis=0)
    return rng.random((n, m)) < density, patterns


def gains(A, covered, patterns, bonus, penalty):
    """Ones and zeros of every candidate in every row, and where they pay."""
    ones = np.array([(A & p & ~covered).sum(axis=1) for p in patterns])
    zeros = np.array([(~A & p & ~covered).sum(axis=1) for p in patterns])
    return ones, zeros, bonus * ones - penalty * zeros > 0


def check(A, patterns, bonus=1.0, penalty=1.0, steps=4):
    candidates = [np.flatnonzero(p).astype(np.int32) for p in patterns]
    greedy = cover.GreedyCover(sparse(A), candidates, bonus=bonus, penalty=penalty)
    covered = np.zeros_like(A)
    counting = greedy.begin()
    pauses = 0
    for step in range(steps):
        pauses += sum(1 for _ in counting)
        ones, zeros, used = gains(A, covered, patterns, bonus, penalty)
        worth = bonus * (ones * used).sum(axis=1) - penalty * (zeros * used).sum(axis=1)
        np.testing.assert_array_equal(greedy.worth(), worth)
        # Not only the best one: whatever is taken, the books must balance.
        chosen = int(np.argmax(worth)) if step % 2 == 0 else step % len(patterns)
        np.testing.assert_array_equal(greedy.users(chosen), used[chosen])
        counting = greedy.cover(chosen, used[chosen])
        covered |= np.outer(used[chosen], patterns[chosen])
    return pauses


weights = st.sampled_from([1.0, 2.0, 0.5, 0.1, 0.3])


@pytest.mark.parametrize("advantage", [0.0, 1e9], ids=["counted", "packed"])
@given(
    st.integers(1, 40), st.integers(1, 140), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), weights,
    st.one_of(st.just(0.0), weights), st.integers(0, 999),
)  # fmt: skip
@settings(max_examples=40, deadline=None, derandomize=True)
def test_worth_and_users_agree_with_the_definition(advantage, n, m, density, bonus, penalty, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover, "PACKED_ADVANTAGE", advantage)
        check(*draw(n, m, density, seed), bonus, penalty)


@pytest.mark.parametrize("advantage", [0.0, 1e9], ids=["counted", "packed"])
@pytest.mark.parametrize("interpreted", [False, True])
def test_blocks_of_rows_do_not_matter(advantage, interpreted, monkeypatch):
    if interpreted:
        interpret(monkeypatch, bits)
        interpret(monkeypatch, cover)
    monkeypatch.setattr(cover, "PACKED_ADVANTAGE", advantage)
    monkeypatch.setattr(cover, "STEPS_AT_A_TIME", 200)
    assert check(*draw(30, 70, 0.5, 0)) > 8


def test_the_cheaper_way_is_taken():
    candidates = [np.arange(64, dtype=np.int32), np.arange(3, dtype=np.int32)]
    dense = cover.GreedyCover(sparse(np.ones((5, 64), bool)), candidates)
    thin = cover.GreedyCover(sparse(np.eye(5, 64 * 9, dtype=bool)), candidates)
    assert dense._packed is not None
    assert thin._packed is None


def test_without_candidates_nothing_has_a_worth():
    greedy = cover.GreedyCover(sparse(np.zeros((3, 4), bool)), [])
    assert len(list(greedy.begin())) == 1
    assert greedy.worth().size == 0
