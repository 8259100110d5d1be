"""Options that several commands share, and one short way to declare them."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, get_args

import click

from felb.federated.algorithms.registry import DEFAULT
from felb.privacy import MechanismName, Neighbours, NoisePlace, Unit
from felb.runs import check_result

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

COUNT: dict[str, Any] = {"type": click.IntRange(min=1), "metavar": "N"}
NATURAL: dict[str, Any] = {"type": click.IntRange(min=0), "metavar": "N"}
WEIGHT: dict[str, Any] = {"type": click.FloatRange(min=0), "metavar": "X"}
POSITIVE: dict[str, Any] = {"type": click.FloatRange(min=0, min_open=True), "metavar": "X"}
SECONDS: dict[str, Any] = {**POSITIVE, "metavar": "SECONDS"}
SHARE: dict[str, Any] = {"type": click.FloatRange(0, 1), "metavar": "P"}
PATH: dict[str, Any] = {"type": click.Path()}
FLAG: dict[str, Any] = {"is_flag": True}
SEVERAL: dict[str, Any] = {"multiple": True}
DEFAULT_CLIENTS = 10
# Words of tables that are not imported for a help text; a test compares them.
SPLITS = ("even", "uneven", "consecutive")
DISCLOSURE_PRESETS = ("strict", "datashield", "ohdsi", "cms", "opensafely", "none")


def option(
    names: str, text: str, kind: str | tuple[str, ...] | Mapping[str, Any] = FLAG, default: Any = None, **more: Any
) -> Decorator:
    """Return an option.

    Parameters
    ----------
    names : as click takes them, with spaces between: "-k --components n_components"
    text : for the help
    kind : the metavar of any text; or a tuple of choices; or keywords of click, such as `COUNT`
    default : shown in the help
    more : further keywords of click
    """
    if not isinstance(kind, Mapping):
        kind = {"metavar": kind} if isinstance(kind, str) else {"type": click.Choice(kind)}
    shown = {} if default is None else {"default": default, "show_default": True}
    return click.option(*names.split(), help=text, **{**kind, **shown, **more})


def together(*options: Decorator) -> Decorator:
    """Apply several options as one decorator, first one shown first."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(options):
            function = each(function)
        return function

    return decorate


class NumberOrMdl(click.IntRange):
    """A number of components, or "mdl" for rank selection by minimum description length."""

    name = "number or mdl"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the word."""
        if value == "auto":
            self.fail("the number is selected by 'mdl', minimum description length; use that word", param, ctx)
        return value if value == "mdl" else super().convert(value, param, ctx)


def _stored(name: str, *, required: bool = True) -> Decorator:
    """Return the argument of a result; one that is not there is refused before anything slow is imported."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(**parameters: Any) -> Any:
            if parameters[name] is not None:
                check_result(parameters[name])
            return function(**parameters)

        return click.argument(name, required=required, **PATH)(command)

    return decorate


result = _stored("result")
other_result = _stored("other", required=False)
as_json = option("--json as_json", "Print JSON to stdout instead of tables.")
force = option("--force", "Replace the output if it exists.")
seed = option("--seed", "Seed of all random numbers except privacy noise.", NATURAL, 0)
components = option(
    "-k --components n_components",
    "Number of components; mdl selects it by minimum description length (method bmf only).",
    {"type": NumberOrMdl(min=1), "metavar": "N|mdl"},
    10,
)
method = option("--method", "Method; see the list below.", "METHOD", DEFAULT)
reading = together(
    option(
        "--binarize-threshold",
        "Convert values above X to 1 and others to 0 (default: values must be 0 or 1).",
        {"type": float, "metavar": "X"},
    ),
    option(
        "--header/--no-header",
        "Whether the first line of a text file holds column names (default: detected).",
        {"default": None},
    ),
    option(
        "--missing",
        "How to read missing cells (empty, NA, NaN, ?, null): as an error, as unknown cells, which are left out "
        "of all counts (only the method bmf fits such data), or as 0 (default: error).",
        ("error", "unknown", "zero"),
    ),
    option(
        "--unknown",
        "Mask of unknown cells: a data file of the shape of DATA with a 1 for each unknown cell. DATA must have "
        "a 0 there.",
        "FILE",
    ),
    option(
        "--schema",
        "Schema (TOML) that converts raw categories, numbers or events to 0/1 features; see `felb schema`.",
        "FILE",
    ),
)
data_of_run = option(
    "--data", "Data of the run (default: the file with the name that the run has stored, if it is found).", "FILE"
)
client_column_left_out = option(
    "--client-column", "Column with the name of the client of each row; it is not used as a feature.", "NAME"
)
record_column = option(
    "--record-column",
    "Column with the names of the records; it is not a feature, and assignments are named by it.",
    "NAME",
)
client_column_of_data = option("--client-column", "Column of the data with the name of the client of each row.", "NAME")
split = option(
    "--split",
    "How rows are split: at random into parts of equal (even) or random size (uneven), or into consecutive "
    "blocks (consecutive).",
    SPLITS,
    "even",
)
clients = together(
    option("--clients", f"Number of clients among which the rows are split (default: {DEFAULT_CLIENTS}).", COUNT),
    split,
    option(
        "--client-column", "Column with the name of the client of each row; replaces --clients and --split.", "NAME"
    ),
)


def count_of(clients: int | None, client_column: str | None) -> int | None:
    """Return the number of clients that the options of `clients` say, None if a column says it."""
    return DEFAULT_CLIENTS if clients is None and client_column is None else clients


weights = together(
    option("--l1", "L1 weight κ of the regularizer.", WEIGHT),
    option("--l2", "L2 weight λ of the regularizer in the first round.", WEIGHT),
    option("--l2-rate", "Factor by which λ grows per round.", WEIGHT),
    option("--inertia", "Inertia β of the proximal steps.", WEIGHT, type=click.FloatRange(0, 0.5, max_open=True)),
)
time_limit = option(
    "--time-limit",
    "Time limit after which the best result so far is returned (default: none). For the method bmf, centralized "
    "methods, and post-hoc methods, which apply it at each client.",
    SECONDS,
)


def disclosure(default: str) -> Decorator:
    """Return the option of the disclosure rules; a command states which rules apply without it."""
    return option(
        "--disclosure",
        "Disclosure rules for sums without noise, such as the minimum number of records of a component and of "
        f"sites (default: {default}).",
        DISCLOSURE_PRESETS,
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


PAIRS: dict[str, Any] = {**SEVERAL, "metavar": "NAME=VALUE", "callback": read_parameters}
param = option("-p --param others", "Another parameter of the method, for example tau=0.9; can be repeated.", PAIRS)


def given(**values: Any) -> dict[str, Any]:
    """Return the parameters that are not None; methods have their own defaults for the others."""
    return {name: value for name, value in values.items() if value is not None}


def methods(*names_and_summaries: tuple[str, str]) -> str:
    """Return the list of methods that ends a help text, in lines that click leaves as they are."""
    lines = ["Options without a default use the default of the method.", "", "\b", "Methods:"]
    for name, summary in names_and_summaries:
        lines.append(textwrap.fill(summary, 76, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12))
    return "\n".join(lines)


def _privacy_options(epsilon: str, *, noise: bool) -> tuple[Decorator, ...]:
    return (
        option("--epsilon", f"Privacy budget: total ε of the run ({epsilon}).", POSITIVE),
        option("--delta", "Total δ of the run (default: 1/(10 × number of records), at most 1e-5).", POSITIVE),
        option(
            "--mechanism",
            "Privacy mechanism (default: cooccurrence; uploads with --unit client).",
            get_args(MechanismName),
        ),
        *(
            (
                option(
                    "--noise",
                    "Whether each client adds the full noise (client), or only a share of it (distributed; needs "
                    "secure aggregation) (default: client).",
                    get_args(NoisePlace),
                ),
            )
            if noise
            else ()
        ),
        option("--unit", "Protected unit (default: that of the mechanism).", get_args(Unit)),
        option(
            "--neighbours",
            "Neighbouring data sets: one unit added or removed, or replaced (default: add_remove).",
            get_args(Neighbours),
        ),
        option(
            "--privacy bounds",
            "Another parameter of the privacy specification, for example row_bound=20; can be repeated.",
            PAIRS,
        ),
    )


def privacy_spec(epsilon: str = "default: no privacy", *, noise: bool = True) -> Decorator:
    """Add the options to a command, which receives ``privacy``: keywords of `felb.privacy.Privacy`, or None.

    Parameters
    ----------
    epsilon : what happens without a budget, for the help
    noise : whether several clients may share the noise
    """
    names = ("epsilon", "delta", "mechanism", "unit", "neighbours", *(("noise",) if noise else ()))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(*, bounds: dict[str, Any], **others: Any) -> Any:
            privacy = given(**{name: others.pop(name) for name in names}) | bounds
            return function(privacy=privacy or None, **others)

        return together(*_privacy_options(epsilon, noise=noise))(command)

    return decorate
