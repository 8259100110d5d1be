"""Privacy specification, mechanisms, accountant and outbound log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.late import late_names

if TYPE_CHECKING:
    from felb.privacy.spec import Privacy

__all__ = [
    "Privacy",
]

__getattr__ = late_names(
    __name__,
    {
        "Privacy": "felb.privacy.spec",
    },
)
