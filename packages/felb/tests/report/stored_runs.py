"""Stored runs to report on, written as `felb simulate` writes them, without a fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb.data import planted
from felb.data.partition import dealt
from felb.federated.protocol import Outcome
from felb.kernels.assign import assign_rows
from felb.metrics import confusion
from felb.metrics.counts import History
from felb.privacy.outbound_log import OutboundLog, OutboundRecord
from felb.runs.result import Provenance, Result

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

EVIL = "<script>alert(1)</script>"
"""A name that must be shown, not run."""


@dataclass(frozen=True)
class Stored:
    """A run folder, the data beside it, and what is known about both."""

    folder: Path
    data: Path
    matrix: BinaryMatrix
    U: NDArray[np.bool_]
    result: Result


def feature_names(m: int) -> tuple[str, ...]:
    return (EVIL, 'quo"te & co', "it's, a comma", *(f"feature {i}" for i in range(3, m)))


def history_of(rounds: int) -> History:
    rows: list[dict[str, Any]] = [
        {"round": i, "task": "factor_statistics", "clients": 4, "loss": 1000.0 / (i + 1), "change": 10.0**-i}
        for i in range(rounds)
    ]
    rows += [
        {"round": rounds + i, "task": "flip_gains", "clients": 4, "loss": 300.0 - i, "flips": 5 - i} for i in range(5)
    ]
    return History([*rows, {"round": rounds + 5, "task": "assign", "clients": 4, "f1": 0.9, "errors": 7}])


def store(
    place: Path, *, k: int = 20, shape: tuple[int, int] = (400, 120), clients: int = 4, seed: int = 0, **changes: Any
) -> Stored:
    """Write a run of planted components over simulated clients, and its data beside it."""
    planted_ = planted(*shape, k, noise=0.03, heights=(0.05, 0.2), widths=(0.1, 0.2), seed=seed)
    matrix = planted_.A.with_columns(feature_names(shape[1]))
    V = planted_.V.astype(bool)
    U = assign_rows(matrix, V)
    labels = dealt(shape[0], clients, split="even", seed=seed)
    names = sorted(set(labels.tolist()))
    fields: dict[str, Any] = {
        "columns": matrix.columns,
        "clients": {name: int((labels == name).sum()) for name in names},
        "scores": confusion(matrix, U, V).scores(),
        "history": history_of(30),
        "provenance": Provenance(
            method="bmf",
            parameters={"n_components": k, "clients": clients, "split": "even", "privacy": None},
            seed=seed,
            data={
                "source": "data.felb",
                "rows": shape[0],
                "columns": shape[1],
                "ones": matrix.nnz,
                "fingerprint": matrix.fingerprint(),
            },
        ),
    }
    outcome = Outcome(V, n_iter=29, supports=U.sum(axis=0))
    result = Result(outcome, **fields | changes)
    folder = place / "run"
    folder.mkdir(parents=True)
    result.write(folder, {name: U[labels == name] for name in names})
    for name in names:
        log = OutboundLog(folder / "outbound" / f"{name}.jsonl")
        for number in range(3):
            log(
                OutboundRecord(
                    name, number, "flip_gains", "gains", (k, shape[1]), "int64", 8 * k * shape[1], "none", None
                )
            )
    data = place / "data.felb"
    matrix.save(data)
    return Stored(folder, data, matrix, U, result)
