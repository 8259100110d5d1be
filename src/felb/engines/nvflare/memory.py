"""A site's memory of a run: the states and answers of its last rounds, on its own disk.

A question that comes again gets the very bytes that were sent before: the step is not taken twice, and noise is not
drawn twice, which would halve its protection. One file a round, complete or not there at all.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.atomic import replacing
from felb.errors import FederationError
from felb.federated.state import from_arrays, to_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

KEPT = 3
"""Rounds remembered; the coordinator falls back by one round at most when its last checkpoint is damaged."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """One round that was played: the question's digest, the state after it, and what was released."""

    round: int
    digest: str
    state: Any
    values: Mapping[str, NDArray[Any]]


class Memory:
    """The rounds of one run in a folder."""

    def __init__(self, folder: Path, state_type: type[Any]) -> None:
        self.folder = folder
        self._state_type = state_type
        self._latest: Remembered | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for partial in folder.glob(".*.partial"):
            partial.unlink(missing_ok=True)

    def answered(self, round_: int, digest: str) -> Mapping[str, NDArray[Any]] | None:
        """Return what was released for this very question, if it was."""
        found = self._load(round_)
        return found.values if found is not None and found.digest == digest else None

    def before(self, round_: int) -> Any:
        """Return the state from which a round is played; None for a site that has not played before it."""
        rounds = self._rounds()
        earlier = [number for number in rounds if number < round_]
        while earlier:
            found = self._load(earlier.pop())
            if found is not None:
                return found.state
        if rounds and min(rounds) > 0 and round_ > 0 and round_ <= min(rounds):
            raise FederationError(f"round {round_} is too long ago: this site remembers it no more; start a new run")
        return None

    def remember(self, played: Remembered) -> None:
        """Keep a round; later ones, played on a course the coordinator has left, and old ones are forgotten."""
        arrays = {f"state/{name}": value for name, value in to_arrays(played.state).items()}
        arrays |= {f"value/{name}": np.asarray(value) for name, value in played.values.items()}
        meta = json.dumps({"round": played.round, "digest": played.digest}).encode()
        arrays["meta"] = np.frombuffer(meta, dtype=np.uint8)
        with replacing(self._path(played.round)) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        self._latest = played
        for number in self._rounds():
            if number > played.round or number <= played.round - KEPT:
                self._path(number).unlink(missing_ok=True)

    def _path(self, round_: int) -> Path:
        return self.folder / f"round-{round_:07}.npz"

    def _rounds(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("round-")) for path in self.folder.glob("round-*.npz"))

    def _load(self, round_: int) -> Remembered | None:
        if self._latest is not None and self._latest.round == round_:
            return self._latest
        path = self._path(round_)
        if not path.is_file():
            return None
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            meta = json.loads(arrays["meta"].tobytes())
            state = from_arrays(self._state_type, _under(arrays, "state/"))
            return Remembered(meta["round"], meta["digest"], state, _under(arrays, "value/"))
        except Exception as error:  # what the readers of ZIP, NumPy and JSON raise on damage is nearly anything
            warnings.warn(f"{path} is damaged ({error}) and left out", RuntimeWarning, stacklevel=2)
            path.unlink(missing_ok=True)
            return None


def _under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
