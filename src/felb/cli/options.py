"""Options that several verbs share."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

COUNT: dict[str, Any] = {"type": click.IntRange(min=1), "metavar": "N"}
WEIGHT: dict[str, Any] = {"type": click.FloatRange(min=0), "metavar": "X"}
SHARE: dict[str, Any] = {"type": click.FloatRange(0, 1), "metavar": "P"}

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else to stdout.")
force = click.option("--force", is_flag=True, help="Replace the output if it exists.")
seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="Fixes everything random.",
)


class NumberOrAuto(click.IntRange):
    """A number of components, or "auto" to let the method find it."""

    name = "number or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the method's own word."""
        return "mdl" if value == "auto" else super().convert(value, param, ctx)


components = click.option(
    "-k",
    "--components",
    "n_components",
    type=NumberOrAuto(min=1),
    metavar="N|auto",
    default=10,
    show_default=True,
    help="Number of components; auto finds the one with the shortest description (bmf).",
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
        "--binarize-threshold",
        type=float,
        metavar="X",
        help="Make ones of values above this; otherwise data must be 0/1.",
    ),
    click.option("--header/--no-header", default=None, help="Whether a text file names its columns; else detected."),
    click.option(
        "--missing",
        type=click.Choice(["error", "unknown", "zero"]),
        help="What an empty cell (NA, NaN, ?, null) is; by default an error. Unknown cells count neither way (bmf).",
    ),
    click.option(
        "--unknown", metavar="FILE", help="Data file of the same shape whose ones mark unknown cells; DATA has 0 there."
    ),
    click.option(
        "--schema", metavar="FILE", help="Read raw categories, numbers or events by this schema (felb schema infer)."
    ),
)

client_column_left_out = click.option(
    "--client-column", metavar="NAME", help="Leave out this column, which names each row's client."
)

weights = together(
    click.option("--l1", help="Weight κ of the regularizer.", **WEIGHT),
    click.option("--l2", help="Weight λ of the regularizer.", **WEIGHT),
    click.option("--l2-rate", help="Growth of λ per round.", **WEIGHT),
    click.option(
        "--inertia", type=click.FloatRange(0, 0.5, max_open=True), metavar="X", help="Inertia β of the steps."
    ),
)

time_limit = click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop after this with the best until then; a post-hoc method at each client.",
)


def read_parameters(ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return NAME=VALUE pairs as a table; a value is JSON or a word."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", ctx, option)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value  # a word
    return found


param = click.option(
    "-p",
    "--param",
    "others",
    multiple=True,
    metavar="NAME=VALUE",
    callback=read_parameters,
    help="Any other parameter of the method, e.g. tau=0.9; may be repeated.",
)


def given(**values: Any) -> dict[str, Any]:
    """Return the parameters a user has set; methods have their own defaults for the others."""
    return {name: value for name, value in values.items() if value is not None}


def methods(*names_and_summaries: tuple[str, str]) -> str:
    """Return the list of methods that ends a help text, in lines that click leaves as they are."""
    lines = ["Where no default is shown, every method has its own.", "", "\b", "Methods:"]
    for name, summary in names_and_summaries:
        lines.append(textwrap.fill(summary, 76, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12))
    return "\n".join(lines)
