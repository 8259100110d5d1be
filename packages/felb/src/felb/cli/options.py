"""Options that several commands share."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable
from functools import wraps
from typing import Any, get_args

import click

from felb.privacy import MechanismName, Neighbours, NoisePlace, Unit
from felb.runs import check_result

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

COUNT: dict[str, Any] = {"type": click.IntRange(min=1), "metavar": "N"}
WEIGHT: dict[str, Any] = {"type": click.FloatRange(min=0), "metavar": "X"}
SHARE: dict[str, Any] = {"type": click.FloatRange(0, 1), "metavar": "P"}
DEFAULT_CLIENTS = 10
# Words of tables that are not imported for a help text; a test compares them.
SPLITS = ("even", "uneven", "consecutive")
DISCLOSURE_PRESETS = ("strict", "datashield", "ohdsi", "cms", "opensafely", "none")

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout instead of tables.")
force = click.option("--force", is_flag=True, help="Replace the output if it exists.")
seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="Seed of all random numbers except privacy noise.",
)


class NumberOrMdl(click.IntRange):
    """A number of components, or "mdl" for rank selection by minimum description length."""

    name = "number or mdl"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the word."""
        if value == "auto":
            self.fail("the number is selected by 'mdl', minimum description length; use that word", param, ctx)
        return value if value == "mdl" else super().convert(value, param, ctx)


def _check_stored(ctx: click.Context, argument: click.Parameter, place: str | None) -> str | None:  # noqa: ARG001
    """Return the place of a result; refuse one that is not there before anything slow is imported."""
    if place is not None:
        check_result(place)
    return place


result = click.argument("result", type=click.Path(), callback=_check_stored)
other_result = click.argument("other", type=click.Path(), required=False, callback=_check_stored)
components = click.option(
    "-k",
    "--components",
    "n_components",
    type=NumberOrMdl(min=1),
    metavar="N|mdl",
    default=10,
    show_default=True,
    help="Number of components; mdl selects it by minimum description length (method bmf only).",
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
        help="Convert values above X to 1 and others to 0 (default: values must be 0 or 1).",
    ),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether the first line of a text file holds column names (default: detected).",
    ),
    click.option(
        "--missing",
        type=click.Choice(["error", "unknown", "zero"]),
        help="How to read missing cells (empty, NA, NaN, ?, null): as an error, as unknown cells, which are left out "
        "of all counts (only the method bmf fits such data), or as 0 (default: error).",
    ),
    click.option(
        "--unknown",
        metavar="FILE",
        help="Mask of unknown cells: a data file of the shape of DATA with a 1 for each unknown cell. DATA must have "
        "a 0 there.",
    ),
    click.option(
        "--schema",
        metavar="FILE",
        help="Schema (TOML) that converts raw categories, numbers or events to 0/1 features; see `felb schema`.",
    ),
)


def reading_of(parameters: dict[str, Any]) -> dict[str, Any]:
    """Take the options of `reading` out of a command's parameters; return them as keywords of a job."""
    found = {name: parameters.pop(name) for name in ("header", "binarize_threshold", "missing", "unknown")}
    return {**found, "missing": found["missing"] or "error"}


dask = together(
    click.option(
        "--dask",
        metavar="ADDRESS",
        help="Address of a Dask scheduler, for example tcp://host:8786, whose workers fit the data; local starts a "
        "cluster on this machine.",
    ),
    click.option(
        "--block-rows", help="With --dask, maximum number of rows per block of a .felb file (default: 262144).", **COUNT
    ),
)

limits = together(
    click.option(
        "--max-rows",
        help="Maximum number of rows (default: 10 million, or the size of the file in bytes if that is larger).",
        **COUNT,
    ),
    click.option(
        "--max-columns",
        help="Maximum number of columns (default: 1 million, or the size of the file in bytes if that is larger).",
        **COUNT,
    ),
    click.option("--max-line", help="Maximum length of a line of a text file in bytes (default: 16 MiB).", **COUNT),
    click.option(
        "--max-expansion", help="Maximum number of decompressed bytes per byte of the file (default: 64).", **COUNT
    ),
)

client_column_left_out = click.option(
    "--client-column",
    metavar="NAME",
    help="Column with the name of the client of each row; it is not used as a feature.",
)
client_column_of_data = click.option(
    "--client-column", metavar="NAME", help="Column of the data with the name of the client of each row."
)
split = click.option(
    "--split",
    type=click.Choice(SPLITS),
    default="even",
    show_default=True,
    help="How rows are split: at random into parts of equal (even) or random size (uneven), or into consecutive "
    "blocks (consecutive).",
)
clients = together(
    click.option(
        "--clients", help=f"Number of clients among which the rows are split (default: {DEFAULT_CLIENTS}).", **COUNT
    ),
    split,
    click.option(
        "--client-column",
        metavar="NAME",
        help="Column with the name of the client of each row; replaces --clients and --split.",
    ),
)


def count_of(clients: int | None, client_column: str | None) -> int | None:
    """Return the number of clients that the options of `clients` say, None if a column says it."""
    return DEFAULT_CLIENTS if clients is None and client_column is None else clients


weights = together(
    click.option("--l1", help="L1 weight κ of the regularizer.", **WEIGHT),
    click.option("--l2", help="L2 weight λ of the regularizer in the first round.", **WEIGHT),
    click.option("--l2-rate", help="Factor by which λ grows per round.", **WEIGHT),
    click.option(
        "--inertia", type=click.FloatRange(0, 0.5, max_open=True), metavar="X", help="Inertia β of the proximal steps."
    ),
)

time_limit = click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit after which the best result so far is returned (default: none). For the method bmf, centralized "
    "methods, and post-hoc methods, which apply it at each client.",
)


def disclosure(default: str) -> Decorator:
    """Return the option of the disclosure rules; a command states which rules apply without it."""
    return click.option(
        "--disclosure",
        type=click.Choice(DISCLOSURE_PRESETS),
        help="Disclosure rules for sums without noise, such as the minimum number of records of a component and of "
        f"sites (default: {default}).",
    )


def read_parameters(ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return NAME=VALUE pairs as a dictionary; a value is JSON, inf or a string."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", ctx, option)
        try:
            found[name] = math.inf if value == "inf" else json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value  # not JSON: a string
    return found


param = click.option(
    "-p",
    "--param",
    "others",
    multiple=True,
    metavar="NAME=VALUE",
    callback=read_parameters,
    help="Another parameter of the method, for example tau=0.9; can be repeated.",
)


def given(**values: Any) -> dict[str, Any]:
    """Return the parameters that are not None; methods have their own defaults for the others."""
    return {name: value for name, value in values.items() if value is not None}


def methods(*names_and_summaries: tuple[str, str]) -> str:
    """Return the list of methods that ends a help text, in lines that click leaves as they are."""
    lines = ["Options without a default use the default of the method.", "", "\b", "Methods:"]
    for name, summary in names_and_summaries:
        lines.append(textwrap.fill(summary, 76, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12))
    return "\n".join(lines)


POSITIVE = click.FloatRange(min=0, min_open=True)
PRIVACY_CHOICES = {
    "mechanism": (MechanismName, "Privacy mechanism (default: cooccurrence; uploads with --unit client)."),
    "noise": (
        NoisePlace,
        "Whether each client adds the full noise (client), or only a share of it (distributed; needs secure "
        "aggregation) (default: client).",
    ),
    "unit": (Unit, "Protected unit (default: that of the mechanism)."),
    "neighbours": (Neighbours, "Neighbouring data sets: one unit added or removed, or replaced (default: add_remove)."),
}


def privacy_spec(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which receives ``privacy``: keywords of `felb.privacy.Privacy`, or None."""

    @wraps(function)
    def command(*, epsilon: float | None, delta: float | None, bounds: dict[str, Any], **others: Any) -> Any:
        chosen = {name: others.pop(name) for name in PRIVACY_CHOICES}
        privacy = given(epsilon=epsilon, delta=delta, **chosen) | bounds
        return function(privacy=privacy or None, **others)

    return together(
        click.option(
            "--epsilon", type=POSITIVE, metavar="X", help="Privacy budget: total ε of the run (default: no privacy)."
        ),
        click.option(
            "--delta", type=POSITIVE, metavar="X",
            help="Total δ of the run (default: 1/(10 × number of records), at most 1e-5).",
        ),
        *(click.option(f"--{name}", type=click.Choice(get_args(kind)), help=text)
          for name, (kind, text) in PRIVACY_CHOICES.items()),
        click.option(
            "--privacy",
            "bounds",
            multiple=True,
            metavar="NAME=VALUE",
            callback=read_parameters,
            help="Another parameter of the privacy specification, for example row_bound=20; can be repeated.",
        ),
    )(command)  # fmt: skip
