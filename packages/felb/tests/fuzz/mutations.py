"""Mutations of bytes, of JSON and of Python values; seeded, so that a case can be made again from its number."""

from __future__ import annotations

import copy
import json
import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

NUMBERS = [0, 1, -1, 2, 127, 128, 255, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63)]
WORDS = [
    b"nan",
    b"inf",
    b"-inf",
    b"1e999",
    b"-1",
    b"99999999999999999999",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b'""',
    b"\0",
]
VALUES = [
    None, True, False, 0, 1, -1, 2, 3, 10**9, 2**63, -(2**63), 10**30, 0.0, -0.0, 0.5, 1e-300, 1e300, math.nan,
    math.inf, -math.inf, "", "1", "x", "\x00\x1b[31m", "ü" * 5000, "auto", "mdl", b"bytes", [], [1], [[[]]], (), {},
    {"a": 1},
    {1: 2}, object, print, 1j,
]  # fmt: skip


def mutated(seeds: list[bytes], rng: random.Random) -> bytes:
    """Return a seed with a few changes."""
    content = bytearray(rng.choice(seeds))
    if content[:1] in (b"{", b"[") and rng.random() < 0.7:
        return mutated_json(bytes(content), rng)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        _CHANGES[rng.randrange(len(_CHANGES))](content, seeds, rng)
    return bytes(content)


def mutated_json(content: bytes, rng: random.Random) -> bytes:
    """Return JSON with a node that has another value, is gone, stands twice, or has a new neighbour."""
    try:
        tree = json.loads(content)
    except ValueError:
        return content[: rng.randrange(len(content) + 1)]
    mutate_tree(tree, rng)
    if rng.random() < 0.03:
        return b"[" * 50_000
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def mutate_tree(tree: object, rng: random.Random) -> None:
    """Give a node of a tree of lists and dictionaries another value, remove it, or give it a new neighbour."""
    for _ in range(rng.choice([1, 1, 2])):
        path = rng.choice(list(_paths(tree)))
        if not path:
            continue
        parent = tree
        for key in path[:-1]:
            parent = parent[key]
        choice = rng.random()
        if choice < 0.15:
            del parent[path[-1]]
        elif choice < 0.3 and isinstance(parent, dict):
            parent[rng.choice(["x", "", "__class__", "\x1b[0m", "k" * 3000])] = _plain_value(rng)
        else:
            parent[path[-1]] = _plain_value(rng)


def mutated_value(value: object, rng: random.Random) -> object:
    """Return another value for a parameter, mostly of another type or size."""
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.4:
        return rng.choice([value * -1, value + 1, value / 3, value * 1000, float(value), str(value), [value]])
    return copy.deepcopy(rng.choice(VALUES))


def _plain_value(rng: random.Random) -> object:
    plain = [v for v in VALUES if isinstance(v, str | int | float | list | dict | None) and not isinstance(v, type)]
    deep: object = 0
    for _ in range(rng.choice([1, 40])):
        deep = [deep]
    return copy.deepcopy(rng.choice([*plain, deep]))  # a mutant of the mutant must not change the list above


def _paths(tree: object, at: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    found = [at]
    items = list(tree.items()) if isinstance(tree, dict) else []
    items += list(enumerate(tree)) if isinstance(tree, list) else []
    for key, item in items[:40]:
        found += _paths(item, (*at, key))
    return found


def _flip(content: bytearray, _: list[bytes], rng: random.Random) -> None:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _set(content: bytearray, _: list[bytes], rng: random.Random) -> None:
    if content:
        content[rng.randrange(len(content))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, 10, 32, 44, rng.randrange(256)])


def _number(content: bytearray, _: list[bytes], rng: random.Random) -> None:
    size = rng.choice([1, 2, 4, 8])
    if len(content) >= size:
        at = rng.randrange(len(content) - size + 1)
        content[at : at + size] = (rng.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "little")


def _cut(content: bytearray, _: list[bytes], rng: random.Random) -> None:
    del content[rng.randrange(len(content) + 1) :]


def _remove(content: bytearray, _: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(content) + 1)
    del content[at : at + rng.choice([1, 2, 8, 64])]


def _repeat(content: bytearray, _: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(content) + 1)
    content[at:at] = content[at : at + rng.choice([1, 4, 32])] * rng.choice([1, 2, 100])


def _insert(content: bytearray, _: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(content) + 1)
    content[at:at] = rng.choice([*WORDS, rng.randbytes(8)])


def _splice(content: bytearray, seeds: list[bytes], rng: random.Random) -> None:
    other = rng.choice(seeds)
    at, there = rng.randrange(len(content) + 1), rng.randrange(len(other) + 1)
    content[at:] = other[there:]


def _text_number(content: bytearray, _: list[bytes], rng: random.Random) -> None:
    found = list(re.finditer(rb"\d+", content[:100_000]))
    if found:
        at = rng.choice(found)
        content[at.start() : at.end()] = rng.choice([*WORDS, *(str(n).encode() for n in NUMBERS)])


_CHANGES = [_flip, _set, _number, _cut, _remove, _repeat, _insert, _splice, _text_number, _number, _set]
