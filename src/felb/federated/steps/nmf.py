"""NMF: non-negative U and V that minimise ½‖A − UV‖² over all clients.

Hierarchical alternating least squares (Cichocki, Phan). Clients sweep over their rows U_i with V held and send U_iᵀA_i
and U_iᵀU_i; from their sums the server sweeps over V exactly as if it had all rows.

Rows with unknown cells are swept over their known ones, and in U_iᵀA_i their unknown cells stand at what U_i V says, in
[0, 1]: expectation maximisation, in which the server's step stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError
from felb.federated.protocol import Checkpoint, Request, Sums, Update
from felb.federated.steps.known import ClientState, Known, best_so_far, required
from felb.kernels.filling import add_filled, sweep_known_into
from felb.kernels.fixed_point import fixed_statistics, from_squares, in_units, units_of
from felb.kernels.passes import factor_step, moved_rows, squared_loss
from felb.optim.steps import HalsStep

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.steps.known import Steps

FACTOR_STATISTICS = "factor_statistics"
SWEEPS = 2
FIRST_ROWS = 0.1
"""Entries of U to start from."""


def swept_rows(state: ClientState | None, shard: BinaryMatrix, V: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the client's relaxed rows after some sweeps with V held; each depends on its own row of the data only."""
    U = None if state is None else state.relaxed
    if U is None:
        U = np.full((len(shard), len(V)), FIRST_ROWS, dtype=np.float32)
    Vt = np.ascontiguousarray(V.T)
    swept = moved_rows(shard, U, Vt, rule=HalsStep(SWEEPS))
    if shard.unknown is not None:
        sweep_known_into(swept, shard, U, Vt, sweeps=SWEEPS)
    return swept


def factor_statistics_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """AᵀU, UᵀU and Σu for the swept rows, in units that V implies; rounded row by row, so that their sums are exact.

    `filled` are the squares that unknown cells add to those of A.
    """
    V = np.asarray(request.values["V"])
    U = swept_rows(state, shard, V)
    units = units_of(V)
    rows = in_units(U, units)
    AtU, UtU, sums = fixed_statistics(shard, rows)
    filled = 0
    if shard.unknown is not None:
        AtU, filled = add_filled(AtU, shard.unknown, rows, V=V, units=units)
    update = {"AtU": AtU, "UtU": UtU, "sums": sums, "ones": np.asarray(shard.nnz), "filled": np.asarray(filled)}
    return ClientState(relaxed=U), Update(update)


@dataclass(frozen=True, slots=True)
class Factor:
    """V after some rounds, and the statistics it was found from.

    Parameters
    ----------
    round : rounds played
    V : components × features
    AtU, UtU, sums : averaged statistics; `AtU` only where it is remembered
    """

    round: int
    V: NDArray[np.float32]
    AtU: NDArray[np.float64] | None = None
    UtU: NDArray[np.float64] | None = None
    sums: NDArray[np.float64] | None = None


def nmf(known: Known, rounds: int = 20, *, memory: float = 0.0) -> Steps:
    """Alternate sweeps at the clients and at the server, from a relaxed V or from a Boolean one.

    Parameters
    ----------
    rounds : how often
    memory : share of the statistics of earlier rounds in the ones V is found from; 0 where all clients play every
        round, about ½ where a sample of them does
    """
    if rounds < 1:
        raise InputError(f"NMF needs at least one round, got rounds={rounds}")
    check_memory(memory)
    V = known.relaxed if known.relaxed is not None else required(known.components, "a V")
    factor = Factor(0, np.asarray(V, dtype=np.float32))
    with best_so_far(lambda: with_scales(factor)):
        while factor.round < rounds:
            factor = yield Checkpoint(factor)
            sums = yield Request(FACTOR_STATISTICS, V=factor.V)
            factor = swept(factor, sums, memory=memory)
    return with_scales(factor)


def swept(factor: Factor, total: Sums, *, memory: float) -> Factor:
    """Sweep over V with the summed statistics; report ‖A − UV‖² of the clients' sweeps, unknown cells of A filled."""
    units = units_of(factor.V)  # powers of two, which lose nothing
    AtU, UtU, sums = total["AtU"] * units, total["UtU"] * (units[:, None] * units), total["sums"] * units
    Vt = np.ascontiguousarray(factor.V.T, dtype=np.float64)
    squares = int(total["ones"]) + from_squares(total["filled"])
    total.report(loss=squared_loss(squares, AtU, UtU, Vt))
    if memory:  # means over clients, since statistics of different samples are mixed
        AtU, UtU, sums = (
            new / total.clients if old is None else memory * old + (1 - memory) * new / total.clients
            for old, new in zip((factor.AtU, factor.UtU, factor.sums), (AtU, UtU, sums), strict=True)
        )
    V = np.ascontiguousarray(factor_step(Vt, AtU, UtU, rule=HalsStep(SWEEPS)).T.astype(np.float32))
    return Factor(factor.round + 1, V, AtU if memory else None, UtU, sums)


def with_scales(factor: Factor) -> Known:
    """Return V and the typical value Σu²/Σu of each column of U; a column of zeros gets 1."""
    scales = np.ones(len(factor.V))
    if factor.UtU is not None and factor.sums is not None:
        alive = factor.sums > 0
        scales[alive] = np.diagonal(factor.UtU)[alive] / factor.sums[alive]
    return Known(relaxed=factor.V, scales=scales)


def check_memory(memory: float) -> None:
    """Refuse a share of earlier rounds outside [0, 1)."""
    if not 0 <= memory < 1:
        raise InputError(f"memory={memory}: the share of earlier rounds must be in [0, 1)")
