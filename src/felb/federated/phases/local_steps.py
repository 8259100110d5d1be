"""Local steps between two averages of V: what FedProx, SCAFFOLD and ProxSkip have in common.

All minimise the relaxed objective of FELB, Σ_i F_i(U_i, V) + R(U_i) + R(V), F_i = ½‖A_i − U_iV‖², U_i and V in [0, 1].
A local step moves the client's rows, then V by the gradient ∇F_i = U_iᵀU_iV − U_iᵀA_i with the step size 1/L_i,
L_i = ‖U_iᵀU_i‖. The methods differ in what they add to ∇F_i, and in what the server does to the average. Here V is kept
transposed at the clients (features × components), as in `felb.optim.palm`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import Known, required
from felb.linalg.passes import row_pass, squared_loss
from felb.metrics import DECIDED, integrality_gap
from felb.optim.checks import check_weights
from felb.optim.schedules import Geometric
from felb.optim.steps import Lipschitz, Penalty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.federated.phases.base import ClientState
    from felb.linalg.binary import BinaryMatrix

    Array = NDArray[np.floating[Any]]

RULE = Lipschitz()


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

    kappa: float
    lam: float
    rate: float
    local_steps: int
    max_rounds: int
    tol: float

    def __post_init__(self) -> None:
        check_weights(
            l1=(self.kappa, 0),
            l2=(self.lam, 0),
            l2_rate=(self.rate, 0),
            local_steps=(self.local_steps, 1),
            max_iter=(self.max_rounds, 1),
            tol=(self.tol, 0),
        )

    def lam_at(self, round_: int) -> float:
        """λ_t in a round."""
        return Geometric(self.lam, self.rate)(round_)


@dataclass(frozen=True, slots=True)
class Rows:
    """A client's rows after a step, and all that a step of V needs of them."""

    U: Array
    AtU: Array
    UtU: Array

    @classmethod
    def first(cls, state: ClientState | None, shard: BinaryMatrix, Vt: Array) -> Array:
        """Return the rows to go on from: those of the client's last round, or AVᵀ ⊘ 1VVᵀ."""
        return RULE.first_rows(shard, Vt) if state is None or state.relaxed is None else state.relaxed

    @classmethod
    def step(cls, shard: BinaryMatrix, U: Array, Vt: Array, *, kappa: float, lam: float) -> Rows:
        """U ← prox(U − ν(UVVᵀ − AVᵀ)), ν = 1/‖VVᵀ‖."""
        gram = Vt.T @ Vt
        step = RULE.step(gram, Penalty(kappa, lam), beta=0.0)
        return cls(*row_pass(shard, U, Vt, rule=step, gram=gram))

    @property
    def step_size(self) -> float:
        """1/L_i."""
        return RULE.step_size(self.UtU, beta=0.0)

    def gradient(self, Vt: Array) -> Array:
        """∇F_i at V."""
        return np.asarray(Vt @ self.UtU - self.AtU)

    def loss(self, shard: BinaryMatrix, Vt: Array) -> NDArray[np.float64]:
        """‖A − UV‖²."""
        return np.asarray(squared_loss(shard.nnz, self.AtU, self.UtU, Vt))


@dataclass(frozen=True, slots=True)
class AveragingState:
    """Public: the round to play, V, L = ΣL_i of the last round, Σc_i for SCAFFOLD, and figures of the last round."""

    round: int
    seed: int
    V: NDArray[np.float32]
    curvature: float = 0.0
    control: NDArray[np.float64] | None = None
    loss: float = np.nan
    change: float = np.inf


@dataclass(frozen=True, slots=True)
class Averaging(ABC):
    """A phase of rounds of local steps; a subclass says what clients do and what the server makes of the sums."""

    schedule: Schedule
    state_type: ClassVar[type[Any]] = AveragingState

    @property
    @abstractmethod
    def name(self) -> str:
        """The word for this phase and its task."""

    @abstractmethod
    def local(
        self, state: ClientState | None, shard: BinaryMatrix, broadcast: Broadcast
    ) -> tuple[ClientState, Mapping[str, NDArray[Any]]]:
        """Play one round at a client."""

    @abstractmethod
    def average(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: AveragingState) -> Array:
        """Return the next V, components × features, from the summed updates."""

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Local steps."""
        return {self.name: self._task}

    def _task(
        self,
        state: ClientState | None,
        shard: BinaryMatrix,
        broadcast: Broadcast,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> tuple[ClientState, Update]:
        state, values = self.local(state, shard, broadcast)
        return state, Update(values)

    def start(self, known: Known, seed: int) -> AveragingState:
        """Start from a relaxed V, in the box."""
        V = np.clip(required(known.relaxed, "a relaxed V"), 0, 1)
        return AveragingState(0, seed, np.asarray(V, dtype=np.float32))

    def broadcast(self, state: AveragingState) -> Broadcast | None:
        """Ask for local steps until V has settled or the rounds are over."""
        over = state.round == self.schedule.max_rounds or self._settled(state)
        return None if over else Broadcast(self.name, state.round, self.told(state))

    def told(self, state: AveragingState) -> dict[str, NDArray[Any]]:
        """Return what clients are told."""
        return {"V": state.V}

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: AveragingState) -> AveragingState:
        """Average, and keep what the next round needs."""
        V = np.asarray(self.average(total, n_clients, state), dtype=np.float32)
        return AveragingState(
            round=state.round + 1,
            seed=state.seed,
            V=V,
            curvature=self.next_curvature(total, state),
            control=self.next_control(total, state),
            loss=float(total["loss"]),
            change=float(np.abs(V - state.V).max(initial=0.0)),
        )

    def next_control(self, total: Mapping[str, NDArray[Any]], state: AveragingState) -> NDArray[np.float64] | None:  # noqa: ARG002
        """Return the server's control variate; most have none."""
        return None

    def next_curvature(self, total: Mapping[str, NDArray[Any]], state: AveragingState) -> float:  # noqa: ARG002
        """Return ΣL_i."""
        return float(total["curvature"])

    def record(self, state: AveragingState) -> Mapping[str, float]:
        """Summed loss, integrality gap and largest change of V."""
        return {
            "loss": state.loss,
            "integrality_gap": integrality_gap(state.V),
            "change": state.change,
            "lam": self.schedule.lam_at(state.round - 1),
        }

    def result(self, state: AveragingState) -> Known:
        """Return V cut at ½."""
        gap = integrality_gap(state.V)
        return Known(relaxed=state.V, components=state.V > 0.5, gap=gap, settled=gap <= DECIDED)

    def _settled(self, state: AveragingState) -> bool:
        return state.change <= self.schedule.tol and integrality_gap(state.V) <= self.schedule.tol
