"""Local steps between two averages of V: shared code of FedProx, SCAFFOLD and ProxSkip.

All minimise the relaxed objective of FELB, Σ_i F_i(U_i, V) + R(U_i) + R(V), F_i = ½‖A_i − U_iV‖², U_i and V in [0, 1].
A local step moves the client's rows, then V by the gradient ∇F_i = U_iᵀU_iV − U_iᵀA_i with the step size 1/L_i,
L_i = ‖U_iᵀU_i‖. The methods differ in what they add to ∇F_i, and in what the server does to the average. Here V is kept
transposed at the clients (features × components), as in `felb.optim.palm`.

What is told lies on a grid of powers of two, so that no sum depends on the order of clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.protocol import Request
from felb.federated.steps.known import Known, required
from felb.kernels.fixed_point import SKETCH_BITS, WEIGHTED_BITS, on_grid
from felb.kernels.passes import row_pass, squared_loss
from felb.metrics import DECIDED, integrality_gap
from felb.optim.checks import check_local_steps, check_weights
from felb.optim.schedules import Geometric
from felb.optim.steps import Lipschitz, Penalty

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Sums
    from felb.federated.steps.known import ClientState

    Array = NDArray[np.floating[Any]]

RULE = Lipschitz()


# -- the client ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """A client's rows after a step, and all that a step of V needs of them."""

    U: Array
    AtU: Array
    UtU: Array

    @classmethod
    def step(cls, shard: BinaryMatrix, U: Array, Vt: Array, penalty: Penalty) -> Rows:
        """U ← prox(U − ν(UVVᵀ − AVᵀ)), ν = 1/‖VVᵀ‖."""
        gram = Vt.T @ Vt
        return cls(*row_pass(shard, U, Vt, rule=RULE.step(gram, penalty, beta=0.0), gram=gram))

    @property
    def step_size(self) -> float:
        """1/L_i."""
        return RULE.step_size(self.UtU, beta=0.0)

    @property
    def curvature(self) -> NDArray[np.float64]:
        """L_i, as it is told."""
        return curvature_of(self.step_size)

    def gradient(self, Vt: Array) -> Array:
        """∇F_i at V."""
        return np.asarray(Vt @ self.UtU - self.AtU)

    def loss(self, shard: BinaryMatrix, Vt: Array) -> NDArray[np.float64]:
        """‖A − UV‖², as it is told."""
        return on_grid(np.asarray(squared_loss(shard.nnz, self.AtU, self.UtU, Vt)), SKETCH_BITS)


def curvature_of(step_size: float) -> NDArray[np.float64]:
    """Return L_i = 1/η on the grid of weighted uploads."""
    return on_grid(np.asarray(1 / step_size), WEIGHTED_BITS)


def first_rows(state: ClientState | None, shard: BinaryMatrix, Vt: Array) -> Array:
    """Return the rows to go on from: those of the client's last round, or AVᵀ ⊘ 1VVᵀ."""
    return RULE.first_rows(shard, Vt) if state is None or state.relaxed is None else state.relaxed


def penalty_in(request: Request) -> Penalty:
    """Return the penalty of a round, without a pull."""
    return Penalty(float(request.values["kappa"]), float(request.values["lam"]))


def transposed(request: Request, name: str = "V") -> Array:
    """Return an array of a request as clients keep it."""
    return np.ascontiguousarray(request.values[name].T)


# -- the server ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schedule:
    """What all three methods are told; symbols as in the paper.

    Parameters
    ----------
    kappa, lam, rate : κ, and λ_t = λ·rate^t in round t
    local_steps : b, steps of a client between two averages (ProxSkip: on average)
    max_rounds : rounds at most
    tol : stop when V is Boolean up to `tol` and changes by no more
    """

    kappa: float = 0.001
    lam: float = 0.1
    rate: float = 1.05
    local_steps: int = 10
    max_rounds: int = 150
    tol: float = 0.01

    def __post_init__(self) -> None:
        check_weights(
            l1=(self.kappa, 0),
            l2=(self.lam, 0),
            l2_rate=(self.rate, 0),
            max_iter=(self.max_rounds, 1),
            tol=(self.tol, 0),
        )
        check_local_steps(self.local_steps)

    def lam_at(self, t: int) -> float:
        """λ_t in a round."""
        return Geometric(self.lam, self.rate)(t)

    def request(self, task: str, t: int, V: Array, *, steps: int | None = None, **values: Any) -> Request:
        """Ask for local steps from V: b of them, unless another number is given."""
        steps = self.local_steps if steps is None else steps
        return Request(task, V=V, t=t, kappa=self.kappa, lam=self.lam_at(t), steps=steps, **values)

    def settled(self, sums: Sums, t: int, V: Array, before: Array) -> bool:
        """Report a round that has led from `before` to V, and return whether the run has converged."""
        gap, change = integrality_gap(V), float(np.abs(V - before).max(initial=0.0))
        sums.report(loss=float(sums["loss"]), integrality_gap=gap, change=change, lam=self.lam_at(t))
        return change <= self.tol and gap <= self.tol


def relaxed_start(known: Known) -> NDArray[np.float32]:
    """Return the relaxed V to start from, in the box."""
    return np.asarray(np.clip(required(known.relaxed, "a relaxed V"), 0, 1), dtype=np.float32)


def cut_at_half(V: NDArray[np.float32]) -> Known:
    """Return V with its cut at ½."""
    gap = integrality_gap(V)
    return Known(relaxed=V, components=V > 0.5, gap=gap, settled=gap <= DECIDED)
