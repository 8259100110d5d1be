"""A recipe played where there is no federation: on public rows, by whoever holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.gate import Gate
from felb.federated.messages import Total

if TYPE_CHECKING:
    from felb.federated.server import Outcome, Recipe
    from felb.linalg.binary import BinaryMatrix


def play_alone(recipe: Recipe, A: BinaryMatrix, *, seed: int) -> Outcome:
    """Play a recipe to its end with one client that holds all rows; nothing leaves, so nothing is written down."""
    gate, rng = Gate("alone", lambda _: None), np.random.default_rng(seed)
    state = recipe.server.start(seed)
    own: Any = None
    while (broadcast := recipe.server.broadcast(state)) is not None:
        own, update = recipe.client.step(own, A, broadcast, rng=rng)
        total = Total.of([gate.release(update, broadcast, rng=rng)])
        state = recipe.server.combine(total.values, total.n_clients, state)
    return recipe.server.outcome(state)
