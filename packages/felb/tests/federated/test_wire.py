"""Messages hold numbers and nothing else, whatever is sent."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.errors import FederationError
from felb.federated.journal import digest, pack, unpack
from felb.federated.protocol import Part, Request

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
    assert set(found) == set(values)
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


def message(head, body=b""):
    return len(head).to_bytes(8, "little") + head + body


def entry(dtype="F32", shape="[1]", offsets="[0,4]", name="V"):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'.encode()


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"V": np.ones(3)}),
        message(b"{" + entry("OBJECT") + b"}", bytes(4)),
        message(b"{" + entry("BF16", offsets="[0,2]") + b"}", bytes(2)),
        message(b"{" + entry(shape="[1099511627776]") + b"}"),
        message(b"{" + entry(shape="[-1]") + b"}"),
        message(b"{" + entry(shape="[true]") + b"}", bytes(4)),
        message(b"{" + entry() + b"}", bytes(5)),
        message(b"{" + entry() + b"," + entry(offsets="[0,4]", name="W") + b"}", bytes(4)),
        message(b"{" + entry(name="../V") + b"}", bytes(4)),
        message(b"{" + entry(shape="[1,1,1,1,1]") + b"}", bytes(4)),
        message(b"{" + b",".join(entry(shape="[0]", offsets="[0,0]", name=f"V{i}") for i in range(1000)) + b"}"),
        message(b"[]"),
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


def test_a_digest_tells_requests_apart():
    same, again = Request("assign", V=np.zeros(3)), Request.of([Part("assign", {"V": np.zeros(3)})], number=4)
    assert digest(same) == digest(again)
    others = Request("assign", V=np.ones(3)), Request("count", V=np.zeros(3)), Request("assign", W=np.zeros(3))
    assert len({digest(request) for request in (same, *others)}) == 4
