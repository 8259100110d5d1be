"""The options of the privacy specification."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, get_args

import click

from felb.choices import MechanismName, NoisePlace
from felb.cli import options
from felb.privacy.cost import Neighbours, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

POSITIVE = click.FloatRange(min=0, min_open=True)
CHOICES = {
    "mechanism": (MechanismName, "Privacy mechanism (default: cooccurrence; uploads with --unit client)."),
    "noise": (
        NoisePlace,
        "Whether each client adds the full noise (client), or only a share of it (distributed; needs secure "
        "aggregation) (default: client).",
    ),
    "unit": (Unit, "Protected unit (default: that of the mechanism)."),
    "neighbours": (Neighbours, "Neighbouring data sets: one unit added or removed, or replaced (default: add_remove)."),
}


def spec(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which receives ``privacy``: keywords of `felb.privacy.Privacy`, or None."""

    @wraps(function)
    def command(*, epsilon: float | None, delta: float | None, bounds: dict[str, Any], **others: Any) -> Any:
        chosen = {name: others.pop(name) for name in CHOICES}
        privacy = options.given(epsilon=epsilon, delta=delta, **chosen) | bounds
        return function(privacy=privacy or None, **others)

    return options.together(
        click.option(
            "--epsilon", type=POSITIVE, metavar="X", help="Privacy budget: total ε of the run (default: no privacy)."
        ),
        click.option(
            "--delta", type=POSITIVE, metavar="X", help="Total δ of the run (default: 1/(10 records), at most 1e-5)."
        ),
        *(click.option(f"--{name}", type=click.Choice(get_args(kind)), help=text)
          for name, (kind, text) in CHOICES.items()),
        click.option(
            "--privacy",
            "bounds",
            multiple=True,
            metavar="NAME=VALUE",
            callback=options.read_parameters,
            help="Another parameter of the privacy specification, for example row_bound=20; can be repeated.",
        ),
    )(command)  # fmt: skip
