"""Errors that a user can act on; each message says what was wrong and what to do."""

from __future__ import annotations

from typing import NoReturn


class FelbError(Exception):
    """Base of every error felb raises on purpose; the command line prints it without a traceback."""


class InputError(FelbError, ValueError):
    """The data or a parameter is not usable as given."""


class MissingExtraError(FelbError, ImportError):
    """An optional dependency is needed for what was asked."""


class FederationError(FelbError, RuntimeError):
    """A round could not be completed, for example because too few clients answered."""


class PrivacyError(FelbError, RuntimeError):
    """A release was refused, because it is not protected or would cost more than was agreed."""


class ConvergenceWarning(UserWarning):
    """The result is usable but not what was hoped for: collapsed, or not yet Boolean."""


class SchemaWarning(UserWarning):
    """The data holds values that its schema does not list and that were left out, as the schema says."""


def missing_extra(what: str, extra: str, cause: ImportError) -> NoReturn:
    """Raise the error that names the extra to install."""
    raise MissingExtraError(f"{what} needs an optional package: pip install 'felb[{extra}]'") from cause
