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


def missing_extra(what: str, extra: str, cause: ImportError) -> NoReturn:
    """Raise the error that names the extra to install."""
    raise MissingExtraError(f"{what} needs an optional package: pip install 'felb[{extra}]'") from cause


LONGEST_WORD = 200
"""Characters of somebody else's text that a message repeats."""


def shortened(text: object, longest: int = LONGEST_WORD) -> str:
    """Return the first line of a text from outside, printable and not too long, to be part of a message."""
    first = str(text).strip().partition("\n")[0] or type(text).__name__
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in first[: longest + 1])
    return shown if len(shown) <= longest else shown[:longest] + "..."
