"""The relaxed factorization: non-negative U and V that minimise ½‖A − UV‖² over all clients.

Hierarchical alternating least squares (Cichocki, Phan). Clients sweep over their rows U_i with V held and send U_iᵀA_i
and U_iᵀU_i; from their sums the server sweeps over V exactly as if it had all rows.

Rows with unknown cells are swept over their known ones, and in U_iᵀA_i their unknown cells stand at what U_i V says, in
[0, 1]: expectation maximisation, in which the server's step stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, required
from felb.linalg.filling import add_filled, sweep_known_into
from felb.linalg.fixed import fixed_statistics, from_squares, in_units, units_of
from felb.linalg.passes import factor_step, row_pass, squared_loss
from felb.optim.steps import HalsStep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix

SWEEP = "sweep"
SWEEPS = 2
FIRST_ROWS = 0.1
"""Entries of U to start from."""


def swept_rows(state: ClientState | None, shard: BinaryMatrix, V: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the client's relaxed rows after some sweeps with V held; each depends on its own row of the data only."""
    U = None if state is None else state.relaxed
    if U is None:
        U = np.full((len(shard), len(V)), FIRST_ROWS, dtype=np.float32)
    Vt = np.ascontiguousarray(V.T)
    swept = row_pass(shard, U, Vt, rule=HalsStep(SWEEPS)).U
    if shard.unknown is not None:
        sweep_known_into(swept, shard, U, Vt, sweeps=SWEEPS)
    return swept


def sweep_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """AᵀU, UᵀU and Σu for the swept rows, in units that V implies; rounded row by row, so that their sums are exact.

    `filled` are the squares that unknown cells add to those of A.
    """
    V = np.asarray(broadcast.values["V"])
    U = swept_rows(state, shard, V)
    units = units_of(V)
    rows = in_units(U, units)
    AtU, UtU, sums = fixed_statistics(shard, rows)
    filled = 0
    if shard.unknown is not None:
        AtU, filled = add_filled(AtU, shard.unknown, rows, V=V, units=units)
    update = {"AtU": AtU, "UtU": UtU, "sums": sums, "ones": np.asarray(shard.nnz), "filled": np.asarray(filled)}
    return ClientState(broadcast.round, relaxed=U), Update(update)


@dataclass(frozen=True, slots=True)
class RelaxedState:
    """V, and the statistics it was found from."""

    round: int
    V: NDArray[np.float32]
    AtU: NDArray[np.float64] | None = None
    UtU: NDArray[np.float64] | None = None
    sums: NDArray[np.float64] | None = None
    loss: float = np.nan


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Alternate sweeps at the clients and at the server.

    Parameters
    ----------
    rounds : how often
    memory : share of the statistics of earlier rounds in the ones V is found from; 0 where all clients play every
        round, about ½ where a sample of them does
    """

    rounds: int = 20
    memory: float = 0.0
    name: str = "relaxed"
    state_type: type[Any] = RelaxedState

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"the relaxed phase needs at least one round, got {self.rounds}")
        check_memory(self.memory)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Sweeps over the rows."""
        return {SWEEP: sweep_task}

    def start(self, known: Known, seed: int) -> RelaxedState:  # noqa: ARG002
        """Start from a relaxed V, or from a Boolean one."""
        V = known.relaxed if known.relaxed is not None else required(known.components, "a V")
        return RelaxedState(0, np.asarray(V, dtype=np.float32))

    def broadcast(self, state: RelaxedState) -> Broadcast | None:
        """Ask for the statistics of swept rows."""
        return None if state.round == self.rounds else Broadcast(SWEEP, state.round, {"V": state.V})

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: RelaxedState) -> RelaxedState:
        """Sweep over V with the summed statistics."""
        units = units_of(state.V)
        old = state.AtU, state.UtU, state.sums
        # Means over clients where statistics of different samples are mixed; units are powers of two and lose nothing.
        share = n_clients if self.memory else 1
        new = (
            total["AtU"] * units / share,
            total["UtU"] * (units[:, None] * units) / share,
            total["sums"] * units / share,
        )
        AtU, UtU, sums = (
            b if a is None or not self.memory else self.memory * a + (1 - self.memory) * b
            for a, b in zip(old, new, strict=True)
        )
        Vt = np.ascontiguousarray(state.V.T, dtype=np.float64)
        squares = int(total["ones"]) + from_squares(total["filled"])
        loss = squared_loss(squares, new[0] * share, new[1] * share, Vt)
        V = np.ascontiguousarray(factor_step(Vt, AtU, UtU, rule=HalsStep(SWEEPS)).T.astype(np.float32))
        return RelaxedState(state.round + 1, V, AtU, UtU, sums, loss)

    def record(self, state: RelaxedState) -> Mapping[str, float]:
        """‖A − UV‖² of the clients' sweeps, A with its unknown cells filled."""
        return {"loss": state.loss}

    def result(self, state: RelaxedState) -> Known:
        """Return V and the typical value Σu²/Σu of each column of U; a column of zeros gets 1."""
        scales = np.ones(len(state.V))
        if state.UtU is not None and state.sums is not None:
            alive = state.sums > 0
            scales[alive] = np.diagonal(state.UtU)[alive] / state.sums[alive]
        return Known(relaxed=state.V, scales=scales)


def check_memory(memory: float) -> None:
    """Refuse a share of earlier rounds outside [0, 1)."""
    if not 0 <= memory < 1:
        raise InputError(f"memory={memory}: the share of earlier rounds lies in [0, 1)")
