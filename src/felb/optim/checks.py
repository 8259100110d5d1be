"""Validation of the parameters of the optimisation, under the names of the public API."""

from __future__ import annotations

from felb.errors import InputError


def check_weights(**least: tuple[float, float]) -> None:
    """Raise unless every value (first of the pair) is a number no smaller than the second."""
    for name, (value, smallest) in least.items():
        if not value >= smallest:  # also catches NaN
            raise InputError(f"{name} must be at least {smallest}, got {value}")


MOST_LOCAL_STEPS = 10_000
"""Steps of a client between two rounds; a round of more would not end in any time that the other clients wait for."""


def check_local_steps(steps: int) -> None:
    """Raise unless a client takes at least one step in a round and at most `MOST_LOCAL_STEPS`."""
    if not 1 <= steps <= MOST_LOCAL_STEPS:
        raise InputError(f"local_steps must lie in [1, {MOST_LOCAL_STEPS}], got {steps}")


def check_inertia(beta: float) -> None:
    """Raise unless iPALM converges with this inertia."""
    if not 0 <= beta < 0.5:
        raise InputError(f"inertia must lie in [0, 0.5), got {beta}")
