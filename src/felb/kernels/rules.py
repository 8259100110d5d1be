"""How kernels are told in which way the rows of a factor are to move while the other factor is held.

A rule sees, for row u of U, the gathered row a = Σ_{j in row} V[:, j] and the Gram matrix G = V Vᵀ, that is all that
½‖A − U V‖² knows about u. The rows of Vᵀ move by the same rules with a = (AᵀU)_j and G = UᵀU. The rules are stated in
`felb.optim.steps`; `felb.kernels.compiled_passes` states each once more in vector code and takes its numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRADIENT, MULTIPLICATIVE, HALS, COMPONENT = 0.0, 1.0, 2.0, 3.0
"""The rules, as the kernels know them."""

SMALLEST_DENOMINATOR = 1e-12
"""Denominators of multiplicative steps are at least this."""

SMALLEST_SHARE, SMALLEST_SUM = 1e-6, 1e-4
"""Sums Σ_d |G_cd| that decide the step of a component are at least this share of the largest, and this in all."""

NEGLIGIBLE = 1e-15
"""Entries of a factor that are no larger after the proximal operator are 0."""


class Numbers(NamedTuple):
    """A rule as numbers.

    With step size η, the row x after the gradient step becomes, for t = 1 where x > ½, else 0, and d = x − t,

        y = t + sign(d) · max(|d| − ηκ, floor) / (1 + ηλ), clipped to [0, upper],   then   (y + ηγv̂) / (1 + ηγ).

    With `own`, coordinate l is drawn with γ√(G_ll tr(G)/k) in place of γ. The steps of `COMPONENT` are
    η_l = step / Σ_d |G_ld|.
    """

    code: float
    beta: float = 0.0
    lowest: float = 0.0
    step: float = 0.0  # or the number of sweeps
    kappa: float = 0.0
    lam: float = 0.0
    floor: float = 0.0
    upper: float = 0.0
    gamma: float = 0.0
    own: float = 0.0


class Rule(Protocol):
    """A way to move; NumPy does what `apply` says, kernels do what `numbers` says, and both must agree."""

    @property
    def lowest(self) -> float:
        """What points are raised to before they move."""
        ...

    def apply(
        self, u: NDArray[Any], a: NDArray[Any], gram: NDArray[Any], target: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the rows that follow `u`, drawn towards `target` if there is one."""
        ...

    def numbers(self, beta: float, *, pulled: bool) -> Numbers | None:
        """Return the rule as kernels take it; None if they do not know it."""
        ...
