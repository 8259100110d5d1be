"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
force = click.option("--force", is_flag=True, help="Replace the output if it exists.")
seed = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Fixes everything random.")
components = click.option(
    "-k", "--components", "n_components", type=int, default=10, show_default=True, help="Number of components."
)


def together(*options: Decorator) -> Decorator:
    """Apply several options as one decorator, first one shown first."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


reading = together(
    click.option(
        "--binarize-threshold", type=float, help="Make ones of values above this; otherwise data must be 0/1."
    ),
    click.option("--header/--no-header", default=None, help="Whether a text file names its columns; else detected."),
)

weights = together(
    click.option("--l1", type=float, help="Weight κ of the regularizer."),
    click.option("--l2", type=float, help="Weight λ of the regularizer."),
    click.option("--l2-rate", type=float, help="Growth of λ per round."),
    click.option("--inertia", type=float, help="Inertia β of the steps."),
)


def given(**values: Any) -> dict[str, Any]:
    """Return the parameters a user has set; methods have their own defaults for the others."""
    return {name: value for name, value in values.items() if value is not None}
