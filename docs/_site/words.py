"""How the docstrings of felb are read: after the colon of a parameter stands what it is, in words, not a type."""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^(\w[\w, ]*?) : (.+)$")
TYPE = re.compile(r"^(str|int|bool|float|callable)(, optional)?$")
"""Where there is only a type, what the parameter is follows below."""

HEADING = re.compile(r"^-{3,}$")


class Words(griffe.Extension):
    """Moves the words after the colon into the description; the type is the annotation's."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = reworded(obj.docstring.value)


def reworded(text: str) -> str:
    """Put what stands after ``name :`` below the name, in the sections of parameters and attributes.

    Names that share their words get an entry each, because each has a type and a default of its own.
    """
    lines, out, inside, number = text.splitlines(), [], False, 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if number < len(lines) and HEADING.match(lines[number]):
            inside = line.strip() in ("Parameters", "Attributes")
        entry = ENTRY.match(line) if inside else None
        if entry is None or TYPE.match(entry[2]):
            out.append(line)
            continue
        body = [f"    {entry[2]}"]
        while number < len(lines) and lines[number].startswith("    "):
            body.append(lines[number])
            number += 1
        for name in entry[1].split(", "):
            out += [f"{name} :", *body]
    return "\n".join(out)
