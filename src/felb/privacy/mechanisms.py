"""What is done to a value before it leaves a client, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Mechanism(Protocol):
    """A release returns the value and its cost, so that neither can be had without the other."""

    @property
    def name(self) -> str:
        """The word written to the outbound log."""
        ...

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], float | None]:
        """Return the value as it may leave and the privacy it costs; None means unprotected."""
        ...


@dataclass(frozen=True, slots=True)
class NoNoise:
    """Releases the exact value. Not private: the cost is None, not zero."""

    name: str = "none"

    def release(
        self,
        what: str,  # noqa: ARG002
        value: NDArray[Any],
        *,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> tuple[NDArray[Any], float | None]:
        """Return the value as it is."""
        return value, None
