"""Who plays a round: a sample of the clients, dropouts, late joiners; and the random numbers of each of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import FederationError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.federated.protocol import Request

SAMPLING_STREAM, CLIENT_STREAM, NOISE_STREAM, RESAMPLE_STREAM = 1, 2, 3, 4
"""Purposes of streams: client sampling, the steps of a client, the noise of its gate, bootstrap samples of its rows."""

MAX_ATTEMPTS = 20
"""How often a round is called again when too few clients answer."""


@dataclass(frozen=True, slots=True)
class Participation:
    """Who plays a round.

    Parameters
    ----------
    fraction : share of the clients asked in a round (at least one)
    dropout : probability that a client that was asked does not answer
    quorum : a round counts if at least this many answer, or all that were asked if these are fewer; with it, a client
        that raises an error is left out of the round (with a warning) instead of ending the run
    joins : first round of each client that is not there from the start, by its name; until then it is not asked for
        anything, from then on it is one of all, with a state that starts there

    Examples
    --------
    >>> import felb
    >>> some = felb.Participation(0.5, dropout=0.1, quorum=2)
    >>> felb.FELB(n_components=5, participation=some).sampled
    True
    """

    fraction: float = 1.0
    dropout: float = 0.0
    quorum: int | None = None
    joins: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction of clients must lie in (0, 1], got {self.fraction}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.quorum is not None and self.quorum < 1:
            raise InputError(f"quorum must be at least 1, got {self.quorum}")
        for name, first in self.joins.items():
            if not isinstance(first, int) or first < 0:
                raise InputError(f"{name} must join in a round, counted from 0, got {first!r}")

    def check_names(self, names: list[str]) -> None:
        """Raise if clients are to join that do not exist, or if none is there at the start."""
        strangers = sorted(set(self.joins) - set(names))
        if strangers:
            raise InputError(f"there is no client {strangers[0]!r} that could join; the clients are {', '.join(names)}")
        if names and min(self.joins.get(name, 0) for name in names) > 0:
            raise InputError("all clients join later; a run needs at least one from round 0 on")

    def answering(self, names: list[str], request: Request, *, seed: int) -> tuple[list[str], list[str]]:
        """Draw who answers a request and who was asked in vain; repeated until a quorum answers."""
        names = [name for name in names if self.joins.get(name, 0) <= request.round]
        if request.all_clients:
            return names, []
        rng = random_stream(seed, SAMPLING_STREAM, request.round)
        count = max(1, round(self.fraction * len(names)))
        needed = min(self.quorum or 1, count)
        for _ in range(MAX_ATTEMPTS):
            asked = sorted(rng.choice(len(names), count, replace=False))
            lost = rng.random(count) < self.dropout
            if count - lost.sum() >= needed:
                return (
                    [names[i] for i, gone in zip(asked, lost, strict=True) if not gone],
                    [names[i] for i, gone in zip(asked, lost, strict=True) if gone],
                )
        raise FederationError(
            f"round {request.round}: fewer than {needed} of {count} clients answered, {MAX_ATTEMPTS} times in a row; "
            "lower the quorum or the dropout"
        )


def random_stream(seed: int, purpose: int, round_: int, name: str = "") -> np.random.Generator:
    """Return the random stream of a purpose, round and client.

    It is the same on every transport, and a round that is played again draws the same numbers.
    """
    client = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, round_, client)))
