"""Colour, marker and line of each method in the figures of the paper's experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

STYLES = {
    "FELB": ("#D55E00", "o", "-"),
    "FELB-MU": ("#0072B2", "s", "-"),
    "FederatedBMF": ("#111111", "D", "-"),
    "Asso": ("#E69F00", "^", "--"),
    "Asso+or": ("#E69F00", "^", "--"),
    "GreConD": ("#009E73", "v", "--"),
    "MEBF": ("#CC79A7", "P", "--"),
    "Zhang": ("#56B4E9", "X", "--"),
    "ELBMF": ("#8C8C8C", "d", "--"),
}
"""Colour (of Okabe and Ito, told apart by the colour-blind too), marker and line of each method."""

STYLES |= {
    f"{name} aligned": (STYLES[name][0], marker, ":")
    for name, marker in {"Asso": "<", "GreConD": ">", "MEBF": "p", "Zhang": "*", "ELBMF": "h"}.items()
}
STYLES |= {
    "FedNMF": ("#7F3C8D", "o", "-."),
    "FedProx": ("#A04000", "s", "-."),
    "SCAFFOLD": ("#3B6E22", "D", "-."),
    "ProxSkip": ("#2C3E90", "^", "-."),
}

OTHER = ("#8C8C8C", ".", ":")

SETTING = " · "
"""Between a method and how it was run, where one method has several rows."""

MARKERS = ("o", "s", "D", "^", "v", "P")


def method_style(methods: Sequence[str], method: str) -> tuple[str, str, str]:
    """Return the style of a method; "FELB · 10 clients" has the colour of FELB and a marker of its own."""
    if method in STYLES or SETTING not in method:
        return STYLES.get(method, OTHER)
    family = method.split(SETTING)[0]
    number = [other for other in methods if other.split(SETTING)[0] == family].index(method)
    colour, _, line = STYLES.get(family, OTHER)
    return colour, MARKERS[number % len(MARKERS)], line
