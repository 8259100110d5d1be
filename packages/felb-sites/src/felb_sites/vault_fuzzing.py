"""Messages that no honest courier sends, for the tests and the benchmark of the vault."""

from __future__ import annotations

import copy
import json
import struct
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    Message = tuple[Any, bytes]

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**63, -(2**63), 1e308, 0.5, "", "x", "../../etc/passwd", "{$HOME}", "\x00", "é" * 50,
    "ready", "answer", "mask", "trip", [], [[]], {}, {"a": []}, [[0, 1, 2]], [0] * 100, "bmf", "felb-mu", 10**30,
)  # fmt: skip


def mutated_messages(rng: random.Random, honest: Sequence[Message], count: int) -> Iterator[Message]:
    """Return messages made of honest ones by a few random changes, and some that are random throughout."""
    for _ in range(count):
        words, values = copy.deepcopy(rng.choice(list(honest)))
        if rng.random() < 0.1:
            yield rng.choice(ODD), rng.randbytes(rng.randrange(64))
            continue
        for _ in range(rng.randrange(1, 4)):
            words, values = _changed(rng, words, values)
        yield words, values


def random_frames(rng: random.Random, count: int) -> Iterator[bytes]:
    """Return bytes for a socket: noise, frames with false sizes, tables that are none, frames cut short."""
    for number in range(count):
        table = json.dumps(rng.choice(ODD)).encode() if number % 3 else rng.randbytes(rng.randrange(40))
        sizes = rng.choice(((len(table), 0), (len(table) + 5, 0), (1 << 31, 0), (len(table), 1 << 60), (0, 0)))
        frame = struct.pack("!IQ", *sizes) + table
        yield frame[: rng.randrange(len(frame) + 1)] if number % 4 == 0 else frame


def _changed(rng: random.Random, words: Any, values: bytes) -> Message:
    kind = rng.randrange(7)
    if kind == 6:
        return words, _restructured(rng, words, values)
    if kind == 0 and values:
        data = bytearray(values)
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return words, bytes(data)
    if kind == 1:
        return words, values[: rng.randrange(len(values) + 1)] + rng.randbytes(rng.randrange(16))
    table = words
    if isinstance(words, dict) and kind in (2, 3) and isinstance(words.get("plan"), dict):
        table = words["plan"]
    if not isinstance(table, dict) or not table:
        return rng.choice(ODD), values
    name = rng.choice(sorted(table, key=str))
    if kind == 4:
        table.pop(name)
    elif kind == 5:
        table[rng.choice(("extra", "data", "state", "sums", "size", "round", "trip"))] = rng.choice(ODD)
    else:
        table[name] = rng.choice(ODD)
    return words, values


def _restructured(rng: random.Random, words: Any, values: bytes) -> bytes:
    """Change the structure of the part of a message that is MessagePack or JSON: a leaf, or an entry of a table."""
    start = words.get("trip", 0) if isinstance(words, dict) and words.get("verb") == "mask" else 0
    if type(start) is not int or not 0 <= start <= len(values):
        return values
    for code in (msgspec.msgpack, msgspec.json):
        try:
            changed: bytes = code.encode(_altered(rng, code.decode(values[start:])))
        except (msgspec.MsgspecError, UnicodeError, TypeError, OverflowError, RecursionError):
            continue
        return values[:start] + changed
    return values


def _altered(rng: random.Random, node: Any) -> Any:
    """Return a structure with one change somewhere in it."""
    if isinstance(node, dict) and node:
        name = rng.choice(list(node))
        kind = rng.randrange(8)
        if kind == 0:
            return {key: value for key, value in node.items() if key != name}
        if kind == 1:  # what is said of one is said of another
            return {**node, name: node[rng.choice(list(node))]}
        return {**node, name: _altered(rng, node[name])}
    if isinstance(node, list) and node:
        at, kind = rng.randrange(len(node)), rng.randrange(8)
        if kind == 0:
            return node[:at] + node[at + 1 :]
        if kind == 1:
            return [*node, node[at]]
        if kind == 2:
            return rng.sample(node, len(node))
        return [*node[:at], _altered(rng, node[at]), *node[at + 1 :]]
    if isinstance(node, bytes) and node:
        at = rng.randrange(len(node))
        return node[:at] + bytes([node[at] ^ 1 << rng.randrange(8)]) + node[at + 1 :]
    if type(node) is int:
        return node + rng.choice((-1, 1, 1 << 62))
    return rng.choice(ODD)
