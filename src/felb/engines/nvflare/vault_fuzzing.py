"""Messages that no honest courier sends, for the tests and the benchmark of the vault."""

from __future__ import annotations

import copy
import json
import struct
from typing import TYPE_CHECKING, Any

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
    kind = rng.randrange(6)
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
