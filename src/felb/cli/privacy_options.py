"""The options by which verbs agree on privacy."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, get_args

import click

from felb.cli import options
from felb.privacy.cost import Neighbours, Unit
from felb.privacy.spec import MechanismName, NoisePlace

if TYPE_CHECKING:
    from collections.abc import Callable

POSITIVE = click.FloatRange(min=0, min_open=True)
CHOICES = {
    "mechanism": (MechanismName, "What is released with noise (default: cooccurrence)."),
    "noise": (NoisePlace, "Where enough noise is added (default: client)."),
    "unit": (Unit, "Whose presence is hidden (default: record)."),
    "neighbours": (Neighbours, "Data that may not be told apart (default: add_remove)."),
}


def spec(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a verb, which then gets ``privacy``, keywords of `felb.privacy.Privacy` or None."""

    @wraps(function)
    def verb(*, epsilon: float | None, delta: float | None, bounds: dict[str, Any], **others: Any) -> Any:
        chosen = {name: others.pop(name) for name in CHOICES}
        privacy = options.given(epsilon=epsilon, delta=delta, **chosen) | bounds
        return function(privacy=privacy or None, **others)

    return options.together(
        click.option("--epsilon", type=POSITIVE, metavar="X", help="Total ε: add noise and guarantee privacy."),
        click.option("--delta", type=POSITIVE, metavar="X", help="Total δ (default: at most a tenth of 1/records)."),
        *(click.option(f"--{name}", type=click.Choice(get_args(kind)), help=text)
          for name, (kind, text) in CHOICES.items()),
        click.option(
            "--privacy",
            "bounds",
            multiple=True,
            metavar="NAME=VALUE",
            callback=options.read_parameters,
            help="Any other term of privacy, e.g. row_bound=20; may be repeated.",
        ),
    )(verb)  # fmt: skip
