"""The command line: one file per command; parse, call one library function, print."""

from __future__ import annotations

import difflib
import os
import re
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NoReturn

import click

from felb._version import __version__
from felb.errors import FelbError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

COMMANDS = {
    "fit": ("factorize centralized data", "felb.cli.fitting:fit_command"),
    "simulate": ("factorize data split among simulated clients", "felb.cli.fitting:simulate_command"),
    "apply": ("assign new records to the components of a result, and show drift", "felb.cli.results:apply_command"),
    "score": ("score a result on data", "felb.cli.results:score_command"),
    "certify": ("prove a lower bound on the errors of small data", "felb.cli.results:certify_command"),
    "show": ("show a result: components, scores and provenance", "felb.cli.results:show_command"),
    "report": ("write a self-contained HTML page of a result", "felb.cli.results:report_command"),
    "interpret": ("interpret components: lift, labels, sets and rules", "felb.cli.results:interpret_command"),
    "stability": ("measure how often refits find the same components", "felb.cli.analysis:stability_command"),
    "choose-k": ("choose the number of components by held-out cells", "felb.cli.analysis:choose_k_command"),
    "compare": ("compare methods on data; write tables and an HTML page", "felb.cli.methods:compare_command"),
    "cite": ("print the references of a method as BibTeX", "felb.cli.methods:cite_command"),
    "privacy": ("show releases and guarantees, and the noise of a guarantee", "felb.cli.privacy:privacy_command"),
    "schema": ("define how raw tables become binary features", "felb.cli.data:schema_command"),
    "convert": ("convert a data file to .felb, which is memory-mapped", "felb.cli.data:convert_command"),
    "generate": ("generate synthetic data with planted components", "felb.cli.data:generate_command"),
}
"""Help and place of each command; its module is imported when it is called."""
GROUP = "felb.commands"
"""Entry points by which other distributions add commands: a mapping like `COMMANDS`."""
EPILOG = """\b
Start with a data set that comes with felb:
  felb simulate zoo --clients 4 -k 5 -o zoo-result
  felb show zoo-result

\b
Exit codes:
  0    done
  1    data, a file or a parameter is not valid; the message says what to do
  2    the command line is not valid
  3    the run is finished, but a site has missed rounds (felb run)
  130  interrupted (Ctrl-C); 143 terminated, 129 terminal closed
  141  nobody reads the output any more (felb show RESULT | head -1)
"""
FAILED, PIPE = 1, 13
"""Exit code of an error; number of the signal that other tools die of when nobody reads their output."""
OPTIONS = {"header": "--header/--no-header", "n_components": "--components", "label_column": "--labels"}
"""Options of parameters that do not have the same name."""


class LazyGroup(click.Group):
    """Imports the module of a command when that command is called, so that ``felb --help`` is fast."""

    @cached_property
    def places(self) -> dict[str, tuple[str, str]]:
        """Help and place of each command, of felb and of the distributions that add to it."""
        added = {name: entry for point in entry_points(group=GROUP) for name, entry in point.load().items()}
        return {**COMMANDS, **dict(sorted(added.items()))}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the commands in the order of the help text."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of the command."""
        places = COMMANDS if cmd_name in COMMANDS else self.places
        if cmd_name not in places:
            return None
        module, _, attribute = places[cmd_name][1].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in self.places.items()])


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="felb")
def felb() -> None:
    """Boolean matrix factorization of data that may not be shared.

    Approximates a 0/1 matrix (records x features) by a few components, which are sets of features. A record has a
    feature if one of its components has it. The records may be split among clients, which send sums over
    their records, but never the records themselves.
    """


class Stopped(KeyboardInterrupt):
    """SIGTERM or SIGHUP was received; handled like Ctrl-C, so that progress is kept."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line; an error a user can act on is printed without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # characters that the terminal cannot show must not fail the command
    output = sys.stdout
    try:
        with stopping_on_signals():
            outcome: Any = felb.main(args=args, prog_name="felb", standalone_mode=False)
    except click.ClickException as error:
        suggest_command(error).show()
        sys.exit(error.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        cause = error.__cause__ or error  # click wraps the interruption
        tell("interrupted", cause)
        sys.exit(128 + (cause.number if isinstance(cause, Stopped) else signal.SIGINT))
    except FelbError as error:
        tell(f"error: {error}{option_of(error)}", error)
        sys.exit(FAILED)
    except MemoryError as error:
        tell("error: not enough memory; use fewer workers or a larger machine", error)
        sys.exit(FAILED)
    except SystemExit as error:
        # Who reads the output has enough: click replaces the stream, and rich ends on the error.
        if sys.stdout is not output or isinstance(error.__context__, BrokenPipeError):
            silence_output()
            sys.exit(128 + PIPE)
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        tell(f"error: {where}{error.strerror or error}; check the path, its permissions and the free space", error)
        sys.exit(FAILED)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_output()
        sys.exit(128 + PIPE)
    except OSError as error:
        silence_output()
        tell(f"error: the output cannot be written: {error.strerror or error}", error)
        sys.exit(FAILED)
    sys.exit(outcome if isinstance(outcome, int) else 0)


def silence_output() -> None:
    """Let nothing more be written to stdout, so that Python does not fail again when it ends."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())


def suggest_command(error: click.ClickException) -> click.ClickException:
    """Return the error about a command that does not exist with the one that may have been meant."""
    ctx = getattr(error, "ctx", None)
    found = re.match(r"No such command '(.*)'\.$", error.message)
    if found is None or ctx is None or not isinstance(ctx.command, click.Group):
        return error
    close = difflib.get_close_matches(found[1], ctx.command.list_commands(ctx), n=1)
    if not close or "Did you mean" in error.format_message():  # newer versions of click say it of loaded commands
        return error
    return click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx)


def tell(message: str, error: BaseException) -> None:
    """Print a message and the notes of the exception on stderr."""
    click.echo(printable("; ".join([message, *getattr(error, "__notes__", ())])), err=True)


def option_of(error: FelbError) -> str:
    """Return the option of the parameter that an error names, as text to append; empty if there is none."""
    name = error.parameter
    return f" (option {OPTIONS.get(name, '--' + name.replace('_', '-'))})" if name is not None else ""


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Handle SIGTERM (from a container) and SIGHUP (closed terminal) like Ctrl-C."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
        raise Stopped(number)

    wanted = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        wanted = []  # Python lets only the main thread choose
    # What was set to be ignored (nohup) stays ignored.
    before = {number: signal.getsignal(number) for number in wanted if signal.getsignal(number) is signal.SIG_DFL}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
