"""The cryptography of a secure sum against plain twins."""

import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from felb.privacy.spec import most_colluders, most_dropouts, threshold
from felb.secure_sum.keys import SECRET, agreed_key, public_of, usable
from felb.secure_sum.protocol import (
    add_mask_into,
    joined_secret,
    opened,
    sealed,
    split_secret,
)

KEYS = [bytes([i]) * SECRET for i in range(1, 4)]


@pytest.mark.parametrize("size", [0, 1, 3, 131_071, 131_072, 131_073, 300_000])
def test_masks_are_the_key_stream_of_aes_in_counter_mode(size):
    stream = Cipher(algorithms.AES(KEYS[0]), modes.CTR(bytes(16))).encryptor().update(bytes(8 * size))
    total = np.arange(size, dtype=np.uint64)
    add_mask_into(total, KEYS[0], sign=1)
    np.testing.assert_array_equal(total, np.arange(size, dtype=np.uint64) + np.frombuffer(stream, "<u8"))
    add_mask_into(total, KEYS[0], sign=-1)
    np.testing.assert_array_equal(total, np.arange(size, dtype=np.uint64))


def test_both_sides_agree_on_a_key_for_each_purpose():
    one, other = KEYS[:2]
    assert agreed_key(one, public_of(other), b"a") == agreed_key(other, public_of(one), b"a")
    assert agreed_key(one, public_of(other), b"a") != agreed_key(one, public_of(other), b"b")


def test_public_keys_of_low_order_are_not_usable():
    assert usable(public_of(KEYS[0]))
    assert not usable(bytes(SECRET))
    assert not usable(b"\x01" + bytes(SECRET - 1))


@pytest.mark.parametrize(("key", "context", "cut"), [(1, b"c", None), (0, b"d", None), (0, b"c", -1), (0, b"c", 5)])
def test_sealed_messages_open_with_their_key_and_context_only(key, context, cut):
    packet = sealed(KEYS[0], b"shares", context=b"c", nonce=bytes(12))
    assert opened(KEYS[0], packet, context=b"c") == b"shares"
    assert opened(KEYS[key], packet[:cut], context=context) is None


def test_any_t_shares_give_the_secret_and_fewer_or_wrong_ones_do_not():
    secret = bytes(range(SECRET))
    shares = split_secret(secret, 3, 5)
    assert len(set(shares)) == 5
    for chosen in itertools.combinations(range(5), 3):
        assert joined_secret({at: shares[at] for at in chosen}) == secret
    for chosen in itertools.combinations(range(5), 2):
        assert joined_secret({at: shares[at] for at in chosen}) != secret
    assert joined_secret({0: shares[0], 1: shares[1], 2: shares[3]}) != secret


@pytest.mark.parametrize("n", range(3, 51))
def test_quorums_share_an_honest_site_and_dropouts_leave_one(n):
    t = threshold(n)
    assert 3 * (t - 1) <= 2 * n < 3 * t
    assert n - most_dropouts(n) == t
    assert most_colluders(n) == 2 * t - n - 1
    assert most_colluders(n) < t, "colluders alone open nothing"
    assert 3 * (most_colluders(n) + 1) > n
