"""Validation of the parameters of the optimisation, under the names of the public API."""

from __future__ import annotations

from felb.errors import InputError


def check_weights(**least: tuple[float, float]) -> None:
    """Raise unless every value (first of the pair) is a number no smaller than the second."""
    for name, (value, smallest) in least.items():
        if not value >= smallest:  # also catches NaN
            raise InputError(f"{name} must be at least {smallest}, got {value}")


def check_inertia(beta: float) -> None:
    """Raise unless iPALM converges with this inertia."""
    if not 0 <= beta < 0.5:
        raise InputError(f"inertia must lie in [0, 0.5), got {beta}")
