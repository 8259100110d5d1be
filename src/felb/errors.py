"""Errors that a user can act on: each message says what is wrong and what to do."""

from __future__ import annotations

from typing import NoReturn


class FelbError(Exception):
    """Base class of all errors that felb raises on purpose; the command line prints them without a traceback.

    Parameters
    ----------
    message : what is wrong and what to do
    parameter : name of the parameter that is not valid, or that solves the problem; the command line shows its option
    """

    def __init__(self, *message: object, parameter: str | None = None) -> None:
        super().__init__(*message)
        self.parameter = parameter


class InputError(FelbError, ValueError):
    """The data or a parameter is not valid."""


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


def missing_extra(what: str, extra: str, cause: ImportError) -> NoReturn:
    """Raise an error that names the extra to install."""
    raise MissingExtraError(f"{what} needs an optional package: pip install 'felb[{extra}]'") from cause
