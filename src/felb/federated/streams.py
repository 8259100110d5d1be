"""Random streams that are the same on every engine: one per purpose, round and client."""

from __future__ import annotations

import hashlib

import numpy as np

SAMPLING_STREAM, CLIENT_STREAM, NOISE_STREAM, RESAMPLE_STREAM = 1, 2, 3, 4
"""Purposes of streams: client sampling, the steps of a client, the noise of its gate, bootstrap samples of its rows."""


def random_stream(seed: int, purpose: int, round_: int, name: str = "") -> np.random.Generator:
    """Return the stream of a purpose, round and client; a round that is played again draws the same numbers."""
    client = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, round_, client)))
