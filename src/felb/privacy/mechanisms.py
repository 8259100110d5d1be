"""Privacy mechanisms: the change of a value before it leaves a client, and its cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from felb.privacy.cost import Cost


class Mechanism(Protocol):
    """A release returns the value and its cost, so that neither can be had without the other."""

    @property
    def name(self) -> str:
        """The word written to the outbound log."""
        ...

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Return the value as it may leave and the privacy it costs; None means unprotected.

        A mechanism that does not fit the value raises an `InputError`.
        """
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
    ) -> tuple[NDArray[Any], Cost | None]:
        """Return the value as it is."""
        return value, None


@dataclass(frozen=True, slots=True)
class ByName:
    """Releases each value by the mechanism made for it; a value that has none does not leave."""

    mechanisms: Mapping[str, Mechanism]

    @property
    def name(self) -> str:
        """The distinct names of the mechanisms."""
        return " | ".join(sorted({mechanism.name for mechanism in self.mechanisms.values()}))

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Hand on to the mechanism for `what`, or raise."""
        if what not in self.mechanisms:
            known = ", ".join(sorted(self.mechanisms)) or "nothing"
            raise InputError(f"{what!r} may not leave under this privacy policy, which releases only {known}")
        return self.mechanisms[what].release(what, value, rng=rng)
