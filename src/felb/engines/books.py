"""Books on disk: what a client of a private run has answered and spent, so that a resumed run charges nothing twice.

One file a round holds the answer and its cost together, complete or not there at all. So there is no moment at which a
release is charged and lost, or kept and not charged: until the file is there nothing has left, and afterwards the round
is answered from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.atomic import replacing
from felb.errors import InputError, PrivacyError
from felb.federated.gate import Book
from felb.privacy.cost import Cost
from felb.privacy.ledger import Charge

if TYPE_CHECKING:
    from pathlib import Path

    from felb.federated.messages import Values
    from felb.privacy.ledger import Ledger
    from felb.privacy.plan import PrivacyPlan

_META, _VALUE = "meta", "value/"


def open_book(folder: Path, plan: PrivacyPlan) -> Book:
    """Open the book that one client keeps in `folder`; what it holds was charged before and is charged again."""
    ledger = plan.ledger()
    return Book(ledger, StoredAnswers(folder, ledger))


def answered_rounds(folder: Path) -> set[int]:
    """Return the rounds that a client's book in `folder` holds."""
    return {int(path.stem.removeprefix("round-")) for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("round-*.npz"))


class StoredAnswers(MutableMapping[tuple[int, str], "Values"]):
    """Answers by round and task, each in a file of its own with what it cost according to `ledger`, if there is one."""

    def __init__(self, folder: Path, ledger: Ledger | None) -> None:
        self._folder, self._ledger = folder, ledger
        self._answers: dict[tuple[int, str], Values] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for path in _files(folder):
            self._load(path)

    def __getitem__(self, asked: tuple[int, str]) -> Values:
        return self._answers[asked]

    def __setitem__(self, asked: tuple[int, str], values: Values) -> None:
        if asked in self._answers:
            raise PrivacyError(f"task {asked[1]!r} of round {asked[0]} was answered already; another answer costs anew")
        round_, task = asked
        charged = [
            {"run": entry.run, "what": entry.what, "cost": entry.cost.to_json()}
            for entry in (() if self._ledger is None else self._ledger.entries)
            if entry.round == round_ and entry.what in values
        ]
        meta = {"round": round_, "task": task, "agreed": self._agreed(), "charged": charged}
        arrays = {f"{_VALUE}{name}": np.asarray(value) for name, value in values.items()}
        arrays[_META] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
        with replacing(self._folder / f"round-{round_:07}.npz") as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        self._answers[asked] = values

    def __delitem__(self, asked: tuple[int, str]) -> None:
        raise PrivacyError("what was answered has left and cannot be forgotten")

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def _agreed(self) -> dict[str, Any] | None:
        ledger = self._ledger
        return (
            None
            if ledger is None
            else {
                "epsilon": ledger.epsilon,
                "delta": ledger.delta,
                "unit": ledger.unit,
                "neighbours": ledger.neighbours,
            }
        )

    def _load(self, path: Path) -> None:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            meta = json.loads(arrays.pop(_META).tobytes())
            agreed, asked = meta["agreed"], (int(meta["round"]), str(meta["task"]))
            values = {name.removeprefix(_VALUE): value for name, value in arrays.items()}
            charges = [
                Charge(row["run"], asked[0], row["what"], values[row["what"]], Cost.from_json(row["cost"]))
                for row in meta["charged"]
            ]
        except Exception as error:  # what the readers of ZIP, NumPy and JSON raise on damage is nearly anything
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise InputError(
                f"{path} is damaged ({reason}), so it is not known what was spent; start the run anew with --force"
            ) from error
        if agreed != self._agreed():
            raise PrivacyError(f"{path} was agreed as {agreed}, not as {self._agreed()}; start the run anew")
        if self._ledger is not None:
            self._ledger.charge(*charges)
        self._answers[asked] = values
