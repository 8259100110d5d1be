"""How many of n sites a secure sum needs, and how many it withstands."""

from __future__ import annotations

LEAST_SITES, MOST_SITES = 3, 50
"""With two sites a sum tells each the other's value; the work of a site grows with their number."""


def threshold(n: int) -> int:
    """Return t, the smallest number above 2n/3: so many shares open a secret, so many signatures name survivors.

    Examples
    --------
    >>> [threshold(n) for n in (3, 4, 10)]
    [3, 3, 7]
    """
    return 2 * n // 3 + 1


def most_dropouts(n: int) -> int:
    """Return n − t, the most sites that a sum can do without."""
    return n - threshold(n)


def most_colluders(n: int) -> int:
    """Return the most sites that may collude with the server: fewer than the 2t − n that two sets of t share at least.

    A site signs one list of survivors. If all sites that two lists share were colluders, both could get t signatures.
    """
    return 2 * threshold(n) - n - 1
