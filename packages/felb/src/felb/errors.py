"""Errors that a user can act on: each message says what is wrong and what to do."""

from __future__ import annotations

from typing import NoReturn

LONGEST_WORD, LONGEST_MESSAGE = 200, 2000
"""Characters of somebody else's text that a message repeats, and of a message."""


def printable(text: str) -> str:
    """Return a text without control characters other than line ends, which a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(text: object, longest: int = LONGEST_WORD) -> str:
    """Return the first line of a text from outside, printable and not too long, to be part of a message."""
    shown = printable((str(text).strip().partition("\n")[0] or type(text).__name__)[: longest + 1])
    return shown if len(shown) <= longest else shown[:longest] + "..."


class FelbError(Exception):
    """Base class of all errors that felb raises on purpose; the command line prints them without a traceback.

    Names and values of the user's files are part of many messages: control characters are replaced, and of a very long
    message only the beginning and the end are kept.

    Parameters
    ----------
    message : what is wrong and what to do
    parameter : name of the parameter that is not valid, or that solves the problem; the command line shows its option
    """

    def __init__(self, *message: object, parameter: str | None = None) -> None:
        super().__init__(*(_message(word) if isinstance(word, str) else word for word in message))
        self.parameter = parameter


def _message(text: str) -> str:
    half = LONGEST_MESSAGE // 2
    return printable(text if len(text) <= LONGEST_MESSAGE else f"{text[:half]} ... {text[-half:]}")


class InputError(FelbError, ValueError):
    """The data or a parameter is not valid."""


class CellError(InputError):
    """A cell of the data is not valid.

    Parameters
    ----------
    message : what is wrong and what to do; it may repeat the value of the cell
    place : row and column, without any content of the data, for logs
    parameter : see `FelbError`
    """

    def __init__(self, message: str, *, place: str, parameter: str | None = None) -> None:
        super().__init__(message, parameter=parameter)
        self.place = place


def describe_without_values(error: BaseException) -> str:
    """Return what is wrong with data without a word of its content: the place of a cell, or the kind of the error."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, CellError):
        found = found.__cause__ or found.__context__
    if found is not None:
        return f"{found.place} is not valid"
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


class MissingExtraError(FelbError, ImportError):
    """An optional dependency is not installed."""


class FederationError(FelbError, RuntimeError):
    """A round could not be completed, for example because too few clients responded."""


class ConnectionLostError(FederationError):
    """The machines that compute were lost; a run that keeps a journal can go on when they are back."""


class PrivacyError(FelbError, RuntimeError):
    """A release was refused, because it has no noise or would exceed the privacy budget."""


class ConvergenceWarning(UserWarning):
    """The method did not converge: its components are empty or not Boolean yet."""


class SchemaWarning(UserWarning):
    """The data holds values that its schema does not list and that were left out, as the schema says."""


def missing_extra(what: str, extra: str, cause: ImportError) -> NoReturn:
    """Raise an error that names the extra to install."""
    raise MissingExtraError(f"{what} needs an optional package: pip install 'felb[{extra}]'") from cause
