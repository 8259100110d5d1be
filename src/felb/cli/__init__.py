"""The command line: one file per verb; parse, call one library function, print."""

from __future__ import annotations

import re
import signal
import sys
import threading
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from felb._version import __version__
from felb.errors import FelbError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

VERBS = {
    "fit": "factorize pooled data",
    "simulate": "factorize data split among simulated clients",
    "score": "score a result on data",
    "show": "show a result: its components by name, its data, its rounds",
    "report": "make a page of a result that opens in any browser",
    "privacy": "show what left and what was guaranteed; plan a guarantee",
    "schema": "make 0/1 features of raw tables by agreed rules",
    "convert": "write data of any size as a file that is used from disk",
    "generate": "write planted data with a known answer",
    "data": "list public data sets and load their raw files",
    "experiment": "run the experiments of the paper, and show their figures",
    "federation": "found a federation of several sites and run its server",
    "site": "take part in a federation as a site that keeps its data",
    "run": "play a run over the sites of a federation",
    "status": "show the sites and runs of a federation",
}
MODULES = {
    "schema": "felb.cli.schema_commands",
    "data": "felb.paper.commands.data_sets",
    "experiment": "felb.paper.commands.experiment",
}
"""Verbs that stand in a file of another name; those of the paper nothing but this table knows."""
EPILOG = """\b
Start with a data set that comes with felb:
  felb simulate zoo --clients 4 -k 5 -o zoo-result
  felb show zoo-result

\b
Exit codes:
  0    done
  1    data, a file or a parameter is not usable; the message says what to do
  2    the command line is not understood
  130  interrupted (Ctrl-C); 143 terminated, 129 terminal closed
"""
FAILED = 1


class LazyGroup(click.Group):
    """Loads a verb's module when that verb is called, so that ``felb --help`` is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the verbs in the order they are used."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(MODULES.get(cmd_name, f"felb.cli.{cmd_name}")).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="felb")
def felb() -> None:
    """Boolean matrix factorization of data that may not be shared.

    Explains a 0/1 matrix (records x features) by a few components: a record has a feature if one of its components
    has it. The records may be split among clients; only the components are shared.
    """


class Stopped(KeyboardInterrupt):
    """Another signal than Ctrl-C's asks to stop; handled alike, so that progress is kept."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line; an error a user can act on is printed without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a name the terminal cannot show is no reason to fail
    try:
        with stopping_on_signals():
            outcome: Any = felb.main(args=args, prog_name="felb", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        cause = error.__cause__ or error  # click wraps the interruption
        tell("interrupted", cause)
        sys.exit(128 + (cause.number if isinstance(cause, Stopped) else signal.SIGINT))
    except FelbError as error:
        tell(f"error: {in_options(str(error))}", error)
        sys.exit(FAILED)
    except MemoryError as error:
        tell("error: there is not enough memory; try fewer workers, or a larger machine", error)
        sys.exit(FAILED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        tell(f"error: {where}{error.strerror or error}; check the path, its permissions and the free space", error)
        sys.exit(FAILED)
    sys.exit(outcome if isinstance(outcome, int) else 0)


def tell(message: str, error: BaseException) -> None:
    """Say on stderr what happened, and what was noted on the way about how to go on."""
    click.echo("; ".join([message, *getattr(error, "__notes__", ())]), err=True)


def in_options(message: str) -> str:
    """Speak of options where the library speaks of its keywords: ``header=False`` is ``--no-header`` here."""
    message = message.replace("header=False", "--no-header").replace("header=True", "--header")
    message = message.replace("force=True", "--force").replace("any_shape=True", "--any-shape")
    message = message.replace(
        "make zeros of them: X.with_unknown(None)", "make zeros of them: --missing zero, no --unknown"
    )
    message = message.replace("(method 'bmf')", "(--method bmf)")
    message = re.sub(r"\b(mechanism|noise|unit|neighbours|missing)='(\w+)'", r"--\1 \2", message)
    return re.sub(
        r"\b(binarize_threshold|client_column|header|missing|unknown)= ?",
        lambda found: f"--{found[1].replace('_', '-')} ",
        message,
    ).rstrip()


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Let a polite request to end (from a container, or a closed terminal) stop a run as Ctrl-C does."""

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
