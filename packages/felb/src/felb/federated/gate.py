"""The gate: the one function through which anything leaves a client.

In this order: a request that was answered before gets the same response; values must be finite; without a privacy plan,
disclosure rules hide what too few records have; noise is added by the mechanism of the privacy plan, which refuses a
value without a bound; the accountant charges all values of the response or none; the outbound log is written; the
response is kept. Nothing has left until all of it is done.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import FederationError, InputError, PrivacyError
from felb.federated.journal import SUFFIX, digest, read_entry, states_from_arrays, states_to_arrays, write_entry
from felb.federated.protocol import Release, Request, Update
from felb.privacy.accounting import UPLOADS, Accountant, Charge, Cost
from felb.privacy.mechanisms import Mechanism, NoNoise
from felb.privacy.outbound_log import OutboundRecord
from felb.records import clear_leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.federated.journal import Journal
    from felb.federated.protocol import Algorithm, Values
    from felb.federated.tasks import Expected, Output
    from felb.privacy.disclosure import Disclosure
    from felb.privacy.spec import PrivacyPlan

    Key = tuple[int, str]


# -- The stored responses of one client with their privacy costs: a repeated request gets the same bits again --------
#
# A repeated request must not be answered anew: noise that is drawn twice protects less, and the step would be taken
# twice. A response is kept once, under its round and the digest of its request, together with what it cost and the
# client's state after it. So there is no moment at which a release is charged and lost, or kept and not charged: until
# the entry is there nothing has left, and afterwards the request is answered from it.

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

    def keep(self, request: Request, values: Values, states: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Keep what was released, and the states after it."""
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

    def states_before(self, number: int) -> Mapping[str, Any]:
        """Return the states from which a round is played; none for a client that has not played before it."""
        files = [(_round_of(path), path) for path in _files(self.folder)]
        lost = bool(files) and 0 < number <= files[0][0]
        for _, path in reversed([entry for entry in files if entry[0] < number]):
            stored = self._load(path)
            if stored is not None and stored.state is not None:
                return states_from_arrays(self._state_type, stored.state)
            lost = lost or stored is not None
        if lost:
            raise FederationError(f"round {number} is too long ago: its state is no longer kept; start a new run")
        return {}

    def keep(self, request: Request, values: Values, states: Mapping[str, Any] | None = None) -> None:
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
        parts = states_to_arrays(states) if kept and states is not None else {}
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
                Charge.of(row["run"], number, row["what"], arrays[_VALUE + row["what"]], Cost.from_json(row["cost"]))
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


@dataclass(frozen=True, slots=True)
class Gate:
    """The exit of one client.

    Parameters
    ----------
    client : name of the client whose exit this is
    write : takes the record of every array that leaves; an engine passes the client's own log
    mechanism : what is done to a value before it leaves, and what that costs
    accountant : adds up the costs; refuses what is unprotected or exceeds the agreed total, and then nothing is sent
    run : name of the run, so that a round that is played again with the same response is charged once
    plan : noise that is calibrated to each value by the bound that comes with it, in place of `mechanism`; a value
        without a bound does not leave
    responses : what was released for earlier requests of this run, and is released again for the same ones
    disclosure : rules for what leaves without a privacy plan; no rules if None
    """

    client: str
    write: Callable[[OutboundRecord], None]
    mechanism: Mechanism = field(default_factory=NoNoise)
    accountant: Accountant | None = None
    run: str = ""
    plan: PrivacyPlan | None = None
    responses: Responses | None = None
    disclosure: Disclosure | None = None

    @property
    def least(self) -> int:
        """How many records must make a number if it is to leave; under a privacy plan noise protects it instead."""
        return 1 if self.disclosure is None or self.plan is not None else self.disclosure.min_support

    @classmethod
    def private(
        cls, client: str, write: Callable[[OutboundRecord], None], *, plan: PrivacyPlan, responses: Responses
    ) -> Gate:
        """Make the exit of a client under a privacy plan."""
        return cls(client, write, accountant=responses.accountant, plan=plan, responses=responses)

    def find(self, request: Request) -> Release | None:
        """Return what was released for this very request, if it was."""
        known = None if self.responses is None else self.responses.find(request)
        return None if known is None else Release(known)

    def release(
        self,
        update: Update,
        request: Request,
        declared: Expected,
        *,
        rng: np.random.Generator,
        states: Mapping[str, Any] | None = None,
    ) -> Release:
        """Turn a private update into a release.

        Parameters
        ----------
        update, request : what the tasks computed, and what was asked
        declared : the arrays that the algorithm declares for the request; no other leaves
        rng : randomness of noise
        states : the client's own after the update, kept with the response
        """
        found = self.find(request)
        if found is not None:
            return found
        undeclared = update.values.keys() ^ declared.keys()
        if undeclared:
            raise FederationError(
                f"{self.client}: task {request.task!r} tells {sorted(update.values)} and declares {sorted(declared)}; "
                "nothing was sent"
            )
        for name, value in update.values.items():
            if np.asarray(value).dtype.kind == "f" and not np.isfinite(value).all():
                raise FederationError(
                    f"{self.client}: {name} of task {request.task!r} holds NaN or infinity; nothing was sent. "
                    "Try a smaller l2 or dtype='float64'"
                )
        mechanisms = {name: self._mechanism(name, update) for name in update.values}
        released = {
            name: mechanisms[name].release(name, self._disclosed(name, update, declared[name][0]), rng=rng)
            for name in update.values
        }
        total = None
        if self.accountant is not None:
            # All of the response or nothing: a refusal must come before anything was told.
            self.accountant.charge(
                *(Charge.of(self.run, request.round, name, value, cost) for name, (value, cost) in released.items())
            )
            total = self.accountant.total()
        tasks = {part.lane: part.task for part in request.parts}
        for name, (value, cost) in released.items():
            self.write(
                OutboundRecord(
                    client=self.client,
                    round=request.round,
                    task=tasks[name.rpartition(".")[0]],
                    what=name,
                    shape=value.shape,
                    dtype=value.dtype.name,
                    bytes=value.nbytes,
                    mechanism=mechanisms[name].name,
                    cost=cost,
                    total=total,
                )
            )
        release = Release({name: value for name, (value, _) in released.items()})
        if self.responses is not None:
            self.responses.keep(request, release.values, states)
        return release

    def _disclosed(self, name: str, update: Update, output: Output) -> NDArray[Any]:
        """Return a value as the disclosure rules let it leave; under a privacy plan noise protects it instead."""
        value = np.asarray(update.values[name])
        if self.disclosure is None or self.plan is not None:
            return value
        if output.made_of == "counted":
            return self.disclosure.hide_counts(value, update.n_records)
        if output.made_of == "all":
            return self.disclosure.hide_few(value, np.asarray(update.n_records))
        records = update.supports.get(name)
        if output.made_of is None or (self.least > 1 and records is None):
            raise FederationError(
                f"{self.client}: how many records make {name} is not declared, so no disclosure rule protects it; "
                "nothing was sent"
            )
        if records is None:
            return value
        assert records.shape == value.shape[: output.axes], f"{name} has another number of axes than is declared"
        return self.disclosure.hide_few(value, records)

    def _mechanism(self, name: str, update: Update) -> Mechanism:
        if self.plan is None:
            return self.mechanism
        what = name.rpartition(".")[2]
        if self.plan.uploads is not None and what == UPLOADS:
            return self.plan.upload_mechanism()
        if name not in update.record_sums or self.plan.uploads is not None:
            raise PrivacyError(
                f"{self.client}: how much one {self.plan.unit} can change {name} is not bounded, so no noise protects "
                "it; nothing was sent"
            )
        return self.plan.mechanism_for(what, update.record_sums[name])


def client_gate(
    name: str,
    algorithm: Algorithm,
    write: Callable[[OutboundRecord], None],
    *,
    responses: Callable[[str], Responses] | None = None,
    mechanism: Mechanism | None = None,
    secure: bool = False,
) -> Gate:
    """Make the exit that an algorithm asks for: as it is, with noise for a study, or under its privacy plan.

    Parameters
    ----------
    name : of the client
    write : takes the record of every array that leaves
    responses : gives the client's responses in this run; new ones if not given
    mechanism : noise for studies, where the algorithm is not private
    secure : what leaves is masked, so that only the sum over clients can be read; distributed noise needs it
    """
    plan = algorithm.privacy
    if plan is None:
        return Gate(name, write) if mechanism is None else Gate(name, write, mechanism)
    if mechanism is not None:
        raise PrivacyError("a private algorithm brings its own noise; leave out the mechanism")
    if plan.distributed and not secure:
        raise PrivacyError(
            "each client adds a share of distributed noise, which protects in a secure sum only; use secure=True, or "
            "noise='client'",
            parameter="secure",
        )
    kept = Responses(plan.accountant()) if responses is None else responses(name)
    return Gate.private(name, write, plan=plan, responses=kept)


def check_resumable(
    algorithm: Algorithm, journal: Journal | None, responses: Callable[[str], Responses] | None
) -> None:
    """Raise if a private run was interrupted and what it has spent is not known."""
    if algorithm.privacy is not None and responses is None and journal is not None and journal.next_round > 0:
        raise PrivacyError(
            "the privacy budget that the clients have spent before the interruption is not known; give the responses "
            "of the run, or start it again"
        )
