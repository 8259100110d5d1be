"""Federated Boolean matrix factorization."""

from felb._version import __version__

__all__ = ["__version__"]
