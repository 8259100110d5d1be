"""The command line: one file per verb; parse, call one library function, print."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from felb._version import __version__
from felb.errors import FelbError

VERBS = {
    "fit": "factorize pooled data",
    "simulate": "factorize data split among simulated clients",
    "score": "score a result on data",
    "show": "show the components of a result by name",
    "generate": "write planted data with a known answer",
}
INTERRUPTED = 130


class LazyGroup(click.Group):
    """Loads a verb's module when that verb is called, so that ``felb --help`` is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the verbs in the order they are used."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"felb.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="felb")
def felb() -> None:
    """Boolean matrix factorization of data that may not be shared.

    Explains a 0/1 matrix (records x features) by a few components: a record has a feature if one of its components
    has it. The records may be split among clients; only the components are shared.
    """


def main(args: list[str] | None = None) -> None:
    """Run the command line; an error a user can act on is printed without a traceback."""
    try:
        outcome: Any = felb.main(args=args, prog_name="felb", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except FelbError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt as error:
        click.echo(f"interrupted{': ' + str(error) if str(error) else ''}", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except (OSError, MemoryError) as error:
        click.echo(f"error: {error or type(error).__name__}", err=True)
        sys.exit(1)
    sys.exit(outcome if isinstance(outcome, int) else 0)
