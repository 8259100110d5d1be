"""How the docstrings of felb are read: after the colon of a parameter stands what it is, in words, not a type."""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^(\w[\w, ]*?) : (.+)$")
TYPE = re.compile(r"^(str|int|bool|float|callable)(, optional)?$")
HEADING = re.compile(r"^-{3,}$")


class Words(griffe.Extension):
    """Moves the words after the colon into the description; the type is the annotation's."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = reworded(obj.docstring.value)


def reworded(text: str) -> str:
    """Put what stands after ``name :`` on a line of its own, in the sections of parameters and attributes."""
    lines, inside = text.splitlines(), False
    out: list[str] = []
    for number, line in enumerate(lines):
        if number + 1 < len(lines) and HEADING.match(lines[number + 1]):
            inside = line.strip() in ("Parameters", "Attributes")
        entry = ENTRY.match(line) if inside else None
        if entry and not TYPE.match(entry[2]):
            out += [f"{entry[1]} :", f"    {entry[2]}"]
        else:
            out.append(line)
    return "\n".join(out)
