"""The toy of the introduction: a picture that five clients hold, each under noise of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.paper.experiment_cells import InvaderData

SPRITE = (
    "..#.....#..",
    "...#...#...",
    "..#######..",
    ".##.###.##.",
    "###########",
    "#.#######.#",
    "#.#.....#.#",
    "...##.##...",
)


def invader(scale: int) -> NDArray[np.bool_]:
    """Return the picture with a margin of one sprite pixel, each of them `scale` × `scale` cells."""
    cells = np.pad(np.array([[mark == "#" for mark in row] for row in SPRITE]), 1)
    return np.asarray(np.kron(cells, np.ones((scale, scale), dtype=bool)))


def invader_clients(data: InvaderData, clients: int, *, seed: int) -> tuple[list[NDArray[np.bool_]], NDArray[np.bool_]]:
    """Return each client's picture under additive noise (0 → 1), and the picture itself."""
    signal = invader(data.scale)
    streams = np.random.SeedSequence(seed).spawn(clients)
    return [signal | (np.random.default_rng(stream).random(signal.shape) < data.noise) for stream in streams], signal


def picture(matrix: NDArray[Any]) -> list[str]:
    """Write a binary matrix as rows of 0 and 1."""
    return ["".join("1" if cell else "0" for cell in row) for row in matrix]
