"""One parser for stored records: typed, bounded, and its errors name file and key."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from felb import GreConD
from felb.centralized.base import check_parameters
from felb.errors import LONGEST_MESSAGE, InputError
from felb.federated.algorithms.registry import METHODS
from felb.records import parse_record, read_record, read_text, read_toml
from felb.sklearn.methods import make


@dataclass(frozen=True)
class Inner:
    rate: float = 0.0


@dataclass(frozen=True)
class Outer:
    name: str
    count: int = 1
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "damaged"),
        (b"{", "damaged"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `name`"),
        (b'{"name": 3}', r"Expected `str`, got `int` - at `\$.name`"),
        (b'{"name": "x", "count": "1"}', r"at `\$.count`"),
        (b'{"name": "x", "count": 1.5}', r"at `\$.count`"),
        (b'{"name": "x", "kount": 1}', "unknown key `kount`"),
        (b'{"name": "x", "inner": {"rat": 1}}', r"unknown key `rat` - at `\$.inner`"),
        (b'{"name": "x", "inner": {"rate": NaN}}', "damaged"),
        (b'{"name": "x", "inner": {"rate": 1e999}}', "damaged"),
        (b'{"name": ' + b"[" * 100_000, "damaged"),
        (b'{"name": ' + b"[" * 40 + b"]" * 40 + b"}", "nested more than 32 deep"),
        (b'{"name": "\xff"}', "damaged"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_it(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_record(text, Outer, source="job.json", advice="start anew")
    assert "job.json" in str(caught.value)
    assert "start anew" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_record_is_read_from_a_regular_file_of_bounded_size(tmp_path):
    path = tmp_path / "r.json"
    path.write_text('{"name": "x", "inner": {"rate": 2}}')
    assert read_record(path, Outer, advice="-") == Outer("x", 1, Inner(2.0))
    with pytest.raises(InputError, match="10 bytes"):
        read_record(path, Outer, advice="-", limit=10)
    with pytest.raises(FileNotFoundError):
        read_record(tmp_path / "none.json", Outer, advice="-")


def test_messages_are_printable_and_short():
    text = str(InputError(f"column {'x' * 100_000} \x1b[31m \x00 is wrong"))
    assert len(text) <= LONGEST_MESSAGE + 10
    assert "\x1b" not in text
    assert text.endswith("is wrong")


@pytest.mark.parametrize("name", METHODS)
def test_defaults_are_of_their_declared_types(name):
    check_parameters(make(name))


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_components": "3"},
        {"n_components": 2.0},
        {"time_limit": "5"},
        {"time_limit": float("nan")},
        {"time_limit": []},
    ],
)
def test_a_parameter_of_another_type_is_named(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        GreConD(**wrong).fit([[0, 1], [1, 1]])


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_jobs": 0},
        {"n_jobs": "2"},
        {"random_state": -1},
        {"dtype": "float16"},
        {"participation": 0.5},
        {"max_iter": [1]},
        {"proximity": 10**30},
        {"proximity": Fraction(1, 2)},
    ],
)
def test_a_parameter_of_a_federated_method_is_named(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        make("felb", n_components=1, **wrong).fit([[0, 1], [1, 1]])


def test_texts_and_settings_are_read_from_regular_files_of_bounded_size(tmp_path):
    path = tmp_path / "s.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\n[b]\nc = [2.5]\n")
    assert read_toml(path, advice="-") == {"a": 1, "b": {"c": [2.5]}}
    assert read_text(path, advice="-").startswith("a = 1")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "latin").write_bytes(b"\xe4")
    for name, message in (
        ("pipe", "pipe or a device"),
        ("device", "pipe or a device"),
        ("latin", "not UTF-8"),
        ("none", "cannot be read"),
        (".", "cannot be read"),
        ("a\0b", "no name of a file"),
    ):
        with pytest.raises(InputError, match=message):
            read_toml(tmp_path / name, advice="-")
    with pytest.raises(InputError, match="more than the 3 bytes"):
        read_text(path, advice="-", limit=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = " + "9" * 5000, "no TOML file"),
        ("a = 0x" + "f" * 5000, "more than 64 bits"),
        ("a = [[{b = 9223372036854775808}]]", "more than 64 bits"),
        ("a = ", "no TOML file"),
    ],
)
def test_settings_that_are_no_toml_are_refused(text, message, tmp_path):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_toml(tmp_path / "s.toml", advice="write it anew")
    assert str(caught.value).endswith("write it anew")
