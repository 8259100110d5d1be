"""The stored responses of one client with their privacy costs: a repeated request gets the same bits again.

A repeated request must not be answered anew: noise that is drawn twice protects less, and the step would be taken
twice. A response is kept once, under its round and the digest of its request, together with what it cost and the
client's state after it. So there is no moment at which a release is charged and lost, or kept and not charged: until
the entry is there nothing has left, and afterwards the request is answered from it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import FederationError, InputError, PrivacyError
from felb.federated.entries import SUFFIX, from_arrays, read_entry, to_arrays, write_entry
from felb.federated.wire import digest
from felb.privacy.accountant import Charge
from felb.privacy.cost import Cost
from felb.safe_files import clear_leftovers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.federated.protocol import Request, Values
    from felb.privacy.accountant import Accountant

    Key = tuple[int, str]

KEPT = 3
"""Rounds whose states a client keeps; a coordinator falls back by one round at most."""

_NAME, _VALUE, _STATE = "response", "value/", "state/"
_DAMAGED = "so it is not known what was spent; start the run again with --force"


class Responses:
    """Responses in memory.

    Parameters
    ----------
    accountant : adds up what they cost; None where nothing is protected
    """

    def __init__(self, accountant: Accountant | None = None) -> None:
        self.accountant = accountant
        self._values: dict[Key, Values] = {}

    def find(self, request: Request) -> Values | None:
        """Return what was released for this very request, if it was."""
        return self._values.get((request.round, digest(request)))

    def keep(self, request: Request, values: Values, state: Any = None) -> None:  # noqa: ARG002
        """Keep what was released, and the state after it."""
        key = request.round, digest(request)
        if key in self._values:
            raise PrivacyError(
                f"task {request.task!r} of round {request.round} was answered already; another response "
                "would cost privacy budget again"
            )
        self._values[key] = values

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True)
class _Stored:
    key: Key
    values: Values
    state: Mapping[str, NDArray[Any]] | None


class StoredResponses(Responses):
    """Responses on disk, one entry each; what is there was charged before and is charged again when they are opened.

    Parameters
    ----------
    folder : where they are kept
    accountant : adds up what they cost; None where nothing can be added up
    state_type : dataclass of the client's state; states are not kept without it
    charged : privacy was guaranteed, so no response is ever deleted; otherwise those of the last rounds are kept
    """

    def __init__(
        self,
        folder: Path,
        accountant: Accountant | None,
        *,
        state_type: type[Any] | None = None,
        charged: bool = True,
    ) -> None:
        super().__init__(accountant)
        self.folder, self._state_type, self._charged = folder, state_type, charged
        self._latest: _Stored | None = None
        folder.mkdir(parents=True, exist_ok=True)
        clear_leftovers(folder)
        for path in _files(folder):
            self._open(path)

    def find(self, request: Request) -> Values | None:
        """Return what was released for this very request, if it was."""
        path = self._path((request.round, digest(request)))
        stored = self._load(path) if path.is_file() else None
        return None if stored is None else stored.values

    def state_before(self, number: int) -> Any:
        """Return the state from which a round is played; None for a client that has not played before it."""
        files = [(_round_of(path), path) for path in _files(self.folder)]
        lost = bool(files) and 0 < number <= files[0][0]
        for _, path in reversed([entry for entry in files if entry[0] < number]):
            stored = self._load(path)
            if stored is not None and stored.state is not None:
                return from_arrays(self._state_type, stored.state) if stored.state else None
            lost = lost or stored is not None
        if lost:
            raise FederationError(f"round {number} is too long ago: its state is no longer kept; start a new run")
        return None

    def keep(self, request: Request, values: Values, state: Any = None) -> None:
        """Keep a response; states of later rounds, on a course the coordinator has left, and old ones are forgotten."""
        key = request.round, digest(request)
        if self._charged and self._path(key).is_file():
            raise PrivacyError(
                f"task {request.task!r} of round {request.round} was answered already; another response "
                "would cost privacy budget again"
            )
        entries = () if self.accountant is None else self.accountant.entries
        charged = [
            {"run": entry.run, "what": entry.what, "cost": entry.cost.to_json()}
            for entry in entries
            if entry.round == request.round and entry.what in values
        ]
        header = {"round": request.round, "digest": key[1], "task": request.task}
        arrays = {f"{_VALUE}{name}": np.asarray(value) for name, value in values.items()}
        kept = self._state_type is not None
        parts = to_arrays(state) if kept and state is not None else {}
        arrays |= {f"{_STATE}{name}": array for name, array in parts.items()}
        write_entry(self._path(key), {**header, "spec": self._spec(), "charged": charged, "state": kept}, arrays)
        self._latest = _Stored(key, values, parts if kept else None)
        for path in _files(self.folder):
            if path != self._path(key) and not key[0] - KEPT < _round_of(path) < key[0]:
                self._forget(path)

    def __len__(self) -> int:
        return len(_files(self.folder))

    def _forget(self, path: Path) -> None:
        """Delete a response; where it was charged, only the state with it."""
        if not self._charged:
            path.unlink(missing_ok=True)
            return
        header, arrays = read_entry(path, advice=_DAMAGED)
        if header["state"]:
            rest = {name: array for name, array in arrays.items() if not name.startswith(_STATE)}
            write_entry(path, {**header, "state": False}, rest)

    def _path(self, key: Key) -> Path:
        return self.folder / f"{_NAME}-{key[0]:07}-{key[1][:16]}{SUFFIX}"

    def _load(self, path: Path) -> _Stored | None:
        if self._latest is not None and path == self._path(self._latest.key):
            return self._latest
        try:
            header, arrays = read_entry(path, advice=_DAMAGED)
        except InputError as error:
            if self._charged:
                raise
            warnings.warn(f"{path} is damaged ({error.__cause__}) and left out", RuntimeWarning, stacklevel=2)
            path.unlink(missing_ok=True)
            return None
        values = {name.removeprefix(_VALUE): a for name, a in arrays.items() if name.startswith(_VALUE)}
        state = {name.removeprefix(_STATE): a for name, a in arrays.items() if name.startswith(_STATE)}
        key = int(header["round"]), str(header["digest"])
        return _Stored(key, values, state if header["state"] else None)

    def _open(self, path: Path) -> None:
        """Charge what a stored response has cost."""
        if not self._charged:
            return
        header, arrays = read_entry(path, advice=_DAMAGED)
        try:
            spec, number = header["spec"], int(header["round"])
            charges = [
                Charge(row["run"], number, row["what"], arrays[_VALUE + row["what"]], Cost.from_json(row["cost"]))
                for row in header["charged"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is damaged ({error}); {_DAMAGED}") from error
        if spec != self._spec():
            raise PrivacyError(f"{path} was agreed as {spec}, not as {self._spec()}; start a new run")
        if self.accountant is not None:
            self.accountant.charge(*charges)

    def _spec(self) -> dict[str, Any] | None:
        accountant = self.accountant
        if accountant is None:
            return None
        return {name: getattr(accountant, name) for name in ("epsilon", "delta", "unit", "neighbours")}


def answered_rounds(folder: Path) -> set[int]:
    """Return the rounds of the stored responses of a client."""
    return {_round_of(path) for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_NAME}-*{SUFFIX}"))


def _round_of(path: Path) -> int:
    return int(path.name.split("-")[1])
