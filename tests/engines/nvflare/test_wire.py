"""Messages hold numbers and nothing else, whatever is sent."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.engines.nvflare.wire import MAGIC, digest, pack, unpack
from felb.errors import FederationError

ARRAYS = st.dictionaries(
    st.from_regex(r"[A-Za-z_]\w{0,9}", fullmatch=True).filter(str.isidentifier),
    hnp.arrays(
        st.sampled_from([np.bool_, np.int64, np.uint8, np.float32, np.float64]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    max_size=4,
)


@given(ARRAYS)
def test_what_is_packed_comes_back(values):
    found = unpack(pack(values))
    assert list(found) == list(values)
    for name, value in values.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)


@given(st.binary(max_size=200))
def test_noise_is_refused(data):
    with pytest.raises(FederationError):
        unpack(data)


@given(ARRAYS, st.data())
def test_a_changed_byte_is_refused_or_gives_numbers(values, data):
    packed = bytearray(pack(values))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack(bytes(packed))
    except FederationError:
        return
    assert all(array.dtype.kind in "biuf" for array in found.values())


def message(*entries, body=b""):
    head = json.dumps(list(entries)).encode()
    return MAGIC + len(head).to_bytes(4, "little") + head + body


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"V": np.ones(3)}),
        message(["V", "|O", [1]], body=bytes(8)),
        message(["V", "<U4", [1]], body=bytes(16)),
        message(["V", "<f4", [1 << 40]]),
        message(["V", "<f4", [-1]]),
        message(["V", "<f4", [True]], body=bytes(4)),
        message(["V", "<f4", [1]], body=bytes(5)),
        message(["V", "<f4", [1]], ["V", "<f4", [1]], body=bytes(8)),
        message(["../V", "<f4", [1]], body=bytes(4)),
        message(["V", "<f4"]),
        message(*[["V", "<f4", [0]]] * 1000),
        "text",
        None,
    ],
)
def test_hostile_messages_are_refused(data):
    with pytest.raises(FederationError):
        unpack(data)


def test_only_numbers_are_sent_and_a_limit_holds():
    with pytest.raises(FederationError, match="only numbers travel"):
        pack({"V": np.array([object()])})
    packed = pack({"V": np.zeros(1000)})
    with pytest.raises(FederationError, match="at most 100"):
        unpack(packed, limit=100)


def test_a_digest_tells_questions_apart():
    a, b = {"V": np.zeros(3)}, {"V": np.ones(3)}
    assert digest("assign", a) == digest("assign", {"V": np.zeros(3)})
    assert len({digest("assign", a), digest("assign", b), digest("factorize", a)}) == 3
